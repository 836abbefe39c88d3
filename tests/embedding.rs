//! Promises to embedders beyond the calls themselves.

use std::sync::Arc;

use ensemble_core::Error;
use ensemble_core::agent::{AgentPane, Diagnosis, Program};
use ensemble_core::broker::Broker;
use ensemble_core::document::LockedDocument;
use ensemble_core::driver::{
    AckDriver, Assigner, DeliveryId, Ended, Order, PongBox, Readied, Readiness,
};
use ensemble_core::dropbox::{Ledger, Routes};
use ensemble_core::durable::Durability;
use ensemble_core::env::{Clock, Counts, Delivery, Lease, Pane, SystemClock, Transport};
use ensemble_core::event_log::{EventLog, Follower, Record, Recorder, Records};
use ensemble_core::leases::{MailboxLeases, Observed};
use ensemble_core::message::{Envelope, MessageId, Name, Timestamp};
use ensemble_core::pane::{NudgeOutcome, NudgeText, PaneState};
use ensemble_core::proto::ack::Ladder;
use ensemble_core::proto::lease::LeaseWatch;
use ensemble_core::proto::ready::Handshake;
use ensemble_core::requests::{PlanGates, RequestStore, Requests};
use ensemble_core::spool::{
    Admission, DeadLetter, Found, Glance, MailWait, Options, Quota, Settings, Spool, State, Swept,
};
use ensemble_core::watch::{FsEvent, FsWatcher, Waiter, WatchError};

const fn shared<T: Send + Sync + ?Sized>() {}
const fn sent<T: Send + ?Sized>() {}

/// Compiles, or does not: what threads share by reference.
const _: () = {
    shared::<Spool>();
    shared::<Options>();
    shared::<Settings>();
    shared::<EventLog>();
    shared::<Arc<dyn Transport + Send + Sync>>();
    shared::<Arc<dyn Broker>>();
    shared::<Arc<dyn RequestStore>>();
    shared::<Arc<dyn Recorder>>();
    shared::<Arc<dyn Admission>>();
    shared::<Arc<dyn Clock + Send + Sync>>();
    shared::<SystemClock>();
    shared::<Requests<'static>>();
    shared::<PlanGates>();
    shared::<PongBox>();
    shared::<Waiter>();
    shared::<Routes>();
};

/// What a thread hands to another one, in a message of its own.
const _: () = {
    shared::<Envelope>();
    shared::<Delivery>();
    shared::<Lease>();
    shared::<MessageId>();
    shared::<Name>();
    shared::<Timestamp>();
    shared::<Counts>();
    shared::<Observed>();
    shared::<(DeadLetter, Found, Glance, Quota, State, Swept)>();
    shared::<(Record, FsEvent, WatchError, Error)>();
    shared::<(Order, Ended, DeliveryId, Readied)>();
    shared::<(PaneState, NudgeText, NudgeOutcome, Diagnosis, Program)>();
};

/// What moves into a thread or an async task, and works there.
const _: () = {
    sent::<AckDriver<'static>>();
    sent::<Readiness<'static>>();
    sent::<Assigner<'static>>();
    sent::<MailboxLeases>();
    sent::<MailWait<Arc<Spool>>>();
    sent::<FsWatcher>();
    sent::<Follower>();
    sent::<Records>();
    sent::<Ledger>();
    sent::<LockedDocument>();
    sent::<Box<dyn Pane + Send>>();
    sent::<Box<dyn AgentPane>>();
    sent::<(Ladder, Handshake, LeaseWatch<Lease>)>();
};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// The only test here, so that no other one's threads are counted.
#[test]
fn a_queue_and_a_log_start_no_thread_and_two_of_them_know_nothing_of_each_other() {
    let home = tempfile::tempdir().unwrap();
    let before = threads();
    let name = Name::new("worker-1").unwrap();
    let open = |below: &str| {
        let log = Arc::new(EventLog::open(&home.path().join(below).join("logs")).unwrap());
        let options = Options::default().with_durability(Durability::Process).with_recorder(log);
        let spool = Spool::create(&home.path().join(below).join("queue"), options).unwrap();
        spool.add_mailbox(&name, &Settings::default()).unwrap();
        spool
    };
    let (one, other) = (open("one"), open("other"));
    one.publish(&Envelope::new(name.clone(), "for one")).unwrap();
    assert!(other.receive(&name, &name).unwrap().is_none());
    let delivery = one.receive(&name, &name).unwrap().unwrap();
    one.settle(&delivery.lease).unwrap();
    assert_eq!(threads(), before);
}
