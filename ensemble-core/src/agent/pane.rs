//! A pane together with what is known of the agent in it.

use std::time::Duration;

use super::{AgentDiagnosis, ProgramSettings};
use crate::Result;
use crate::env::Pane;
use crate::pane::{Deferral, NudgeOutcome, NudgeText};

/// A [`Pane`] whose agent can be judged. Every call is bounded in time like those of [`Pane`]. A driver that
/// owns a pane may move to another thread, so a pane is [`Send`].
pub trait AgentPane: Pane + Send {
    fn program(&self) -> &ProgramSettings;

    /// Diagnoses what the agent is doing, with the evidence.
    fn diagnose(&mut self) -> Result<AgentDiagnosis>;

    /// Types and submits the profile's reset command, under the guard of [`Pane::nudge`]. Unless a pane
    /// implements it, its program has no such command, and this refuses.
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        let detail = format!("{} has no reset command", self.program().name);
        Ok(NudgeOutcome::Refused { deferral: Deferral::Failed { detail } })
    }

    /// The first half of a nudge, or for [`TypedLine::Reset`] of a reset: types the text and does not
    /// wait for its Enter. Unless a pane has halves, this is the whole.
    fn begin(&mut self, line: TypedLine<'_>) -> Result<TypingStep> {
        match line {
            TypedLine::Nudge(text) | TypedLine::Again(text) => {
                self.nudge(text).map(TypingStep::Done)
            }
            TypedLine::Reset => self.reset_context().map(TypingStep::Done),
        }
    }

    /// The second half, once [`TypingStep::EnterAfter`] has passed: submits what was typed, or with
    /// `withdraw` takes it back, in both cases only if the input line still contains exactly that
    /// text.
    fn finish(&mut self, withdraw: bool) -> Result<NudgeOutcome> {
        let _ = withdraw;
        Ok(NudgeOutcome::Refused { deferral: Deferral::Moved })
    }

    /// Withdraws a ping that was typed and not submitted, once its answer is no longer waited for.
    fn withdraw_ping(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A line that is typed in two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypedLine<'a> {
    Nudge(&'a NudgeText),
    /// A reminder of an earlier nudge. It is skipped, and counts as sent, if any process of the
    /// team has just notified the agent.
    Again(&'a NudgeText),
    /// The profile's reset command.
    Reset,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum TypingStep {
    Done(NudgeOutcome),
    /// [`AgentPane::finish`] is due after this time.
    EnterAfter(Duration),
}
