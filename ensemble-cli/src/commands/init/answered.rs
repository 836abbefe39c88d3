//! Files that a taken-over project has dealt with already. The watcher routes everything that is in its drop boxes, and
//! agents would do that work again.
//!
//! | file | was dealt with if |
//! |---|---|
//! | `tasks/<worker>-task.yaml` | a report of its task is at least as new |
//! | `conductor/*.yaml`, an instruction | a task or a report is at least as new |
//!
//! Such a version counts as routed: its line is written into the ledger of the drop boxes. Reports, reviews and
//! summaries are routed again, since Dispatch and the Conductor only read them.

use std::path::Path;

use ensemble_app::failure::Outcome;
use ensemble_core::dropbox::{Ledger, LedgerEntry};
use ensemble_core::durable::{Dir, FileStat};
use ensemble_core::message::yaml;
use serde_json::{Map, Value};

const FILE_BYTES_MAX: usize = 1024 * 1024;
const FILES_MAX: usize = 10_000;
const TASK_END: &str = "-task.yaml";
const REPORT_ENDS: [&str; 2] = ["-completed.yaml", ".yaml"];

struct DropBoxFile {
    name: String,
    content: Vec<u8>,
    stat: FileStat,
}

/// Enters into the ledger what was dealt with; returns the paths below the queue. No watcher may run.
pub(super) fn enter(queue: &Path, state: &Path) -> Outcome<Vec<String>> {
    let (tasks, instructions) = (files(queue, "tasks"), files(queue, "conductor"));
    let reports = files(queue, "reports");
    let done = tasks.iter().filter(|file| {
        let names = task_of(file).map(|task| REPORT_ENDS.map(|end| format!("{task}{end}")));
        names.is_some_and(|names| {
            reports.iter().any(|it| names.contains(&it.name) && is_after(it, file))
        })
    });
    let begun = instructions.iter().filter(|file| {
        tasks
            .iter()
            .filter(|it| it.name.ends_with(TASK_END))
            .chain(&reports)
            .any(|it| is_after(it, file))
    });
    let done = done.map(|file| ("tasks", file));
    let all: Vec<(&str, &DropBoxFile)> =
        done.chain(begun.map(|file| ("conductor", file))).collect();
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let mut ledger = Ledger::open(state)?;
    let entry = |(place, file): (&str, &DropBoxFile)| {
        ledger.next_version(&format!("{place}/{}", file.name), &file.stat, &file.content)
    };
    let entries: Vec<LedgerEntry> = all.into_iter().filter_map(entry).collect();
    let paths = entries.iter().map(|entry| entry.path.clone()).collect();
    ledger.append(entries)?;
    Ok(paths)
}

fn files(queue: &Path, place: &str) -> Vec<DropBoxFile> {
    let Ok(dir) = Dir::open(&queue.join(place)) else { return Vec::new() };
    let entries = std::fs::read_dir(queue.join(place)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| !name.starts_with('.') && name.ends_with(".yaml"))
        .take(FILES_MAX)
        .filter_map(|name| {
            let (stat, content) = dir.read_with_stat(&name, FILE_BYTES_MAX).ok()??;
            Some(DropBoxFile { name, content, stat })
        })
        .collect()
}

fn is_after(answer: &DropBoxFile, file: &DropBoxFile) -> bool {
    answer.stat.modified_ns >= file.stat.modified_ns
}

fn task_of(file: &DropBoxFile) -> Option<String> {
    if !file.name.ends_with(TASK_END) {
        return None;
    }
    let text = std::str::from_utf8(&file.content).ok()?;
    let fields: Map<String, Value> = yaml::parse(text, file.name.as_ref()).ok()?;
    fields.get("id").and_then(Value::as_str).map(str::to_owned)
}
