//! Checks the database of the steps for `ensemble admin fsck`.

use ensemble_app::failure::Outcome;
use ensemble_app::text::one_line;
use ensemble_project::Project;
use ensemble_team::steps::{STEPS_FILE, StepOptions};
use serde::Serialize;

use super::FsckNote;
use crate::context::Context;
use crate::output::BAD;

/// Something wrong with the database. Nothing here repairs it: the words of SQLite say what is lost.
#[derive(Debug, Serialize)]
pub(super) struct StepFault {
    path: String,
    problem: String,
    repaired: bool,
}

/// All that is wrong with the file. A server checks its own, which is said in a note.
pub(super) fn find_faults(project: &Project, notes: &mut Vec<FsckNote>) -> Vec<StepFault> {
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
    let fault = |problem| StepFault { path: path.clone(), problem, repaired: false };
    match faults {
        Ok(problems) => problems.into_iter().map(fault).collect(),
        Err(error) => vec![fault(error.to_string())],
    }
}

pub(super) fn print(context: &Context, fault: &StepFault) -> Outcome {
    let out = &context.out;
    if out.is_json() {
        return out.object(fault);
    }
    let (path, problem) = (one_line(&fault.path), one_line(&fault.problem));
    out.line(format!("{}  {path}: {problem}", out.paint(BAD, "broken")))
}
