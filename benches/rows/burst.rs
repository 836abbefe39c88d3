//! Sends far more files at once than the kernel's event queue holds through the real watcher, to a
//! slow consumer. No file may be lost and none delivered twice.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use ensemble_core::durable::Durability;
use ensemble_core::message::Name;
use ensemble_core::spool::{Spool, SpoolOptions};

use crate::support::process::watcher;
use crate::support::table::{self, Goal};
use crate::support::{Outcome, go_on, now_ns, place, size};

/// Silence after which missing messages count as lost. It exceeds the watcher's poll interval.
const LOST_AFTER: Duration = Duration::from_secs(45);
/// The consumer pauses after this many messages, for this long.
const REST_EVERY: usize = 1_000;
const REST: Duration = Duration::from_millis(20);

pub fn run() -> Outcome<()> {
    let files = size("ENSEMBLE_BENCH_BURST", 50_000);
    let (home, place) = place::in_memory_or_on_disk()?;
    let dispatch = Name::new("dispatch")?;
    let options = SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() };
    std::fs::write(home.path().join("ensemble.yaml"), "durability: process\n")?;
    let spool = Spool::create(&home.path().join("queue"), options)?;
    spool.add_mailbox(&dispatch, &Default::default())?;
    let _watcher = watcher(home.path())?;
    table::heading(&format!(
        "burst of {files} reports, slow consumer ({place}, durability process)"
    ));
    let began = now_ns();
    let dropped = std::thread::scope(|scope| {
        let dropping = scope
            .spawn(|| drop_reports(&home.path().join("queue"), files).map_err(|e| e.to_string()));
        let seen = consume(&spool, &dispatch, files, began);
        (dropping.join(), seen)
    });
    let (seconds_to_drop, (seen, doubled, seconds)) = match dropped {
        (Ok(dropped), seen) => (dropped?, seen?),
        (Err(_), _) => return Err("the writer failed".into()),
    };
    table::value("seen", seen as f64, "files", Goal::AtLeast(files as f64));
    table::value("seen twice", doubled as f64, "files", Goal::AtMost(0.0));
    table::value("all dropped after", seconds_to_drop, "s", Goal::None);
    table::value("last received after", seconds, "s", Goal::None);
    Ok(())
}

/// Renames reports into the drop box at full speed. Returns the seconds taken.
pub fn drop_reports(queue: &Path, files: usize) -> Outcome<f64> {
    let began = now_ns();
    for number in 0..files {
        let name = format!("task-{number}-completed.yaml");
        let tmp = queue.join("tmp").join(&name);
        let report = format!("task_id: task-{number}\nworker_id: worker-1\nstatus: success\n");
        std::fs::write(&tmp, report)?;
        std::fs::rename(&tmp, queue.join("reports").join(&name))?;
    }
    Ok((now_ns() - began) as f64 / 1e9)
}

/// Receives until all messages were seen. Returns their count, the count of duplicates, and the
/// seconds until the last one.
fn consume(
    spool: &Spool,
    dispatch: &Name,
    files: usize,
    began: u64,
) -> Outcome<(usize, usize, f64)> {
    let mut seen = HashSet::new();
    let (mut received, mut last) = (0_usize, now_ns());
    while seen.len() < files && Duration::from_nanos(now_ns() - last) < LOST_AFTER {
        go_on()?;
        let Some(delivery) = spool.receive(dispatch, dispatch)? else {
            std::thread::sleep(REST);
            continue;
        };
        spool.settle(&delivery.lease)?;
        received += 1;
        last = now_ns();
        if delivery.envelope.kind.as_str() != "report.completed" {
            return Err(format!("a {} came instead", delivery.envelope.kind).into());
        }
        seen.insert(delivery.envelope.source.ok_or("a message without its file")?);
        if received.is_multiple_of(REST_EVERY) {
            std::thread::sleep(REST);
        }
    }
    // A duplicate would arrive now.
    while let Some(delivery) = spool.receive(dispatch, dispatch)? {
        spool.settle(&delivery.lease)?;
        received += 1;
    }
    Ok((seen.len(), received - seen.len(), (last - began) as f64 / 1e9))
}
