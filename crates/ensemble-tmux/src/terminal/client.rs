//! A terminal as seen by all processes but its wrapper, and a pane of another multiplexer.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use super::hosted::answer_action;
use super::wire::{self, TerminalAction, TerminalAnswer, TerminalQuestion};
use crate::provider::machine::AgentAnswer;
use crate::provider::{AgentObserver, Judgement, Profile, TypingPurpose, UnsentLine};
use crate::tmux::{Binding, PaneExamination, TmuxError};
use ensemble_core::Result;
use ensemble_core::agent::{AgentDiagnosis, AgentPane, ProgramSettings, TypedLine, TypingStep};
use ensemble_core::env::Pane;
use ensemble_core::pane::{Deferral, Key, NudgeOutcome, NudgeText, PaneState};

/// The terminal of an agent, through the socket of its wrapper; or its pane in [another multiplexer](super::hosted).
#[derive(Debug)]
pub struct TerminalPane {
    binding: Binding,
    pub(super) observer: AgentObserver,
    locks: PathBuf,
}

impl TerminalPane {
    /// The terminal of `binding`, with the agent that `observer` judges in it. `locks` as for
    /// [`TmuxPane::new`](crate::tmux::TmuxPane::new). Connects to nothing yet.
    #[must_use]
    pub const fn new(binding: Binding, observer: AgentObserver, locks: PathBuf) -> Self {
        Self { binding, observer, locks }
    }

    fn absence(&self) -> Deferral {
        match self.binding.is_terminal() {
            true => Deferral::TerminalGone,
            false => Deferral::PaneGone,
        }
    }

    /// Closes a pane of another multiplexer. A terminal ends with its agent.
    pub(crate) fn close(&self) -> Result<()> {
        self.binding.close_hosted()
    }

    pub const fn binding(&self) -> &Binding {
        &self.binding
    }

    pub const fn profile(&self) -> &Arc<Profile> {
        self.observer.profile()
    }

    pub fn check(&self) -> Result<Option<Deferral>> {
        let (state, _) = self.ask_for_pane("check a terminal")?;
        Ok(match state {
            PaneState { bound: false, .. } => Some(self.absence()),
            PaneState { dead: true, .. } => Some(Deferral::PaneDead),
            _ => None,
        })
    }

    pub fn diagnose(&mut self) -> Result<Judgement> {
        let (pane, line) = self.ask_for_pane("look at a terminal")?;
        let heard = self.observer.ask(self.binding.pid);
        let judgement = self.judge(&pane, &heard);
        Ok(judgement.with_unsent_line(self.observer.profile(), line))
    }

