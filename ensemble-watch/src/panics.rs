//! A panic is a bug of the watcher, and ends all of it: the process starts its program again.
//!
//! Everything it knows is in files, so it continues as after a kill. A thread that ended alone would leave the others
//! without what it does, and with its locks.
//!
//! ```text
//! panic in any thread ── its place on stderr ── PANIC_PAUSE ── the same program and arguments, in the same process
//! ```
//!
//! The number of panics in a row goes along in [`PANICS`], with the id of the process: what that starts has the variable,
//! too. From `REPEATS_MIN` on, panics are a need.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::failure_log::{FAILURES, LASTS_MAX};

/// The environment variable with the process and the number of its panics before this start: `4711:2`.
const PANICS: &str = "ENSEMBLE_WATCH_PANICS";
/// Pause before the program starts again.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// From now on, a panic starts the program of this process again.
pub(crate) fn restart_after_panics() {
    let own = format!("{}:", std::process::id());
    let told = std::env::var(PANICS).unwrap_or_default();
    let before = told.strip_prefix(&own).and_then(|it| it.parse().ok()).unwrap_or(0_u32);
    FAILURES.count_panics(before);
    let started = Instant::now();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = writeln!(std::io::stderr(), "a bug in the watcher, which starts again: {panic}");
        std::thread::sleep(PANIC_PAUSE);
        let in_a_row = if started.elapsed() < LASTS_MAX { before.saturating_add(1) } else { 1 };
        let (words, panics) = (Vec::from_iter(std::env::args_os()), format!("{own}{in_a_row}"));
        // The file of this process is gone once another version has replaced it: that is at the path that was called.
        let program = std::env::current_exe().ok().map(PathBuf::into_os_string);
        for program in program.into_iter().chain(words.first().cloned()) {
            let error =
                Command::new(program).args(words.iter().skip(1)).env(PANICS, &panics).exec();
            let _ = writeln!(std::io::stderr(), "it cannot start again: {error}");
        }
        std::process::abort();
    }));
}
