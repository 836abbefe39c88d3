//! The line on a terminal that says what a verb waits for: for whom, since when, and until when.
//!
//! | stderr is | shown |
//! |---|---|
//! | a terminal of a person | one line that is replaced each second, from `SHOWN_AFTER` on |
//! | a terminal in which an agent runs the verb, or no terminal | nothing |
//!
//! What is printed in the meantime goes above the line ([`aside`]).

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Zoned;

use crate::environment::AGENT_VARIABLES;
use crate::text::{elapsed, one_line};

/// How long a wait stays silent.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(500);
/// Back to the beginning of the terminal's line, whose rest is erased.
const ERASE: &str = "\r\x1b[K";

/// The line that is shown; a process waits for one thing at a time.
static SHOWN: Mutex<Option<ShownLine>> = Mutex::new(None);

/// A wait. Dropping it removes its line.
pub struct WaitLine;

impl WaitLine {
    /// Says from now on what is waited for, such as `worker-1 to answer the ping`, and for how long at most.
    pub fn new(whom: impl Into<String>, patience: Option<Duration>) -> Self {
        Self::change(whom, patience);
        Self
    }

    pub fn change(whom: impl Into<String>, patience: Option<Duration>) {
        clear();
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|it| !it.is_empty());
        let is_of_agent = AGENT_VARIABLES.iter().any(is_set);
        if stderr().is_terminal() && !is_of_agent {
            let line = ShownLine::begin(one_line(&whom.into()), patience);
            *shown() = Some(line);
        }
    }
}

impl Drop for WaitLine {
    fn drop(&mut self) {
        clear();
    }
}

fn clear() {
    if let Some(mut line) = shown().take() {
        line.erase();
    }
}

/// Prints something above the line. It is not drawn again before that has been printed.
pub fn aside<T>(print: impl FnOnce() -> T) -> T {
    let mut line = shown();
    if let Some(line) = &mut *line {
        line.erase();
    }
    print()
}

fn shown() -> MutexGuard<'static, Option<ShownLine>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ShownLine {
    whom: String,
    since: Zoned,
    until: Option<Zoned>,
    start: Instant,
    is_drawn: bool,
    /// Ends the thread that draws it, once it is dropped.
    _end: Sender<()>,
}

impl ShownLine {
    fn begin(whom: String, patience: Option<Duration>) -> Self {
        let since = Zoned::now();
        let until = patience.and_then(|patience| since.checked_add(patience).ok());
        let (_end, ended) = channel::<()>();
        std::thread::spawn(move || {
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if let Some(line) = &mut *shown() {
                    line.draw();
                }
            }
        });
        Self { whom, since, until, start: Instant::now(), is_drawn: false, _end }
    }

    fn draw(&mut self) {
        let waited = self.start.elapsed();
        if waited < SHOWN_AFTER {
            return;
        }
        let (whom, since) = (&self.whom, self.since.strftime("%H:%M:%S"));
        let mut text = format!("waiting for {whom}, since {since} ({})", elapsed(waited));
        if let Some(until) = &self.until {
            text += &format!(", until {}", until.strftime("%H:%M:%S"));
        }
        let columns =
            rustix::termios::tcgetwinsize(stderr()).map_or(80, |size| size.ws_col.max(20));
        // A line that fills its row would leave the cursor in the next one on some terminals.
        let text: String = text.chars().take(usize::from(columns) - 1).collect();
        let _ = stderr().write_all(format!("{ERASE}{text}").as_bytes());
        self.is_drawn = true;
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = stderr().write_all(ERASE.as_bytes());
        }
    }
}
