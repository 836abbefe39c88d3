//! A week of a busy team: what is in the project's directories follows what is at work, and not what ever was.
//!
//! The days are real to the watcher: its boot-time clock is moved by a time namespace, its wall clock by
//! libfaketime. What a day has written is stamped with that day before the next one begins.
//! `ENSEMBLE_WEEK_LOAD=200` makes each day ten times as long.

use std::fs::{File, FileTimes};
use std::time::SystemTime;

use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::message::Timestamp;
use ensemble_reports::contract::Summary;
use ensemble_team::driver::Batches;
use rustix::process::{Pid, Signal, kill_process};

use crate::faults::machine::{FAKETIME, unshared};
use crate::support::{options, setting};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);
const DAYS: u32 = 7;
const WORKERS: u64 = 4;
const DISPATCH: &str = "dispatch";
/// The days whose ends are compared. By the end of the earlier one, there is a full day of everything that is kept
/// for a day.
const COMPARED: [u32; 2] = [2, DAYS];
/// Closed requests are kept for 30 days, no matter what is configured: each day adds as much as the first one.
const KEPT_30_DAYS: &str = "queue/requests";
/// Directories in which something must have been removed, or their bounds would prove nothing.
const SWEPT: [&str; 5] = [
    "queue/attachments",
    "queue/rejected",
    ".ensemble/logs",
    ".ensemble/reviews",
    ".ensemble/batches",
];

/// The lines of its files are swept; there are at most 256 files, each with a lock.
const SHARDED: &str = ".ensemble/ends";

/// Ladders of tasks that were acked stay for a while: as many as the day's last tasks, which differ from day to day.
const LADDERS: &str = ".ensemble/ladders";
/// A lock for each worker for which a ladder was ever run; a day whose tasks are acked at once makes none.
const LOCKS: &str = ".ensemble/locks";
/// Longer than a ladder's file, in bytes.
const LADDER_BYTES_MAX: u64 = 1_000;

/// The machine's clocks, ahead by a duration.
#[derive(Debug)]
struct Later(Duration);

impl Clock for Later {
    fn monotonic(&self) -> Monotonic {
        SystemClock.monotonic() + self.0
    }
    fn wall(&self) -> Timestamp {
        SystemClock.wall().plus(self.0)
    }
    fn boottime(&self) -> Monotonic {
        SystemClock.boottime() + self.0
    }
}

/// The watcher on that day; `None`, with the reason printed, where its clocks cannot be moved.
fn watcher(bed: &Bed, passed: Duration) -> Option<Watcher> {
    let seconds = passed.as_secs().to_string();
    let moved = ["--time", "--boottime", &seconds, "--monotonic", &seconds];
    let mut command =
        unshared(&[&moved[..], &["--fork", "--kill-child"]].concat(), "env".as_ref())?;
    command.args([format!("LD_PRELOAD={FAKETIME}"), format!("FAKETIME=+{seconds}s")]);
    command.args(["FAKETIME_DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1", WATCHER]);
    Some(Watcher::launch_by(command, &bed.queue()))
}

struct Week {
    bed: Bed,
    load: u64,
}

impl Week {
    fn spool(&self, passed: Duration) -> Spool {
        let options = options().with_clock(Arc::new(Later(passed)));
        Spool::open(&self.bed.queue(), options).expect("the queue")
    }

    /// Mail that is done, tasks with their acks and reports, a review, a request, a dead letter, an attachment.
    fn work(&self, day: u32, spool: &Spool) {
        for number in 0..self.load {
            self.task(spool, &format!("d{day}-{number}"), &format!("worker-{}", number % WORKERS));
        }
        self.bed.land(&format!("reports/d{day}-broken-completed.yaml"), "a: [");
        let review = format!(
            "task_id: d{day}-0\nreviewer: worker-2\nstatus: needs_fix\nsummary: 1 finding in 40 of 40 lines \
             (100%)\nfindings:\n- severity: LOW\n  file: a.md\n  line: 12\n  description: x\n  \
             recommendation: y\n"
        );
        self.bed.land(&format!("reports/d{day}-0-review.yaml"), review);
        self.arrives(spool, DISPATCH, &format!("reports/d{day}-0-review.yaml"));
        fs::remove_file(self.bed.in_queue(&format!("reports/d{day}-0-review.yaml"))).expect("gone");
        self.ask(day, spool);
        self.lose(day, spool);
        let large = vec![b'x'; 62_000 + usize::try_from(day).expect("a day")];
        spool.attach(&large).expect("an attachment");
        self.tell(day);
        let left = self.bed.in_queue(&format!("tmp/dead-{day}.yaml"));
        fs::write(left, "left by a dead sender").expect("a file");
    }

