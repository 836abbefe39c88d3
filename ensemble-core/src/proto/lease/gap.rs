//! Detects that the machine slept or that its wall clock was set.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::env::Monotonic;
use crate::message::Timestamp;

/// Smallest difference at which two clocks are considered to have diverged. Slewing by NTP stays
/// far below it between two readings.
pub const CLOCK_GAP_MIN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClockGap {
    /// Duration of the suspend, in milliseconds.
    pub suspended_ms: u64,
    /// Forward jump of the wall clock beyond the suspend, in milliseconds (negative: backward).
    pub wall_jump_ms: i64,
}

/// Compares three clocks between readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapDetector {
    /// Boot time minus monotonic time and wall time minus boot time, in milliseconds.
    offsets: Option<(i64, i64)>,
}

impl GapDetector {
    /// Takes readings of the clocks at one moment; returns a gap if they diverged since the last.
    pub fn compare_clocks(
        &mut self,
        monotonic: Monotonic,
        boottime: Monotonic,
        wall: Timestamp,
    ) -> Option<ClockGap> {
        let (monotonic, boottime) = (millis(monotonic), millis(boottime));
        let slept = boottime.saturating_sub(monotonic);
        let calendar = wall.unix_millis().saturating_sub(boottime);
        let (slept_before, calendar_before) = self.offsets.replace((slept, calendar))?;
        let suspended = slept.saturating_sub(slept_before);
        let jump = calendar.saturating_sub(calendar_before);
        let gap_min = i64::try_from(CLOCK_GAP_MIN.as_millis()).unwrap_or(i64::MAX);
        (suspended > gap_min || jump.saturating_abs() > gap_min).then(|| ClockGap {
            suspended_ms: u64::try_from(suspended).unwrap_or(0),
            wall_jump_ms: jump,
        })
    }
}

fn millis(reading: Monotonic) -> i64 {
    i64::try_from(reading.as_duration().as_millis()).unwrap_or(i64::MAX)
}
