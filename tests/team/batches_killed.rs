//! Kills or stops a Dispatcher at every system call of gathering and reporting a batch, while another one reports the
//! same batch or the next. Each batch must reach the Conductor once and with one content. Needs `strace`; without it,
//! prints the reason and skips.

use crate::support;
use std::fs::{self, File, TryLockError};
use std::path::PathBuf;
use std::process::Child;
use std::time::Instant;

use crate::support::traced::{
    between_marks, calls, has_strace, points, run_traced, share, start_traced, survives_kill,
};
use crate::support::{Bed, PATIENCE, eventually, given, name};
use ensemble_core::driver::nap;
use ensemble_core::dropbox::{BoxSpec, DropBox, Ledger};
use ensemble_core::durable::Durability;
use ensemble_core::env::SystemClock;
use ensemble_core::event_log::{EventLog, NullRecorder};
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_reports::contract::{Summary, SummaryStatus};
use ensemble_team::collect::BatchLimits;
use ensemble_team::driver::{
    BatchError, Batches, Dispatcher, ReviewCounts, SUMMARY_PATH, TaskBatch, TaskEnds,
};
use rustix::process::{Pid, Signal, kill_process};

const TASKS: [&str; 2] = ["t-1", "t-2"];
const SUMMARY_BYTES_MAX: usize = 1 << 20;
fn batches(bed: &Bed) -> Batches {
    Batches::new(&bed.queue(), &bed.state(), Durability::Power)
}

fn batch(id: &str) -> TaskBatch {
    TaskBatch { id: name(id), tasks: TASKS.map(str::to_owned).to_vec() }
}

#[test]
fn a_child_process_plays_its_role() {
    if support::role().is_none() {
        return;
    }
    let queue = PathBuf::from(given("QUEUE"));
    let state = queue.with_file_name(".ensemble");
    let options = SpoolOptions { durability: Durability::Power, ..SpoolOptions::default() };
    let spool = Spool::open(&queue, options).unwrap();
    let log = EventLog::open(&state.join("logs")).unwrap();
    let dispatcher = Dispatcher {
        spool: &spool,
        batches: Batches::new(&queue, &state, Durability::Power),
        reviews: ReviewCounts::new(&queue, &state, None),
        ends: TaskEnds::new(&queue, &state, ReviewCounts::new(&queue, &state, None)),
        clock: &SystemClock,
        recorder: &log,
        actor: name("dispatch"),
        review_dirs: Vec::new(),
    };
    let one = batch("one");
    let mut rest = |longest| {
        nap(longest);
        Ok(())
    };
    let told =
        between_marks(|| dispatcher.collect(&one, BatchLimits::default(), &mut rest)).unwrap();
    // Every Dispatcher received the same text.
    let counts = dispatcher.batches.published_summary(&one.id).unwrap().expect("it was told of");
    assert_eq!(told.summary(), &counts);
    std::process::exit(0);
}

/// A queue whose watcher has run, with a report of each task.
fn prepare() -> Bed {
    let bed = Bed::new();
    fs::create_dir_all(bed.state().join("logs")).unwrap();
    Ledger::open(&bed.state()).unwrap();
    for task in TASKS {
        let report = format!("task_id: {task}\nstatus: success\nworker_id: worker-1\n...\n");
        bed.land(&format!("reports/{task}-completed.yaml"), report);
    }
    bed
}

/// The report of another Dispatcher that has seen fewer results.
fn other_words() -> Summary {
    let mut summary = Summary::new(2);
    summary.status = SummaryStatus::Failed;
    summary.missing_tasks = TASKS.map(str::to_owned).to_vec();
    summary
}

/// The watcher's rule: each version of the file is delivered once. Returns the delivered batches.
#[derive(Default)]
struct Watcher {
    delivered: Vec<String>,
}

impl Watcher {
    fn look(&mut self, bed: &Bed) {
        let reports = DropBox::open(&bed.queue(), &BoxSpec::named("reports")).unwrap();
        let file = SUMMARY_PATH.strip_prefix("reports/").unwrap();
        let Some((stat, content)) = reports.read(file, SUMMARY_BYTES_MAX).unwrap() else { return };
        let mut ledger = Ledger::open(&bed.state()).unwrap();
        let Some(entry) = ledger.next_version(SUMMARY_PATH, &stat, &content) else { return };
        ledger.append(vec![entry]).unwrap();
        self.delivered.push(String::from_utf8(content).expect("a whole summary"));
    }

