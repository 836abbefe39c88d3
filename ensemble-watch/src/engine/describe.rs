//! The watcher's status, as `watch.json` and `ensemble status` show it.

use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use serde_json::{Value, json};

use super::Engine;
use crate::failure_log::FAILURES;

impl Engine {
    pub(crate) fn write_status_now(&mut self) {
        let now = SystemClock.monotonic();
        self.status.write_now(now, self.describe(now));
    }

    fn describe(&self, now: Monotonic) -> Value {
        let mut status = json!({ "mode": self.reconcile.mode() });
        self.drop_boxes.describe(&mut status);
        status["agents"] = self.mail.notifier.summary(now).into();
        self.team.describe(now, &mut status);
        let requests = self.mail.remote.requests();
        status["requests"] = requests.unwrap_or_else(|| self.requests.summary());
        self.upkeep.describe(&mut status);
        status["failures"] = FAILURES.summary(now);
        status["servers"] = self.mail.remote.summary();
        status
    }
}
