//! The end of an agent's program, and what it means.

use serde_json::json;

use super::LINGER_MAX;
use super::run::SupervisorRun;
use super::work::{HeldClaim, SupervisedWork, WorkFate};
use crate::board::{State, TaskStatus};
use crate::proto::supervise::{AgentExit, Event, ProgramEnding};
use ensemble_core::Result;
use ensemble_core::event_log::types;

impl SupervisorRun<'_> {
    pub(super) fn notice_exit(&mut self) {
        let now = self.now();
        let Some(agent) = &mut self.agent else { return };
        let ended = match agent.ended() {
            Ok(ending) => ending,
            Err(error) => return self.failed("wait for the agent", &error),
        };
        let lingers = self.finished.is_some_and(|since| now >= since + LINGER_MAX);
        if ended.is_none() && !lingers {
            return;
        }
        // Processes that the agent left in the background end with it, lingering ones, too.
        if let Err(error) = agent.end() {
            return self.failed("end the agent's remaining processes", &error);
        }
        self.agent = None;
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.listen(now, &self.directory);
        }
        match self.exit(ended.unwrap_or(ProgramEnding::Done)) {
            Ok(exit) => self.handle(Event::Exited(exit)),
            Err(error) => {
                self.failed("read the agent's result", &error);
                // Without the board the result is unknown, and nothing can be done.
                let ending = ProgramEnding::Failed(1);
                let exit =
                    AgentExit { ending, holds: true, progress: false, notes: false, drafts: false };
                self.handle(Event::Exited(exit));
            }
        }
    }

    /// The meaning of an agent's end, from the board and from the agent's announcement.
    fn exit(&mut self, ending: ProgramEnding) -> Result<AgentExit> {
        let said = self.heartbeat.as_mut().and_then(|heartbeat| heartbeat.leaving.take());
        self.exit_reason = said.as_ref().map(|said| said.reason.clone());
        let ending = match (ending, said) {
            (ProgramEnding::Done | ProgramEnding::HandOver, Some(said)) => {
                super::agent::ending(said.code)
            }
            (ending, _) => ending,
        };
        let mut state = self.board.read()?;
        match self.complete_by_hand(&state) {
            Ok(completed) => state = completed.unwrap_or(state),
            // The board is as the agent left it, which is enough to continue.
            Err(error) => self.failed("complete what the agent has written", &error),
        }
        let fate = self.work.as_ref().map(|work| work.fate(&state));
        let is_plan = matches!(self.work, Some(SupervisedWork::Plan { .. }));
        let is_task = matches!(self.work, Some(SupervisedWork::Task(_)));
        let holds = fate == Some(WorkFate::Held) && !is_plan;
        let planned = holds && self.has_planned();
        let task = self.held_task();
        let notes = super::work::notes_of(&state, task);
        let print = self.footprint(&state);
        let exit = AgentExit {
            // An agent that has submitted its plan has done its task.
            ending: if planned && ending == ProgramEnding::Done {
                ProgramEnding::HandOver
            } else {
                ending
            },
            holds,
            progress: matches!(fate, Some(WorkFate::Finished | WorkFate::ByHand))
                || print != self.before.0
                || planned,
            notes: !is_task || notes != self.before.1 || planned,
            drafts: is_plan && state.tasks.iter().any(|task| task.status == TaskStatus::Draft),
        };
        self.record(
            types::SUPERVISE_EXITED,
            json!({
                "task": task, "ending": format!("{ending:?}"), "holds": holds,
                "progress": exit.progress, "notes": exit.notes,
            }),
        );
        let what = if planned { "it has submitted a plan".to_owned() } else { describe_exit(exit) };
        self.queue_line(format!("agent ended: {what}"));
        self.after(exit);
        Ok(exit)
    }

    /// Adds to the board what an agent has left out that finished its work by hand.
    fn complete_by_hand(&self, state: &State) -> Result<Option<State>> {
        let by_hand = self.work.as_ref().filter(|work| work.fate(state) == WorkFate::ByHand);
        let Some(HeldClaim { id, holder, .. }) = by_hand.and_then(SupervisedWork::claim) else {
            return Ok(None);
        };
        let head = self.worktrees.map(|it| it.head(id)).transpose()?.flatten();
        let mut locked = self.board.lock()?;
        locked.complete_by_hand(id, holder, head.as_deref())?;
        locked.reconcile_agent(&self.order.id)?;
        locked.commit().map(Some)
    }

    fn after(&mut self, exit: AgentExit) {
        self.finished = None;
        if let Some(SupervisedWork::Plan { occurrences, .. }) = &self.work
            && exit.ending == ProgramEnding::Done
            && !exit.drafts
        {
            self.answered.extend(occurrences.iter().cloned());
        }
        if !exit.holds {
            self.work = None;
        }
    }
}

fn describe_exit(exit: AgentExit) -> String {
    let how = match exit.ending {
        ProgramEnding::HandOver => "exit 42, hand-over".to_owned(),
        ending => ending.to_string(),
    };
    let work = if exit.holds { ", its work is not finished" } else { "" };
    format!("{how}{work}")
}
