//! Promises to embedders beyond the calls themselves.

use ensemble_core::events::{EventLog, Follower, Record, Recorder};
use ensemble_core::{
    AckManager, CancelToken, Draft, Durability, Inboxes, Incoming, KeepAlive, Lease, Mailbox,
    Message, Messages, PendingRequest, QueueOptions, Settings, Watcher,
};

use crate::*;

const fn shared<T: Send + Sync + 'static + ?Sized>() {}
const fn sent<T: Send + 'static>() {}

/// Compiles, or does not: what threads share by reference.
const _: () = {
    shared::<(Queue, QueueOptions, Settings, Mailbox, CancelToken)>();
    shared::<(Message, Messages, KeepAlive, PendingRequest, Lease)>();
    shared::<(EventLog, Record, Error, Spool)>();
    shared::<Arc<dyn Recorder>>();
};

/// What moves into a thread or an async task, and works there.
const _: () = {
    sent::<(Draft, Inboxes, Incoming, Watcher, AckManager, Follower)>();
};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// In its own process, so that no other test's threads are counted.
#[test]
fn a_queue_and_a_log_start_no_thread_and_two_of_them_know_nothing_of_each_other() {
    let test = "a_queue_and_a_log_start_no_thread_and_two_of_them_know_nothing_of_each_other";
    if !crate::children::is_alone(&format!("embedding::{test}")) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let before = threads();
    let open = |below: &str| {
        let log = EventLog::open(&home.path().join(below).join("logs")).unwrap();
        let options = Queue::options().durability(Durability::Process).events(log);
        let queue = options.open_or_create(home.path().join(below).join("queue")).unwrap();
        queue.mailbox("worker-1").unwrap()
    };
    let (one, other) = (open("one"), open("other"));
    one.send("for one").unwrap();
    assert!(other.try_recv().unwrap().is_none());
    one.try_recv().unwrap().unwrap().settle().unwrap();
    assert_eq!(threads(), before);
}
