//! Translates an agent's diagnosis for the ladder.

use std::time::Duration;

use crate::agent::{AgentDiagnosis, AgentState};
use crate::env::Monotonic;
use crate::pane::Deferral;
use crate::proto::ack::WorkerActivity;

/// The activity that the ladder sees in a diagnosis. `limit_left` is how long a usage limit still lasts, if that is
/// known.
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
pub fn worker_state(
    diagnosis: &AgentDiagnosis,
    now: Monotonic,
    limit_left: Option<Duration>,
) -> WorkerActivity {
    match diagnosis.state {
        AgentState::Ready => WorkerActivity::Idle,
        AgentState::Busy | AgentState::Starting => WorkerActivity::Busy,
        AgentState::Permission | AgentState::Trust | AgentState::Dialog | AgentState::Login => {
            WorkerActivity::Asking
        }
        AgentState::RateLimited => {
            WorkerActivity::Limited { until: limit_left.map(|left| now + left) }
        }
        AgentState::Draft => WorkerActivity::HumanOccupied,
        AgentState::Crashed => WorkerActivity::Crashed,
        AgentState::Unknown => match diagnosis.deferral {
            Some(Deferral::CopyMode | Deferral::InputOff | Deferral::Synchronized) => {
                WorkerActivity::HumanOccupied
            }
            Some(Deferral::PaneGone | Deferral::PaneReused | Deferral::TerminalGone) => {
                WorkerActivity::Crashed
            }
            _ => WorkerActivity::Unknown,
        },
    }
}
