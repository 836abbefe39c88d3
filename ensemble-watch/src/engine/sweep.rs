//! What the loop removes every ten minutes.

use ensemble_core::requests::Requests;
use ensemble_core::spool::Swept;
use serde_json::json;

use super::Engine;
use crate::run::ACTOR;

impl Engine {
    /// Removes side files that no client needs any more.
    pub(super) fn sweep(&self) {
        let requests = Requests::new(&*self.spool).sweep().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot sweep the requests");
            0
        });
        match self.spool.sweep() {
            Ok(swept) if requests > 0 || swept != Swept::default() => {
                self.recorder.record(
                    "queue.swept",
                    ACTOR,
                    json!({
                        "tmp": swept.tmp_removed, "done": swept.done_removed,
                        "orphans": swept.orphans_removed, "requests": requests,
                    }),
                );
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cannot sweep the queue"),
        }
    }
}
