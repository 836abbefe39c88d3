//! Measures from a rename to the handler in another process: raw inotify against the watcher's
//! `FsWatcher`.

use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use ensemble_core::watch::{FsEvent, FsWatcher};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;

use crate::support::process::{Guard, PATIENCE, Stamper, Stamps, end_with_parent, in_role};
use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, Spread, go_on, micros, now_ns, place, size};

const ROUNDS: usize = 20;

pub fn run() -> Outcome<()> {
    table::heading("rename -> handler in another process (gaps 2-10 ms)");
    let disk = place::on_disk()?;
    show("on disk", disk.path())?;
    if let Some(memory) = place::in_memory() {
        show("on tmpfs", memory.path())?;
    }
    Ok(())
}

/// Compared with the limit, and with the least a process needs to wait for more than one event
/// source.
fn show(what: &str, home: &Path) -> Outcome<()> {
    let [raw, polled] = measure(home)?;
    table::pairs(what, "us", &raw, Goal::AtMost(1.3));
    table::pairs(&format!("{what}, limit with a poll before"), "us", &polled, Goal::None);
    Ok(())
}

/// Role and directory of a process that waits for files.
struct Reader {
    dir: PathBuf,
    tmp: PathBuf,
    stamps: Stamps,
    _process: Guard,
}

impl Reader {
    fn start(home: &Path, role: &str) -> Outcome<Self> {
        let dir = place::child(home, role)?;
        let stamps = Stamps::new(home, role)?;
        let process = in_role(role, &[dir.as_os_str(), stamps.path().as_os_str()])?;
        stamps.next()?;
        Ok(Self { dir, tmp: place::child(home, "tmp")?, stamps, _process: process })
    }

    /// Microseconds from the start of a rename to the handler.
    fn sample(&self, number: usize) -> Outcome<f64> {
        let name = format!("{number}.yaml");
        std::fs::write(self.tmp.join(&name), b"status: done\n")?;
        let (from, to) = (self.tmp.join(&name), self.dir.join(&name));
        let began = now_ns();
        std::fs::rename(from, to)?;
        let (stamp, seen) = self.stamps.next()?;
        if seen == name { Ok(micros(began, stamp)) } else { Err("another file was seen".into()) }
    }
}

fn measure(home: &Path) -> Outcome<[Pairs; 2]> {
    let (raw, polled) = (Reader::start(home, "raw")?, Reader::start(home, "polled")?);
    let bell = Reader::start(home, "fs-watcher")?;
    let mut spread = Spread::new();
    let mut pairs = [Pairs::default(), Pairs::default()];
    let each = size("ENSEMBLE_BENCH_RENAMES", 400).div_ceil(ROUNDS);
    for round in 0..ROUNDS {
        go_on()?;
        let mut samples = [Vec::new(), Vec::new(), Vec::new()];
        for number in 0..each {
            for (reader, samples) in [&raw, &polled, &bell].into_iter().zip(&mut samples) {
                spread.pause(2_000, 10_000);
                samples.push(reader.sample(round * each + number)?);
            }
        }
        let [raw, polled, ours] = samples;
        pairs[0].push(ours.clone(), raw);
        pairs[1].push(ours, polled);
    }
    Ok(pairs)
}

pub fn raw_reader(dir: &str, stamps: &str) -> Outcome<()> {
    let stamps = Stamper::new(stamps)?;
    end_with_parent();
    each_rename(dir, || stamps.ready(), |stamp, name| stamps.send(stamp, name))
}

/// As the limit, for a process that also waits for a signal, a deadline and its own wake-up.
pub fn polled_reader(dir: &str, stamps: &str) -> Outcome<()> {
    let stamps = Stamper::new(stamps)?;
    end_with_parent();
    let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&inotify, dir, inotify::WatchFlags::MOVED_TO)?;
    stamps.ready();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    loop {
        poll(&mut [PollFd::new(&inotify, PollFlags::IN)], None)?;
        let mut events = inotify::Reader::new(&inotify, &mut buffer);
        let event = events.next()?;
        let stamp = now_ns();
        stamps.send(stamp, event.file_name().ok_or("no name")?.to_str()?);
    }
}

/// Calls `handle` with a stamp for each file renamed into a directory.
pub fn each_rename(
    dir: &str,
    ready: impl FnOnce(),
    mut handle: impl FnMut(u64, &str),
) -> Outcome<()> {
    let inotify = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&inotify, dir, inotify::WatchFlags::MOVED_TO)?;
    ready();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(inotify, &mut buffer);
    loop {
        let event = events.next()?;
        let stamp = now_ns();
        handle(stamp, event.file_name().and_then(|name| name.to_str().ok()).unwrap_or_default());
    }
}

/// Our subject: the library's `FsWatcher`.
pub fn fs_watcher_reader(dir: &str, stamps: &str) -> Outcome<()> {
    let stamps = Stamper::new(stamps)?;
    end_with_parent();
    let mut fs_watcher = FsWatcher::new()?;
    fs_watcher.watch(Path::new(dir))?;
    stamps.ready();
    loop {
        let events = fs_watcher.wait(PATIENCE);
        let stamp = now_ns();
        for event in events {
            match event {
                FsEvent::Landed { name, .. } => stamps.send(stamp, &name),
                FsEvent::Failed { error } => return Err(error.into()),
                _ => {}
            }
        }
    }
}
