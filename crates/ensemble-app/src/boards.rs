//! The blackboard of the project, and the worktrees of its tasks.

use std::path::PathBuf;
use std::sync::Arc;

use ensemble_core::document::SharedFiles;
use ensemble_team::board::{Board, is_missing};
use ensemble_team::worktree::Worktrees;

use crate::App;
use crate::failure::Outcome;
use crate::queue::{OpeningPurpose, ProjectQueue};

impl App {
    /// The blackboard, which must exist.
    pub fn board(&self) -> Outcome<Board> {
        let project = self.project()?;
        Ok(project.find_board(self.board_options(project)?, self.shared_files()?)?)
    }

    pub fn board_if_any(&self) -> Outcome<Option<Board>> {
        let project = self.project()?;
        match project.find_board(self.board_options(project)?, self.shared_files()?) {
            Ok(board) => Ok(Some(board)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The files that the hosts of a team on servers share, over one connection; `None` for a team of one host.
    pub fn shared_files(&self) -> Outcome<Option<Arc<dyn SharedFiles>>> {
        self.shared_files_for(OpeningPurpose::Act)
    }

    /// As [`App::shared_files`]. Only who makes the blackboard begins a team with it.
    pub fn shared_files_for(
        &self,
        purpose: OpeningPurpose,
    ) -> Outcome<Option<Arc<dyn SharedFiles>>> {
        if self.project()?.shared_copy().is_none() {
            return Ok(None);
        }
        if self.shared.get().is_none()
            && let Some(files) = ProjectQueue::open_for(self, purpose)?.into_shared()
        {
            return Ok(Some(Arc::clone(self.shared.get_or_init(|| files))));
        }
        Ok(self.shared.get().cloned())
    }

    /// The directory of the blackboard on this host; the state directory without one.
    pub fn board_directory(&self) -> Outcome<PathBuf> {
        let board = self.board_if_any()?;
        let directory = board.as_ref().and_then(|board| board.path().parent());
        Ok(directory.unwrap_or(&self.project()?.state).to_owned())
    }

    pub fn worktrees(&self, board: &Board) -> Outcome<Worktrees> {
        let project = self.project()?;
        let actor = self.actor()?.to_string();
        Ok(Worktrees::open(board, project.worktree_options(actor, self.log(project)))?)
    }
}
