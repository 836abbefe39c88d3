//! Ending at the right moment: between receiving a message and having printed it, Ctrl-C must not
//! take the message along.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ensemble_core::{CancelToken, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error_line::CancelledCall;
use crate::failure::{Failure, Outcome};

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Calls of a process that answers many; it ends when no call is at work, sleeping ones aside.
#[derive(Debug, Default)]
pub struct RunningCalls {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

static CALLS: OnceLock<RunningCalls> = OnceLock::new();

impl RunningCalls {
    /// From now on, this process answers calls: signals end it as usual, and each call counts.
    pub fn begin() -> &'static Self {
        CALLS.get_or_init(Self::default)
    }

    /// A call is at work. Once the process ends, it stays here: nothing new may begin.
    pub fn enter(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.1 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.0 += 1;
    }

    /// A call is at work no more: it has ended, or sleeps.
    pub fn leave(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 -= 1;
        self.changed.notify_all();
    }

    /// Lets no call begin work any more, and waits until none is at work, for `patience` at most.
    pub fn end(&self, patience: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 = true;
        let _ = self.changed.wait_timeout_while(state, patience, |state| state.0 > 0);
    }
}

thread_local! {
    static CANCEL: RefCell<Option<CancelToken>> = const { RefCell::new(None) };
}

/// Answers a call in this thread, until its token is cancelled while it sleeps.
pub fn run_call<T>(token: CancelToken, call: impl FnOnce() -> T) -> T {
    CANCEL.set(Some(token));
    let answer = call();
    CANCEL.set(None);
    answer
}

/// The token that cancels the call of this thread, if it answers one.
pub fn cancel_token() -> Option<CancelToken> {
    CANCEL.with_borrow(Clone::clone)
}

/// An error if the call of this thread was cancelled: where a verb has slept, before it looks again.
pub fn end_if_cancelled() -> Result<()> {
    match cancel_token().is_some_and(|token| token.is_cancelled()) {
        true => Err(CancelledCall.into()),
        false => Ok(()),
    }
}

/// Signals that would end this run are noted instead, except while it sleeps.
#[derive(Debug)]
pub struct Interrupt {
    noted: Arc<AtomicUsize>,
    may_die: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to note signals.
    pub fn install() -> Outcome<Self> {
        let interrupt = Self { noted: Arc::default(), may_die: Arc::default() };
        if CALLS.get().is_some() {
            return Ok(interrupt);
        }
        for signal in SIGNALS {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&interrupt.may_die))
                .and_then(|_| {
                    signal_hook::flag::register_usize(signal, Arc::clone(&interrupt.noted), number)
                })
                .map_err(|error| Failure::refused(format!("cannot handle signals: {error}")))?;
        }
        Ok(interrupt)
    }

    /// Does something, usually sleeping, during which a signal ends this run at once; so does one
    /// that was noted before.
    pub fn may_end_during(&self, action: impl FnOnce()) -> Result<()> {
        if let Some(calls) = CALLS.get() {
            calls.leave();
            action();
            calls.enter();
            return end_if_cancelled();
        }
        self.may_die.store(true, Ordering::SeqCst);
        // A signal between the last look and the line above was noted only.
        self.end_if_noted();
        action();
        self.may_die.store(false, Ordering::SeqCst);
        Ok(())
    }

    pub fn is_noted(&self) -> bool {
        self.noted.load(Ordering::SeqCst) != 0
    }

    /// Ends this run as the signal would have, if one was noted.
    pub fn end_if_noted(&self) {
        let number = self.noted.load(Ordering::SeqCst);
        if number != 0 {
            // It does not return for signals that end a process, and these do.
            let _ = signal_hook::low_level::emulate_default_handler(
                i32::try_from(number).unwrap_or(SIGTERM),
            );
        }
    }
}
