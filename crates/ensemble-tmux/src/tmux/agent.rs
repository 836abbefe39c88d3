//! A [`TmuxPane`] as a pane whose agent can be judged.

use ensemble_core::Result;
use ensemble_core::agent::{AgentDiagnosis, AgentPane, ProgramSettings, TypedLine, TypingStep};
use ensemble_core::pane::NudgeOutcome;

use super::TmuxPane;

impl AgentPane for TmuxPane {
    fn program(&self) -> &ProgramSettings {
        Self::profile(self).program()
    }
    fn diagnose(&mut self) -> Result<AgentDiagnosis> {
        Self::diagnose(self).map(|judgement| judgement.diagnosis)
    }
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        Self::reset_context(self)
    }
    fn begin(&mut self, line: TypedLine<'_>) -> Result<TypingStep> {
        let (text, again) = match line {
            TypedLine::Nudge(text) => (Some(text), false),
            TypedLine::Again(text) => (Some(text), true),
            TypedLine::Reset => (None, false),
        };
        Ok(match self.begin_line(text, again)? {
            Ok(outcome) => TypingStep::Done(outcome),
            Err(left) => TypingStep::EnterAfter(left),
        })
    }
    fn finish(&mut self, withdraw: bool) -> Result<NudgeOutcome> {
        self.finish_line(withdraw)
    }
    fn withdraw_ping(&mut self) -> Result<()> {
        Self::withdraw_ping(self).map(drop)
    }
}
