//! What the watcher says of itself.

use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use serde_json::json;

use super::Engine;
use crate::boxes::Boxes;

impl Engine {
    /// Writes the status once more, for instance because the watcher stops.
    pub(crate) fn write_status_now(&mut self) {
        let now = SystemClock.monotonic();
        self.status.write_now(now, self.describe(now));
    }

    fn describe(&self, now: Monotonic) -> serde_json::Value {
        json!({
            "mode": self.reconcile.mode(),
            "routed": self.routed,
            "rejected": self.rejected,
            "boxes": self.boxes.as_ref().map(Boxes::summary),
            "agents": self.notifier.summary(now),
            "members": self.members.summary(),
            "parked": self.rate_limit_hold.summary(now),
            "roles": self.roles.summary(now),
            "requests": self.remote.requests().unwrap_or_else(|| self.requests.summary()),
            "steps": self.steps.summary(),
            "alarms": self.alarms.summary(),
            "servers": self.remote.summary(),
        })
    }
}
