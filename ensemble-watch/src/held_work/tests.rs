//! The table of the module, row by row.

use std::time::Duration;

use ensemble_core::env::Lease;
use ensemble_core::message::Envelope;
use ensemble_core::pane::{Deferral, ForegroundProcess, PaneState};
use ensemble_core::proto::testing::{at, name};
use ensemble_core::sim::SimRecorder;
use ensemble_core::spool::{Settings, Spool, SpoolOptions, State};
use ensemble_tmux::provider::{Profiles, diagnose};

use super::gone::{held_by, return_all};
use super::*;

fn seen(profile: &str, command: &str, screen: &str, change: fn(&mut PaneState)) -> PaneObservation {
    let mut pane = PaneState::default();
    (pane.bound, pane.pid, pane.command) = (true, 7, command.to_owned());
    pane.screen = screen.lines().map(str::to_owned).collect();
    change(&mut pane);
    PaneObservation::Seen(diagnose(&Profiles::embedded().unwrap().get(profile).unwrap(), &pane))
}

fn claude(screen: &str) -> PaneObservation {
    seen("claude", "claude", screen, |_| {})
}

const READY: &str = "─────\n❯ \n─────\n  ? for shortcuts";
const BUSY: &str = "✶ Thinking…\n─────\n❯ \n─────\n  ? for shortcuts · esc to interrupt";
const LIMIT: &str = "Claude usage limit reached. Your limit resets at 3pm (Europe/Berlin)\n❯ ";
const PERMISSION: &str =
    "Do you want to proceed?\n❯ 1. Yes\n  2. No\n\nEsc to cancel · Tab to amend";

fn process(program: &str, shell: bool) -> ForegroundProcess {
    let mut process = ForegroundProcess::program(7, [program]);
    process.shell = shell;
    process
}

#[test]
fn only_what_shows_work_is_evidence() {
    let evidence = |observation: &PaneObservation, provider| of_work(observation, provider);
    assert!(evidence(&claude(BUSY), "claude").unwrap().starts_with("busy"));
    for screen in [READY, LIMIT, PERMISSION, "", "no rule knows this"] {
        assert_eq!(evidence(&claude(screen), "claude"), None, "{screen}");
    }
    let dead = seen("claude", "claude", BUSY, |pane| pane.dead = true);
    let left = seen("claude", "bash", "user@host:~$", |_| {});
    for observation in
        [dead, left, PaneObservation::Missing(Deferral::PaneGone), PaneObservation::NoPane]
    {
        assert_eq!(evidence(&observation, "claude"), None, "{observation:?}");
    }
    let script = seen("shell", "sh", "", |pane| {
        pane.foreground = vec![process("sh", true), process("cargo", false)];
    });
    assert_eq!(evidence(&script, "shell").as_deref(), Some("runs cargo"));
    let waits = seen("shell", "sh", "", |pane| {
        pane.foreground = vec![process("sh", true)];
    });
    assert_eq!(evidence(&waits, "shell"), None);
    // Without a profile, the process table only shows that the program runs, which is not evidence of work.
    let unknown = seen("generic", "node", "", |pane| {
        pane.foreground = vec![process("node", false)];
    });
    assert_eq!(evidence(&unknown, "generic"), None);
}

#[test]
fn evidence_that_is_not_renewed_stops_to_count() {
    let (mut evidence, agent) = (WorkEvidence::default(), name("w1"));
    evidence.observed(at(0), &agent, &claude(BUSY), "claude");
    evidence.observed(at(30), &agent, &PaneObservation::Unseen, "claude");
    assert_eq!(evidence.working(at(60)).len(), 1);
    assert_eq!(evidence.working(at(61)).len(), 0, "tmux has not answered since");
    evidence.observed(at(70), &agent, &claude(BUSY), "claude");
    evidence.observed(at(71), &agent, &claude(READY), "claude");
    assert_eq!(evidence.working(at(71)).len(), 0);
}

struct Bed {
    home: tempfile::TempDir,
    spool: Spool,
    log: SimRecorder,
}

impl Bed {
    fn new(attempts_max: u64) -> Self {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default()).unwrap();
        let settings = Settings::default().with_attempts_max(attempts_max);
        spool.add_mailbox(&name("w1"), &settings).unwrap();
        spool.publish(&Envelope::new(name("w1"), "work\n")).unwrap();
        Self { home, spool, log: SimRecorder::default() }
    }

    fn take(&self) -> Lease {
        self.spool.receive(&name("w1"), &name("w1")).unwrap().unwrap().lease
    }

    fn kept(&self, now: Monotonic) -> KeptLeases {
        let file = self.home.path().join("kept.json");
        KeptLeases::open(now, &file, Duration::from_secs(1_000))
    }

    fn sequence(&self) -> u64 {
        self.spool.observe(&name("w1")).unwrap()[0].sequence
    }

    /// One look every 30 s from `from` to `to`, with or without evidence.
    fn look(&self, kept: &mut KeptLeases, (from, to): (u64, u64), lease: &Lease, is_working: bool) {
        let held = [(lease.clone(), Duration::from_secs(300))];
        let mut working = WorkingAgents::new();
        if is_working {
            working.insert(name("w1"), "busy".to_owned());
        }
        for second in (from..=to).step_by(30) {
            let now = at(second);
            keep_mail(now, &held, &working, kept, &self.spool, &self.log);
            kept.remember(now);
        }
    }
}