    /// A task by the drop boxes: it is handed out, acked, reported, and its files are removed.
    fn task(&self, spool: &Spool, id: &str, worker: &str) {
        let mail = Envelope::new(name(worker), "mail\n").from(name("lead"));
        spool.publish(&mail.with_id(MessageId::new(id).expect("an id"))).expect("stored");
        self.receive(spool, worker);
        let number = worker.trim_start_matches("worker-");
        let boxes = [
            (format!("tasks/{worker}-task.yaml"), format!("id: {id}\ninstruction: count\n")),
            (format!("ack/{id}.ack"), format!("{worker}\n")),
            (
                format!("reports/{id}-completed.yaml"),
                format!(
                    "task_id: {id}\nworker_id: {number}\nstatus: success\nsummary: 3 of 3 chapters (100%) are \
                     read; see src/a.rs:4\n"
                ),
            ),
        ];
        for (path, content) in &boxes {
            self.bed.land(path, content);
            match path {
                path if path.starts_with("tasks") => self.arrives(spool, worker, path),
                path if path.starts_with("reports") => self.arrives(spool, DISPATCH, path),
                _ => {}
            }
        }
        for (path, _) in &boxes {
            let _ = fs::remove_file(self.bed.in_queue(path));
        }
    }

    /// Receives until the message of this file arrives. A notice about another file may come before it.
    fn arrives(&self, spool: &Spool, mailbox: &str, file: &str) {
        eventually_true(PATIENCE, &format!("the message of {file}"), || {
            self.receive(spool, mailbox).iter().any(|source| source.as_deref() == Some(file))
        });
    }

    /// Receives and settles all that waits; their sources. A report may have settled its task already.
    fn receive(&self, spool: &Spool, mailbox: &str) -> Vec<Option<String>> {
        let (mailbox, mut received) = (name(mailbox), Vec::new());
        while let Some(delivery) = spool.receive(&mailbox, &mailbox).expect("a look") {
            let _ = spool.settle(&delivery.lease);
            received.push(delivery.envelope.source);
        }
        received
    }

    fn tell(&self, day: u32) {
        let state = self.bed.home.path().join(".ensemble");
        let batches = Batches::new(&self.bed.queue(), &state, Durability::Process);
        let batch = name(&format!("batch-{day}"));
        let mut summary = Summary::new(1);
        summary.completed_tasks = 1;
        let told = || batches.announce(&batch, &summary, &name(DISPATCH), &NullRecorder).ok();
        eventually(PATIENCE, "the batch is told of", told);
    }

    fn ask(&self, day: u32, spool: &Spool) {
        let requests = Requests::new(spool);
        let id = format!("request-{day}");
        let ask =
            NewRequest::new("shutdown", name("lead"), name("worker-0"), "enough").with_id(&id);
        requests.ask(ask).expect("asked");
        assert!(!self.receive(spool, "worker-0").is_empty(), "the question is read");
        requests.respond(&id, &name("worker-0"), false, "busy").expect("answered");
    }

    /// A dead letter that a person drops, and a message that is returned once.
    fn lose(&self, day: u32, spool: &Spool) {
        let lead = name("lead");
        self.receive(spool, "lead");
        for kind in ["dead", "back"] {
            let id = MessageId::new(format!("{kind}-{day}")).expect("an id");
            spool.publish(&Envelope::new(lead.clone(), "x").with_id(id)).expect("stored");
        }
        let dead = spool.receive(&lead, &lead).expect("a look").expect("a message");
        spool.dead_letter(&dead.lease, "of no use").expect("dead");
        spool.drop_dead(&lead, &dead.lease.id).expect("dropped");
        let back = spool.receive(&lead, &lead).expect("a look").expect("a message");
        spool.release(&back.lease, Duration::ZERO).expect("given back");
        self.receive(spool, "lead");
    }

