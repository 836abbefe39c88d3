//! The blackboard and what stops the team, for a team on servers: this host's copy, the leases and the upkeep.
//!
//! | when | what |
//! |---|---|
//! | a shared file has changed, and every 30 s | this host's copy is made new, and the board is taken care of as by a supervisor |
//! | every 30 s | leases of silent holders are taken back, and those of working agents are kept |
//! | an agent of this host has ended | what it holds on the board is taken back |
//!
//! Each host's watcher does the first two, each by its own observation. The first that is right does it, and the others
//! find it done.

use std::sync::Arc;

use ensemble_core::Result;
use ensemble_core::document::SharedFiles;
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_nats::NatsTransport;
use ensemble_project::status::ACTOR;
use ensemble_team::board::{Board, SharedCopy, is_missing};
use ensemble_team::driver::BoardUpkeep;
use serde_json::Value;

use super::SCAN_INTERVAL;
use crate::board_leases::BoardWatch;
use crate::context::WatchContext;
use crate::held_work::{KeptLeases, WorkingAgents};

pub(super) struct SharedBoard {
    context: Arc<WatchContext>,
    /// When the copy is made new without news.
    next_copy: Monotonic,
    next_look: Monotonic,
    /// The board over the present connection, if there is one.
    board: Option<Board>,
    watch: BoardWatch,
}

impl SharedBoard {
    pub(super) fn new(now: Monotonic, context: &Arc<WatchContext>) -> Self {
        let (context, watch) = (Arc::clone(context), BoardWatch::default());
        Self { context, next_copy: now, next_look: now, board: None, watch }
    }

    pub(super) fn forget(&mut self) {
        self.board = None;
        self.watch = BoardWatch::default();
    }

    pub(super) fn do_due_work(
        &mut self,
        now: Monotonic,
        queue: &Arc<NatsTransport>,
        (working, kept): (&WorkingAgents, &mut KeptLeases),
    ) -> Result<()> {
        let Some(copy) = self.context.project.shared_copy() else { return Ok(()) };
        if queue.shared_has_changed() || now >= self.next_copy {
            // One that fails is tried again in the next round.
            self.next_copy = now;
            SharedCopy::new(copy, &**queue).pull()?;
            self.find(queue)?;
            self.look_after()?;
            self.next_copy = now + SCAN_INTERVAL;
        }
        if now >= self.next_look && self.board.is_some() {
            self.next_look = now + LOOK_INTERVAL;
            self.watch.extend_leases(now, working, kept, &*self.context.recorder);
            self.watch.look_at(&*self.context.recorder);
        }
        Ok(())
    }

    pub(super) fn take_back(&mut self, agent: &Name) -> Vec<Value> {
        self.watch.take_back(agent, &*self.context.recorder)
    }

    fn find(&mut self, queue: &Arc<NatsTransport>) -> Result<()> {
        let WatchContext { project, recorder, .. } = &*self.context;
        if self.board.is_some() || !project.has_shared_board() {
            return Ok(());
        }
        let files: Arc<dyn SharedFiles> = Arc::<NatsTransport>::clone(queue);
        let options = project.board_options(ACTOR, Arc::clone(recorder));
        match project.find_board(options, Some(files)) {
            Ok(board) => {
                self.watch = BoardWatch::of(board.clone());
                self.board = Some(board);
                Ok(())
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn look_after(&mut self) -> Result<()> {
        let Some(board) = &self.board else { return Ok(()) };
        match board.read().and_then(|state| BoardUpkeep::new(board.clone()).do_due_work(&state)) {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => {
                self.forget();
                Ok(())
            }
            // Another host writes, and sees the same.
            Err(error) if error.is_transient() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
