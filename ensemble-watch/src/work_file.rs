//! Determines what a complete file is about from its box, its route and its content.

use ensemble_core::dropbox::CompleteFile;
use ensemble_core::message::Name;
use ensemble_reports::contract::{ContractKind, is_copy_of};

/// How the types of messages about work begin.
const REPORT_TYPES: &str = "report.";
/// The box whose files say, by their names, that an agent has read a task.
pub(crate) const ACK_BOX: &str = "ack";
pub(crate) const REPORT_BOX: &str = "reports";
pub(crate) const TASK_BOX: &str = "tasks";
/// How much of a file that cannot be read is searched for its fields, in bytes.
const SEARCHED_BYTES_MAX: usize = 16 * 1024;

/// Whether a file reports work: it is in `reports/`, or its route says so.
pub(crate) fn is_report(file: &CompleteFile) -> bool {
    let is_kind = |kind: &Name| kind.as_str().starts_with(REPORT_TYPES);
    &*file.box_name == REPORT_BOX || file.kind.as_ref().is_some_and(is_kind)
}

/// The task whose report a file is: by its name, otherwise as the report says.
pub(crate) fn reported_task(file: &CompleteFile) -> Option<String> {
    let by_name = file.file.strip_suffix("-completed.yaml").map(str::to_owned);
    let by_name = by_name.filter(|_| !is_copy_of(&file.file));
    by_name.or_else(|| {
        file.task_field().filter(|_| promised_contract(file) == Some(ContractKind::Report))
    })
}

/// The contract of a file's content: that of its route's type, otherwise the one that its name promises.
pub(crate) fn promised_contract(file: &CompleteFile) -> Option<ContractKind> {
    file.kind.as_ref().and_then(contract_of).or_else(|| ContractKind::of(&file.file))
}

pub(crate) fn contract_of(kind: &Name) -> Option<ContractKind> {
    match kind.as_str() {
        "report.completed" => Some(ContractKind::Report),
        "report.review" => Some(ContractKind::Review),
        "report.summary" => Some(ContractKind::Summary),
        "report.escalation" => Some(ContractKind::Escalation),
        "task" => Some(ContractKind::Task),
        _ => None,
    }
}

/// What is left of the fields of a file that may not be YAML: names and values, as they are written.
pub(crate) fn loose_fields(content: &[u8]) -> Vec<(String, String)> {
    let content = &content[..content.len().min(SEARCHED_BYTES_MAX)];
    let text = String::from_utf8_lossy(content);
    let fields = text.lines().filter_map(|line| line.trim().split_once([':', '：']));
    fields.map(|(name, value)| (name.trim_matches('"').to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use ensemble_core::durable::Dir;
    use ensemble_core::message::fields::agent_of_text;
    use ensemble_reports::contract::{Reading, TaskReport, read_as};

    use super::*;

    /// The router reads fields for the envelope, and the contract reads them for the report.
    #[test]
    fn a_report_says_the_same_to_its_contract_and_to_the_router() {
        let home = tempfile::tempdir().unwrap();
        let dir = Dir::open(home.path()).unwrap();
        for text in [
            "taskId: t-1\nstatus: success\nworkerId: 1\n",
            "Task-ID: t-1\nresult: success\nworker: \"1\"\n",
            "task: t-1\nstatus: success\nagent_id: worker-1\n",
            "task_id: t-1\nstatus: success\nworker_id:\nexecuted_by: worker-1\nfrom: a\n",
            "task_id: \" t-1 \"\nstatus: success\nagent: ' worker-1'\n",
            "task_id: 7\nstatus: success\nworker_id: 1\n",
            "status: success\n",
        ] {
            std::fs::write(home.path().join("x"), text).unwrap();
            let (stat, content) = dir.read_with_stat("x", 1 << 10).unwrap().unwrap();
            let fields = ensemble_core::message::yaml::parse(text, "x".as_ref()).unwrap();
            let (box_name, file) = ("reports".into(), "t-1-completed.json".to_owned());
            let (kind, signer) = (Name::new("report.completed").ok(), None);
            let (may_grow, is_final) = (false, true);
            let file = CompleteFile {
                box_name,
                file,
                stat,
                content,
                fields,
                kind,
                signer,
                may_grow,
                is_final,
            };
            let Ok(Reading::Whole(report)) =
                read_as::<TaskReport>(text, "t-1-completed.json".as_ref())
            else {
                panic!("{text}")
            };
            let task = reported_task(&file).unwrap_or_else(|| "t-1".to_owned());
            assert_eq!(task, report.task_id, "{text}");
            assert_eq!(file.author(), report.author().and_then(agent_of_text), "{text}");
        }
    }
}
