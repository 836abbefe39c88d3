//! A condition variable without system calls while no thread waits. The standard one makes a system
//! call for each notification, and here there are several per message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(super) struct ChangeNotifier {
    condition: Condvar,
    /// Incremented under the mutex before it is released, so a later change sees it.
    waiting: AtomicUsize,
}

impl ChangeNotifier {
    /// Call this after a change under the mutex.
    pub(super) fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.condition.notify_all();
        }
    }

    /// Waits until the guarded data satisfies the condition; `false` once `patience` has passed.
    pub(super) fn wait_until<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        patience: Duration,
        is_wanted: impl Fn(&T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let deadline = Instant::now() + patience;
        while !is_wanted(&guard) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (guard, false);
            }
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let waited = self.condition.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        (guard, true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn waiting_thread_sees_every_change() {
        let (count, change_notifier) = (Mutex::new(0u32), ChangeNotifier::default());
        thread::scope(|threads| {
            for wanted in 0..4u32 {
                let (count, change_notifier) = (&count, &change_notifier);
                threads.spawn(move || {
                    for turn in 0..500 {
                        let mine = |count: &u32| *count == turn * 4 + wanted;
                        let (mut guard, is_mine) =
                            change_notifier.wait_until(count.lock().unwrap(), LONG, mine);
                        assert!(is_mine);
                        *guard += 1;
                        drop(guard);
                        change_notifier.ring();
                    }
                });
            }
        });
        assert_eq!(count.into_inner().unwrap(), 2000);
    }

    #[test]
    fn patience_ends() {
        let (nothing, change_notifier) = (Mutex::new(()), ChangeNotifier::default());
        let (_guard, is_wanted) =
            change_notifier
                .wait_until(nothing.lock().unwrap(), Duration::from_millis(1), |()| false);
        assert!(!is_wanted);
        assert_eq!(change_notifier.waiting.load(Ordering::SeqCst), 0);
    }
}
