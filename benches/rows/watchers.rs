//! Measures from a rename to the handler in another process. Ours is compared with other ways to
//! watch a directory, in turns, idle and with every processor busy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::message::Name;
use ensemble_core::spool::{Spool, SpoolOptions};

use super::watching::{self, Arrivals};
use crate::support::latency::{self, Latency};
use crate::support::process::{Guard, Stamper, Stamps, end_with_parent, in_role, watcher};
use crate::support::{Outcome, Spread, go_on, micros, now_ns, place, size, table};

/// Rounds; each subject has the same number of turns in a round.
const ROUNDS: usize = 20;

pub fn run() -> Outcome<()> {
    // A subject that polls once a second takes half a second a sample, so it gets one sample a
    // round.
    let each = size("ENSEMBLE_BENCH_WATCHERS", 300).div_ceil(ROUNDS);
    for loaded in [false, true] {
        let home = place::on_disk()?;
        let mut subjects = start(home.path())?;
        let busy = if loaded { latency::load()? } else { Vec::new() };
        latency::heading(&match busy.len() {
            0 => "rename -> handler in another process, idle (gaps 2-10 ms)".to_owned(),
            n => format!("the same while {n} processes of ours keep every processor busy"),
        });
        measure(&mut subjects, each)?;
        for subject in &subjects {
            if let Some(why) = &subject.silent {
                table::note(&format!("{} is left out after this error: {why}", subject.name));
            }
            latency::line(subject.name, &subject.latency, &subjects[0].latency);
        }
    }
    Ok(())
}

struct Subject {
    name: &'static str,
    /// Directory in which files are made, and the directory they are renamed to.
    tmp: PathBuf,
    dir: PathBuf,
    arrivals: Arrivals,
    /// Fraction of all samples that one round takes.
    share: usize,
    /// The longest pause before a sample, in microseconds.
    gap: u64,
    latency: Latency,
    silent: Option<String>,
    _process: Option<Guard>,
}

impl Subject {
    /// Microseconds from the start of a rename to the handler.
    fn sample(&self, number: usize) -> Outcome<f64> {
        let name = format!("task-{number}-completed.yaml");
        let text = format!("task_id: task-{number}\nworker_id: worker-1\n");
        std::fs::write(self.tmp.join(&name), text)?;
        let (from, to) = (self.tmp.join(&name), self.dir.join(&name));
        let began = now_ns();
        std::fs::rename(from, to)?;
        Ok(micros(began, self.arrivals.heard(&name, began)?))
    }
}

/// Our subject comes first; each subject that fails to start is reported in one line.
fn start(home: &Path) -> Outcome<Vec<Subject>> {
    let subject = |name, dir: &Path, (arrivals, process): (Arrivals, Option<Guard>)| {
        let (latency, dir) = (Latency::default(), dir.to_owned());
        let tmp = place::child(home, "tmp")?;
        Ok::<_, Box<dyn std::error::Error>>(Subject {
            name,
            tmp,
            dir,
            arrivals,
            share: 1,
            gap: 10_000,
            latency,
            silent: None,
            _process: process,
        })
    };
    let mut subjects = Vec::new();
    for (name, role) in [
        ("ours: the file watcher", "fs-watcher"),
        ("raw inotify", "raw"),
        ("the crate notify 8", "notify-8"),
        ("the crate notify 9", "notify-9"),
    ] {
        let dir = place::child(home, role)?;
        subjects.push(subject(name, &dir, role_ears(home, role, role, &dir, &[])?)?);
    }
    for watching::Other { name, start } in watching::OTHERS {
        let dir = place::child(home, &name.replace([' ', ','], "-"))?;
        match start(&dir, home) {
            Ok(arrivals) => subjects.push(subject(name, &dir, (arrivals, None))?),
            Err(why) => table::note(&format!("{name} is left out: {why}")),
        }
    }
    for (name, key, millis, share) in [
        ("polling every 100 ms", "poll-100", "100", 5),
        ("polling every 1 s", "poll-1000", "1000", 15),
    ] {
        let dir = place::child(home, key)?;
        let mut poll = subject(name, &dir, role_ears(home, key, "poll", &dir, &[millis])?)?;
        poll.share = share;
        // A sample ends at a poll: the next must not start at a fixed time after it.
        poll.gap = millis.parse::<u64>()? * 1_000;
        subjects.push(poll);
    }
    let (reports, arrivals) = routed(home)?;
    subjects.push(subject("ensemble-watch: report -> in a mailbox", &reports, arrivals)?);
    Ok(subjects)
}

