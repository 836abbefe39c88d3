use ensemble_core::driver::{LADDERS_DIRECTORY, LadderFile, LadderStore, read_escalations};
use ensemble_core::event_log::{read_all, types};
use ensemble_project::Project;
use serde_json::{Map, Value, json};

use crate::context::{Context, Outcome};

const COLUMNS: [&str; 6] = ["task_id", "worker", "attempt", "phase", "reason", "escalated_at"];

/// List tasks that no worker picked up, as reported to the conductor
///
/// First the existing files `queue/reports/escalation-*.yaml`, then those of the event log
/// whose file is gone or describes a later one. Last the tasks that are being escalated now.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let project = context.project()?;
        context.spool()?;
        let mut rows = Vec::new();
        for (file, fields) in read_escalations(&project.queue)? {
            rows.push(match fields {
                Ok(mut fields) => {
                    fields.insert("file".to_owned(), file.into());
                    fields.insert("source".to_owned(), "file".into());
                    fields
                }
                Err(error) => object(&json!({
                    "file": file, "source": "file", "error": error.to_string(),
                })),
            });
        }
        let team = ensemble_app::team_log::TeamLog::open(context)?;
        for record in logged(team.path())? {
            let key = |row: &Map<String, Value>| {
                ["task_id", "attempt", "escalated_at"].map(|member| row.get(member).cloned())
            };
            if !rows.iter().any(|row| key(row) == key(&record)) {
                rows.push(record);
            }
        }
        rows.extend(running(project)?);
        print(context, &rows)
    }
}

/// The ladders that have passed their first phase: the conductor is notified of them next.
fn running(project: &Project) -> Outcome<Vec<Map<String, Value>>> {
    let all = LadderStore::new(&project.state).all()?;
    let climbs =
        |file: &LadderFile| file.state.is_open() && (file.phase > 0 || file.waits_for.is_some());
    let row = |(name, file): (String, LadderFile)| {
        object(&json!({
            "task_id": file.task, "worker": file.worker, "attempt": file.attempt,
            "message": file.message, "phase": file.phase, "reason": "not yet",
            "worker_state": file.waits_for, "file": format!("{LADDERS_DIRECTORY}/{name}"),
            "source": "ladder",
        }))
    };
    Ok(all.into_iter().filter(|(_, file)| climbs(file)).map(row).collect())
}

fn print(context: &Context, rows: &[Map<String, Value>]) -> Outcome {
    let cell = |row: &Map<String, Value>, member: &str| match row.get(member) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let cells = |row: &Map<String, Value>| {
        let place = if row.contains_key("error") { "error" } else { "file" };
        COLUMNS.iter().map(|column| cell(row, column)).chain([cell(row, place)]).collect()
    };
    let heading = ["task", "worker", "attempt", "phase", "reason", "at", "file"];
    context.out.print_list(rows, &heading, cells)
}

fn logged(logs: &std::path::Path) -> Outcome<Vec<Map<String, Value>>> {
    if !logs.is_dir() {
        return Ok(Vec::new());
    }
    let records = read_all(logs)?.filter(|record| record.kind.as_str() == types::ESCALATION);
    let row = |data: &Value| {
        let mut row = object(data);
        row.insert("source".to_owned(), "log".into());
        row
    };
    Ok(records.map(|record| row(&Value::from(record.data))).collect())
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
