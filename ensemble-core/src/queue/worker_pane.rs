//! A pane that an embedder has itself: a terminal, a child process, a web view.

use std::fmt;
use std::sync::LazyLock;

use super::CallbackResult;
use crate::Result;
use crate::agent::{
    AgentDiagnosis, AgentPane, AgentState, EscalationPlan, EscalationStep, ProgramSettings,
};
use crate::env::Pane;
use crate::pane::{Deferral, Key, NudgeOutcome, NudgeText, PaneState};

/// Where a worker runs, as [`AckManager`](super::AckManager) uses it: it looks at the worker before it types, and types
/// hints, never content. Two methods are enough; an error means that nothing was typed, and is recorded.
///
/// ```
/// use ensemble_core::{AgentState, CallbackResult, Key, WorkerPane};
///
/// struct Terminal(Vec<String>);
///
/// impl WorkerPane for Terminal {
///     fn observe(&mut self) -> CallbackResult<AgentState> {
///         Ok(AgentState::Ready)
///     }
///     fn nudge(&mut self, hint: &str) -> CallbackResult {
///         self.0.push(hint.to_owned());
///         Ok(())
///     }
///     fn press(&mut self, key: Key) -> CallbackResult {
///         self.0.push(format!("{key:?}"));
///         Ok(())
///     }
///     fn reset(&mut self) -> CallbackResult {
///         self.nudge("/clear")
///     }
/// }
/// ```
pub trait WorkerPane: Send {
    /// Observes what the worker is doing. A worker that is busy, asks a person something or has a draft is not
    /// disturbed.
    ///
    /// # Errors
    /// The state is not known; then no key is pressed.
    fn observe(&mut self) -> CallbackResult<AgentState>;

    /// Shows a hint that mail is waiting, such as one line of text and Enter.
    ///
    /// # Errors
    /// It cannot be shown now; it is tried again.
    fn nudge(&mut self, hint: &str) -> CallbackResult;

    /// Phase 2: presses a key that leaves an input mode. Refuses by default.
    ///
    /// # Errors
    /// The pane has no keys.
    fn press(&mut self, key: Key) -> CallbackResult {
        Err(format!("this pane has no key for {key:?}").into())
    }

    /// Phase 3: has the worker forget what it was doing; the task is delivered again. Refuses by default.
    ///
    /// # Errors
    /// The worker cannot be reset.
    fn reset(&mut self) -> CallbackResult {
        Err("this pane cannot reset its worker".into())
    }
}

/// A worker without a screen: a closure passes its hints on.
pub(super) struct HeadlessPane<F>(pub(super) F);

impl<F: FnMut(&str) -> CallbackResult + Send> WorkerPane for HeadlessPane<F> {
    fn observe(&mut self) -> CallbackResult<AgentState> {
        Ok(AgentState::Ready)
    }
    fn nudge(&mut self, hint: &str) -> CallbackResult {
        (self.0)(hint)
    }
}

/// The settings for phases 2 and 3 in every such pane.
static PROGRAM: LazyLock<ProgramSettings> = LazyLock::new(|| ProgramSettings {
    escalation: EscalationPlan {
        phase_2: vec![EscalationStep::Escape, EscalationStep::Nudge],
        phase_3: vec![EscalationStep::Reset, EscalationStep::Nudge],
    },
    ..ProgramSettings::plain("worker")
});

/// An embedder's pane, as the ladder drives it.
pub(super) struct DrivenPane(pub(super) Box<dyn WorkerPane>);

impl fmt::Debug for DrivenPane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DrivenPane")
    }
}

fn outcome(typed: CallbackResult) -> Result<NudgeOutcome> {
    Ok(match typed {
        Ok(()) => NudgeOutcome::Sent,
        Err(error) => {
            NudgeOutcome::Refused { deferral: Deferral::Failed { detail: error.to_string() } }
        }
    })
}

impl Pane for DrivenPane {
    fn inspect(&mut self) -> Result<PaneState> {
        Ok(PaneState::headless())
    }
    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        outcome(self.0.nudge(text.as_str()))
    }
    fn press(&mut self, key: Key) -> Result<NudgeOutcome> {
        outcome(self.0.press(key))
    }
    fn open(&mut self, _command: &str) -> Result<NudgeOutcome> {
        outcome(Err("the embedder starts its workers".into()))
    }
}

impl AgentPane for DrivenPane {
    fn program(&self) -> &ProgramSettings {
        &PROGRAM
    }
    fn diagnose(&mut self) -> Result<AgentDiagnosis> {
        Ok(AgentDiagnosis::of(self.0.observe().unwrap_or(AgentState::Unknown)))
    }
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        outcome(self.0.reset())
    }
}
