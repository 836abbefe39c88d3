//! A batch under Dispatch whose process is killed at any effect: no task is published twice, and the
//! conductor is notified once.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::durable::Durability;
use ensemble_core::env::{Clock as _, Monotonic};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Envelope, Name, Timestamp};
use ensemble_core::spool::State;
use ensemble_reports::contract::{self, Instruction, Reading};
use ensemble_team::driver::{
    AvailableWorker, BatchProgress, Batches, DispatchRun, ReviewCounts, SUMMARY_PATH,
    SummaryOutcome, TaskBatch, TaskEnds, WorkerPool, plan_of,
};
use proptest::prelude::*;

use crate::queue::{QueueBed, QueueSetup, name};

const SECOND: Duration = Duration::from_secs(1);

/// How a process that is killed unwinds.
struct Killed;

/// Kills its process at the effect of this number.
struct Fuse(AtomicUsize);

impl Fuse {
    fn never() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    fn burn(&self) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.0.store(usize::MAX, Ordering::Relaxed);
            panic_any(Killed);
        }
    }
}

/// A log of `worker_assign` and `batch.told`, whose writer may be killed before or after a line.
struct Log {
    fuse: Fuse,
    lines: Mutex<Vec<String>>,
}

impl Recorder for Log {
    fn record(&self, kind: &str, _: &str, data: serde_json::Value) {
        self.fuse.burn();
        self.lines.lock().unwrap().push(format!("{kind} {}", data["id"]));
        self.fuse.burn();
    }
}

/// Two workers, of which one may be slow to answer a ping. The second one is of another host.
struct Team {
    fuse: Fuse,
    pings: RefCell<u32>,
}

impl WorkerPool for Team {
    fn workers(&self) -> Result<Vec<AvailableWorker>> {
        self.fuse.burn();
        Ok(["w1", "w2"].map(|it| AvailableWorker::new(name(it), name(it))).into())
    }
    fn may_begin(&self, _: &str, _: &Name) -> Result<()> {
        self.fuse.burn();
        Ok(())
    }
    fn is_ready(&self, _: &Name) -> Result<bool> {
        self.fuse.burn();
        let mut pings = self.pings.borrow_mut();
        *pings += 1;
        Ok(!pings.is_multiple_of(3))
    }
    fn is_elsewhere(&self, worker: &Name) -> Result<bool> {
        self.fuse.burn();
        Ok(worker.as_str() == "w2")
    }
}

const TEXT: &str = "type: start_workers\nworker_count: 2\ntasks:\n\
    - {id: a, instruction: x}\n\
    - {id: b, instruction: fails once, retry: {attempts: 2, delay: 3}}\n\
    - {id: c, instruction: x, blocked_by: [a, b]}\n\
    - {id: d, instruction: fails, worker: w2}\n\
    - {id: e, instruction: x, blocked_by: [d]}\n\
    - {id: f, instruction: fails once, worker: w2, retry: {attempts: 2, delay: 0}}\n...\n";

struct Bed {
    queue: QueueBed,
    log: Log,
    instruction: Instruction,
    batch: TaskBatch,
    /// Reports of the other host that are not settled.
    mails: RefCell<VecDeque<Envelope>>,
}

impl Bed {
    fn new() -> Self {
        Self::of(TEXT)
    }

    fn of(text: &str) -> Self {
        let queue = QueueSetup::of(["w1", "w2"]).build();
        let read = contract::read_as::<Instruction>(text, "i.yaml".as_ref()).unwrap();
        let Reading::Whole(instruction) = read else { panic!("an instruction") };
        let batch = TaskBatch::of(&instruction).unwrap();
        let log = Log { fuse: Fuse::never(), lines: Mutex::default() };
        Self { queue, log, instruction, batch, mails: RefCell::default() }
    }

    fn run<'a>(&'a self, team: &'a Team) -> DispatchRun<'a> {
        let state_dir = self.queue.home.path().join(".ensemble");
        DispatchRun {
            spool: &self.queue.spool,
            queue: &self.queue.spool,
            batches: Batches::new(self.queue.spool.root(), &state_dir, Durability::Process),
            ends: TaskEnds::new(
                self.queue.spool.root(),
                &state_dir,
                ReviewCounts::new(self.queue.spool.root(), &state_dir, None),
            ),
            state_dir,
            clock: &self.queue.clock,
            recorder: &self.log,
            actor: name("dispatch").into(),
            hands: team,
        }
    }

