//! Files that land in a drop box at once.

use std::path::Path;
use std::time::Duration;

use super::project::Project;
use crate::rows::burst::drop_reports;
use crate::support::peak::Usage;
use crate::support::points::{At, Points};
use crate::support::process::watcher;
use crate::support::{Outcome, go_on, now_ns, sizes};

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
/// Files for each report: the file, its message, and their ledger entries.
const FILE_BYTES: u64 = 16 * 1024;
/// Interval between two checks of the watcher's progress.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Silence after which unrouted files count as lost. It exceeds the watcher's poll interval.
const LOST_AFTER: Duration = Duration::from_secs(45);
const CHART: &str = "files";

pub fn run(points: &mut Points) -> Outcome<()> {
    let mut place = "";
    for size in sizes("ENSEMBLE_BENCH_SCALE_FILES", &SIZES)? {
        let at = &mut points.at(CHART, size, "files");
        place = dropped(size, at)?;
    }
    points.print(CHART, &format!("files in a drop box at once ({place}, durability process)"));
    Ok(())
}

/// Drops files while a watcher runs. Then starts a second watcher that finds all of them routed.
fn dropped(files: usize, at: &mut At<'_>) -> Outcome<&'static str> {
    let project = Project::new(files as u64 * FILE_BYTES)?;
    project.mailbox("dispatch")?;
    let first = watcher(project.home())?;
    let began = now_ns();
    let queue = project.queue();
    let seconds = std::thread::scope(|scope| -> Outcome<f64> {
        let dropping = scope.spawn(|| drop_reports(&queue, files).map_err(|e| e.to_string()));
        let routed = wait_until_routed(&project, files, began);
        dropping.join().map_err(|_| "the writer failed")??;
        routed
    })?;
    at.add("until all are routed", "s", &[seconds])?;
    at.add("a file", "us", &[seconds * 1e6 / files as f64])?;
    let used = Usage::of(first.id())?;
    at.add_memory("watcher that has routed them", used.peak_kib)?;
    drop(first);
    project.watcher(at)?;
    Ok(project.place)
}

/// Seconds until the ledger has a line for each file. The watcher writes that line last.
fn wait_until_routed(project: &Project, files: usize, began: u64) -> Outcome<f64> {
    let ledger = project.home().join(".ensemble/routed.ndjson");
    let (mut read, mut lines, mut last) = (0, 0, now_ns());
    while lines < files {
        go_on()?;
        std::thread::sleep(LOOK_INTERVAL);
        let new = lines_from(&ledger, &mut read)?;
        if new > 0 {
            (lines, last) = (lines + new, now_ns());
        } else if Duration::from_nanos(now_ns() - last) > LOST_AFTER {
            return Err(format!("{lines} of {files} files were routed").into());
        }
    }
    Ok((last - began) as f64 / 1e9)
}

/// Counts the lines by which a file has grown.
fn lines_from(path: &Path, read: &mut u64) -> Outcome<usize> {
    use std::io::{Read as _, Seek as _};
    let mut file = std::fs::File::open(path)?;
    file.seek(std::io::SeekFrom::Start(*read))?;
    let mut new = Vec::new();
    *read += file.read_to_end(&mut new)? as u64;
    Ok(new.iter().filter(|byte| **byte == b'\n').count())
}
