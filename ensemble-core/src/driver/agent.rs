//! A pane together with what is known of the agent in it.

use std::time::Duration;

use crate::Result;
use crate::env::{Monotonic, Pane};
use crate::pane::{Deferral, NudgeOutcome};
use crate::proto::ack::Worker;
use crate::provider::{AgentState, Diagnosis, Profile};
use crate::tmux::TmuxPane;

/// A [`Pane`] whose agent can be judged. Every call is bounded in time like those of [`Pane`].
pub trait AgentPane: Pane {
    /// What is known of the agent's program.
    fn profile(&self) -> &Profile;

    /// What the agent is doing, with the evidence.
    ///
    /// # Errors
    /// As for [`Pane::inspect`].
    fn diagnose(&mut self) -> Result<Diagnosis>;

    /// Types and submits the profile's reset command, under the guard of [`Pane::nudge`].
    ///
    /// # Errors
    /// The profile has none; otherwise as for [`Pane::nudge`].
    fn reset_context(&mut self) -> Result<NudgeOutcome>;
}

impl AgentPane for TmuxPane {
    fn profile(&self) -> &Profile {
        Self::profile(self)
    }
    fn diagnose(&mut self) -> Result<Diagnosis> {
        Self::diagnose(self)
    }
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        Self::reset_context(self)
    }
}

impl<P: AgentPane + ?Sized> AgentPane for &mut P {
    fn profile(&self) -> &Profile {
        (**self).profile()
    }
    fn diagnose(&mut self) -> Result<Diagnosis> {
        (**self).diagnose()
    }
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        (**self).reset_context()
    }
}

/// What the ladder makes of a diagnosis. `limit_left` is how long a usage limit still lasts, if
/// that is known.
///
/// | seen | the ladder's word |
/// |---|---|
/// | `ready` | idle |
/// | `busy`, `starting` | busy |
/// | `permission`, `trust`, `dialog`, `login` | asking |
/// | `rate_limited` | limited |
/// | `draft`; copy-mode, input off, synchronized panes | human_occupied |
/// | `crashed`; a pane that is gone, reused or dead | crashed |
/// | anything else | unknown |
#[must_use]
pub fn worker_state(diagnosis: &Diagnosis, now: Monotonic, limit_left: Option<Duration>) -> Worker {
    match diagnosis.state {
        AgentState::Ready => Worker::Idle,
        AgentState::Busy | AgentState::Starting => Worker::Busy,
        AgentState::Permission | AgentState::Trust | AgentState::Dialog | AgentState::Login => {
            Worker::Asking
        }
        AgentState::RateLimited => Worker::Limited { until: limit_left.map(|left| now + left) },
        AgentState::Draft => Worker::HumanOccupied,
        AgentState::Crashed => Worker::Crashed,
        AgentState::Unknown => match diagnosis.deferral {
            Some(Deferral::CopyMode | Deferral::InputOff | Deferral::Synchronized) => {
                Worker::HumanOccupied
            }
            Some(Deferral::PaneGone | Deferral::PaneReused) => Worker::Crashed,
            _ => Worker::Unknown,
        },
    }
}
