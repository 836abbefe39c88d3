//! Ladders that are kept in files: whichever door a task came through, and whenever their runner is killed.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use ensemble_core::Error;
use ensemble_core::broker::Broker as _;
use ensemble_core::driver::{LadderPrompt, LadderState, LadderStore, Ladders, message_id};
use ensemble_core::message::MessageId;

use super::*;

use crate::*;

/// How a runner that is killed unwinds.
struct Killed;

/// Kills its process at the effect of this number.
#[derive(Clone)]
pub(super) struct Fuse(Arc<AtomicUsize>);

impl Fuse {
    fn at(effect: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(effect)))
    }
    pub(super) fn never() -> Self {
        Self::at(usize::MAX)
    }
    pub(super) fn burn(&self) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.0.store(usize::MAX, Ordering::Relaxed);
            panic_any(Killed);
        }
    }
}

/// Whether this host runs the ladders.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Claim {
    #[default]
    Here,
    Elsewhere,
    Unknown,
}

/// A host whose workers run in one pane; its lines are typed by the ladder itself.
struct Host {
    claim: Arc<Mutex<Claim>>,
    pane: SimPane,
    fuse: Fuse,
    config: LadderSettings,
}

impl LadderHost for Host {
    fn reader(&self, mailbox: &Name) -> Result<MailboxReader> {
        static PROFILE: OnceLock<Arc<Profile>> = OnceLock::new();
        let profile = PROFILE.get_or_init(|| Double::new("generic", &self.pane).profile);
        let fuse = self.fuse.clone();
        let pane = Double { fuse, ..Double::of(Arc::clone(profile), &self.pane) };
        Ok(MailboxReader::new(mailbox.clone(), self.config)
            .in_pane(Box::new(pane), "%1".to_owned()))
    }
    fn may_run(&self, _: &Name, _: bool) -> Result<bool> {
        match *self.claim.lock().unwrap() {
            Claim::Here => Ok(true),
            Claim::Elsewhere => Ok(false),
            Claim::Unknown => Err(Error::malformed("the claim", "server", "does not answer")),
        }
    }
    fn prompt(&self, _: LadderPrompt) -> bool {
        self.fuse.burn();
        false
    }
    fn set_pace(&self, _: &Name, _: bool) {
        self.fuse.burn();
    }
}

/// A log that may kill its writer before or after it has written.
struct FusedLog<'a> {
    log: &'a SimRecorder,
    fuse: Fuse,
}

impl Recorder for FusedLog<'_> {
    fn record(&self, kind: &str, actor: &str, data: Value) {
        self.fuse.burn();
        self.log.record(kind, actor, data);
        self.fuse.burn();
    }
}

impl Bench {
    fn store(&self) -> LadderStore {
        LadderStore::new(&self.home.path().join(".ensemble"))
    }

    fn claim(&self, claim: Claim) {
        *self.claim.lock().unwrap() = claim;
    }

    fn send(&self, id: &str, task: &str, worker: &str) -> MessageId {
        let id = MessageId::new(id).unwrap();
        let envelope = Envelope::new(name(worker), "count\n").with_id(id.clone());
        let envelope = envelope.with_kind(name("task")).with_task(task).from(name("lead"));
        self.spool.publish(&envelope).unwrap();
        id
    }

    /// A runner's process until `until`; whether it was killed before that.
    fn run(&self, pane: &SimPane, fuse: &Fuse, until: u64) -> bool {
        self.run_with(LadderSettings::generic(), pane, fuse, until)
    }