/// A reader of one version of the crate `notify`: its thread hands events over by a channel.
macro_rules! bare_notify {
    ($function:ident, $notify:ident) => {
        pub fn $function(dir: &str, stamps: &str) -> Outcome<()> {
            use $notify::Watcher as _;
            end_with_parent();
            let (sender, events) = std::sync::mpsc::channel();
            let mut watcher = $notify::recommended_watcher(sender)?;
            watcher.watch(Path::new(dir), $notify::RecursiveMode::NonRecursive)?;
            let stamps = Stamper::new(stamps)?;
            stamps.ready();
            for event in events {
                let stamp = now_ns();
                for path in event?.paths {
                    let name = path.file_name().and_then(std::ffi::OsStr::to_str);
                    stamps.send(stamp, name.ok_or("no name")?);
                }
            }
            Ok(())
        }
    };
}

bare_notify!(notify_8, notify);
bare_notify!(notify_9, notify9);

/// This program in a role that stamps.
fn role_ears(
    home: &Path,
    key: &str,
    role: &str,
    dir: &Path,
    more: &[&str],
) -> Outcome<(Arrivals, Option<Guard>)> {
    let stamps = Stamps::new(home, key)?;
    let mut arguments = vec![dir.as_os_str(), stamps.path().as_os_str()];
    arguments.extend(more.iter().map(std::ffi::OsStr::new));
    let process = in_role(role, &arguments)?;
    stamps.next()?;
    Ok((Arrivals::Stamps(stamps), Some(process)))
}

/// The whole watcher: a report lands, and a raw reader stamps the arrival of its message in the
/// mailbox.
fn routed(home: &Path) -> Outcome<(PathBuf, (Arrivals, Option<Guard>))> {
    let project = place::child(home, "project")?;
    let options = SpoolOptions {
        durability: ensemble_core::durable::Durability::Process,
        ..SpoolOptions::default()
    };
    std::fs::write(project.join("ensemble.yaml"), "durability: process\n")?;
    let spool = Spool::create(&project.join("queue"), options)?;
    spool.add_mailbox(&Name::new("dispatch")?, &Default::default())?;
    let watcher = watcher(&project)?;
    let new = project.join("queue/mailbox/dispatch/new");
    let (arrivals, reader) = role_ears(home, "routed", "raw", &new, &[])?;
    let Arrivals::Stamps(stamps) = arrivals else { return Err("a role has stamps".into()) };
    let arrivals = Arrivals::Any { stamps, _reader: reader };
    Ok((project.join("queue/reports"), (arrivals, Some(watcher))))
}

fn measure(subjects: &mut [Subject], each: usize) -> Outcome<()> {
    let mut spread = Spread::new();
    // The first files warm up every subject.
    for round in 0..=ROUNDS {
        for turn in 0..each {
            for subject in subjects.iter_mut().filter(|s| s.silent.is_none()) {
                if turn > 0 && turn % subject.share != 0 {
                    continue;
                }
                go_on()?;
                spread.pause(2_000, subject.gap);
                match subject.sample(round * each + turn) {
                    Ok(sample) if round > 0 => subject.latency.push(round - 1, sample),
                    Ok(_) => {}
                    Err(why) => subject.silent = Some(why.to_string()),
                }
            }
            if round == 0 && turn == 2 {
                break;
            }
        }
    }
    Ok(())
}

/// A loop that lists a directory repeatedly, as a program without file notification does.
pub fn poll(dir: &str, stamps: &str, millis: &str) -> Outcome<()> {
    let pause = Duration::from_millis(millis.parse()?);
    let stamps = Stamper::new(stamps)?;
    end_with_parent();
    stamps.ready();
    let mut known = std::collections::HashSet::new();
    loop {
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name();
            if !known.contains(&name) {
                stamps.send(now_ns(), &name.to_string_lossy());
                known.insert(name);
            }
        }
        std::thread::sleep(pause);
    }
}
