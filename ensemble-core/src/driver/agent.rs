//! What the ladder makes of an agent's state.

use std::time::Duration;

use crate::agent::{AgentState, Diagnosis};
use crate::env::Monotonic;
use crate::pane::Deferral;
use crate::proto::ack::Worker;

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
            Some(Deferral::PaneGone | Deferral::PaneReused | Deferral::TerminalGone) => {
                Worker::Crashed
            }
            _ => Worker::Unknown,
        },
    }
}
