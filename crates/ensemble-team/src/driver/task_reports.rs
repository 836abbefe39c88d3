//! The files in `reports/` that may be the report of a task, and the reports that they have.

use ensemble_core::durable::{Dir, FileStat};
use ensemble_core::message::fields::is_same_task;
use ensemble_core::{Result, allow_unreadable};
use ensemble_reports::contract::{TaskReport, read_whole};

use super::reviews::file_stem;

pub(super) const REPORT_BYTES_MAX: usize = 1024 * 1024;
/// How the names of reports end, best first. The second is that of ensemble-claude's contract.
const ENDS: [&str; 2] = ["-completed.yaml", ".yaml"];

pub(super) struct ReportFile {
    pub(super) stat: FileStat,
    pub(super) content: Vec<u8>,
    pub(super) report: TaskReport,
}

/// The names of a task's report, best first.
pub(super) fn report_files(task: &str) -> [String; 2] {
    let stem = file_stem(task);
    ENDS.map(|end| format!("{stem}{end}"))
}

/// Those of `names` that a task's report may have, best first: agents write `t-1` for the task `T-1`.
pub(super) fn report_names<'n>(task: &str, names: &'n [String]) -> Vec<&'n str> {
    let stem = file_stem(task);
    let mut found = Vec::new();
    for (rank, end) in ENDS.iter().enumerate() {
        let stems = names.iter().filter_map(|name| Some((name, name.strip_suffix(end)?)));
        let same = stems.filter(|(_, other)| other.eq_ignore_ascii_case(&stem));
        found.extend(same.map(|(name, other)| (other != stem, rank, name.as_str())));
    }
    found.sort_unstable();
    found.into_iter().map(|(.., name)| name).collect()
}

/// The whole reports of a task in files of these names, best first. The watcher sets aside what cannot be read.
pub(super) fn read_reports(dir: &Dir, task: &str, names: &[String]) -> Result<Vec<ReportFile>> {
    let mut reports = Vec::new();
    for name in report_names(task, names) {
        let read = allow_unreadable(dir.read_with_stat(name, REPORT_BYTES_MAX))?.flatten();
        let Some((stat, content)) = read else { continue };
        let report = report_of(task, name, &String::from_utf8_lossy(&content));
        reports.extend(report.map(|report| ReportFile { stat, content, report }));
    }
    Ok(reports)
}

pub(super) fn report_of(task: &str, name: &str, text: &str) -> Option<TaskReport> {
    read_whole(text, name.as_ref()).filter(|it: &TaskReport| is_same_task(&it.task_id, task))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_found_in_another_spelling_of_its_task() {
        let named = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
            report_names("T-1", &names).into_iter().map(str::to_owned).collect()
        };
        let all = ["t-1-completed.yaml", "T-1.yaml", "T-1-completed.yaml", "t-1.yaml", "T-10.yaml"];
        let best = ["T-1-completed.yaml", "T-1.yaml", "t-1-completed.yaml", "t-1.yaml"];
        assert_eq!(named(&all), best);
        assert_eq!(named(&["t-1-completed.yaml", "T-1-review.yaml"]), ["t-1-completed.yaml"]);
    }
}