    fn stamp(&self, passed: Duration) {
        let real = SystemTime::now() + DAY / 2;
        for path in all_files(self.bed.home.path()) {
            let Ok(file) = File::open(&path) else { continue };
            let made = file.metadata().and_then(|it| it.modified()).expect("a stamp");
            if made < real {
                file.set_times(FileTimes::new().set_modified(made + passed)).expect("stamped");
            }
        }
    }
}

/// Number and bytes of the files of each directory, by its path in the project.
type Sizes = BTreeMap<String, (u64, u64)>;

fn all_files(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut all = Vec::new();
    for entry in entries {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(all_files(&entry.path())),
            Ok(kind) if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}

fn sizes(home: &Path) -> Sizes {
    let mut sizes = Sizes::new();
    for path in all_files(home) {
        let Ok(stat) = path.metadata() else { continue };
        let place = path.strip_prefix(home).expect("within").parent().expect("a directory");
        let (files, bytes) = sizes.entry(place.display().to_string()).or_default();
        (*files, *bytes) = (*files + 1, *bytes + stat.len());
    }
    sizes
}

fn is_alive(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Lets a watcher sweep, do the day's work and exit. Returns the sizes of what remains.
fn day(week: &Week, day: u32) -> Option<Sizes> {
    let passed = DAY * day;
    let yesterday = week.bed.in_queue(&format!("tmp/dead-{}.yaml", day.wrapping_sub(1)));
    let mut running = watcher(&week.bed, passed)?;
    let watches = || running.status()?["pid"].as_u64().filter(|pid| is_alive(*pid));
    let pid = eventually(PATIENCE, "it watches", watches);
    eventually_true(PATIENCE, "what a dead sender left is swept", || !yesterday.exists());
    week.work(day, &week.spool(passed));
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::TERM).expect("it runs");
    assert!(running.end(PATIENCE).success(), "the watcher of day {day}");
    // Advice that came late is open work, whose segments of the log stay.
    let spool = week.spool(passed);
    for mailbox in spool.mailboxes().expect("the mailboxes") {
        week.receive(&spool, mailbox.as_str());
    }
    week.stamp(passed);
    Some(sizes(week.bed.home.path()))
}

#[test]
fn a_week_of_a_busy_team_leaves_bounded_directories() {
    if !Path::new(FAKETIME).exists() {
        println!("skipped: no libfaketime at {FAKETIME}");
        return;
    }
    let mut settings = Settings::default();
    settings.done_days = 1;
    let bed = Bed::with(&settings, "poll_interval: 1\nhistory: 1d\n");
    let week = Week { bed, load: setting("ENSEMBLE_WEEK_LOAD", 8) };
    let workers = (0..WORKERS).map(|number| format!("worker-{number}"));
    for mailbox in workers.chain(["lead".to_owned()]) {
        week.spool(Duration::ZERO).add_mailbox(&name(&mailbox), &settings).expect("a mailbox");
    }
    let mut ends = BTreeMap::new();
    for number in 0..=DAYS {
        let Some(sizes) = day(&week, number) else { return };
        ends.insert(number, sizes);
    }
    let [early, late] = COMPARED.map(|day| &ends[&day]);
    let mut grown = Vec::new();
    for (place, (files, bytes)) in late {
        let (files_then, bytes_then) = early.get(place).copied().unwrap_or_default();
        println!("{place}: {files_then} -> {files} files, {bytes_then} -> {bytes} bytes");
        let share = if place.starts_with(KEPT_30_DAYS) { u64::from(DAYS) + 1 } else { 1 };
        let is_bounded = *bytes <= share * (bytes_then * 6 / 5 + 2_000)
            && (*files <= share * (files_then * 6 / 5 + 2) || place == SHARDED && *files <= 512)
            || place == LOCKS && *files <= WORKERS
            || place == LADDERS && *files <= week.load && *bytes <= week.load * LADDER_BYTES_MAX;
        if !is_bounded {
            grown.push(place);
        }
    }
    let bytes = |day: u32, place: &str| ends[&day].get(place).map_or(0, |(_, bytes)| *bytes);
    for place in SWEPT {
        let [first, last] = [0, DAYS].map(|day| bytes(day, place));
        assert!(0 < first && last < 6 * first, "{place}: {first} bytes a day, {last} at the end");
    }
    assert!(grown.is_empty(), "{grown:?}");
}
