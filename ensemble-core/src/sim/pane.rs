//! A scripted pane that records typed text.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::lock;
use crate::Result;
use crate::env::Pane;
use crate::pane::{Deferral, Key, NudgeOutcome, NudgeText, PaneState};

/// An action on a [`SimPane`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaneAction {
    /// A hint was typed.
    Text {
        text: NudgeText,
        /// Whether Enter followed.
        submitted: bool,
    },
    Key(Key),
    /// The agent's program was started.
    Open(String),
}

/// A scripted pane. It first refuses for the reasons that its [`PaneState`] gives, then for the
/// configured reason. Otherwise it does what it is asked. Clones are the same pane.
#[derive(Clone, Debug)]
pub struct SimPane(Arc<Mutex<PaneScript>>);

#[derive(Debug)]
struct PaneScript {
    state: PaneState,
    deferral: Option<Deferral>,
    outcomes: VecDeque<NudgeOutcome>,
    presses: Vec<PaneAction>,
}

impl Default for SimPane {
    /// A pane that accepts everything.
    fn default() -> Self {
        Self::new(PaneState { bound: true, pid: 1, ..PaneState::default() })
    }
}

impl SimPane {
    pub fn new(state: PaneState) -> Self {
        let (outcomes, presses) = (VecDeque::new(), Vec::new());
        Self(Arc::new(Mutex::new(PaneScript { state, deferral: None, outcomes, presses })))
    }

    pub fn show(&self, change: impl FnOnce(&mut PaneState)) {
        change(&mut lock(&self.0).state);
    }

    /// Refuses every action for this reason from now on; `None` stops refusing.
    pub fn defer(&self, deferral: Option<Deferral>) {
        lock(&self.0).deferral = deferral;
    }

    /// Gives this outcome to the next nudge, key or open, in any state. Several outcomes are
    /// queued.
    pub fn answer_next(&self, outcome: NudgeOutcome) {
        lock(&self.0).outcomes.push_back(outcome);
    }

    /// Every action on the pane, oldest first.
    pub fn presses(&self) -> Vec<PaneAction> {
        lock(&self.0).presses.clone()
    }

    pub fn presses_count(&self) -> usize {
        lock(&self.0).presses.len()
    }

    fn receive(&self, press: impl FnOnce(bool) -> PaneAction) -> NudgeOutcome {
        let mut script = lock(&self.0);
        let outcome = script.outcomes.pop_front().unwrap_or_else(|| script.guard());
        match &outcome {
            NudgeOutcome::Sent => script.presses.push(press(true)),
            NudgeOutcome::TextOnly { .. } => script.presses.push(press(false)),
            NudgeOutcome::Refused { .. } => {}
        }
        outcome
    }
}

impl PaneScript {
    fn guard(&self) -> NudgeOutcome {
        let state = &self.state;
        let reasons = [
            (!state.bound, Deferral::PaneGone),
            (state.dead, Deferral::PaneDead),
            (state.in_mode, Deferral::CopyMode),
            (state.input_off, Deferral::InputOff),
            (state.synchronized, Deferral::Synchronized),
        ];
        let by_state = reasons.into_iter().find_map(|(holds, reason)| holds.then_some(reason));
        match by_state.or_else(|| self.deferral.clone()) {
            Some(deferral) => NudgeOutcome::Refused { deferral },
            None => NudgeOutcome::Sent,
        }
    }
}

impl Pane for SimPane {
    fn inspect(&mut self) -> Result<PaneState> {
        Ok(lock(&self.0).state.clone())
    }

    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        Ok(self.receive(|submitted| PaneAction::Text { text: text.clone(), submitted }))
    }

    fn press(&mut self, key: Key) -> Result<NudgeOutcome> {
        Ok(self.receive(|_| PaneAction::Key(key)))
    }

    fn open(&mut self, command: &str) -> Result<NudgeOutcome> {
        Ok(self.receive(|_| PaneAction::Open(command.to_owned())))
    }
}
