//! A [`TmuxPane`] as a pane whose agent can be judged.

use ensemble_core::Result;
use ensemble_core::agent::{AgentPane, Begun, Diagnosis, Line, Program};
use ensemble_core::pane::NudgeOutcome;

use super::TmuxPane;

impl AgentPane for TmuxPane {
    fn program(&self) -> &Program {
        Self::profile(self).program()
    }
    fn diagnose(&mut self) -> Result<Diagnosis> {
        Self::diagnose(self).map(|judgement| judgement.diagnosis)
    }
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        Self::reset_context(self)
    }
    fn begin(&mut self, line: Line<'_>) -> Result<Begun> {
        let (text, again) = match line {
            Line::Nudge(text) => (Some(text), false),
            Line::Again(text) => (Some(text), true),
            Line::Reset => (None, false),
        };
        Ok(match self.begin_line(text, again)? {
            Ok(outcome) => Begun::Done(outcome),
            Err(left) => Begun::EnterAfter(left),
        })
    }
    fn finish(&mut self, withdraw: bool) -> Result<NudgeOutcome> {
        self.finish_line(withdraw)
    }
    fn withdraw_ping(&mut self) -> Result<()> {
        Self::withdraw_ping(self).map(drop)
    }
}
