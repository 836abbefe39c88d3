//! Where a project's blackboard is: in its directory, or on the servers of a team of several hosts.

use std::path::PathBuf;
use std::sync::Arc;

use ensemble_core::Result;
use ensemble_core::document::SharedFiles;
use ensemble_core::event_log::Recorder;
use ensemble_team::board::{Board, BoardOptions, PLACES};

use super::Project;

impl Project {
    /// This host's copy of the files that the hosts of the team share; `None` for a team of one host.
    pub fn shared_copy(&self) -> Option<PathBuf> {
        self.is_shared().is_ok_and(|is_shared| is_shared).then(|| self.state.join("servers/board"))
    }

    /// The directories in which a board may be, and this host's copy of one.
    pub fn board_places(&self) -> Vec<PathBuf> {
        let here = PLACES.iter().map(|place| self.root().join(place));
        here.chain(self.shared_copy()).collect()
    }

    pub fn has_shared_board(&self) -> bool {
        self.shared_copy().is_some()
    }

    /// The blackboard. Without `shared`, that of a team on servers is this host's copy, which can only be read.
    pub fn find_board(
        &self,
        mut options: BoardOptions,
        shared: Option<Arc<dyn SharedFiles>>,
    ) -> Result<Board> {
        options.shared = shared;
        match self.has_shared_board() {
            true => Board::find_shared(self.root(), options),
            false => Board::find(self.root(), options),
        }
    }

    /// How this project's blackboard is kept. The files that the hosts share are read from this host's copy.
    pub fn board_options(
        &self,
        actor: impl Into<String>,
        recorder: Arc<dyn Recorder>,
    ) -> BoardOptions {
        let mut options = BoardOptions::new(actor)
            .with_durability(self.config.durability.unwrap_or_default())
            .with_recorder(recorder);
        options.worktrees.clone_from(&self.config.worktrees.directory);
        options.copy = self.shared_copy();
        options.host = self.host().ok().map(|host| host.to_string());
        options
    }
}
