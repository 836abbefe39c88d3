//! A pane that an agent runs in: look, judge, type.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::failure::TmuxFailure;
use super::guard::{pressing, typing};
use super::lock::{LOCK_LIMIT, PaneLock};
use super::quote::{is_one_line, quote};
use super::snapshot::PaneSnapshot;
use super::{Binding, TmuxServer, TypedNudge};
use crate::provider::machine::{AgentAnswer, SourcePlaces};
use crate::provider::process;
use crate::provider::{
    self, AgentObserver, DiagnosisContext, Judgement, Profile, TurnSign, TypingPurpose,
};
use ensemble_core::Result;
use ensemble_core::agent::AgentState;
use ensemble_core::durable::make_directory;
use ensemble_core::env::Pane;
use ensemble_core::pane::{Deferral, ForegroundProcess, Key, NudgeOutcome, NudgeText, PaneState};

/// The longest command that [`Pane::open`] types, in bytes: well below a terminal's line buffer.
const COMMAND_BYTES_MAX: usize = 1000;

/// A bound pane and the profile of the agent in it. See [`crate::tmux`] for what is promised.
#[derive(Debug)]
pub struct TmuxPane {
    pub(super) server: TmuxServer,
    pub(super) binding: Binding,
    pub(super) observer: AgentObserver,
    locks: PathBuf,
    /// A line of [`AgentPane::begin`](ensemble_core::agent::AgentPane::begin) that waits for its Enter.
    pub(super) half: Option<TypedNudge>,
}

#[derive(Debug)]
pub struct PaneExamination {
    pub pane: PaneState,
    pub judgement: Judgement,
    /// The objection to each purpose that was asked about, in that order.
    pub objections: Vec<Option<Deferral>>,
}

impl TmuxPane {
    /// The pane of `binding` on `server`, with the agent that `observer` judges in it. `locks` is a directory
    /// that all processes that may type into the pane share; it is made if it is missing.
    pub fn new(
        server: TmuxServer,
        binding: Binding,
        observer: AgentObserver,
        locks: &Path,
    ) -> Result<Self> {
        let locks = locks.to_owned();
        binding.validate(server.socket())?;
        make_directory(&locks)?;
        Ok(Self { server, binding, observer, locks, half: None })
    }

    /// Also uses what the agent reports over its own interfaces, at these places.
    pub fn with_places(mut self, places: SourcePlaces) -> Self {
        self.observer = self.observer.with_places(places);
        self
    }

    /// Also leaves a turn alone that begins by this sign.
    pub fn with_turn_sign(mut self, turn_sign: TurnSign) -> Self {
        self.observer = self.observer.with_turn_sign(turn_sign);
        self
    }

    /// The binding; changed by [`Pane::open`] when it respawns the pane, so store it again then.
    pub const fn binding(&self) -> &Binding {
        &self.binding
    }

    pub const fn profile(&self) -> &Arc<Profile> {
        self.observer.profile()
    }

    pub(crate) const fn observer(&self) -> &AgentObserver {
        &self.observer
    }

    pub(crate) fn check(&self) -> Result<Option<Deferral>> {
        self.server.check(&self.binding)
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.server.close(&self.binding).map(drop)
    }

    pub fn diagnose(&mut self) -> Result<Judgement> {
        let heard = self.ask();
        let state = self.inspect()?;
        let judgement = self.judge(&state, &heard);
        if judgement.state != AgentState::Draft {
            return Ok(judgement);
        }
        let line = self.unsent_line(&state);
        Ok(judgement.with_unsent_line(self.profile(), line))
    }