    fn run_with(&self, config: LadderSettings, pane: &SimPane, fuse: &Fuse, until: u64) -> bool {
        let (pane, fuse) = (pane.clone(), fuse.clone());
        let host = Host { claim: Arc::clone(&self.claim), pane, fuse: fuse.clone(), config };
        let log = FusedLog { log: &self.log, fuse };
        let until = Monotonic::from_duration(Duration::from_secs(until));
        let process = catch_unwind(AssertUnwindSafe(|| {
            let clocks = (&self.clock as _, &log as _);
            let mut ladders =
                Ladders::borrowing(&self.spool, self.store(), &host, clocks, name("watcher"));
            for mailbox in self.spool.mailboxes().unwrap() {
                ladders.observe_mailbox(&mailbox).unwrap();
            }
            while self.clock.monotonic() < until {
                let due = ladders.poll_timeout().unwrap_or(until).min(until);
                self.clock.advance_to(due);
                ladders.handle_timeout().unwrap();
            }
        }));
        match process {
            Ok(()) => false,
            Err(panic) => {
                assert!(panic.is::<Killed>(), "a runner failed by itself");
                true
            }
        }
    }

    fn state(&self, mailbox: &str, task: &str) -> Option<(LadderState, u8)> {
        let file = self.store().of_task(&name(mailbox), task).unwrap()?;
        Some((file.state, file.phase))
    }

    fn escalations(&self) -> Vec<String> {
        let reports = self.spool.root().join("reports");
        let mut files: Vec<_> = std::fs::read_dir(reports)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().contains("escalation-"))
            .collect();
        files.sort();
        files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }
}

const SEED: [&str; 8] = ["nudge", "nudge", "Escape", "Escape", "CtrlC", "nudge", "reset", "nudge"];

#[test]
fn a_task_that_was_only_sent_has_the_whole_ladder() {
    let (bench, pane) = (Bench::new(), idle());
    let id = bench.send("m-1", "t1", "w1");
    assert!(!bench.run(&pane, &Fuse::never(), 239));
    assert_eq!(bench.state("w1", "t1"), Some((LadderState::Open, 3)));
    assert_eq!(bench.escalations().len(), 0);
    bench.run(&pane, &Fuse::never(), 400);
    assert_eq!(words(&pane), SEED);
    let told = bench.escalations();
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("from: lead") && told[0].contains("message: m-1"), "{told:?}");
    assert_eq!(bench.state("w1", "t1"), Some((LadderState::Escalated, 3)));
    assert_eq!(bench.log.count("escalation"), 1);
    // Its sender knows it by its id, so no other message takes its place.
    assert_eq!(bench.spool.state(&name("w1"), &id).unwrap().unwrap().word(), "queued");
    // Late is better than never.
    bench.spool.receive(&name("w1"), &name("w1")).unwrap().unwrap();
    bench.run(&pane, &Fuse::never(), 410);
    assert_eq!(bench.log.count("ladder.late_ack"), 1);
    bench.run(&pane, &Fuse::never(), 500);
    assert_eq!(bench.state("w1", "t1"), None, "the file of an acked ladder goes after a minute");
}

#[test]
fn the_ack_ends_it_and_a_message_that_comes_back_begins_anew() {
    let (bench, pane) = (Bench::new(), idle());
    bench.send("m-1", "t1", "w1");
    bench.run(&pane, &Fuse::never(), 70);
    assert_eq!(bench.state("w1", "t1"), Some((LadderState::Open, 1)));
    let taken = bench.spool.receive(&name("w1"), &name("w1")).unwrap().unwrap();
    bench.run(&pane, &Fuse::never(), 75);
    assert_eq!(bench.state("w1", "t1"), Some((LadderState::Acked, 1)));
    assert_eq!(bench.log.count("task_start"), 1);
    bench.spool.release(&taken.lease, Duration::ZERO).unwrap();
    bench.run(&pane, &Fuse::never(), 80);
    assert_eq!(bench.state("w1", "t1"), Some((LadderState::Open, 0)));
    bench.run(&pane, &Fuse::never(), 330);
    assert_eq!(bench.escalations().len(), 1);
}

