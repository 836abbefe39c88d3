//! Roles of the killed and stopped processes: publish, receive, decide, write the board, complete
//! steps. Each is restarted under its own name and retries the operations with an unknown outcome.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::event_log::{EventLog, LogOptions, Recorder};
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::proto::request::DecisionRefusal;
use ensemble_core::requests::{NewRequest, PlanGates, Requests};
use ensemble_core::sim::SimRng;
use ensemble_core::spool::Spool;
use ensemble_team::board::{Board, BoardOptions, NewTask};
use ensemble_team::steps::{
    ClaimOutcome, ClaimRequest, Completion, CompletionStatus, StepOptions, StepStore,
};

use super::journal::{self, Journal};
use crate::support::{durability, given, name, options, pause, setting};

/// How long a lock holder may pause before others give up.
const PATIENCE: Duration = Duration::from_secs(60);
/// A publisher waits while this many messages are unread.
const BACKLOG_MAX: u64 = 100;
/// The exit code of a player that has met no queue.
pub const AWAY: i32 = 75;
/// A longer run has steps to the end: between two of them a stepper pauses so often.
const A_MINUTE: u64 = 60;
const STEP_PAUSES: u32 = 80;
pub const PLAN: &str = "the-plan";

pub struct Player {
    home: PathBuf,
    spool: Spool,
    board: Board,
    steps: StepStore,
    me: Name,
    stop: PathBuf,
    journal: Journal,
    /// Operations begun by earlier lives of this player: verb and key.
    begun: Vec<(String, String)>,
    /// And of which they know the end.
    known: Vec<(String, String)>,
    random: SimRng,
}

pub fn recorder(home: &Path) -> Arc<dyn Recorder> {
    Arc::new(EventLog::deferred(&home.join(".ensemble/logs"), LogOptions::default()))
}

pub fn open_steps(home: &Path) -> StepStore {
    let mut options = StepOptions::new(home).with_durability(durability());
    options.patience = PATIENCE;
    let path = home.join(".ensemble/steps.db");
    StepStore::open(&path, options.with_recorder(recorder(home))).expect("the steps")
}

pub fn open_board(home: &Path, me: &str) -> Board {
    let mut options =
        BoardOptions::new(me).with_durability(durability()).with_recorder(recorder(home));
    options.patience = PATIENCE;
    Board::find(home, options).expect("the board")
}

/// Says that the queue is about to move, or has moved, this many times; returns how often in all.
pub fn moves(home: &Path, more: usize) -> u64 {
    let file = OpenOptions::new().create(true).append(true).open(home.join("moves"));
    let mut file = file.expect("a file");
    file.write_all(&vec![b'.'; more]).expect("written");
    file.metadata().expect("its size").len()
}

pub fn play(role: &str) {
    let home = PathBuf::from(given("HOME_DIRECTORY"));
    keep_quiet_while_moved(home.clone());
    let mut player = unless_moved(&home, Player::new);
    let mut number = player.begun.len() as u64;
    while !player.stop.exists() {
        number += 1;
        unless_moved(&home, || match role {
            "publisher" => player.publish_next(number),
            "consumer" => player.consume(),
            "decider" => player.decide(number),
            "writer" => player.write(number),
            "stepper" => player.step(),
            other => panic!("there is no role `{other}`"),
        });
    }
}

/// Failures while the queue is moved away are expected, so they are not printed.
fn keep_quiet_while_moved(home: PathBuf) {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |failure| {
        if moves(&home, 0).is_multiple_of(2) {
            tell(failure);
        }
    }));
}

/// Does something. If that fails while the queue moves, its outcome is unknown, and the process ends.
fn unless_moved<T>(home: &Path, action: impl FnOnce() -> T) -> T {
    let before = moves(home, 0);
    match catch_unwind(AssertUnwindSafe(action)) {
        Ok(value) => value,
        // An odd number: it is away.
        Err(_) if before % 2 == 1 || moves(home, 0) != before => std::process::exit(AWAY),
        Err(failure) => resume_unwind(failure),
    }
}