    /// Lets a Dispatcher report a batch, and delivers messages that block it.
    fn tell(&mut self, bed: &Bed, id: &str, summary: &Summary) -> Summary {
        loop {
            match batches(bed).announce(&name(id), summary, &name("other"), &NullRecorder) {
                Ok(told) => return told.summary().clone(),
                Err(error) if matches!(error.area(), Some(BatchError::Undelivered { .. })) => {
                    let before = self.delivered.len();
                    self.look(bed);
                    assert!(self.delivered.len() > before, "it waits for nothing");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Next {
    /// The watcher, then another Dispatcher for the same batch that has seen fewer results.
    SameSeen,
    /// Another Dispatcher for the same batch, before the watcher has looked.
    SameUnseen,
    Another,
}

/// The next process finishes every interrupted report, and each batch is reported once.
fn judge(bed: &Bed, next: Next, what: &str) {
    let mut watcher = Watcher::default();
    let said = match next {
        Next::SameSeen => {
            watcher.look(bed);
            watcher.tell(bed, "one", &other_words())
        }
        Next::SameUnseen => watcher.tell(bed, "one", &other_words()),
        Next::Another => {
            let mut two = other_words();
            two.batch_id = Some("two".to_owned());
            watcher.tell(bed, "two", &two);
            watcher.look(bed);
            watcher.tell(bed, "one", &other_words())
        }
    };
    watcher.look(bed);
    // The killed Dispatcher is started again.
    assert_eq!(watcher.tell(bed, "one", &Summary::new(0)), said, "{what}: one wording");
    watcher.look(bed);
    let of_two = watcher.delivered.iter().filter(|text| text.contains("batch_id: two")).count();
    let expected = usize::from(matches!(next, Next::Another));
    assert_eq!(of_two, expected, "{what}: {:#?}", watcher.delivered);
    assert_eq!(watcher.delivered.len() - of_two, 1, "{what}: {:#?}", watcher.delivered);
    assert!(bed.state().join("batches/one.told").exists(), "{what}");
    bed.spool().sweep().unwrap();
    bed.assert_clean();
}

fn is_told_once_after_any_kill(next: Next) {
    if !has_strace() {
        return;
    }
    let start = Instant::now();
    let points = share(points(&calls(&prepare(), "batches_killed::collect")));
    let (mut survived, mut decided, mut landed) = (0, 0, 0);
    for (call, number) in &points {
        let bed = prepare();
        let what = format!("killed at {call} {number}, then {next:?}");
        survived += usize::from(survives_kill(&bed, "batches_killed::collect", call, *number));
        decided += usize::from(bed.state().join("batches/one.yaml").exists());
        landed += usize::from(bed.in_queue(SUMMARY_PATH).exists());
        judge(&bed, next, &what);
    }
    let all = points.len();
    println!(
        "{next:?}: killed at {all} system calls, {decided} behind the decision, {landed} behind the \
         rename, {survived} survived, {:.1} s",
        start.elapsed().as_secs_f64()
    );
    assert!(all > 10 && survived < all / 2, "{survived} of {all} survived");
    assert!(survived < landed && landed < decided && decided < all, "every stage was met");
}

/// The next one reports the same batch after or before the watcher has looked, or the batch after it.
#[test]
#[ignore = "long"]
fn the_next_dispatcher_reports_once_in_the_same_words_after_any_kill() {
    for next in [Next::SameSeen, Next::SameUnseen, Next::Another] {
        is_told_once_after_any_kill(next);
    }
}

#[test]
#[ignore = "long"]
fn the_third_dispatcher_reports_once_after_two_kills() {
    if !has_strace() {
        return;
    }
    let start = Instant::now();
    let all = points(&calls(&prepare(), "batches_killed::collect"));
    // Where the first one has changed something, and every call of the second.
    let is_changing = |(call, _): &&(&str, u64)| matches!(*call, "renameat2" | "write" | "mkdirat");
    let changing = share(all.iter().filter(is_changing).collect());
    let mut pairs = 0;
    for (call, number) in changing {
        for (second_call, second_number) in share(all.iter().collect()) {
            let bed = prepare();
            let inject = format!("inject={call}:signal=KILL:when={number}");
            run_traced(&bed, "batches_killed::collect", &["-e", &inject]);
            let inject = format!("inject={second_call}:signal=KILL:when={second_number}");
            // It may die before it begins: what it finds is not what the calls were counted in.
            let code = start_traced(&bed, "batches_killed::collect", &["-e", &inject])
                .wait()
                .unwrap()
                .code();
            let what = format!("{call} {number}, then {second_call} {second_number}");
            assert!(code.is_none() || code == Some(0), "{what}: {code:?}");
            let next = if pairs % 2 == 0 { Next::SameSeen } else { Next::Another };
            judge(&bed, next, &what);
            pairs += 1;
        }
    }
    println!("{pairs} pairs of kills, {:.1} s", start.elapsed().as_secs_f64());
    assert!(pairs > 30, "{pairs}");
}

fn is_locked(bed: &Bed) -> bool {
    let lock = bed.in_queue(&format!("{SUMMARY_PATH}.lock"));
    let Ok(lock) = File::options().read(true).write(true).open(lock) else { return false };
    matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

#[test]
#[ignore = "long"]
fn two_concurrent_dispatchers_report_once_when_one_is_stopped_at_any_call() {
    if !has_strace() {
        return;
    }
    let start = Instant::now();
    let points = share(points(&calls(&prepare(), "batches_killed::collect")));
    let (mut waited, mut overtook) = (0, 0);
    for (call, number) in &points {
        let bed = prepare();
        let what = format!("stopped at {call} {number}");
        let inject = format!("inject={call}:signal=STOP:when={number}");
        let mut first = start_traced(&bed, "batches_killed::collect", &["-e", &inject]);
        // The process that pauses; none if the operation ended before the call came.
        let stopped = eventually(PATIENCE, &format!("{what}: it stops or ends"), || {
            let ended = first.try_wait().expect("a child").is_some();
            if ended { Some(None) } else { stopped(&bed, &first).map(Some) }
        });
        let (mut watcher, is_locked) = (Watcher::default(), is_locked(&bed));
        watcher.look(&bed);
        let said = std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                batches(&bed).announce(&name("one"), &other_words(), &name("other"), &NullRecorder)
            });
            // The other one overtakes it, or waits for it.
            if is_locked {
                waited += 1;
                run_on(&mut first, stopped, &what);
                second.join().expect("no panic")
            } else {
                let said = second.join().expect("no panic");
                overtook += usize::from(stopped.is_some());
                run_on(&mut first, stopped, &what);
                said
            }
        });
        let said = said.unwrap_or_else(|error| panic!("{what}: {error}"));
        watcher.look(&bed);
        assert_eq!(watcher.delivered.len(), 1, "{what}: {:#?}", watcher.delivered);
        let counts = batches(&bed).published_summary(&name("one")).unwrap().unwrap();
        assert_eq!(&counts, said.summary(), "{what}");
        assert!(bed.records("batch.told").len() <= 1, "{what}");
    }
    println!(
        "stopped at {} system calls: {overtook} times the other one was first, {waited} times it waited, {:.1} s",
        points.len(),
        start.elapsed().as_secs_f64()
    );
    assert!(overtook > 1 && waited > 1, "{overtook} {waited}");
}

/// Lets it continue until it exits, which must be with success.
fn run_on(first: &mut Child, stopped: Option<Pid>, what: &str) {
    let status = eventually(PATIENCE, what, || {
        // Sent repeatedly, because strace may stop the process only after the first signal.
        let _ = stopped.map(|pid| kill_process(pid, Signal::CONT));
        first.try_wait().expect("a child")
    });
    assert_eq!(status.code(), Some(0), "{what}");
}

/// The process that strace runs, once the signal that it injects has stopped it.
fn stopped(bed: &Bed, strace: &Child) -> Option<Pid> {
    let trace = fs::read(bed.home.path().join("trace")).unwrap_or_default();
    if !String::from_utf8_lossy(&trace).contains("stopped by SIGSTOP") {
        return None;
    }
    let children = format!("/proc/{0}/task/{0}/children", strace.id());
    let children = fs::read_to_string(children).ok()?;
    let pid = children.split_whitespace().next()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let is_stopped = status.contains("State:\tT") || status.contains("State:\tt");
    Pid::from_raw(pid.parse().ok()?).filter(|_| is_stopped)
}