/// It cannot be seen whether the worker has answered.
#[test]
fn a_server_that_does_not_answer_lets_its_ladders_stand_still() {
    let (bench, pane) = (Bench::new(), idle());
    bench.send("m-1", "t1", "w1");
    // A ladder that cannot be written pauses no other.
    bench.send("m-2", "t2", "w1");
    std::fs::create_dir_all(bench.store().dir().join("w1@m-2.yaml/in-the-way")).unwrap();
    let host = Host {
        claim: Arc::clone(&bench.claim),
        pane: pane.clone(),
        fuse: Fuse::never(),
        config: LadderSettings::generic(),
    };
    let clocks = (&bench.clock as _, &bench.log as _);
    let mut ladders =
        Ladders::borrowing(&bench.spool, bench.store(), &host, clocks, name("watcher"));
    ladders.observe_mailbox(&name("w1")).unwrap_err();
    assert_eq!(bench.state("w1", "t1"), Some((LadderState::Open, 0)));
    bench.claim(Claim::Unknown);
    let mut failed = 0;
    for second in 1..=300 {
        bench.clock.advance_to(Monotonic::from_duration(Duration::from_secs(second)));
        failed += usize::from(ladders.handle_timeout().is_err());
        let due = ladders.poll_timeout().unwrap();
        assert!(due > bench.clock.monotonic(), "it waits for something to come");
    }
    assert!(failed > 100, "it looks again and again: {failed}");
    assert_eq!((words(&pane), bench.log.count("ladder.phase")), (vec!["nudge".to_owned()], 0));
    bench.claim(Claim::Here);
    bench.spool.receive(&name("w1"), &name("w1")).unwrap().unwrap();
    bench.clock.advance_to(Monotonic::from_duration(Duration::from_secs(310)));
    ladders.handle_timeout().unwrap();
    assert_eq!(bench.state("w1", "t1"), Some((LadderState::Acked, 0)));
    assert_eq!(words(&pane).len(), 1, "the worker had answered meanwhile");
}

#[test]
fn a_host_that_may_not_run_a_ladder_any_more_leaves_nothing_of_it() {
    let (bench, pane) = (Bench::new(), idle());
    bench.send("m-1", "t1", "w1");
    bench.run(&pane, &Fuse::never(), 70);
    assert_eq!(bench.state("w1", "t1"), Some((LadderState::Open, 1)));
    let pressed = words(&pane).len();
    bench.claim(Claim::Elsewhere);
    bench.run(&pane, &Fuse::never(), 400);
    assert_eq!((bench.state("w1", "t1"), words(&pane).len()), (None, pressed));
    bench.claim(Claim::Here);
    bench.run(&pane, &Fuse::never(), 410);
    assert_eq!(bench.state("w1", "t1"), Some((LadderState::Open, 0)), "it begins anew");
}

#[test]
fn a_worker_that_holds_something_is_left_alone() {
    let (bench, pane) = (Bench::new(), idle());
    bench.send("m-1", "t1", "w1");
    let taken = bench.spool.receive(&name("w1"), &name("w1")).unwrap().unwrap();
    bench.send("m-2", "t2", "w1");
    bench.run(&pane, &Fuse::never(), 7_200);
    assert_eq!((words(&pane).len(), bench.escalations().len()), (0, 0));
    assert_eq!(bench.state("w1", "t2"), Some((LadderState::Behind, 0)));
    bench.spool.settle(&taken.lease).unwrap();
    bench.run(&pane, &Fuse::never(), 7_240);
    assert_eq!(bench.state("w1", "t2"), Some((LadderState::Open, 0)));
    bench.run(&pane, &Fuse::never(), 7_500);
    assert_eq!(bench.escalations().len(), 1);
}

/// Twelve tasks for a dead worker: it is pressed for one, and the conductor hears of all.
#[test]
fn tasks_that_wait_behind_a_silent_worker_end_together() {
    let (bench, pane) = (Bench::new(), idle());
    for number in 10..22 {
        bench.send(&format!("m-{number}"), &format!("t{number}"), "w1");
    }
    bench.run(&pane, &Fuse::never(), 230);
    bench.send("m-9-young", "young", "w1");
    bench.run(&pane, &Fuse::never(), 250);
    assert_eq!(words(&pane), [&SEED[..], &["nudge"]].concat(), "then the young one begins");
    assert_eq!(bench.escalations().len(), 12);
    assert_eq!(bench.log.count("escalation"), 12);
    assert_eq!(bench.state("w1", "young"), Some((LadderState::Open, 0)));
}

