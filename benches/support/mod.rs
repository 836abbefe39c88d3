//! Shared by all rows of the table: paired samples, their summary, the clock, places and processes.
//!
//! The harness is our own, because criterion and divan measure one subject to the end and then the
//! next. On a machine with neighbours, that compares two minutes rather than two programs. Here
//! ours and its limit take turns within each round. Their ratio stays stable where an absolute
//! number does not.

pub mod latency;
pub mod peak;
pub mod peer;
pub mod place;
pub mod points;
pub mod process;
pub mod table;

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::time::{ClockId, clock_gettime};

/// An error ends the row, not the table.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// CLOCK_MONOTONIC in nanoseconds, equal in every process of this machine.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

pub fn micros(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1_000.0
}

pub fn size(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Sizes from the environment, as `1000,10000`.
pub fn sizes(variable: &str, usual: &[usize]) -> Outcome<Vec<usize>> {
    match std::env::var(variable) {
        Ok(text) => {
            Ok(text.split(',').map(|size| size.trim().parse()).collect::<Result<_, _>>()?)
        }
        Err(_) => Ok(usual.to_vec()),
    }
}

/// Ends the row after Ctrl-C, so that guards end every process it started.
pub fn go_on() -> Outcome<()> {
    static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let flag = INTERRUPTED.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // If this fails, Ctrl-C ends the process at once, as it does by default.
            let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
        }
        flag
    });
    if flag.load(Ordering::Relaxed) { Err("interrupted".into()) } else { Ok(()) }
}

/// Lets the subjects run, and ends the row after Ctrl-C.
pub fn rest(seconds: usize) -> Outcome<()> {
    for _ in 0..seconds {
        go_on()?;
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    Ok(())
}

/// Pseudo-random numbers that only spread the samples.
pub struct Spread(u64);

impl Spread {
    pub fn new() -> Self {
        Self(now_ns() | 1)
    }

    /// A number from `low` to `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + self.0 % (high - low + 1)
    }

    /// Sleeps for a random time between two numbers of microseconds.
    pub fn pause(&mut self, low: u64, high: u64) {
        std::thread::sleep(std::time::Duration::from_micros(self.between(low, high)));
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub median: f64,
    pub p10: f64,
    pub p90: f64,
}

impl Summary {
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| sorted[(share * last as f64).round() as usize];
        Some(Self { median: at(0.5), p10: at(0.1), p90: at(0.9) })
    }
}

/// Samples of two subjects measured in turns: one entry for each round.
#[derive(Debug, Default)]
pub struct Pairs {
    rounds: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Pairs {
    pub fn push(&mut self, ours: Vec<f64>, limit: Vec<f64>) {
        self.rounds.push((ours, limit));
    }

    pub fn len(&self) -> usize {
        self.rounds.len()
    }

    pub fn ours(&self) -> Option<Summary> {
        Summary::of(&self.rounds.iter().flat_map(|r| &r.0).copied().collect::<Vec<_>>())
    }

    pub fn limit(&self) -> Option<Summary> {
        Summary::of(&self.rounds.iter().flat_map(|r| &r.1).copied().collect::<Vec<_>>())
    }

    /// Ours divided by the limit, round by round.
    pub fn ratio(&self) -> Option<Summary> {
        let median = |samples: &[f64]| Summary::of(samples).map(|s| s.median);
        let ratios = self.rounds.iter().filter_map(|(a, b)| Some(median(a)? / median(b)?));
        Summary::of(&ratios.collect::<Vec<_>>())
    }
}
