//! Fifty workers on an unreliable network: readiness, delivery, nudges and escalation together.
//!
//! A worker is one agent with a changing state (idle, busy, asking, limited, used by a person,
//! crashed). Its character is fixed: some never answer, some never read. Between a worker and its
//! machines, messages are lost, late, doubled and reordered. These invariants always hold:
//!
//! 1. No task is assigned to a worker that has not sent a pong for that attempt.
//! 2. No protocol asks for a key while the worker was last seen busy, and no key reaches a busy
//!    pane.
//! 3. The conductor is notified of a task at most once, and never of one that was acked before.
//! 4. Every task ends: not assigned, acked, escalated or expired.
//!
//! A failing seed is printed. `ENSEMBLE_SIM_SEED=<seed>` runs it alone; `ENSEMBLE_SIM_COUNT=<n>`
//! sets the number of runs.

mod agent;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::{SimClock, SimRng, SimTransport};
use agent::Agent;
use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::message::Timestamp;
use ensemble_core::proto::ack;
use ensemble_core::proto::ready;
use ensemble_tmux::nudge;

const WORKERS: usize = 50;
/// A debug build is about twenty times slower.
const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 10_000 };
/// Longer than every timeout.
const HORIZON: Duration = Duration::from_secs(12 * 60 * 60);

const _: () = assert!(ack::PARK_MAX.as_secs() < HORIZON.as_secs());

/// An event for one worker or for its machines.
#[derive(Clone, Debug)]
enum Item {
    /// A deadline of its machines.
    Wake,
    /// The worker's state changes.
    Mood,
    /// The worker reads a ping.
    Ping(u8),
    Hint,
    /// The worker answers a ping after some time.
    Answer(u8),
    Read,
    /// An event for the machines.
    Ready(ready::Event),
    Ladder(ack::Event),
    NudgeSchedule(nudge::Event),
}

struct Entry {
    at: Monotonic,
    /// Entries of one moment keep their order, so that a run repeats.
    order: u64,
    worker: usize,
    item: Item,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Entry {}

/// Number of tasks by outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ends {
    refused: u32,
    acked: u32,
    escalated: u32,
    expired: u32,
}

/// State that all workers share.
struct World {
    rng: SimRng,
    clock: SimClock,
    transport: SimTransport,
    queue: BinaryHeap<Reverse<Entry>>,
    scheduled: u64,
}

impl World {
    fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }

    fn schedule(&mut self, at: Monotonic, worker: usize, item: Item) {
        self.scheduled += 1;
        self.queue.push(Reverse(Entry { at, order: self.scheduled, worker, item }));
    }

    /// Sends over the network: lost, doubled, or up to `late` later and thus out of order.
    fn send(&mut self, worker: usize, item: &Item, late: Duration) {
        let copies = match self.rng.below(100) {
            0..10 => 0,
            10..20 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let at = self.now() + self.rng.time_below(late);
            self.schedule(at, worker, item.clone());
        }
    }
}

/// Runs one seed. Returns a digest of all events, and the number of tasks by outcome.
fn run(seed: u64) -> (u64, Ends) {
    let clock = SimClock::new(Timestamp::from_unix_millis(0));
    let transport = SimTransport::new(clock.clone());
    let (rng, queue) = (SimRng::new(seed), BinaryHeap::new());
    let mut world = World { rng, clock, transport, queue, scheduled: 0 };
    let mut agents: Vec<Agent> =
        (0..WORKERS).map(|number| Agent::new(number, &mut world)).collect();
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    while let Some(Reverse(entry)) = world.queue.pop() {
        if entry.at > Monotonic::ZERO + HORIZON {
            break;
        }
        world.clock.advance_to(entry.at);
        let what = entry.at.as_duration().as_millis() as u64 ^ ((entry.worker as u64) << 48);
        digest = (digest ^ what).wrapping_mul(0x0100_0000_01b3);
        agents[entry.worker].happen(&mut world, entry.item);
    }
    let mut ends = Ends::default();
    for agent in &agents {
        agent.check_end();
        agent.count(&mut ends);
    }
    (digest, ends)
}

struct Reproduce(u64);

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0} failed; run it alone with ENSEMBLE_SIM_SEED={0}", self.0);
        }
    }
}

fn setting(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn fifty_workers_on_an_unreliable_network() {
    let alone = setting("ENSEMBLE_SIM_SEED");
    let count =
        setting("ENSEMBLE_SIM_COUNT").unwrap_or_else(|| if alone.is_some() { 1 } else { SEEDS });
    let first = alone.unwrap_or(0);
    let mut all = Ends::default();
    for seed in first..first + count {
        let _reproduce = Reproduce(seed);
        let (_, ends) = run(seed);
        all.refused += ends.refused;
        all.acked += ends.acked;
        all.escalated += ends.escalated;
        all.expired += ends.expired;
    }
    println!("{count} seeds: {all:?}");
    let each = [all.refused, all.acked, all.escalated, all.expired];
    assert!(
        alone.is_some() || each.into_iter().all(|tasks| tasks > 0),
        "not every outcome occurred: {all:?}"
    );
}

#[test]
fn runs_repeat_from_their_seed() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
