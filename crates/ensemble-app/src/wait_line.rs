//! The line on a terminal that says what a verb waits for: for whom, since when, and until when.
//!
//! | stderr is | shown |
//! |---|---|
//! | a terminal of a person | one line that is replaced each second, from `SHOWN_AFTER` on |
//! | a terminal in which an agent runs the verb, or no terminal | nothing |
//!
//! What is printed in the meantime goes above the line ([`aside`]).

use std::io::{IsTerminal as _, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::environment::AGENT_VARIABLES;
use crate::text::{elapsed, one_line};

/// How long a wait stays silent.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// Interval of redrawing.
const TICK: Duration = Duration::from_millis(500);

/// The line that is shown; a process waits for one thing at a time.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A wait. Dropping it removes its line.
pub struct WaitLine;

impl WaitLine {
    /// Says from now on what is waited for, such as `worker-1 to answer the ping`, and for how long at most.
    pub fn new(whom: impl Into<String>, patience: Option<Duration>) -> Self {
        Self::change(whom, patience);
        Self
    }

    /// Says this instead of what a wait has said before.
    pub fn change(whom: impl Into<String>, patience: Option<Duration>) {
        clear();
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|it| !it.is_empty());
        let is_of_agent = AGENT_VARIABLES.iter().any(is_set);
        let is_shown = stderr().is_terminal() && !is_of_agent;
        let bar = is_shown.then(|| bar(one_line(&whom.into()), patience));
        *shown() = bar;
    }
}

impl Drop for WaitLine {
    fn drop(&mut self) {
        clear();
    }
}

fn clear() {
    if let Some(bar) = shown().take() {
        bar.finish_and_clear();
    }
}

/// Prints something above the line.
pub fn aside<T>(print: impl FnOnce() -> T) -> T {
    let bar = shown().clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

fn shown() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bar(whom: String, patience: Option<Duration>) -> ProgressBar {
    let since = jiff::Zoned::now();
    let until = patience.and_then(|patience| since.checked_add(patience).ok());
    let line = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        if state.elapsed() < SHOWN_AFTER {
            return;
        }
        let (clock, elapsed) = (since.strftime("%H:%M:%S"), elapsed(state.elapsed()));
        let _ = write!(out, "waiting for {whom}, since {clock} ({elapsed})");
        if let Some(until) = &until {
            let _ = write!(out, ", until {}", until.strftime("%H:%M:%S"));
        }
    };
    let columns = rustix::termios::tcgetwinsize(stderr()).map_or(80, |size| size.ws_col.max(20));
    let template = format!("{{wait:{}!}}", columns - 1);
    let style = ProgressStyle::with_template(&template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner()).with_key("wait", line);
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
    bar.set_style(style);
    bar.enable_steady_tick(TICK);
    bar
}
