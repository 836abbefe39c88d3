//! Ending at the right moment: between receiving a message and having printed it, Ctrl-C must not
//! take the message along.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Failure, Outcome};

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Signals that would end this run are noted instead, except while it sleeps.
#[derive(Debug)]
pub(crate) struct Interrupt {
    noted: Arc<AtomicUsize>,
    may_die: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to note signals.
    pub(crate) fn install() -> Outcome<Self> {
        let interrupt = Self { noted: Arc::default(), may_die: Arc::default() };
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
    pub(crate) fn may_end_during(&self, action: impl FnOnce()) {
        self.may_die.store(true, Ordering::SeqCst);
        // A signal between the last look and the line above was noted only.
        self.end_if_noted();
        action();
        self.may_die.store(false, Ordering::SeqCst);
    }

    /// Whether a signal has asked this run to end.
    pub(crate) fn is_noted(&self) -> bool {
        self.noted.load(Ordering::SeqCst) != 0
    }

    /// Ends this run as the signal would have, if one was noted.
    pub(crate) fn end_if_noted(&self) {
        let number = self.noted.load(Ordering::SeqCst);
        if number != 0 {
            // It does not return for signals that end a process, and these do.
            let _ = signal_hook::low_level::emulate_default_handler(
                i32::try_from(number).unwrap_or(SIGTERM),
            );
        }
    }
}
