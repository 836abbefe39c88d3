//! The leases on the project's blackboard, if it has one. An agent that fell silent loses its
//! leases, so that another agent can take over (seed 001). Supervisors do the same; this is for
//! when none of them runs.

use ensemble_core::Result;
use ensemble_core::env::Clock;
use ensemble_core::event_log::Recorder;
use ensemble_team::board::is_missing;
use ensemble_team::board::{Board, BoardOptions};
use ensemble_team::driver::BoardLeases;

use std::sync::Arc;

use crate::project::Project;
use crate::status::ACTOR;

/// The project's board, for writing in the name of the watcher.
///
/// # Errors
/// There is no board.
pub(crate) fn find(project: &Project, recorder: &Arc<dyn Recorder>) -> Result<Board> {
    let mut options = BoardOptions::new(ACTOR)
        .with_durability(project.config.durability.unwrap_or_default())
        .with_recorder(Arc::clone(recorder));
    options.worktrees.clone_from(&project.config.worktrees.directory);
    Board::find(project.root(), options)
}

/// The watcher's observation of a board's leases.
#[derive(Default)]
pub(crate) struct BoardWatch {
    leases: Option<BoardLeases>,
    last_failure: String,
}

impl BoardWatch {
    /// Looks, and takes away what ran out. A project without a board has nothing to look at.
    pub(crate) fn look(
        &mut self,
        project: &Project,
        clock: &dyn Clock,
        recorder: &Arc<dyn Recorder>,
    ) {
        if self.leases.is_none() {
            let Ok(board) = find(project, recorder) else { return };
            self.leases = Some(BoardLeases::new(board, ACTOR, clock));
        }
        let Some(leases) = &mut self.leases else { return };
        match leases.look(clock, &**recorder) {
            Ok(_) => self.last_failure.clear(),
            Err(error) if is_missing(&error) => self.leases = None,
            Err(error) => {
                // A board that stays broken is said once; the alarms tell people.
                let text = error.to_string();
                if text != self.last_failure {
                    tracing::warn!(%error, "cannot look at the blackboard's leases");
                    self.last_failure = text;
                }
            }
        }
    }
}
