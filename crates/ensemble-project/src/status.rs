//! What the watcher says of itself: `.ensemble/watch.json`, which `ensemble status` reads.

use std::time::Duration;

use ensemble_core::env::Monotonic;
use serde_json::Value;

/// The watcher's name in the event log.
pub const ACTOR: &str = "watcher";
/// The status is written at least this often, as a sign of life.
pub const WRITE_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// A watcher that has written nothing for this long hangs: twice the time after which it always writes.
pub const SILENCE_MAX: Duration = WRITE_INTERVAL_MAX.saturating_mul(2);
pub const STATUS_BYTES_MAX: usize = 1024 * 1024;

/// Where a watcher says that it lives: its process, and when, by [`Clock::monotonic`], which all processes of a boot
/// share and which the wall clock does not change.
///
/// [`Clock::monotonic`]: ensemble_core::env::Clock::monotonic
pub const BEAT: &str = "beat";

/// When the watcher of this process has last shown that it lives; `None` if another one wrote the status.
pub fn last_beat(status: &Value, pid: u32) -> Option<Monotonic> {
    let beat = status.get(BEAT).filter(|beat| beat["pid"] == pid)?;
    Some(Monotonic::from_duration(Duration::from_millis(beat["at_ms"].as_u64()?)))
}
