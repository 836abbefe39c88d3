//! A mailbox against a model of it, with holders that are late or not, in any order of actions. The files are where
//! the model says, and the same calls are refused. The event log, replayed, gives exactly the state on disk.
//! `PROPTEST_CASES=<n>` sets the number of cases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::durable::Durability;
use ensemble_core::env::{Lease, PublishOutcome};
use ensemble_core::event_log::EventLog;
use ensemble_core::message::{Envelope, MessageId, Name, Timestamp};
use ensemble_core::spool::{Settings, Spool, SpoolOptions, State};
use ensemble_team::replay::{DiskState, Replay};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const ATTEMPTS_MAX: u64 = 3;
const IDS: usize = 5;

/// One action of an actor. Numbers choose a message, or a lease that was ever issued.
#[derive(Clone, Debug)]
enum Op {
    Publish {
        id: usize,
        priority: u8,
    },
    Receive,
    ReceiveId(usize),
    Settle(usize),
    Release(usize),
    Extend(usize),
    Bury(usize),
    Expire(usize),
    BuryWaiting(usize),
    Redrive(usize),
    Drop(usize),
    /// Another process takes over.
    Reopen,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let id = 0..IDS;
    let lease = 0..40_usize;
    let op = prop_oneof![
        4 => (id.clone(), prop_oneof![Just(0_u8), Just(0), 1..=9_u8])
            .prop_map(|(id, priority)| Op::Publish { id, priority }),
        4 => Just(Op::Receive),
        1 => id.clone().prop_map(Op::ReceiveId),
        2 => lease.clone().prop_map(Op::Settle),
        3 => lease.clone().prop_map(Op::Release),
        1 => lease.clone().prop_map(Op::Extend),
        1 => lease.clone().prop_map(Op::Bury),
        2 => lease.prop_map(Op::Expire),
        1 => id.clone().prop_map(Op::BuryWaiting),
        2 => id.clone().prop_map(Op::Redrive),
        1 => id.prop_map(Op::Drop),
        1 => Just(Op::Reopen),
    ];
    proptest::collection::vec(op, 1..60)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Waits { in_front: bool },
    Held,
    Settled,
    Dead,
}

#[derive(Clone, Debug)]
struct Model {
    place: Place,
    priority: u8,
    epoch: u64,
    /// The epoch from which attempts count.
    base: u64,
    extended: u64,
}

struct Bed {
    home: tempfile::TempDir,
    spool: Spool,
    me: Name,
    models: BTreeMap<usize, Model>,
    /// All that were ever given out; most have ended.
    leases: Vec<(usize, Lease)>,
}

fn message_id(id: usize) -> MessageId {
    MessageId::new(format!("m-{id}")).unwrap()
}

fn open(home: &std::path::Path) -> Spool {
    let log = Arc::new(EventLog::open(&home.join("logs")).unwrap());
    let options = SpoolOptions::default().with_durability(Durability::Process).with_recorder(log);
    Spool::create(&home.join("queue"), options).unwrap()
}

impl Bed {
    fn new() -> Self {
        let in_memory = tempfile::tempdir_in("/dev/shm");
        let home = in_memory.or_else(|_| tempfile::tempdir()).unwrap();
        let (spool, me) = (open(home.path()), Name::new("w").unwrap());
        let mut settings = Settings::default();
        settings.attempts_max = ATTEMPTS_MAX;
        spool.add_mailbox(&me, &settings).unwrap();
        Self { home, spool, me, models: BTreeMap::new(), leases: Vec::new() }
    }

    fn act(&mut self, op: &Op) {
        match op {
            Op::Publish { id, priority } => self.publish(*id, *priority),
            Op::Receive => self.receive(),
            Op::ReceiveId(id) => self.receive_id(*id),
            Op::BuryWaiting(id) => self.bury_waiting(*id),
            Op::Redrive(id) => self.redrive(*id),
            Op::Drop(id) => {
                let is_dead = self.models.get(id).is_some_and(|m| m.place == Place::Dead);
                assert_eq!(self.spool.drop_dead(&self.me, &message_id(*id)).is_ok(), is_dead);
                if is_dead {
                    self.models.remove(id);
                }
            }
            Op::Reopen => self.spool = open(self.home.path()),
            Op::Settle(n) | Op::Release(n) | Op::Extend(n) | Op::Bury(n) | Op::Expire(n) => {
                if let Some(lease) = self.leases.get(*n % self.leases.len().max(1)).cloned() {
                    self.with_lease(op, lease);
                }
            }
        }
    }

    fn publish(&mut self, id: usize, priority: u8) {
        let envelope = Envelope::new(self.me.clone(), format!("body {id}"))
            .with_id(message_id(id))
            .with_priority(priority);
        let published = self.spool.publish(&envelope).unwrap();
        let expected = match self.models.contains_key(&id) {
            true => PublishOutcome::AlreadyStored,
            false => PublishOutcome::Stored,
        };
        assert_eq!(published, expected, "m-{id}");
        let place = Place::Waits { in_front: priority > 0 };
        let fresh = Model { place, priority, epoch: 0, base: 0, extended: 0 };
        self.models.entry(id).or_insert(fresh);
    }