    /// One process, until it has nothing to do or is killed at effect `kill` of the team or of the log.
    fn process(&self, kill: Option<(bool, usize)>) -> std::result::Result<BatchProgress, ()> {
        let (of_team, of_log) = match kill {
            Some((true, effect)) => (effect, usize::MAX),
            Some((false, effect)) => (usize::MAX, effect),
            None => (usize::MAX, usize::MAX),
        };
        self.log.fuse.0.store(of_log, Ordering::Relaxed);
        let team = Team { fuse: Fuse(AtomicUsize::new(of_team)), pings: RefCell::default() };
        let run = self.run(&team);
        let process = AssertUnwindSafe(|| {
            let _lock = run.lock(&self.batch.id).unwrap();
            let progress = run.step(&self.batch, &self.instruction).unwrap();
            loop {
                let Some(mail) = self.mails.borrow().front().cloned() else { return progress };
                run.take_mailed(&self.batch, &self.instruction, &mail).unwrap();
                team.fuse.burn(); // Killed between the two, it finds the message again.
                self.mails.borrow_mut().pop_front();
            }
        });
        catch_unwind(process).map_err(|panic| {
            assert!(panic.is::<Killed>(), "a process failed by itself");
        })
    }

    /// A worker takes what waits, and reports.
    fn work(&self, worker: &str, begun: &mut Vec<String>) {
        let worker = name(worker);
        while let Some(taken) = self.queue.spool.receive(&worker, &worker).unwrap() {
            let (task, attempt) =
                (taken.envelope.task_id.clone().unwrap(), taken.envelope.attempt.unwrap());
            begun.push(format!("{task} {attempt}"));
            let fails = task == "d" || (matches!(&*task, "b" | "f") && attempt == 1);
            let status = if fails { "failed" } else { "success" };
            let text = format!(
                "task_id: {task}\nworker_id: {worker}\nstatus: {status}\nfailure_reason: no\n...\n"
            );
            if worker.as_str() == "w2" {
                self.queue.spool.settle(&taken.lease).unwrap();
                let mail =
                    Envelope::new(name("dispatch"), text).with_task(task).from(worker.clone());
                self.mails.borrow_mut().push_back(mail);
                continue;
            }
            // It leaves its message to its report, which no watcher sees.
            self.report(&task, &text);
        }
    }

    fn report(&self, task: &str, text: &str) {
        let reports = self.queue.spool.root().join("reports");
        std::fs::create_dir_all(&reports).unwrap();
        let whole = self.queue.home.path().join("whole");
        std::fs::write(&whole, text).unwrap();
        std::fs::rename(whole, reports.join(format!("{task}-completed.yaml"))).unwrap();
    }
}

/// The roster may not know a worker that reports on this host. The mail of its reports is not counted beside their
/// files, however late it comes.
#[test]
fn a_late_mail_of_an_earlier_attempt_is_not_counted_for_the_next() {
    let bed = Bed::new();
    let worker = name("w2");
    let text = |task: &str, status| {
        format!("task_id: {task}\nworker_id: w2\nstatus: {status}\nfailure_reason: no\n...\n")
    };
    for attempt in [1, 2] {
        let taken = loop {
            assert!(
                bed.queue.clock.monotonic() < Monotonic::from_duration(100 * SECOND),
                "attempt {attempt} of f never comes"
            );
            bed.process(None).unwrap();
            bed.queue.clock.advance(SECOND);
            let Some(taken) = bed.queue.spool.receive(&worker, &worker).unwrap() else { continue };
            bed.queue.spool.settle(&taken.lease).unwrap();
            match taken.envelope.task_id.as_deref() {
                Some("f") => break taken,
                Some(other) => bed.report(other, &text(other, "success")),
                None => panic!("no task"),
            }
        };
        assert_eq!(taken.envelope.attempt, Some(attempt));
        bed.report("f", &text("f", if attempt == 1 { "failed" } else { "success" }));
    }
    let late = Envelope::new(name("dispatch"), text("f", "failed")).with_task("f").from(worker);
    let team = Team { fuse: Fuse::never(), pings: RefCell::default() };
    bed.run(&team).take_mailed(&bed.batch, &bed.instruction, &late).unwrap();
    bed.process(None).unwrap();
    let state = bed.queue.home.path().join(format!(".ensemble/dispatch/{}.yaml", bed.batch.id));
    let state: serde_json::Value =
        ensemble_core::message::yaml::parse(&std::fs::read_to_string(&state).unwrap(), &state)
            .unwrap();
    assert_eq!(state["tasks"]["f"]["state"], "done", "{state}");
}

