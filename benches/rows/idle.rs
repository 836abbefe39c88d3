//! Measures the cost of an idle sidecar.

use std::time::Duration;

use ensemble_core::message::Name;
use ensemble_core::spool::{Spool, SpoolOptions};

use crate::support::peak::{Usage, forget_touched, touched_kib};
use crate::support::process::watcher;
use crate::support::table::{self, Goal};
use crate::support::{Outcome, go_on, now_ns, place, size};

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
    let before = Usage::of(watcher.id())?;
    let began = now_ns();
    for _ in 0..seconds {
        go_on()?;
        std::thread::sleep(Duration::from_secs(1));
    }
    let elapsed_ns = (now_ns() - began) as f64;
    let after = Usage::of(watcher.id())?;
    table::heading(&format!("idle watcher, {MAILBOXES} mailboxes, {seconds} s"));
    let cpu = (after.cpu_ns - before.cpu_ns) as f64 * 100.0 / elapsed_ns;
    table::value("CPU", cpu, "%", Goal::AtMost(0.1));
    table::value("resident memory", after.resident_kib as f64 / 1024.0, "MiB", Goal::AtMost(10.0));
    let touched = touched_kib(watcher.id())? as f64 / 1024.0;
    table::value("of which touched since it is idle", touched, "MiB", Goal::None);
    let wake_ups = (after.wake_ups - before.wake_ups) as f64 * 60e9 / elapsed_ns;
    table::value("wake-ups", wake_ups, "a minute", Goal::None);
    Ok(())
}
