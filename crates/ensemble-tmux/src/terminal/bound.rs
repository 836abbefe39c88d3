//! Where an agent runs: in a pane of tmux, in one of our terminals, or in a pane of another multiplexer.

use std::path::Path;
use std::sync::Arc;

use super::TerminalPane;
use crate::nudge::NudgeOccasion;
use crate::provider::{AgentObserver, Judgement, Profile, TypingPurpose, UsageLimit};
use crate::tmux::{Binding, PaneExamination, TextOutcome, TmuxPane, TmuxServer, TypedNudge};
use ensemble_core::Result;
use ensemble_core::agent::{
    AgentDiagnosis, AgentPane, AgentState, ProgramSettings, TypedLine, TypingStep,
};
use ensemble_core::env::Pane;
use ensemble_core::pane::{Deferral, Key, NudgeOutcome, NudgeText, PaneState};

macro_rules! on_either {
    ($place:expr, $pane:ident => $call:expr) => {
        match $place {
            BoundPane::Tmux($pane) => $call,
            BoundPane::Terminal($pane) => $call,
        }
    };
}

#[derive(Debug)]
pub enum BoundPane {
    Tmux(TmuxPane),
    /// In a terminal, or in a pane of another multiplexer.
    Terminal(TerminalPane),
}

impl BoundPane {
    /// The place of `binding`, with the agent that `observer` judges in it. `server` and `locks` are for a pane of tmux
    /// ([`TmuxPane::new`]). Connects to nothing yet.
    pub fn open(
        server: TmuxServer,
        binding: Binding,
        observer: AgentObserver,
        locks: &Path,
    ) -> Result<Self> {
        if !binding.is_in_tmux() {
            return Ok(Self::Terminal(TerminalPane::new(binding, observer, locks.to_owned())));
        }
        TmuxPane::new(server, binding, observer, locks).map(Self::Tmux)
    }

    pub const fn binding(&self) -> &Binding {
        on_either!(self, pane => pane.binding())
    }

    pub const fn profile(&self) -> &Arc<Profile> {
        self.observer().profile()
    }

    /// The limit that the last inspection or attempt has shown, even if it has passed. Pass it on to a later pane of
    /// the same agent, because the message may not name the day.
    pub const fn limit(&self) -> Option<&UsageLimit> {
        self.observer().limit()
    }

    pub const fn is_limited_without_end(&self) -> bool {
        self.observer().is_limited_without_end()
    }

    const fn observer(&self) -> &AgentObserver {
        match self {
            Self::Tmux(pane) => pane.observer(),
            Self::Terminal(pane) => &pane.observer,
        }
    }

    /// Why the place is not there any more, or not the one that was bound; `None` if it is.
    pub fn check(&self) -> Result<Option<Deferral>> {
        on_either!(self, pane => pane.check())
    }

    /// Closes a pane that we have opened. A terminal ends with its agent.
    pub fn close(&self) -> Result<()> {
        on_either!(self, pane => pane.close())
    }

    pub fn diagnose(&mut self) -> Result<Judgement> {
        on_either!(self, pane => pane.diagnose())
    }

    /// Inspects the pane once and returns the objection to each of `purposes`.
    pub fn examine(&mut self, purposes: &[TypingPurpose<'_>]) -> Result<PaneExamination> {
        on_either!(self, pane => pane.examine(purposes))
    }

    /// The first half of a nudge: see [`TmuxPane::nudge_text`], [`TmuxPane::nudge_again`] and
    /// [`TmuxPane::probe_text`]. A terminal does both halves.
    pub fn nudge_text(&mut self, text: &NudgeText, on: NudgeOccasion) -> Result<TextOutcome> {
        let (repeats, probes) = (on == NudgeOccasion::Again, on == NudgeOccasion::Probe);
        match self {
            Self::Terminal(pane) => pane.type_line(text, repeats, probes).map(TextOutcome::from),
            Self::Tmux(pane) if repeats => pane.nudge_again(text),
            Self::Tmux(pane) if probes => pane.probe_text(text),
            Self::Tmux(pane) => pane.nudge_text(text),
        }
    }

    /// Interrupts an agent that is at work, so that it reads its mail: by a line that steers its turn, or by Escape, as its
    /// profile allows it. Refused for one that is not at work, or that must not be interrupted.
    pub fn interrupt(&mut self, text: &NudgeText) -> Result<TextOutcome> {
        let (profile, state) = (Arc::clone(self.profile()), self.diagnose()?.state);
        let refused = |deferral| Ok(TextOutcome::Refused { deferral });
        if state != AgentState::Busy {
            return refused(Deferral::Moved);
        }
        match (profile.steering(), self) {
            (Some(steering), Self::Tmux(pane)) => pane.steered(steering.into()).nudge_text(text),
            (Some(_), Self::Terminal(pane)) => pane.steer(text).map(TextOutcome::from),
            (None, _) if profile.forbids(state, Key::Escape) => refused(Deferral::Busy),
            (None, Self::Tmux(pane)) => pane.press(Key::Escape).map(TextOutcome::from),
            (None, Self::Terminal(pane)) => pane.press(Key::Escape).map(TextOutcome::from),
        }
    }

    /// The second half ([`TmuxPane::enter_if_shown`]).
    pub fn enter_if_shown(
        &mut self,
        typed: TypedNudge,
    ) -> Result<std::result::Result<NudgeOutcome, TypedNudge>> {
        match self {
            Self::Tmux(pane) => pane.enter_if_shown(typed),
            // It has no halves.
            Self::Terminal(_) => Ok(Ok(NudgeOutcome::Refused { deferral: Deferral::Moved })),
        }
    }

    /// Submits a line that is in the composer ([`TmuxPane::submit`]).
    pub fn submit(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        on_either!(self, pane => pane.submit(text))
    }

    /// Withdraws a line whose mail has been received in another way ([`TmuxPane::withdraw_line`]).
    pub fn withdraw_line(&mut self) -> Result<Deferral> {
        on_either!(self, pane => pane.withdraw_line())
    }

    fn as_agent_pane(&mut self) -> &mut dyn AgentPane {
        on_either!(self, pane => pane)
    }
}

impl Pane for BoundPane {
    fn inspect(&mut self) -> Result<PaneState> {
        self.as_agent_pane().inspect()
    }
    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        self.as_agent_pane().nudge(text)
    }
    fn press(&mut self, key: Key) -> Result<NudgeOutcome> {
        self.as_agent_pane().press(key)
    }
    fn open(&mut self, command: &str) -> Result<NudgeOutcome> {
        self.as_agent_pane().open(command)
    }
}

impl AgentPane for BoundPane {
    fn program(&self) -> &ProgramSettings {
        self.profile().program()
    }
    fn diagnose(&mut self) -> Result<AgentDiagnosis> {
        self.as_agent_pane().diagnose()
    }
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        self.as_agent_pane().reset_context()
    }
    fn begin(&mut self, line: TypedLine<'_>) -> Result<TypingStep> {
        self.as_agent_pane().begin(line)
    }
    fn finish(&mut self, withdraw: bool) -> Result<NudgeOutcome> {
        self.as_agent_pane().finish(withdraw)
    }
    fn withdraw_ping(&mut self) -> Result<()> {
        self.as_agent_pane().withdraw_ping()
    }
}