/// The report ends what was written before it.
#[test]
fn mail_that_follows_a_report_is_left_to_the_worker() {
    let bed = Bed::new();
    let worker = name("w1");
    let mut begun = Vec::new();
    while begun.is_empty() {
        bed.process(None).unwrap();
        bed.work("w1", &mut begun);
        bed.queue.clock.advance(SECOND);
    }
    let (task, _) = begun[0].split_once(' ').unwrap();
    // Files are stamped by a clock that lags behind.
    let reported = Timestamp::now().plus(Duration::from_millis(200));
    let more = loop {
        let more = Envelope::new(worker.clone(), "one more thing\n").with_task(task);
        if more.created_at > reported {
            break more;
        }
        std::thread::yield_now();
    };
    bed.queue.spool.publish(&more).unwrap();
    bed.process(None).unwrap();
    assert!(bed.queue.spool.observe(&worker).unwrap().is_empty(), "the task is settled");
    let state = bed.queue.spool.state(&worker, &more.id).unwrap();
    assert!(matches!(state, Some(State::Queued { .. })), "{state:?}");
}

#[track_caller]
fn next_task(bed: &Bed, worker: &str) -> Option<String> {
    let worker = name(worker);
    for _ in 0..10 {
        bed.process(None).unwrap();
        bed.queue.clock.advance(SECOND);
        if let Some(taken) = bed.queue.spool.receive(&worker, &worker).unwrap() {
            return taken.envelope.task_id;
        }
    }
    panic!("{worker} never gets a task")
}

#[test]
fn a_worker_that_can_get_nothing_stops_no_other_one_and_gets_its_task_later() {
    type Act = fn(&Path);
    let kinds: [(&str, Act, Act); 2] = [
        (
            "wrong settings",
            |it| fs::write(it.join("mailbox.yaml"), "[").unwrap(),
            |it| fs::remove_file(it.join("mailbox.yaml")).unwrap(),
        ),
        (
            "a full mailbox",
            |it| {
                fs::write(it.join("mailbox.yaml"), "capacity: 1\n").unwrap();
                fs::write(it.join("new/other.yaml"), "body: other\n...\n").unwrap();
            },
            |it| fs::remove_file(it.join("new/other.yaml")).unwrap(),
        ),
    ];
    for (kind, break_it, mend_it) in kinds {
        let bed = Bed::of(
            "type: start_workers\ntasks:\n- {id: a, instruction: first, worker: w1}\n\
             - {id: b, instruction: second}\n...\n",
        );
        let mailbox = bed.queue.spool.root().join("mailbox/w1");
        break_it(&mailbox);
        assert_eq!(next_task(&bed, "w2").as_deref(), Some("b"), "{kind}");
        let stuck = (0..4).find_map(|_| match bed.process(None).unwrap() {
            BatchProgress::Open { stuck, .. } => stuck.into_iter().next(),
            told @ BatchProgress::Told(_) => panic!("{told:?}"),
        });
        let said = stuck.unwrap_or_else(|| panic!("{kind} is not said"));
        assert!(said.contains("w1"), "{kind}: {said}");
        mend_it(&mailbox);
        assert_eq!(next_task(&bed, "w1").as_deref(), Some("a"), "{kind}");
    }
}

#[test]
fn a_policy_is_read_as_it_is_written_and_names_agents() {
    let plan = |policy: &str| {
        let text =
            format!("type: start_workers\ntasks:\n- {{id: a, instruction: x, {policy}}}\n...\n");
        plan_of(&Bed::of(&text).instruction).map_err(|error| error.to_string())
    };
    for retry in
        ["delay: 90, attempts: 2", "delay: 1m 30s, attempts: '2'", "delay: '90', attempts: 2.0"]
    {
        let plan = plan(&format!("retry: {{{retry}}}")).unwrap();
        assert_eq!((plan.tasks[0].delay, plan.tasks[0].attempts_max), (90 * SECOND, 2), "{retry}");
    }
    for (written, named) in [("worker: 1", "worker-1"), ("workerId: '@w1'", "w1")] {
        assert_eq!(plan(written).unwrap().tasks[0].worker, Some(name(named)), "{written}");
    }
    for (wrong, said) in [
        ("worker: [w1, w2]", "worker: is not a name"),
        ("retry: {delay: soon}", "retry.delay: `soon` is not a duration"),
        ("retry: {attempts: few}", "retry.attempts: is not a number"),
        ("worker: Operator", "worker: `Operator` is"),
    ] {
        let refused = plan(wrong).unwrap_err();
        assert!(refused.contains(said), "{wrong}: {refused}");
    }
}