/// The message of an id of its publisher's own; what an earlier life was killed at is sent so again.
fn chosen(id: &str) -> Envelope {
    let id = MessageId::new(id).expect("an id");
    with_body(Envelope::new(name("dispatch"), "").with_id(id))
}

fn with_body(mut envelope: Envelope) -> Envelope {
    envelope.body = format!("the body of {}\n", envelope.id);
    envelope
}

impl Player {
    fn new() -> Self {
        let home = PathBuf::from(given("HOME_DIRECTORY"));
        let me = given("ME");
        let journals = home.join("journals");
        let (mut begun, mut known) = (Vec::new(), Vec::new());
        for operation in journal::read(&journals, &format!("{me}.")) {
            let what = (operation.verb, operation.key);
            begun.push(what.clone());
            known.extend(operation.outcome.map(|_| what));
        }
        let mut options =
            options().with_recorder(recorder(&home)).with_admission(Arc::new(PlanGates));
        options.lock_patience = PATIENCE;
        Self {
            spool: Spool::open(&home.join("queue"), options).expect("the queue"),
            board: open_board(&home, &me),
            steps: open_steps(&home),
            stop: home.join("stop"),
            home,
            journal: Journal::open(&journals, &me),
            random: SimRng::new(given("SEED").parse().expect("a seed")),
            me: name(&me),
            begun,
            known,
        }
    }

    /// Operations of an earlier life with an unknown outcome, each once.
    fn unsure(&mut self, verb: &str) -> Vec<String> {
        let known = &self.known;
        let mut unsure: Vec<String> = self
            .begun
            .iter()
            .filter(|what| what.0 == verb && !known.contains(what))
            .map(|(_, key)| key.clone())
            .collect();
        self.begun.retain(|(begun, _)| begun != verb);
        unsure.sort_unstable();
        unsure.dedup();
        unsure
    }

    fn publish_next(&mut self, number: u64) {
        for id in self.unsure("publish") {
            self.publish(&chosen(&id));
        }
        let dispatch = name("dispatch");
        if self.spool.waiting(&dispatch, BACKLOG_MAX).expect("a count") >= BACKLOG_MAX {
            pause();
            return;
        }
        let envelope = match self.random.percent(50) {
            true => chosen(&format!("p-{}-{number}", self.me)),
            false => with_body(Envelope::new(name("dispatch"), "")),
        };
        let priority = if self.random.percent(10) { 5 } else { 0 };
        self.publish(&envelope.with_priority(priority));
    }

    fn publish(&mut self, envelope: &Envelope) {
        let spool = &self.spool;
        self.journal.during("publish", envelope.id.as_str(), || {
            spool.publish(envelope).expect("published");
            ((), "ok", 0, None)
        });
    }

    fn consume(&mut self) {
        let (spool, me) = (&self.spool, &self.me);
        let delivery = self.journal.during("receive", "", || {
            match spool.receive(&name("dispatch"), me).expect("a look") {
                Some(delivery) => {
                    let (id, epoch) = (delivery.lease.id.to_string(), delivery.lease.epoch);
                    (Some(delivery), "ok", epoch, Some(id))
                }
                None => (None, "nothing", 0, None),
            }
        });
        match delivery {
            Some(delivery) => self.treat(&delivery),
            None => pause(),
        }
    }

    fn treat(&mut self, delivery: &Delivery) {
        let lease = &delivery.lease;
        let verb = match self.random.below(100) {
            0..=9 => "release",
            15.. if self.is_open_question(delivery) => "release",
            10..=14 => "bury",
            _ => "settle",
        };
        let mut is_over = false;
        match self.random.below(100) {
            // Held for a while, in which it may be killed or stopped.
            0..=9 => (0..20).for_each(|_| pause()),
            10..=15 => drop(self.spool.extend(lease, Duration::from_secs(2))),
            16 => is_over = self.outlive(lease),
            _ => {}
        }
        let spool = &self.spool;
        self.journal.during(verb, lease.id.as_str(), || {
            let result = match verb {
                "release" => spool.release(lease, Duration::ZERO),
                "bury" => spool.dead_letter(lease, "no wish to"),
                _ => spool.settle(lease),
            };
            match result {
                Ok(()) if is_over => ((), "late", lease.epoch, None),
                Ok(()) => ((), "ok", lease.epoch, None),
                Err(Error::LeaseLost { .. }) => ((), "refused", lease.epoch, None),
                Err(error) => panic!("{verb} {lease}: {error}"),
            }
        });
    }

