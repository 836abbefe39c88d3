//! How long something takes, as a distribution in fixed memory.

use std::time::Duration;

/// Fine bins, each a tenth longer than the one before, from 1 ms on: 200 reach beyond a day.
const FINE_BINS: usize = 200;
const FINE_RATIO: f64 = 1.1;
/// The bins that are shown: their upper ends in milliseconds, and how they are called.
const SHOWN: [(u64, &str); 12] = [
    (1, "1 ms"),
    (3, "3 ms"),
    (10, "10 ms"),
    (30, "30 ms"),
    (100, "0.1 s"),
    (300, "0.3 s"),
    (1_000, "1 s"),
    (3_000, "3 s"),
    (10_000, "10 s"),
    (60_000, "1 min"),
    (600_000, "10 min"),
    (u64::MAX, "longer"),
];

#[derive(Clone, Debug)]
pub(super) struct Latency {
    fine: [u64; FINE_BINS],
    shown: [u64; SHOWN.len()],
    count: u64,
    max: Duration,
}

impl Default for Latency {
    fn default() -> Self {
        Self { fine: [0; FINE_BINS], shown: [0; SHOWN.len()], count: 0, max: Duration::ZERO }
    }
}

impl Latency {
    pub(super) fn add(&mut self, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let fine = (millis.max(1) as f64).ln() / FINE_RATIO.ln();
        self.fine[(fine.ceil() as usize).min(FINE_BINS - 1)] += 1;
        let shown = SHOWN.iter().position(|(end, _)| millis <= *end).unwrap_or(SHOWN.len() - 1);
        self.shown[shown] += 1;
        self.count += 1;
        self.max = self.max.max(took);
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) const fn max(&self) -> Duration {
        self.max
    }

    /// The duration that `percent` of all did not exceed, to a tenth of it.
    pub(super) fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bin, count) in self.fine.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let end = FINE_RATIO.powi(i32::try_from(bin).unwrap_or(i32::MAX));
                return Duration::from_millis(end.round() as u64).min(self.max);
            }
        }
        self.max
    }

    /// The bins from the first to the last that has anything: what each is called, and how many.
    pub(super) fn bins(&self) -> Vec<(&'static str, u64)> {
        let all: Vec<_> = SHOWN.iter().map(|(_, name)| *name).zip(self.shown).collect();
        let first = all.iter().position(|(_, count)| *count > 0).unwrap_or(0);
        let last = all.iter().rposition(|(_, count)| *count > 0).map_or(0, |at| at + 1);
        all[first..last.max(first)].to_vec()
    }
}