    /// Inspects the pane once and returns the objection to each of `purposes`, without doing any of them.
    pub fn examine(&mut self, purposes: &[TypingPurpose<'_>]) -> Result<PaneExamination> {
        let heard = self.ask();
        let pane = self.inspect()?;
        let judgement = self.judge(&pane, &heard);
        let against = |purpose| judgement.objection(self.profile(), &pane, purpose);
        let objections = purposes.iter().map(|purpose| against(*purpose)).collect();
        Ok(PaneExamination { judgement, objections, pane })
    }

    pub(super) fn ask(&self) -> AgentAnswer {
        self.observer.ask(self.binding.pid)
    }

    /// The profile's judgement of the pane's state; the limit that is shown is remembered.
    pub(super) fn judge(&mut self, state: &PaneState, heard: &AgentAnswer) -> Judgement {
        self.observer.judge(state, heard)
    }

    /// Looks; a pane that is not the bound one any more is seen as not bound.
    pub(super) fn observe_pane(&self) -> Result<(PaneSnapshot, PaneState), TmuxFailure> {
        let snapshot =
            PaneSnapshot::take_snapshot(&self.server, &self.binding.id)?.unwrap_or_default();
        let identity = &snapshot.identity;
        let bound = self.binding.mismatch(Some(identity)).is_none();
        let foreground = if bound && !identity.dead { self.foreground() } else { Vec::new() };
        // The wrapper that has started the agent is not what runs there.
        let agent = self.profile().program_among(&foreground);
        let state = PaneState {
            bound,
            dead: identity.dead,
            dead_status: snapshot.dead_status,
            in_mode: identity.in_mode,
            input_off: identity.input_off,
            synchronized: identity.synchronized,
            pid: identity.pid,
            command: agent.unwrap_or(&snapshot.command).to_owned(),
            foreground,
            title: snapshot.title.clone(),
            cursor_x: identity.cursor_x,
            cursor_y: identity.cursor_y,
            screen: snapshot.screen.clone(),
        };
        Ok((snapshot, state))
    }

    /// The processes in the foreground of the pane, searched no further than the agent. A shell is
    /// not enough: whether it is alone matters.
    fn foreground(&self) -> Vec<ForegroundProcess> {
        // `observe_pane` has compared the start time: a server in another namespace has other
        // process ids than we see.
        if self.binding.started.is_none() {
            return Vec::new();
        }
        let profile = self.profile();
        process::foreground(self.binding.pid, |process| {
            !process.shell && profile.name_as_program(process).is_some()
        })
    }

    /// The right to type. The client is connected before, so that nothing is started under the
    /// lock.
    pub(super) fn lock(
        &self,
        operation: &'static str,
        patience: Duration,
    ) -> Result<Result<PaneLock, Deferral>> {
        if let Err(failure) = self.server.prepare() {
            return self.refusal(operation, failure).map(Err);
        }
        match PaneLock::acquire(&self.locks, &self.binding.token, patience) {
            Ok(lock) => Ok(Ok(lock)),
            Err(error) => Err(error),
        }
    }

    /// A failure that certainly typed nothing is a reason; the rest are errors.
    pub(super) fn refusal(
        &self,
        operation: &'static str,
        failure: TmuxFailure,
    ) -> Result<Deferral> {
        match failure.deferral() {
            Some(deferral) => Ok(deferral),
            None => Err(self.server.error(operation, failure)),
        }
    }

    pub(super) fn settle(
        &self,
        operation: &'static str,
        outcome: Result<Option<Deferral>, TmuxFailure>,
    ) -> Result<Option<Deferral>> {
        match outcome {
            Ok(outcome) => Ok(outcome),
            Err(failure) => self.refusal(operation, failure).map(Some),
        }
    }

    fn respawn(
        &mut self,
        seen: &PaneSnapshot,
        command: &str,
    ) -> Result<Option<Deferral>, TmuxFailure> {
        let commands = format!("respawn-pane -t {} {}", quote(&self.binding.id), quote(command));
        let outcome = self.server.act_guarded(&self.binding, &seen.identity, &commands)?;
        if outcome.is_none() {
            let now =
                PaneSnapshot::take_snapshot(&self.server, &self.binding.id)?.unwrap_or_default();
            if now.identity.token == self.binding.token {
                self.binding.follow(now.identity.pid);
            }
        }
        Ok(outcome)
    }

    fn try_open(&mut self, command: &str) -> Result<Option<Deferral>, TmuxFailure> {
        let (snapshot, state) = self.observe_pane()?;
        if state.bound && state.dead {
            return self.respawn(&snapshot, command);
        }
        if let Some(deferral) = provider::objection(
            self.profile(),
            &state,
            &DiagnosisContext::default(),
            TypingPurpose::Open,
        ) {
            return Ok(Some(deferral));
        }
        let commands = typing(&self.binding, command, true);
        self.server.act_guarded(&self.binding, &snapshot.identity, &commands)
    }
}

impl Pane for TmuxPane {
    fn inspect(&mut self) -> Result<PaneState> {
        match self.observe_pane() {
            Ok((_, state)) => Ok(state),
            Err(failure) => Err(self.server.error("look at a pane", failure)),
        }
    }

    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        let typed = self.nudge_text(text)?;
        self.submit_typed(typed)
    }

    fn press(&mut self, key: Key) -> Result<NudgeOutcome> {
        const OPERATION: &str = "press a key";
        let _lock = match self.lock(OPERATION, LOCK_LIMIT)? {
            Ok(lock) => lock,
            Err(deferral) => return Ok(NudgeOutcome::Refused { deferral }),
        };
        let commands = pressing(&self.binding, key_name(key));
        Ok(outcome(self.judged(OPERATION, TypingPurpose::Press(key), &commands)?))
    }

    fn open(&mut self, command: &str) -> Result<NudgeOutcome> {
        const OPERATION: &str = "open an agent";
        if command.is_empty() || command.len() > COMMAND_BYTES_MAX || !is_one_line(command) {
            let detail =
                format!("a command has 1 to {COMMAND_BYTES_MAX} bytes and no control characters");
            return Err(self.server.error(OPERATION, TmuxFailure::Refused(detail)));
        }
        let _lock = match self.lock(OPERATION, LOCK_LIMIT)? {
            Ok(lock) => lock,
            Err(deferral) => return Ok(NudgeOutcome::Refused { deferral }),
        };
        let opened = self.try_open(command);
        Ok(outcome(self.settle(OPERATION, opened)?))
    }
}

pub(super) fn outcome(deferral: Option<Deferral>) -> NudgeOutcome {
    match deferral {
        None => NudgeOutcome::Sent,
        Some(deferral) => NudgeOutcome::Refused { deferral },
    }
}

pub(super) const fn key_name(key: Key) -> &'static str {
    match key {
        Key::Enter => "Enter",
        Key::Escape => "Escape",
        Key::CtrlC => "C-c",
    }
}
