//! Promises to embedders beyond the calls themselves.

use std::sync::Arc;

use ensemble_core::Error;
use ensemble_core::durable::Durability;
use ensemble_core::env::{Delivery, Lease, Pane, Transport};
use ensemble_core::event_log::{EventLog, Recorder};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::proto::nudge::NudgeSchedule;
use ensemble_core::spool::{Options, Settings, Spool};

const fn shared<T: Send + Sync + ?Sized>() {}
const fn sent<T: Send + ?Sized>() {}

/// Compiles, or does not.
const _: () = {
    shared::<Spool>();
    shared::<Options>();
    shared::<EventLog>();
    shared::<Envelope>();
    shared::<Delivery>();
    shared::<Lease>();
    shared::<Error>();
    sent::<NudgeSchedule>();
    sent::<Box<dyn Pane + Send>>();
    shared::<Arc<dyn Transport + Send + Sync>>();
    shared::<Arc<dyn Recorder>>();
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
