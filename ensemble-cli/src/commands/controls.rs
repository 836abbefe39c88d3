//! What `pause`, `checkpoint`, `abort`, `resume` and `analyze` share: the files beside the
//! blackboard that stop the team.
//!
//! A file that stops the team is there before the board says so, and the step that lets it go on is
//! done last. So a crash in between leaves a team that stands still.

use std::path::{Path, PathBuf};

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::types;
use ensemble_team::authority::Act;
use ensemble_team::board::{Board, Control, ControlFile};
use ensemble_team::proto::goal::SprintEvent;
use serde_json::json;

use super::reporter;
use crate::authority::authorize;
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::text::one_line;

/// The directory of the control files.
pub(super) fn directory(board: &Board) -> &Path {
    board.path().parent().unwrap_or_else(|| Path::new("."))
}

/// The directory of the control files of this project, which may have no blackboard.
pub(super) fn place(context: &Context) -> Outcome<PathBuf> {
    let board = context.board_if_any()?;
    let place = board.as_ref().map_or(&*context.project()?.state, directory);
    Ok(place.to_owned())
}

/// Puts a file down and tells of it; one that is there stays as it is.
pub(super) fn stop(context: &Context, file: ControlFile, reason: &str) -> Outcome {
    let directory = place(context)?;
    let by = reporter(context)?;
    let put = Control::put(&directory, file, SystemClock.wall(), reason)?;
    if put {
        let data = json!({ "file": file, "reason": reason });
        context.recorder()?.record(types::CONTROL_PUT, &by, data);
    }
    let found = Control::read_all(&directory)?;
    let Some(control) = found.into_iter().find(|control| control.file == file) else {
        return Err(Failure::refused(format!("{} was removed meanwhile", file.name())));
    };
    if context.out.is_json() {
        let mut object = json!(control);
        object["put"] = json!(put);
        return context.out.object(&object);
    }
    let text = match put {
        true => format!("{} since {}", file.name(), control.since),
        false => format!("{} is there already, since {}", file.name(), control.since),
    };
    let reason =
        if control.reason.is_empty() { String::new() } else { format!(": {}", control.reason) };
    context.out.line(one_line(&format!("{text}{reason}")))
}

/// Puts a file down, and takes the sprint's step that goes with it.
pub(super) fn stop_sprint(
    context: &Context,
    file: ControlFile,
    event: SprintEvent,
    reason: &str,
) -> Outcome {
    stop(context, file, reason)?;
    let Some(board) = context.board_if_any()? else { return Ok(()) };
    let mut locked = board.lock()?;
    locked.step_sprint(event)?;
    locked.commit()?;
    Ok(())
}

/// Removes a file and tells the log of it.
pub(super) fn lift(context: &Context, directory: &Path, file: ControlFile) -> Outcome {
    let by = reporter(context)?;
    Control::remove(directory, file)?;
    context.recorder()?.record(types::CONTROL_REMOVED, &by, json!({ "file": file }));
    Ok(())
}

/// What stopped the team is for people to look at: no agent may lift it without authority.
pub(super) fn person(context: &Context) -> Outcome<String> {
    authorize(context, Act::Resume)?;
    reporter(context)
}