    /// Holds a message until it is taken away; `false` if that was not seen before the end or a move of the queue.
    fn outlive(&self, lease: &Lease) -> bool {
        let before = moves(&self.home, 0);
        let file = format!("{}@{}@{}.yaml", lease.id, lease.holder, lease.epoch);
        let file = self.spool.root().join("mailbox/dispatch/cur").join(file);
        while file.exists() && !self.stop.exists() {
            pause();
        }
        !self.stop.exists() && before.is_multiple_of(2) && moves(&self.home, 0) == before
    }

    /// Whether a message asks a question without an answer, which no consumer may settle.
    fn is_open_question(&self, delivery: &Delivery) -> bool {
        let asked = delivery.envelope.correlation_id.as_deref();
        let found = asked.and_then(|id| Requests::new(&self.spool).find(id).expect("a look"));
        found.is_some_and(|entry| entry.decision.is_none())
    }

    /// Asks a question, and answers pending ones: others do so at the same time.
    fn decide(&mut self, number: u64) {
        let unsure = self.unsure("ask").pop();
        let id = unsure.unwrap_or_else(|| format!("q-{}-{number}", self.me));
        let requests = Requests::new(&self.spool);
        self.journal.during("ask", &id, || {
            let ask =
                NewRequest::new("plan_approval", name("conductor"), name("dispatch"), "1. think\n");
            requests.ask(ask.with_id(&*id)).expect("asked");
            ((), "ok", 0, None)
        });
        let (entries, errors) = requests.list().expect("a list");
        assert!(errors.is_empty(), "{} errors, {:?}", errors.len(), errors.first());
        for entry in entries.into_iter().filter(|entry| entry.decision.is_none()) {
            let approve = self.random.percent(50);
            let id = entry.request.request_id.to_string();
            self.journal.during("respond", &id, || {
                match requests.respond(&id, &name("dispatch"), approve, "") {
                    Ok(_) => ((), if approve { "approved" } else { "rejected" }, 0, None),
                    Err(error) if error.area::<DecisionRefusal>().is_some() => {
                        ((), "refused", 0, None)
                    }
                    Err(error) => panic!("{id}: {error}"),
                }
            });
        }
        (0..20).for_each(|_| pause());
    }

    fn write(&mut self, number: u64) {
        let task = format!("t-{}-{number}", self.me);
        let board = &self.board;
        self.journal.during("add", &task, || {
            let mut locked = board.lock().expect("the board's lock");
            locked.add_task(&NewTask::draft(name(&task))).expect("a task");
            locked.commit().expect("written");
            ((), "ok", 0, None)
        });
        (0..10).for_each(|_| pause());
    }

    fn step(&mut self) {
        let (steps, me) = (&self.steps, &self.me);
        let handed = self.journal.during("take", "", || {
            match steps.claim_step(&ClaimRequest::of(me.clone())).expect("a look") {
                ClaimOutcome::Handed(handed) => {
                    let word = if handed.again { "again" } else { "ok" };
                    let (key, epoch) = (format!("s-{}", handed.key.step_index), handed.epoch);
                    (Some(handed), word, epoch, Some(key))
                }
                ClaimOutcome::Nothing(_) => (None, "nothing", 0, None),
            }
        });
        let Some(handed) = handed else {
            pause();
            return;
        };
        let key = format!("s-{}", handed.key.step_index);
        self.journal.during("submit", &key, || {
            let report = Completion::new(handed.key.clone(), me.clone(), CompletionStatus::Success);
            match steps.submit(&report, me, Some(handed.epoch)) {
                Ok(done) if done.already_submitted => ((), "again", handed.epoch, None),
                Ok(_) => ((), "ok", handed.epoch, None),
                Err(error) => panic!("{key}: {error}"),
            }
        });
        if setting("TORTURE_SECONDS", 0) > A_MINUTE {
            (0..STEP_PAUSES).for_each(|_| pause());
        }
    }
}
