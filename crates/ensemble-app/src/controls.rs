//! The files beside the blackboard that stop the team, for `pause`, `checkpoint`, `abort`, `resume` and `analyze`.
//!
//! A file that stops the team is written before the board says so, and the step that lets the team continue comes
//! last, so that a crash in between leaves the team stopped. If the team is on servers, so are the files, and all
//! hosts obey them.

use std::path::PathBuf;
use std::sync::Arc;

use ensemble_core::document::SharedFiles;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::types;
use ensemble_team::authority::AuthorityAct;
use ensemble_team::board::{ActiveControl, ControlFile, SharedCopy};
use ensemble_team::proto::goal::SprintEvent;
use serde_json::json;

use crate::App;
use crate::authority::authorize;
use crate::diagnostics::say;
use crate::failure::{Failure, Outcome};

/// Where the control files of this project are. A team of several hosts has them on its servers. Another team has them
/// beside its blackboard, and without one in the state directory.
pub struct ControlPlace {
    directory: PathBuf,
    shared: Option<(Arc<dyn SharedFiles>, PathBuf)>,
}

/// The place of the control files of this project, which may have no blackboard.
pub fn control_place(app: &App) -> Outcome<ControlPlace> {
    let project = app.project()?;
    let shared = app.shared_files()?.zip(project.shared_copy());
    let directory = app.board_directory()?;
    if shared.is_none() && !directory.is_dir() {
        // Nothing is stopped or continued outside of a project, and this says so.
        app.spool()?;
    }
    Ok(ControlPlace { directory, shared })
}

impl ControlPlace {
    fn files(&self) -> Option<&dyn SharedFiles> {
        self.shared.as_ref().map(|(files, _)| &**files)
    }

    /// The control files in force here, the strongest last.
    pub fn read(&self) -> Outcome<Vec<ActiveControl>> {
        let mut found = ActiveControl::read_all(&self.directory)?;
        if let Some(files) = self.files() {
            ActiveControl::merge(&mut found, ActiveControl::read_shared(files)?);
        }
        Ok(found)
    }

    fn put(&self, file: ControlFile, reason: &str) -> Outcome<bool> {
        let now = SystemClock.wall();
        let put = match self.files() {
            Some(files) => ActiveControl::put_shared(files, file, now, reason)?,
            None => ActiveControl::put(&self.directory, file, now, reason)?,
        };
        self.renew();
        Ok(put)
    }

    /// Removes a file, beside the blackboard of this host, too.
    pub fn remove(&self, file: ControlFile) -> Outcome {
        if let Some(files) = self.files() {
            ActiveControl::remove_shared(files, file)?;
        }
        if self.files().is_none()
            || ActiveControl::read_all(&self.directory)?.iter().any(|c| c.file == file)
        {
            ActiveControl::remove(&self.directory, file)?;
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

pub struct PutControl {
    pub control: ActiveControl,
    pub is_new: bool,
}

/// Puts a file down and records it; one that exists stays as it is.
pub fn put_control(app: &App, file: ControlFile, reason: &str) -> Outcome<PutControl> {
    let place = control_place(app)?;
    let by = app.reporter()?;
    let put = place.put(file, reason)?;
    if put {
        let data = json!({ "file": file, "reason": reason });
        app.recorder()?.record(types::CONTROL_PUT, &by, data);
    }
    let found = place.read()?;
    let Some(control) = found.into_iter().find(|control| control.file == file) else {
        return Err(Failure::refused(format!("{} was removed in between", file.name())));
    };
    if put && control.reason.is_empty() && !reason.trim().is_empty() {
        say(&format!("warning: the disk is full: {} has no reason in it", file.name()));
    }
    Ok(PutControl { control, is_new: put })
}

/// Takes the step of the sprint that goes with a file which stops it, and was put down before.
pub fn step_stopped_sprint(app: &App, event: SprintEvent) -> Outcome {
    let Some(board) = app.board_if_any()? else { return Ok(()) };
    let mut locked = board.lock()?;
    locked.step_sprint(event)?;
    locked.commit()?;
    Ok(())
}

pub fn lift_control(app: &App, place: &ControlPlace, file: ControlFile) -> Outcome {
    let by = app.reporter()?;
    place.remove(file)?;
    app.recorder()?.record(types::CONTROL_REMOVED, &by, json!({ "file": file }));
    Ok(())
}

/// People should check why the team was stopped: no agent may lift it without authority.
pub fn authorize_resume(app: &App) -> Outcome<String> {
    authorize(app, AuthorityAct::Resume)?;
    app.reporter()
}
