//! Checks the database of the steps for `ensemble admin fsck`.

use ensemble_project::Project;
use ensemble_team::steps::{STEPS_FILE, StepOptions};
use serde_json::json;

use super::{FoundProblem, FsckNote};

/// All that is wrong with the file. Nothing here repairs it: the words of SQLite say what is lost. A server checks its
/// own, which is said in a note.
pub(super) fn find_faults(project: &Project, notes: &mut Vec<FsckNote>) -> Vec<FoundProblem> {
    if !project.has_steps() {
        return Vec::new();
    }
    if project.has_shared_steps() {
        let text = "are on a server, and were not checked".to_owned();
        notes.push(FsckNote { path: "the steps".to_owned(), text });
        return Vec::new();
    }
    let opened = project.open_steps(StepOptions::new(project.root()));
    let faults = opened.and_then(|steps| steps.check_database());
    let path = project.state.join(STEPS_FILE).display().to_string();
    let fault = |problem: String| FoundProblem {
        object: json!({ "path": path, "problem": problem, "repaired": false }),
        ..FoundProblem::broken(&path, problem)
    };
    match faults {
        Ok(problems) => problems.into_iter().map(fault).collect(),
        Err(error) => vec![fault(error.to_string())],
    }
}
