//! A scripted pane that records what was typed.

use std::sync::MutexGuard;

use crate::*;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PaneAction {
    Text(NudgeText),
    Key(Key),
    /// The agent's program was started.
    Open,
}

/// Does what it is asked unless it was set to refuse. Clones are the same pane.
#[derive(Clone)]
pub(super) struct SimPane(Arc<Mutex<PaneScript>>);

struct PaneScript {
    state: PaneState,
    deferral: Option<Deferral>,
    presses: Vec<PaneAction>,
}

impl Default for SimPane {
    fn default() -> Self {
        let state = PaneState { bound: true, pid: 1, ..PaneState::default() };
        Self(Arc::new(Mutex::new(PaneScript { state, deferral: None, presses: Vec::new() })))
    }
}

impl SimPane {
    fn script(&self) -> MutexGuard<'_, PaneScript> {
        self.0.lock().unwrap()
    }

    pub(super) fn show(&self, change: impl FnOnce(&mut PaneState)) {
        change(&mut self.script().state);
    }

    /// Refuses every action for this reason from now on.
    pub(super) fn defer(&self, deferral: Deferral) {
        self.script().deferral = Some(deferral);
    }

    pub(super) fn presses(&self) -> Vec<PaneAction> {
        self.script().presses.clone()
    }

    pub(super) fn presses_count(&self) -> usize {
        self.script().presses.len()
    }

    pub(super) fn state(&self) -> PaneState {
        self.script().state.clone()
    }

    pub(super) fn receive(&self, press: PaneAction) -> NudgeOutcome {
        let mut script = self.script();
        if let Some(deferral) = script.deferral.clone() {
            return NudgeOutcome::Refused { deferral };
        }
        script.presses.push(press);
        NudgeOutcome::Sent
    }
}
