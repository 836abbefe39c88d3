//! The leases on the project's blackboard, if it has one. An agent that fell silent loses its
//! leases, so that another agent can take over (seed 001). Supervisors do the same; this is for
//! when none of them runs.

use std::sync::Arc;

use ensemble_core::Result;
use ensemble_core::env::{Monotonic, SystemClock};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::Name;
use ensemble_project::status::ACTOR;
use ensemble_team::board::{Board, BoardLease, is_missing};
use ensemble_team::driver::{BoardLeases, SupervisorSeat};
use serde_json::{Value, json};

use crate::context::WatchContext;
use crate::held_work::{KeptLeases, WorkingAgents};

pub(crate) fn find(context: &WatchContext) -> Result<Board> {
    let WatchContext { project, recorder, .. } = context;
    project.find_board(project.board_options(ACTOR, Arc::clone(recorder)), None)
}

#[derive(Default)]
pub(crate) struct BoardWatch {
    leases: Option<BoardLeases>,
    /// Whether the board is this host's copy of one on servers, which is read only.
    is_copy: bool,
}

impl BoardWatch {
    /// Looks, and takes away what ran out. A project without a board has nothing to look at.
    pub(crate) fn expire_leases(&mut self, context: &WatchContext) {
        if self.leases.is_none() {
            // The thread that follows the servers takes care of a board there.
            let Ok(board) = find(context) else { return };
            self.is_copy = board.is_shared();
            self.leases = Some(BoardLeases::new(board, ACTOR, &SystemClock));
        }
        if !self.is_copy {
            self.look_at(&*context.recorder);
        }
    }

    /// The same for a board that was found before.
    pub(crate) fn of(board: Board) -> Self {
        let leases = Some(BoardLeases::new(board, ACTOR, &SystemClock));
        Self { leases, is_copy: false }
    }

    pub(crate) fn look_at(&mut self, recorder: &dyn Recorder) {
        let Some(leases) = &mut self.leases else { return };
        match leases.expire_leases(&SystemClock, recorder) {
            Ok(_) => {}
            Err(error) if is_missing(&error) => self.leases = None,
            // `status` names the blackboard itself.
            Err(_) if leases.is_unreadable() => {}
            Err(error) => tracing::warn!(%error, "cannot look at the blackboard's leases"),
        }
    }

    /// Gives signs of life for agents that are seen working and have no supervisor.
    pub(crate) fn extend_leases(
        &self,
        now: Monotonic,
        working: &WorkingAgents,
        kept: &mut KeptLeases,
        recorder: &dyn Recorder,
    ) {
        let Some(leases) = self.leases.as_ref().filter(|_| !self.is_copy) else { return };
        for (agent, evidence) in working {
            let Ok(Some(found)) = leases.unsupervised(agent) else { continue };
            // The name includes the agent's work, so that each claim has its own ceiling.
            let named = format!("board {agent}@{} {}", found.holder.epoch, found.holds.join(" "));
            if kept.is_due(now, (&named, agent), evidence, found.lease, recorder)
                && let Err(error) = leases.sign_for(&found)
            {
                tracing::warn!(%error, %agent, "cannot give a sign of life for a working agent");
            }
        }
    }

    pub(crate) fn seat(&self, agent: &Name) -> SupervisorSeat {
        let seat = self.leases.as_ref().map(|leases| leases.seat(agent));
        seat.and_then(Result::ok).unwrap_or(SupervisorSeat::None)
    }

    pub(crate) fn agents(&self) -> Vec<Name> {
        let agents = self.leases.as_ref().map(BoardLeases::agents);
        agents.and_then(Result::ok).unwrap_or_default()
    }

    /// Takes back what an ended agent holds on the board. Returns what that was.
    pub(crate) fn take_back(&mut self, agent: &Name, recorder: &dyn Recorder) -> Vec<Value> {
        let leases = self.leases.as_mut().filter(|_| !self.is_copy);
        let Some(leases) = leases else { return Vec::new() };
        let taken = leases.take_from(agent, recorder).unwrap_or_else(|error| {
            tracing::warn!(%error, %agent, "cannot release what an ended agent holds on the board");
            Vec::new()
        });
        let row = |lease: BoardLease| match lease {
            BoardLease::Agent { by, epoch } => json!({ "registration": by, "epoch": epoch }),
            BoardLease::Claim { task, epoch, .. } => json!({ "claim": task, "epoch": epoch }),
            BoardLease::Review { task, epoch, .. } => json!({ "review": task, "epoch": epoch }),
        };
        taken.into_iter().map(row).collect()
    }
}
