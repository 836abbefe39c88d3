//! Beats, and the signs that an agent gives.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::agent::AgentProcess;
use crate::board::{AgentSign, AnnouncedExit, Board, State};
use crate::driver::board_leases::directory;
use crate::proto::beat::{Effect, Event, LeaseRenewal};
use crate::proto::task::TaskHolder;
use ensemble_core::Result;
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::proto::Machine as _;

/// How much longer than usual a stamped lease may be without being a long operation. The two stamps of
/// a script come from two looks at the clock.
const STAMP_SLACK: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct BoardHeartbeat {
    agent: TaskHolder,
    beat: LeaseRenewal,
    seen: u64,
    stamped: Option<u64>,
    /// The exit that the agent has announced since it was started.
    pub(super) leaving: Option<AnnouncedExit>,
    /// Whether a sign came since the last beat.
    has_signed: bool,
    is_long: bool,
}

impl BoardHeartbeat {
    pub(super) fn new(now: Monotonic, agent: TaskHolder, lease: Duration) -> Self {
        Self {
            agent,
            beat: LeaseRenewal::new(now, lease),
            seen: 0,
            stamped: None,
            leaving: None,
            has_signed: false,
            is_long: false,
        }
    }

    /// Prepares for a fresh agent: an announcement of the last one does not count.
    pub(super) fn fresh(&mut self, board: &Board) {
        let sign = AgentSign::read(directory(board), &self.agent);
        // A fresh agent has used nothing of its context. If that cannot be written, the next sign says so.
        let sign = sign.map(|sign| match sign.context_percent {
            Some(1..) => board.note_context(sign.clone(), &self.agent, 0).unwrap_or(sign),
            _ => sign,
        });
        self.seen = sign.map_or(self.seen, |sign| sign.sequence);
        (self.leaving, self.has_signed, self.is_long) = (None, true, false);
    }

    pub(super) fn next_timeout(&self) -> Option<Monotonic> {
        self.beat.poll_timeout()
    }

    pub(super) fn listen(&mut self, now: Monotonic, directory: &Path) {
        let Some(sign) = AgentSign::read(directory, &self.agent) else { return };
        if sign.sequence == self.seen {
            return;
        }
        self.seen = sign.sequence;
        self.has_signed = true;
        match sign.long {
            Some(description) => self.beat.handle(now, Event::LongOperation { description }),
            None => self.expect_no_more(now),
        }
        if sign.leaving.is_some() {
            self.leaving = sign.leaving;
        }
    }

    pub(super) const fn sign(&mut self) {
        self.has_signed = true;
    }

    /// Reads the stamps that the agent itself has written on the board, as the seed says.
    pub(super) fn read_stamps(&mut self, now: Monotonic, state: &State) {
        let Some(entry) = state.agents.get(&self.agent.by) else { return };
        let stamped = entry.stamped();
        if stamped == self.stamped {
            return;
        }
        self.stamped = stamped;
        if stamped.is_none() {
            return;
        }
        self.has_signed = true;
        let usual = state.config.lease_duration();
        if entry.asked(usual) > usual + STAMP_SLACK {
            let description = "the agent extended its lease on the board".to_owned();
            self.beat.handle(now, Event::LongOperation { description });
        } else {
            self.expect_no_more(now);
        }
    }

    pub(super) fn expect_long(&mut self, now: Monotonic, description: &str) {
        let description = description.to_owned();
        self.beat.handle(now, Event::LongOperation { description });
    }

    pub(super) fn expect_no_more(&mut self, now: Monotonic) {
        if self.is_long {
            self.is_long = false;
            self.beat.handle(now, Event::OperationDone);
        }
    }

    /// Beats if a beat is due and a running agent shows evidence of life. Returns whether the board
    /// should be read to confirm the leases.
    pub(super) fn beat(
        &mut self,
        now: Monotonic,
        board: &Board,
        running: Option<&mut AgentProcess>,
        recorder: &dyn Recorder,
    ) -> Result<bool> {
        self.beat.handle_timeout(now);
        let (mut due, mut is_doubtful) = (None, false);
        while let Some(effect) = self.beat.poll_effect() {
            match effect {
                Effect::Beat { sequence, duration } => due = Some((sequence, duration)),
                Effect::StopWriting => is_doubtful = true,
                Effect::Record { line } => {
                    self.is_long = true;
                    let data =
                        json!({ "agent": self.agent.by, "epoch": self.agent.epoch, "line": line });
                    recorder.record(types::LEASE_EXTENDED_LONG, self.agent.by.as_str(), data);
                }
            }
        }
        let Some((sequence, duration)) = due else { return Ok(is_doubtful) };
        // Always look, so that the next look compares with this one.
        let moved = running.map(AgentProcess::has_moved);
        if moved.unwrap_or(true) || self.has_signed {
            self.has_signed = false;
            board.beat(&self.agent, sequence, duration)?;
            self.beat.handle(now, Event::Beaten { sequence });
        }
        Ok(is_doubtful)
    }
}