    /// Inspects the pane once and returns the objection to each of `purposes`, without doing any of them.
    pub fn examine(&mut self, purposes: &[TypingPurpose<'_>]) -> Result<PaneExamination> {
        let heard = self.observer.ask(self.binding.pid);
        let pane = self.inspect()?;
        let judgement = self.judge(&pane, &heard);
        let profile = self.observer.profile();
        let against = |purpose: &TypingPurpose<'_>| judgement.objection(profile, &pane, *purpose);
        let objections = purposes.iter().map(against).collect();
        Ok(PaneExamination { pane, judgement, objections })
    }

    fn judge(&mut self, pane: &PaneState, heard: &AgentAnswer) -> Judgement {
        let mut judgement = self.observer.judge(pane, heard);
        if !pane.bound {
            judgement.deferral = Some(self.absence());
        }
        judgement
    }

    /// Types a line and submits it; `repeats` as for [`TmuxPane::nudge_again`](crate::tmux::TmuxPane::nudge_again),
    /// `probes` as for [`TmuxPane::probe_text`](crate::tmux::TmuxPane::probe_text).
    pub fn type_line(&self, text: &NudgeText, repeats: bool, probes: bool) -> Result<NudgeOutcome> {
        let text = text.as_str().to_owned();
        self.act("type a nudge", TerminalAction::Nudge { text, repeats, probes, steers: false })
    }

    /// Types a line into a turn that runs, where the agent's program takes it so.
    pub fn steer(&self, text: &NudgeText) -> Result<NudgeOutcome> {
        let text = text.as_str().to_owned();
        let ask = TerminalAction::Nudge { text, repeats: false, probes: false, steers: true };
        self.act("interrupt an agent", ask)
    }

    pub fn submit(&self, text: &NudgeText) -> Result<NudgeOutcome> {
        self.act("submit a nudge", TerminalAction::Submit { text: text.as_str().to_owned() })
    }

    /// Withdraws a line whose mail has been received in another way
    /// ([`TmuxPane::withdraw_line`](crate::tmux::TmuxPane::withdraw_line)).
    pub fn withdraw_line(&self) -> Result<Deferral> {
        Ok(match self.act("take back a line", TerminalAction::WithdrawLine {})? {
            NudgeOutcome::Refused { deferral } | NudgeOutcome::TextOnly { deferral } => deferral,
            NudgeOutcome::Sent => Deferral::LineGone,
        })
    }

    fn act(&self, operation: &'static str, ask: TerminalAction) -> Result<NudgeOutcome> {
        match self.ask(operation, ask)? {
            Some(TerminalAnswer::Outcome(outcome)) => Ok(outcome),
            Some(other) => Err(self.refused(operation, &other)),
            None => Ok(NudgeOutcome::Refused { deferral: self.absence() }),
        }
    }

    fn ask_for_pane(&self, operation: &'static str) -> Result<(PaneState, UnsentLine)> {
        match self.ask(operation, TerminalAction::Look {})? {
            Some(TerminalAnswer::Pane { state, line }) => Ok((state, line)),
            Some(other) => Err(self.refused(operation, &other)),
            None => Ok(Default::default()),
        }
    }

    fn ask(&self, operation: &'static str, ask: TerminalAction) -> Result<Option<TerminalAnswer>> {
        use io::ErrorKind::{ConnectionRefused, NotFound, TimedOut, WouldBlock};
        if !self.binding.is_terminal() {
            return answer_action(&self.binding, &self.observer, &self.locks, ask);
        }
        let stream = match UnixStream::connect(&self.binding.socket) {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => return Ok(None),
            Err(error) => return Err(self.failed(operation, &error)),
        };
        let question = TerminalQuestion { token: self.binding.token.clone(), ask };
        let answered = wire::write(&stream, &question).and_then(|()| wire::read(&stream));
        answered.map(Some).map_err(|error| match error.kind() {
            WouldBlock | TimedOut => self.failed(operation, &"it does not answer"),
            _ => self.failed(operation, &error),
        })
    }

    fn refused(&self, operation: &'static str, answer: &TerminalAnswer) -> ensemble_core::Error {
        match answer {
            TerminalAnswer::Failed { detail } => self.failed(operation, detail),
            TerminalAnswer::Pane { .. } | TerminalAnswer::Outcome(_) => {
                self.failed(operation, &"it answered something else")
            }
        }
    }

    fn failed(&self, operation: &'static str, why: &dyn std::fmt::Display) -> ensemble_core::Error {
        let socket = self.binding.socket.clone();
        TmuxError::Terminal { operation, socket, complaint: why.to_string() }.into()
    }
}

impl Pane for TerminalPane {
    fn inspect(&mut self) -> Result<PaneState> {
        self.ask_for_pane("look at a terminal").map(|(state, _)| state)
    }

    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        self.type_line(text, false, false)
    }

    fn press(&mut self, key: Key) -> Result<NudgeOutcome> {
        self.act("press a key", TerminalAction::Press { key })
    }

    /// A terminal ends with its agent: nothing can be started in it.
    fn open(&mut self, _command: &str) -> Result<NudgeOutcome> {
        let deferral = self.check()?.unwrap_or(Deferral::InputOff);
        Ok(NudgeOutcome::Refused { deferral })
    }
}

impl AgentPane for TerminalPane {
    fn program(&self) -> &ProgramSettings {
        self.profile().program()
    }

    fn diagnose(&mut self) -> Result<AgentDiagnosis> {
        Self::diagnose(self).map(|judgement| judgement.diagnosis)
    }

    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        self.act("reset an agent", TerminalAction::Reset {})
    }

    fn begin(&mut self, line: TypedLine<'_>) -> Result<TypingStep> {
        let outcome = match line {
            TypedLine::Nudge(text) => self.type_line(text, false, false),
            TypedLine::Again(text) => self.type_line(text, true, false),
            TypedLine::Reset => self.reset_context(),
        };
        outcome.map(TypingStep::Done)
    }

    fn withdraw_ping(&mut self) -> Result<()> {
        self.act("take back a ping", TerminalAction::WithdrawPing {}).map(drop)
    }
}
