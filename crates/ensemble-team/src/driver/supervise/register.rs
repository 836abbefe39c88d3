//! The registration of a supervisor's agent on the board.
//!
//! ```text
//! an entry of that name                                the supervisor
//! none                                                 registers
//! its own supervisor was killed (its record says so)   removes it, and registers
//! an attempt of its own got no answer                  removes it, and registers
//! of another program, a lease runs                     refuses
//! of another program, every lease of it is over        refuses; with `takes_over` removes it, and registers
//! ```
//!
//! The supervisor holds the lock of the name, so no other supervisor is behind the entry. A person decides on a
//! take-over, so it relies on the times in the file. A wrong one is harmless, since the entry's epoch has ended and
//! writes under it are refused.

use super::heartbeat::BoardHeartbeat;
use super::run::SupervisorRun;
use crate::board::{NewAgent, is_fenced};
use crate::proto::agent;
use crate::proto::supervise::{Event, SupervisorLoss};
use crate::proto::task::TaskHolder;
use crate::worktree::is_not_allowed;
use ensemble_core::Result;

impl SupervisorRun<'_> {
    /// Registers the agent, after an earlier supervisor's registration was removed from the board.
    pub(super) fn register(&mut self) -> Result<Event> {
        match self.try_register() {
            Ok(()) => Ok(Event::Registered),
            // On the first try this is the answer; later it is retried.
            Err(error) if is_not_allowed(&error) && self.heartbeat.is_none() => Err(error),
            Err(error) => {
                self.failed("register", &error);
                Ok(Event::Failed)
            }
        }
    }

    fn try_register(&mut self) -> Result<()> {
        let id = &self.order.id;
        let mut locked = self.board.lock()?;
        if let Some(entry) = locked.state().agents.get(id) {
            let epoch = entry.epoch.unwrap_or_default();
            let left = TaskHolder { by: id.clone(), epoch };
            if self.lock.is_left_over(epoch) {
                locked.unregister(&left, "its supervisor was killed, or got no answer")?;
            } else if self.order.takes_over && self.heartbeat.is_none() {
                self.board.check_over(locked.state(), id, self.calendar())?;
                locked.unregister(&left, "another supervisor has taken over")?;
            }
        }
        let state = locked.commit()?;
        // Write this first: a successor that finds a later epoch without a recorded one knows whose
        // it is.
        self.lock.begin_registration(state.epoch)?;
        let mut locked = self.board.lock()?;
        let mut entry = NewAgent::new(id.clone(), self.order.role.as_str());
        entry.terminal.clone_from(&self.order.terminal);
        let holder = locked.register(&entry)?;
        locked.agent_event(&holder, agent::Event::Ready)?;
        let state = locked.commit()?;
        self.lock.end_registration(holder.epoch)?;
        self.heartbeat =
            Some(BoardHeartbeat::new(self.now(), holder.clone(), state.config.lease_duration()));
        self.registered = Some(holder);
        self.repair();
        self.queue_line(format!(
            "`{}` is registered as {}",
            self.order.id,
            self.order.role.as_str()
        ));
        Ok(())
    }

    pub(super) fn unregister(&mut self) -> Event {
        let Some(registered) = self.registered.clone() else { return Event::Left };
        let left = self.board.lock().and_then(|mut locked| {
            locked.unregister(&registered, "its supervisor has ended")?;
            locked.commit()
        });
        match left {
            Ok(state) => {
                (self.registered, self.work, self.heartbeat) = (None, None, None);
                // Its beats are no longer needed; the next sweep removes what remains.
                if let Err(error) = self.board.sweep_beats(&state) {
                    self.failed("remove beats", &error);
                }
                Event::Left
            }
            Err(error) if is_fenced(&error) => Event::Fenced(SupervisorLoss::Registration),
            // The board was removed: there is nothing to leave.
            Err(_) if !self.board.path().exists() => Event::Left,
            Err(error) => {
                self.failed("unregister", &error);
                Event::Failed
            }
        }
    }
}