#[test]
fn a_message_that_is_removed_or_expires_ends_in_silence_and_a_dead_letter_is_told() {
    let (bench, pane) = (Bench::new(), idle());
    let queue = bench.spool.root().join("mailbox/w1/new");
    bench.send("m-1", "t1", "w1");
    bench.run(&pane, &Fuse::never(), 10);
    std::fs::remove_file(queue.join("m-1.yaml")).unwrap();
    bench.run(&pane, &Fuse::never(), 20);
    assert_eq!(bench.state("w1", "t1"), None);
    for task in ["t2", "t3"] {
        bench.send(&format!("m-{task}"), task, "w1");
    }
    bench.run(&pane, &Fuse::never(), 30);
    let broker: &dyn ensemble_core::broker::Broker = &bench.spool;
    for id in ["m-t2", "m-t3"] {
        broker.set_aside(&name("w1"), &MessageId::new(id).unwrap(), "its agent left").unwrap();
    }
    bench.run(&pane, &Fuse::never(), 40);
    let told = bench.escalations();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|text| text.contains("undeliverable")), "{told:?}");
}

#[test]
fn time_without_a_runner_costs_no_rung() {
    let (bench, pane) = (Bench::new(), idle());
    bench.send("m-1", "t1", "w1");
    bench.run(&pane, &Fuse::never(), 100);
    assert_eq!(words(&pane), SEED[..2]);
    bench.clock.advance_to(Monotonic::from_duration(Duration::from_secs(4_000)));
    bench.run(&pane, &Fuse::never(), 4_055);
    assert_eq!(words(&pane), SEED[..2], "phase 1 is watched once more");
    bench.run(&pane, &Fuse::never(), 4_075);
    assert_eq!(words(&pane), SEED[..6]);
}

/// Kills a runner at its n-th effect, for all n, and then at random ones. No key is pressed twice, and the conductor
/// is notified exactly once.
#[test]
fn a_runner_that_is_killed_at_any_effect_tells_the_conductor_once() {
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref::<Killed>().is_none() {
            eprintln!("{info}");
        }
    }));
    let phase_timeout = Duration::from_secs(6);
    let quick = LadderSettings { phase_timeout, ..LadderSettings::generic() };
    for numbered in [false, true] {
        for first in 0.. {
            let (bench, pane) = (Bench::new(), idle());
            let id = if numbered { "t1.1" } else { "m-1" };
            bench.send(id, "t1", "w1");
            let mut versions = std::collections::BTreeSet::new();
            let (mut kills, mut until) = (0, 0);
            let mut fuse = Fuse::at(first);
            while until < 56 {
                until += 4;
                while bench.run_with(quick, &pane, &fuse, until) {
                    kills += 1;
                    fuse = if kills < 4 { Fuse::at(first % (5 + kills)) } else { Fuse::never() };
                }
                versions.extend(bench.escalations());
            }
            assert_eq!(versions.len(), 1, "kill at {first}: {versions:?}");
            let words = words(&pane);
            let count = |key: &str| words.iter().filter(|word| *word == key).count();
            assert!(count("Escape") <= 2 && count("CtrlC") <= 1, "kill at {first}: {words:?}");
            assert!(count("reset") <= 1 && count("nudge") <= 4, "kill at {first}: {words:?}");
            let last = if numbered { message_id("t1", 2) } else { MessageId::new("m-1").unwrap() };
            let state = bench.spool.state(&name("w1"), &last).unwrap().unwrap();
            assert_eq!(state.word(), "queued", "kill at {first}");
            assert_eq!(bench.spool.count_due(&name("w1"), 10).unwrap(), 1, "kill at {first}");
            assert_eq!(bench.state("w1", "t1"), Some((LadderState::Escalated, 3)));
            if kills == 0 {
                assert!(first > 20, "there are more effects than {first}");
                break;
            }
        }
    }
    let _ = std::panic::take_hook();
}