    /// Receives the most urgent message in `front/`, or the next in line if there is none.
    fn receive(&mut self) {
        let in_front = |m: &&Model| m.place == Place::Waits { in_front: true };
        let urgent = self.models.values().filter(in_front).map(|m| m.priority).max();
        let waits = |m: &Model| matches!(m.place, Place::Waits { .. });
        match self.spool.receive(&self.me, &self.me).unwrap() {
            None => assert!(!self.models.values().any(waits), "{:?}", self.models),
            Some(delivery) => {
                let id = self.index(&delivery.lease.id);
                let model = &self.models[&id];
                match urgent {
                    Some(priority) => {
                        assert!(in_front(&model) && model.priority == priority, "{model:?}");
                    }
                    None => assert!(waits(model), "{model:?}"),
                }
                self.taken(id, delivery.lease);
            }
        }
    }

    fn receive_id(&mut self, id: usize) {
        let waits = matches!(self.models.get(&id), Some(Model { place: Place::Waits { .. }, .. }));
        let taken = self.spool.receive_id(&self.me, &message_id(id), &self.me).unwrap();
        assert_eq!(taken.is_some(), waits);
        if let Some(delivery) = taken {
            self.taken(id, delivery.lease);
        }
    }

    fn index(&self, id: &MessageId) -> usize {
        id.as_str().trim_start_matches("m-").parse().unwrap()
    }

    fn taken(&mut self, id: usize, lease: Lease) {
        let model = self.models.get_mut(&id).unwrap();
        (model.epoch, model.place, model.extended) = (model.epoch + 1, Place::Held, 0);
        assert_eq!(lease.epoch, model.epoch);
        self.leases.push((id, lease));
    }

    /// The holder can; every earlier holder cannot, however long ago.
    fn with_lease(&mut self, op: &Op, (id, lease): (usize, Lease)) {
        let holds = |m: &&mut Model| m.place == Place::Held && m.epoch == lease.epoch;
        let model = self.models.get_mut(&id).filter(holds);
        let done = match op {
            Op::Settle(_) => self.spool.settle(&lease),
            Op::Release(_) => self.spool.release(&lease, Duration::ZERO),
            Op::Extend(_) => self.spool.extend(&lease, Duration::from_secs(77)),
            Op::Bury(_) => self.spool.dead_letter(&lease, "no"),
            _ => {
                let observed = self.spool.observe(&self.me).unwrap();
                match observed.into_iter().find(|observed| observed.lease == lease) {
                    Some(observed) => self.spool.expire(&observed).map(|done| assert!(done)),
                    None => Err(Error::LeaseLost { lease: lease.to_string(), now: String::new() }),
                }
            }
        };
        let Some(model) = model else {
            assert!(matches!(done, Err(Error::LeaseLost { .. })), "{op:?} {lease}: {done:?}");
            return;
        };
        done.unwrap();
        match op {
            Op::Settle(_) => model.place = Place::Settled,
            Op::Extend(_) => model.extended += 1,
            Op::Bury(_) => model.place = Place::Dead,
            _ if model.epoch - model.base >= ATTEMPTS_MAX => model.place = Place::Dead,
            _ => model.place = Place::Waits { in_front: true },
        }
    }

    fn bury_waiting(&mut self, id: usize) {
        let model = self.models.get_mut(&id);
        let model = model.filter(|m| matches!(m.place, Place::Waits { .. }));
        let done = self.spool.dead_letter_waiting(&self.me, &message_id(id), "not needed");
        assert_eq!(done.is_ok(), model.is_some(), "{done:?}");
        if let Some(model) = model {
            model.place = Place::Dead;
        }
    }

    fn redrive(&mut self, id: usize) {
        let model = self.models.get_mut(&id).filter(|m| m.place == Place::Dead);
        let done = self.spool.redrive(&self.me, &message_id(id));
        assert_eq!(done.is_ok(), model.is_some(), "{done:?}");
        if let Some(model) = model {
            (model.place, model.base) = (Place::Waits { in_front: true }, model.epoch);
        }
    }

    /// Each message is where the model says, and nothing else is anywhere.
    fn check(&self) {
        for id in 0..IDS {
            let state = self.spool.state(&self.me, &message_id(id)).unwrap();
            let expected = self.models.get(&id).map(|model| match &model.place {
                Place::Waits { .. } => State::Queued { epoch: model.epoch, not_before: 0 },
                Place::Held => State::Acked { holder: self.me.clone(), epoch: model.epoch },
                Place::Settled => State::Settled,
                Place::Dead => State::Dead,
            });
            assert_eq!(state, expected, "m-{id}: {:?}", self.models.get(&id));
        }
        assert_eq!(self.spool.message_files(&self.me).unwrap().len(), self.models.len());
    }

    /// The log, replayed, must give the state on disk.
    fn replay(&self) {
        let mut disk = DiskState::default();
        disk.add_mailboxes(&self.spool, self.home.path()).unwrap();
        let replay = Replay::read(&self.home.path().join("logs")).unwrap();
        assert_eq!(replay.gaps(), []);
        assert_eq!(replay.compare(&disk, Timestamp::from_unix_millis(0)), []);
        assert_eq!(self.spool.fsck(false).unwrap(), []);
    }
}

/// The same stories each time, unless `TORTURE_SEED` asks for others.
fn seed() -> u64 {
    std::env::var("TORTURE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0x5eed)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(96),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_mailbox_does_what_its_model_does(ops in ops()) {
        let mut bed = Bed::new();
        for op in &ops {
            bed.act(op);
            bed.check();
        }
        bed.replay();
    }
}
