//! What every supervisor and every watcher does for a board whenever it, or a control file beside it,
//! changes.
//!
//! | what is seen | what is done, by the first one that takes the board's lock |
//! |---|---|
//! | CHECKPOINT or ABORT was made or removed, by whichever program | the sprint follows |
//! | anomalies with a pattern that a person has not acknowledged | the circuit breaker trips |
//! | a task that every registered coder has failed at | an anomaly `no_coder_left`, once for these coders |
//!
//! Each of them is read from the board and its directory, so a crash loses nothing: the next one that looks does it.
//! A locked board is tried again.

use crate::board::{Board, State, sprint_step};
use ensemble_core::Result;

#[derive(Debug)]
pub struct BoardUpkeep {
    board: Board,
}

impl BoardUpkeep {
    pub const fn new(board: Board) -> Self {
        Self { board }
    }

    /// Does what is due on this board. Returns whether it wrote the board.
    pub fn do_due_work(&self, state: &State) -> Result<bool> {
        let mut changed = false;
        if sprint_step(state, &self.board.controls()?).is_some() {
            let mut locked = self.board.lock()?;
            locked.follow()?;
            locked.commit()?;
            changed = true;
        }
        changed |= self.board.trip_breaker(state)?.is_some();
        if !state.without_coder().is_empty() {
            let mut locked = self.board.lock()?;
            locked.note_without_coder()?;
            locked.commit()?;
            changed = true;
        }
        Ok(changed)
    }
}