#[test]
fn a_lease_is_extended_at_half_of_it_up_to_the_ceiling_and_said_twice() {
    let bed = Bed::new(5);
    let lease = bed.take();
    let mut kept = bed.kept(at(0));
    bed.look(&mut kept, (0, 300), &lease, false);
    assert_eq!(bed.sequence(), 0, "an idle agent's lease is its own affair");
    bed.look(&mut kept, (300, 900), &lease, true);
    assert_eq!(bed.sequence(), 5, "at 300, 450, 600, 750 and 900 s");
    assert_eq!(kept.next_timeout(), Some(at(1050)));
    // Settled, or returned: nothing is waited for any more.
    kept.remember(at(1050));
    assert_eq!(kept.next_timeout(), None);
    // Another watcher of this boot grants no new ceiling.
    let mut kept = bed.kept(at(900));
    bed.look(&mut kept, (900, 3_000), &lease, true);
    let extended = bed.sequence();
    assert!((7..=8).contains(&extended), "the ceiling is 1,000 s after the first: {extended}");
    assert_eq!(bed.log.kinds(), ["lease.kept", "lease.kept_enough"]);
    assert_eq!(kept.next_timeout(), None);
    assert_eq!(kept.summary(at(3_000))[0]["ceiling_reached"], true);
    // A new delivery has a new ceiling.
    bed.spool.release(&lease, Duration::ZERO).unwrap();
    let next = bed.take();
    bed.look(&mut kept, (3_000, 3_000), &next, true);
    assert_eq!(bed.sequence(), 1);
}

#[test]
fn a_ceiling_of_zero_extends_nothing() {
    let bed = Bed::new(5);
    let lease = bed.take();
    let file = bed.home.path().join("kept.json");
    let mut kept = KeptLeases::open(at(0), &file, Duration::ZERO);
    bed.look(&mut kept, (0, 600), &lease, true);
    assert_eq!((bed.sequence(), bed.log.kinds().len()), (0, 0));
}

#[test]
fn an_agent_that_is_seen_gone_twice_loses_what_it_held_at_the_first_sight() {
    let bed = Bed::new(5);
    let (agent, mut gone) = (name("w1"), GoneAgents::default());
    let missing = PaneObservation::Missing(Deferral::PaneGone);
    let held = || held_by(&agent, &bed.spool);
    let lease = bed.take();
    assert_eq!(gone.observed(&agent, &claude(BUSY), false, held).unwrap(), GoneVerdict::Nothing);
    assert_eq!(gone.observed(&agent, &missing, false, held).unwrap(), GoneVerdict::LookAgain);
    let unseen = PaneObservation::Unseen;
    assert_eq!(gone.observed(&agent, &unseen, false, held).unwrap(), GoneVerdict::Nothing);
    // It was seen in a pane that it has left in the meantime.
    assert_eq!(gone.observed(&agent, &claude(READY), false, held).unwrap(), GoneVerdict::Nothing);
    assert_eq!(gone.observed(&agent, &missing, false, held).unwrap(), GoneVerdict::LookAgain);
    let GoneVerdict::Ended(ended) = gone.observed(&agent, &missing, false, held).unwrap() else {
        panic!("it is gone")
    };
    assert_eq!(ended.leases, [lease]);
    let back = return_all(&agent, &ended.why, &ended.leases, &bed.spool, Vec::new, &bed.log);
    assert_eq!(back.mailboxes, std::slice::from_ref(&agent));
    let alarm = back.alarm(&agent, &ended.why).unwrap();
    assert!(alarm.text.contains(&format!("message {} of w1", ended.leases[0].id)), "{alarm:?}");
    assert_eq!(bed.log.of("lease.holder_gone")[0]["messages"][0]["attempt"], 1);
    // A person who acts for it has an ordinary lease.
    let by_hand = bed.take();
    assert_eq!(gone.observed(&agent, &missing, false, held).unwrap(), GoneVerdict::Nothing);
    let state = bed.spool.state(&agent, &by_hand.id).unwrap();
    assert!(matches!(state, Some(State::Acked { epoch: 2, .. })));
    // A return that waits for the servers is of no use once the agent is back.
    let mut waiting = vec![ended];
    gone.retain_gone(&mut waiting);
    assert_eq!(waiting.len(), 1);
    gone.observed(&agent, &claude(READY), false, held).unwrap();
    gone.retain_gone(&mut waiting);
    assert!(waiting.is_empty(), "{waiting:?}");
}

#[test]
fn a_message_that_ends_its_agent_each_time_becomes_a_dead_letter() {
    let bed = Bed::new(3);
    let agent = name("w1");
    let missing = PaneObservation::Missing(Deferral::PaneGone);
    for attempt in 1..=3 {
        let mut gone = GoneAgents::default();
        let lease = bed.take();
        assert_eq!(lease.epoch, attempt);
        let held = || held_by(&agent, &bed.spool);
        gone.observed(&agent, &missing, false, held).unwrap();
        let GoneVerdict::Ended(ended) = gone.observed(&agent, &missing, false, held).unwrap()
        else {
            panic!("it is gone")
        };
        return_all(&agent, &ended.why, &ended.leases, &bed.spool, Vec::new, &bed.log);
    }
    let letters = bed.spool.dead_letters(&agent).unwrap();
    assert!(letters[0].reason.contains("its holder is gone"), "{}", letters[0].reason);
    assert!(letters[0].reason.contains("after 3 attempts"), "{}", letters[0].reason);
}
