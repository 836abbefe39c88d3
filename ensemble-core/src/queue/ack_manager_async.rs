//! An [`AckManager`] in a task: the same steps, in threads for blocking work.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::AckManager;
use super::incoming::{current_runtime, ensure_reader, in_background};
use super::mailbox::deadline_in;
use crate::Result;
use crate::driver::{DeliveryId, Ended};

impl AckManager {
    /// As [`next_ended`](Self::next_ended), in a task of a tokio runtime. Cancel-safe: what a dropped future has found,
    /// the next call returns. [`Assignment`](super::Assignment) has an example without a runtime.
    pub async fn next_ended_async(
        &mut self,
        longest: Duration,
    ) -> Result<Option<(DeliveryId, Ended)>> {
        let (runtime, deadline) = (current_runtime()?, deadline_in(longest));
        loop {
            let (running, queue) = (Arc::clone(&self.running), self.queue().clone());
            let step =
                move || running.lock().unwrap_or_else(PoisonError::into_inner).advance(&queue);
            let nap = in_background(step).await?.min(self.longest_nap());
            let (ended, is_running) = self.lock().take_ended();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if ended.is_some() || !is_running || left.is_some_and(|left| left.is_zero()) {
                return Ok(ended);
            }
            let mut until = pin!(tokio::time::sleep(left.map_or(nap, |left| left.min(nap))));
            poll_fn(|context| {
                if self.wait.poll_rung(context).is_ready() {
                    return Poll::Ready(());
                }
                ensure_reader(&self.wait, &runtime);
                until.as_mut().poll(context).map(|()| self.wait.end_silence())
            })
            .await;
        }
    }
}