/// A task can end without a report, and then its batch ends, too.
#[test]
fn a_batch_ends_with_its_messages_and_mailboxes() {
    let text = "type: start_workers\nworker_count: 4\ntasks:\n\
        - {id: a, instruction: settled, worker: w1}\n\
        - {id: b, instruction: its mailbox is removed, worker: w2, retry: {attempts: 2}}\n\
        - {id: c, instruction: there is no such mailbox, worker: w9}\n...\n";
    let bed = Bed::of(text);
    let (w1, w2) = (name("w1"), name("w2"));
    let receive = |worker: &Name| {
        for _ in 0..10 {
            bed.process(None).unwrap();
            if let Some(taken) = bed.queue.spool.receive(worker, worker).unwrap() {
                return taken.lease;
            }
        }
        panic!("{worker} gets nothing")
    };
    bed.queue.spool.settle(&receive(&w1)).unwrap();
    bed.queue.spool.release(&receive(&w2), Duration::ZERO).unwrap();
    bed.queue.spool.remove_mailbox(&w2, true).unwrap();
    let mut rounds = 0;
    let told = loop {
        if let BatchProgress::Told(told) = bed.process(None).unwrap() {
            break told;
        }
        rounds += 1;
        assert!(rounds < 100, "it does not end");
        bed.queue.clock.advance(10 * SECOND);
    };
    let summary = told.summary();
    let said: Vec<&str> =
        summary.task_results.iter().map(|it| it.summary.as_deref().unwrap()).collect();
    assert!(said[0] == "it was settled without a report", "{said:?}");
    assert!(said[1].contains("w2") && said[1].ends_with("(2 attempts)"), "{said:?}");
    assert!(said[2].contains("w9"), "{said:?}");
    assert_eq!((summary.completed_tasks, summary.failed_tasks), (1, 2));
    assert!(rounds >= 60, "a late report is waited for");
}

fn silence_kills() {
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref::<Killed>().is_none() {
            eprintln!("{info}");
        }
    }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn kills_at_any_effect_publish_nothing_twice_and_tell_once(
        kills in prop::collection::vec(prop::option::weighted(0.7, (any::<bool>(), 0..24_usize)), 1..40),
    ) {
        silence_kills();
        let bed = Bed::new();
        let (mut begun, mut told, mut texts) = (Vec::new(), None, BTreeSet::new());
        for round in 0..400 {
            let kill = kills.get(round).copied().flatten();
            if let Ok(BatchProgress::Told(outcome)) = bed.process(kill) {
                told = Some(*outcome);
                break;
            }
            texts.extend(std::fs::read_to_string(bed.queue.spool.root().join(SUMMARY_PATH)).ok());
            bed.work(if round % 2 == 0 { "w1" } else { "w2" }, &mut begun);
            bed.queue.clock.advance(SECOND);
        }
        let Some(told) = told else { panic!("it did not end: {begun:?}") };
        texts.insert(std::fs::read_to_string(bed.queue.spool.root().join(SUMMARY_PATH)).unwrap());
        prop_assert_eq!(texts.len(), 1, "one summary");
        let summary = told.summary();
        prop_assert_eq!((summary.completed_tasks, summary.failed_tasks), (4, 2));
        let c = begun.iter().position(|it| it == "c 1").unwrap();
        prop_assert!(begun.iter().position(|it| it == "b 2").unwrap() < c, "{:?}", begun);
        begun.sort_unstable();
        prop_assert_eq!(begun, ["a 1", "b 1", "b 2", "c 1", "d 1", "f 1", "f 2"]);
        let held = bed.queue.spool.observe(&name("w1")).unwrap();
        prop_assert!(held.is_empty(), "a reported task is still held: {:?}", held);
        // A start now changes nothing.
        let again = bed.process(None).unwrap();
        let is_before = matches!(&again, BatchProgress::Told(told) if matches!(**told, SummaryOutcome::Before(_)));
        prop_assert!(is_before, "{:?}", again);
    }
}
