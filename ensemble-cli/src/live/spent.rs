//! The usage of agents, read on a separate thread: their records may be long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ensemble_core::message::Name;
use ensemble_project::consumption::UsageReader;
use ensemble_usage::UsageTotals;

use super::wakes::ViewWaker;
use crate::context::locked;

const INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a look, as a multiple of the time that it took.
const PAUSE_PER_COST: u32 = 400;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct UsedAmounts {
    pub(super) agents: BTreeMap<Name, UsageTotals>,
    /// Records that may be of several agents, and count for none.
    pub(super) unclear: usize,
}

#[derive(Clone, Default)]
pub(super) struct SpentByAgent(Arc<Mutex<UsedAmounts>>);

impl SpentByAgent {
    pub(super) fn follow(mut reader: UsageReader, waker: ViewWaker) -> Self {
        let this = Self::default();
        let shared = this.clone();
        std::thread::spawn(move || {
            loop {
                let began = Instant::now();
                // If it cannot be read now, the last numbers stay.
                if let Ok(usage) = reader.update() {
                    let usage = usage.into_iter().map(|(agent, usage)| (agent, usage.spent));
                    let now =
                        UsedAmounts { agents: usage.collect(), unclear: reader.unclear.len() };
                    let mut shown = locked(&shared.0);
                    if *shown != now {
                        *shown = now;
                        waker.wake();
                    }
                }
                std::thread::sleep(INTERVAL.max(began.elapsed() * PAUSE_PER_COST));
            }
        });
        this
    }

    pub(super) fn get(&self) -> UsedAmounts {
        locked(&self.0).clone()
    }
}
