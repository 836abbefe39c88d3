//! Measures the cost of an idle sidecar.

use std::time::Duration;

use ensemble_core::message::Name;
use ensemble_core::spool::{Spool, SpoolOptions};

use crate::support::peak::{Usage, UsedShare, forget_touched, touched_kib};
use crate::support::process::watcher;
use crate::support::table::{self, Goal};
use crate::support::{Outcome, place, rest, size};

const MAILBOXES: usize = 10;
/// Time limit for the watcher to finish its start.
const SETTLING: Duration = Duration::from_secs(4);

pub fn run() -> Outcome<()> {
    let seconds = size("ENSEMBLE_BENCH_IDLE_SECONDS", 20);
    let home = place::on_disk()?;
    let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default())?;
    for number in 0..MAILBOXES {
        spool.add_mailbox(&Name::new(format!("worker-{number}"))?, &Default::default())?;
    }
    let watcher = watcher(home.path())?;
    std::thread::sleep(SETTLING);
    forget_touched(watcher.id())?;
    let share = UsedShare::during(watcher.id(), || rest(seconds))?;
    table::heading(&format!("idle watcher, {MAILBOXES} mailboxes, {seconds} s"));
    table::value("CPU", share.cpu_percent, "%", Goal::AtMost(0.1));
    let resident = Usage::of(watcher.id())?.resident_kib as f64 / 1024.0;
    table::value("resident memory", resident, "MiB", Goal::AtMost(10.0));
    let touched = touched_kib(watcher.id())? as f64 / 1024.0;
    table::value("of which touched since it is idle", touched, "MiB", Goal::None);
    table::value("wake-ups", share.wake_ups_a_minute, "a minute", Goal::None);
    Ok(())
}
