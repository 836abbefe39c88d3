//! Writes warnings, notes and failures to stderr, for a person or for a program.

use std::io::{self, Write as _};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error_line::{ErrorLine, FailureCode};
use crate::exit_code::VerbExit;

/// Whether diagnostics are suppressed, because the terminal shows something else.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

static IS_JSON: AtomicBool = AtomicBool::new(false);

pub fn answer_in_json(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

pub fn tell_program(code: FailureCode, message: String, hint: Option<String>, exit: VerbExit) {
    if IS_SILENT.load(Ordering::Relaxed) {
        return;
    }
    if let Ok(line) = serde_json::to_string(&ErrorLine::new(code, message, hint, exit)) {
        write_line(&line);
    }
}

/// Suppresses diagnostics, or stops doing so.
pub fn silence(is_silent: bool) {
    IS_SILENT.store(is_silent, Ordering::Relaxed);
}

pub fn say(text: &str) {
    if IS_SILENT.load(Ordering::Relaxed) {
        return;
    }
    write_line(&format!("ensemble: {}", crate::text::printable(text)));
}

/// A line on stderr, in one write, so that it stays whole among those of other processes. A closed
/// stderr is not a reason to fail.
pub fn write_line(line: &str) {
    crate::wait_line::aside(|| {
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    });
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// A panic is one of our bugs: print one line for the bug report, and no backtrace.
pub fn report_bug(info: &PanicHookInfo<'_>) {
    let message = message(info);
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    say(&format!("a bug in ensemble {}: {message} ({place})", env!("CARGO_PKG_VERSION")));
}
