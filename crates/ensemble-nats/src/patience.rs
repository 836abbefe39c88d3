//! How long calls wait for the server: each by itself, or several that belong together.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::lock;

#[derive(Clone, Debug)]
pub(super) struct CallPatience {
    limit: Duration,
    /// The end of the calls that belong together; `None` before the first of them. Absent if each call has
    /// the whole limit.
    together: Option<Arc<Mutex<Option<Instant>>>>,
}

impl CallPatience {
    /// With `is_shared`, all calls together have this limit, until [`CallPatience::renew`].
    pub(super) fn new(limit: Duration, is_shared: bool) -> Self {
        Self { limit, together: is_shared.then(Arc::default) }
    }

    pub(super) fn deadline(&self) -> Instant {
        let alone = Instant::now() + self.limit;
        match &self.together {
            None => alone,
            Some(together) => *lock(together).get_or_insert(alone),
        }
    }

    pub(super) fn left(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Later calls have the whole limit again: their caller waited for something else than the server.
    pub(super) fn renew(&self) {
        if let Some(together) = &self.together {
            *lock(together) = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_belong_together_share_one_limit() {
        let limit = Duration::from_secs(60);
        let shared = CallPatience::new(limit, true);
        let first = shared.deadline();
        assert_eq!((shared.clone().deadline(), shared.deadline()), (first, first));
        shared.renew();
        assert!(shared.deadline() > first);
        let alone = CallPatience::new(limit, false);
        assert!(alone.deadline() < alone.deadline());
    }
}
