//! What `pause`, `checkpoint`, `abort`, `resume` and `analyze` share: the files beside the
//! blackboard that stop the team.
//!
//! A file that stops the team is there before the board says so, and the step that lets it go on is
//! done last. So a crash in between leaves a team that stands still. A team on servers has the files there, and all of
//! its hosts obey them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_core::document::SharedFiles;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::types;
use ensemble_team::authority::Act;
use ensemble_team::board::{Board, Control, ControlFile, SharedCopy};
use ensemble_team::proto::goal::SprintEvent;
use serde_json::json;

use super::reporter;
use crate::authority::authorize;
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::text::one_line;

/// The directory of a board.
pub(super) fn directory(board: &Board) -> &Path {
    board.path().parent().unwrap_or_else(|| Path::new("."))
}

/// Where the control files of this project are. A team of several hosts has them on its servers. Another team has them
/// beside its blackboard, and without one in the state directory.
pub(super) struct Place {
    directory: PathBuf,
    shared: Option<(Arc<dyn SharedFiles>, PathBuf)>,
}

/// The place of the control files of this project, which may have no blackboard.
pub(super) fn place(context: &Context) -> Outcome<Place> {
    let project = context.project()?;
    let shared = context.shared_files()?.zip(project.shared_copy());
    let directory = context.board_directory()?;
    Ok(Place { directory, shared })
}

impl Place {
    fn files(&self) -> Option<&dyn SharedFiles> {
        self.shared.as_ref().map(|(files, _)| &**files)
    }

    /// The control files in force here, the strongest last.
    pub(super) fn read(&self) -> Outcome<Vec<Control>> {
        let mut found = Control::read_all(&self.directory)?;
        if let Some(files) = self.files() {
            Control::merge(&mut found, Control::read_shared(files)?);
        }
        Ok(found)
    }

    fn put(&self, file: ControlFile, reason: &str) -> Outcome<bool> {
        let now = SystemClock.wall();
        let put = match self.files() {
            Some(files) => Control::put_shared(files, file, now, reason)?,
            None => Control::put(&self.directory, file, now, reason)?,
        };
        self.renew();
        Ok(put)
    }

    /// Removes a file, beside the blackboard of this host, too.
    pub(super) fn remove(&self, file: ControlFile) -> Outcome {
        if let Some(files) = self.files() {
            Control::remove_shared(files, file)?;
        }
        if self.files().is_none()
            || Control::read_all(&self.directory)?.iter().any(|c| c.file == file)
        {
            Control::remove(&self.directory, file)?;
        }
        self.renew();
        Ok(())
    }

    /// This host's copy changes at once. Where that fails, its watcher does it.
    fn renew(&self) {
        if let (Some(files), Some((_, copy))) = (self.files(), &self.shared) {
            let _ = SharedCopy::new(copy.clone(), files).pull_controls();
        }
    }
}

/// Puts a file down and tells of it; one that is there stays as it is.
pub(super) fn stop(context: &Context, file: ControlFile, reason: &str) -> Outcome {
    let place = place(context)?;
    let by = reporter(context)?;
    let put = place.put(file, reason)?;
    if put {
        let data = json!({ "file": file, "reason": reason });
        context.recorder()?.record(types::CONTROL_PUT, &by, data);
    }
    let found = place.read()?;
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
pub(super) fn lift(context: &Context, place: &Place, file: ControlFile) -> Outcome {
    let by = reporter(context)?;
    place.remove(file)?;
    context.recorder()?.record(types::CONTROL_REMOVED, &by, json!({ "file": file }));
    Ok(())
}

/// What stopped the team is for people to look at: no agent may lift it without authority.
pub(super) fn person(context: &Context) -> Outcome<String> {
    authorize(context, Act::Resume)?;
    reporter(context)
}
