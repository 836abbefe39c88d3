use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::message::DROP_DELAY_MAX;
use super::*;
use crate::durable::{Dir, Durability, FileLock};
use crate::env::{Lease, SystemClock};
use crate::message::{BODY_BYTES_MAX, Envelope, Name, Timestamp};
use crate::requests::PlanGates;
use crate::sim::SimClock;
use crate::spool::{Admission, SpoolOptions, State};
use crate::watch::{FsWatcher, or_skip};

/// Longer than any test may take.
const PATIENCE: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);

struct Bed {
    home: tempfile::TempDir,
    clock: SimClock,
    queue: Queue,
    inbox: Mailbox,
}

impl Bed {
    /// A queue whose clock is advanced by hand.
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = SimClock::new(Timestamp::from_unix_millis(1_000_000));
        let mut options = SpoolOptions::default().with_durability(Durability::Process);
        options.admission = Some(Arc::new(PlanGates));
        let options = options.with_clock(Arc::new(clock.clone()));
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        let queue = Queue::from_spool(spool);
        let inbox = queue.mailbox("worker-1").unwrap();
        Self { home, clock, queue, inbox }
    }

    fn received(&self, text: &str) -> Message {
        self.inbox.send(text).unwrap();
        self.inbox.try_recv().unwrap().unwrap()
    }
}

fn real_queue() -> (tempfile::TempDir, Queue) {
    let home = tempfile::tempdir().unwrap();
    let options = Queue::options().durability(Durability::Process);
    let queue = options.open_or_create(home.path().join("queue")).unwrap();
    (home, queue)
}

#[test]
fn a_queue_says_whether_its_waits_are_woken_or_look_again_and_again() {
    let Some(_) = or_skip(FsWatcher::new()) else { return };
    let (_home, queue) = real_queue();
    let inbox = queue.mailbox("worker-1").unwrap();
    let home = Dir::open(&queue.root().join("mailbox/worker-1")).unwrap();
    let wait = || inbox.recv_timeout(Duration::ZERO).unwrap().is_none();
    assert!(wait() && !queue.observe().unwrap().is_polling);
    home.move_new("front", &home, "away").unwrap();
    assert!(wait() && queue.observe().unwrap().is_polling, "what cannot be watched is looked at");
    home.move_new("away", &home, "front").unwrap();
    assert!(wait() && !queue.observe().unwrap().is_polling);
}

#[test]
fn a_loop_that_never_settles_kills_no_mail() {
    let bed = Bed::new();
    bed.inbox.send_all((0..100).map(|number| format!("task {number}"))).unwrap();
    for _ in 0..20 {
        while let Some(message) = bed.inbox.try_recv().unwrap() {
            assert!(message.body().starts_with("task"));
        }
        assert!(bed.inbox.counts().unwrap().delayed > 0, "each further delivery is delayed");
        if bed.inbox.counts().unwrap().dead == 100 {
            break;
        }
        bed.clock.advance(Duration::from_secs(1));
    }
    let counts = bed.inbox.counts().unwrap();
    assert_eq!((counts.dead, counts.queued), (0, 100), "20 s of such a loop");
}

#[test]
fn a_message_that_is_dropped_until_its_last_attempt_says_why_it_died() {
    let bed = Bed::new();
    bed.inbox.send("poison").unwrap();
    let mut deliveries = 0;
    while bed.inbox.counts().unwrap().dead == 0 {
        if let Some(message) = bed.inbox.try_recv().unwrap() {
            deliveries += 1;
            assert_eq!((message.body(), message.delivery()), ("poison", deliveries));
        }
        bed.clock.advance(MINUTE);
    }
    assert_eq!(deliveries, bed.inbox.settings().unwrap().attempts_max);
    let letter = bed.inbox.dead_letters().unwrap().remove(0);
    assert_eq!(letter.reason, "dropped unsettled after 5 attempts");
}

#[test]
fn a_panicking_worker_gives_its_message_back_with_a_delay() {
    let bed = Bed::new();
    bed.inbox.send("poison").unwrap();
    for _ in 0..5 {
        let inbox = bed.inbox.clone();
        let worker = std::thread::spawn(move || {
            let message = inbox.try_recv().unwrap();
            let message = message.expect("the test ends here once it is delayed");
            panic!("{} has no answer", message.body());
        });
        assert!(worker.join().is_err());
    }
    let counts = bed.inbox.counts().unwrap();
    assert_eq!((counts.queued, counts.delayed, counts.dead), (1, 1, 0));
}

#[test]
fn mail_that_was_not_looked_at_costs_no_attempt() {
    let bed = Bed::new();
    bed.inbox.send_all((0..10).map(|number| format!("task {number}"))).unwrap();
    for _ in 0..3 * bed.inbox.settings().unwrap().attempts_max {
        let batch = bed.inbox.recv_many(10).unwrap();
        assert_eq!(batch.len(), 10, "each restart finds all of them");
        drop(batch);
        bed.clock.advance(DROP_DELAY_MAX);
    }
    assert_eq!(bed.inbox.counts().unwrap().dead, 0);
    let last = bed.inbox.try_recv().unwrap().unwrap();
    assert!(last.delivery() > bed.inbox.settings().unwrap().attempts_max);
    last.settle().unwrap();
}

#[test]
fn a_drop_leaves_the_message_held_while_another_process_holds_the_lock() {
    let bed = Bed::new();
    let message = bed.received("task");
    let (id, lease) = (message.id().clone(), message.lease().clone());
    let gate = bed.home.path().join("queue/mailbox/worker-1/gate.lock");
    let lock = FileLock::acquire(&gate, PATIENCE).unwrap();
    drop(message);
    drop(lock);
    assert!(matches!(bed.inbox.state(&id).unwrap(), Some(State::Acked { .. })));
    bed.inbox.resume(lease).unwrap().settle().unwrap();
}

/// Refuses the first settle, as a queue does whose request has no decision yet.
#[derive(Debug, Default)]
struct FirstRefused(AtomicBool);

impl Admission for FirstRefused {
    fn concerns(&self, _: &Dir, _: &Name) -> Result<bool> {
        Ok(false)
    }

    fn refusal(&self, _: &Dir, _: &Name, _: &Envelope) -> Result<Option<Error>> {
        Ok(None)
    }

    fn unfinished(&self, _: &Dir, id: &MessageId) -> Result<Option<Error>> {
        let is_second = self.0.swap(true, Ordering::Relaxed);
        Ok((!is_second).then(|| Error::NoMessage { id: id.to_string(), place: "yet".to_owned() }))
    }
}

#[test]
fn a_failed_settle_keeps_the_message_held_and_can_be_repeated() {
    let bed = Bed::new();
    let refused = || {
        let options = SpoolOptions::default().with_admission(Arc::new(FirstRefused::default()));
        let spool = Spool::open(bed.queue.root(), options).unwrap();
        let inbox = Queue::from_spool(spool).existing("worker-1").unwrap();
        inbox.send("task").unwrap();
        let message = inbox.try_recv().unwrap().unwrap();
        assert!(message.settle().is_err());
        (inbox, message)
    };
    let (_, message) = refused();
    message.settle().unwrap();

    let (inbox, message) = refused();
    let id = message.id().clone();
    drop(message);
    assert!(matches!(inbox.state(&id).unwrap(), Some(State::Acked { .. })), "it is done work");
}

#[test]
fn a_guard_whose_lease_was_lost_changes_nothing() {
    let bed = Bed::new();
    let slow = bed.received("task");
    bed.queue.spool().take_back(slow.lease(), "lease expired").unwrap();
    let heir = bed.inbox.as_holder("worker-2").unwrap().try_recv().unwrap().unwrap();
    assert!(matches!(slow.settle(), Err(Error::LeaseLost { .. })));
    drop(slow);
    assert_eq!(heir.delivery(), 2);
    heir.settle().unwrap();
    assert!(matches!(heir.settle(), Err(Error::LeaseLost { .. })), "settled once");
}

#[test]
fn a_kept_lease_is_resumed_by_another_process() {
    let bed = Bed::new();
    let kept = serde_json::to_string(&bed.received("task").keep()).unwrap();
    assert_eq!(bed.inbox.held().unwrap().len(), 1);
    assert!(bed.inbox.as_holder("worker-2").unwrap().held().unwrap().is_empty());
    let elsewhere = Queue::open(bed.queue.root()).unwrap().existing("worker-1").unwrap();
    let lease: Lease = serde_json::from_str(&kept).unwrap();
    let message = elsewhere.resume(lease.clone()).unwrap();
    assert_eq!(message.body(), "task");
    message.settle().unwrap();
    assert!(matches!(elsewhere.resume(lease), Err(Error::LeaseLost { .. })));
}

#[test]
fn a_cancelled_wait_takes_no_message() {
    let (_home, queue) = real_queue();
    let (stop, inbox) = (CancelToken::new().unwrap(), queue.mailbox("worker-1").unwrap());
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let inbox = inbox.until(&stop);
            std::thread::spawn(move || inbox.recv().unwrap().is_none())
        })
        .collect();
    stop.cancel();
    stop.cancel();
    assert!(waiting.into_iter().all(|thread| thread.join().unwrap()));
    inbox.send("task").unwrap();
    assert!(inbox.until(&stop).messages().next().is_none());
    assert_eq!(inbox.counts().unwrap().queued, 1);
}

#[test]
fn an_ask_takes_its_answer_and_leaves_other_mail() {
    let (_home, queue) = real_queue();
    let lead = queue.mailbox("lead").unwrap();
    let worker = queue.mailbox("worker-1").unwrap();
    lead.send("other mail").unwrap();
    let answering = std::thread::spawn(move || {
        let question = worker.recv().unwrap().unwrap();
        assert_eq!(question.sender().as_str(), "lead");
        question.reply(Draft::new("42").priority(3)).unwrap();
        assert_eq!(worker.counts().unwrap().settled, 1, "an answer settles a plain message");
    });
    let draft = Draft::new("how many?").task("t-1");
    let answer = lead.ask("worker-1", draft, PATIENCE).unwrap().unwrap();
    assert_eq!((answer.body(), answer.task()), ("42", Some("t-1")));
    assert_eq!(answer.envelope().causation_id.is_some(), answer.envelope().expires_at.is_some());
    answer.settle().unwrap();
    answering.join().unwrap();
    assert_eq!(lead.try_recv().unwrap().unwrap().body(), "other mail");
    assert!(lead.ask("worker-1", "again?", Duration::ZERO).unwrap().is_none());
}

#[test]
fn bytes_text_and_json_arrive_as_they_were_sent() {
    let bed = Bed::new();
    let large = "x".repeat(BODY_BYTES_MAX + 1).into_bytes();
    // Fits by its length, but not in the form of a file.
    let short_lines = "\n".repeat(BODY_BYTES_MAX).into_bytes();
    for content in [b"text".to_vec(), vec![0xff, 0, b'\n'], large, short_lines] {
        bed.inbox.send(Draft::bytes(content.clone())).unwrap();
        let message = bed.inbox.try_recv().unwrap().unwrap();
        assert!(message.bytes().unwrap() == content);
        message.settle().unwrap();
    }
    bed.inbox.send_json(&vec![1, 2, 3]).unwrap();
    let numbers = bed.inbox.try_recv().unwrap().unwrap();
    assert_eq!(numbers.json::<Vec<u8>>().unwrap(), [1, 2, 3]);
    let error = numbers.json::<Vec<String>>().unwrap_err();
    assert!(matches!(&error, Error::Body { id, .. } if id == numbers.id().as_str()), "{error}");
    numbers.reject("not for me").unwrap();
    assert_eq!(bed.inbox.dead_letters().unwrap()[0].reason, "not for me");
}

#[test]
fn mistakes_in_a_draft_are_reported_by_the_send() {
    let bed = Bed::new();
    for draft in [
        Draft::new("x").sender("../etc"),
        Draft::new("x").kind(""),
        Draft::new("x").id("a b"),
        Draft::new("x").priority(10),
        Draft::new("x").task("a\nb"),
        Draft::new("x").correlation(""),
    ] {
        assert!(matches!(bed.inbox.send(draft), Err(Error::Invalid { .. })));
    }
    let none = Settings::default().with_capacity(0);
    assert!(matches!(bed.queue.mailbox_with("w", &none), Err(Error::Invalid { .. })));
    assert!(matches!(bed.inbox.configure(&none), Err(Error::Invalid { .. })));
    let several = bed.inbox.send_all([Draft::new("x"), Draft::new("x").delay(MINUTE)]);
    assert!(matches!(several, Err(Error::Invalid { .. })));
    assert!(matches!(bed.queue.send("wroker-1", "x"), Err(Error::NoMailbox { .. })));
    assert!(matches!(bed.queue.existing("wroker-1"), Err(Error::NoMailbox { .. })));
    assert_eq!(bed.inbox.counts().unwrap().queued, 0);
}

#[test]
fn a_kept_alive_message_is_extended_until_its_guard_is_dropped() {
    let (_home, queue) = real_queue();
    let settings = Settings::default().with_lease_seconds(1);
    let inbox = queue.mailbox("worker-1").unwrap();
    inbox.send("work that begins late").unwrap();
    let sequence = || queue.spool().observe(inbox.name()).unwrap()[0].sequence;
    let message = inbox.try_recv().unwrap().unwrap();
    drop(message.keep_alive().unwrap());
    assert_eq!(sequence(), 1, "it is extended at once");
    message.settle().unwrap();
    inbox.configure(&settings).unwrap();
    inbox.send("long work").unwrap();
    let message = inbox.try_recv().unwrap().unwrap();
    let alive = message.keep_alive().unwrap();
    let deadline = crate::env::Clock::monotonic(&SystemClock) + PATIENCE;
    while sequence() < 3 {
        assert!(crate::env::Clock::monotonic(&SystemClock) < deadline, "it is extended again");
        std::thread::yield_now();
    }
    drop(alive);
    let last = sequence();
    message.settle().unwrap();
    assert!(last >= 3);
}

#[test]
fn opening_a_mailbox_again_keeps_its_settings() {
    let bed = Bed::new();
    bed.inbox.configure(&Settings::default().with_attempts_max(1)).unwrap();
    let again = bed.queue.mailbox(&bed.inbox).unwrap();
    assert_eq!(again.settings().unwrap().attempts_max, 1);
    assert_eq!(bed.queue.mailboxes().unwrap().len(), 1);
    again.remove(false).unwrap();
    assert!(bed.queue.mailboxes().unwrap().is_empty());
}

#[test]
fn several_mailboxes_are_received_from_in_turn() {
    let home = tempfile::tempdir().unwrap();
    let queue = Queue::open_or_create(home.path()).unwrap();
    let names = ["a", "b", "c"];
    let boxes = names.map(|name| queue.mailbox(name).unwrap());
    for inbox in &boxes {
        inbox.send_all([inbox.name().as_str(); 2]).unwrap();
    }
    let mut inboxes = queue.inboxes(boxes).unwrap();
    let mut received = Vec::new();
    while let Some(message) = inboxes.recv_timeout(Duration::ZERO).unwrap() {
        received.push(message.body().to_owned());
        message.settle().unwrap();
    }
    assert_eq!(received, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn a_wait_for_several_mailboxes_ends_with_mail_with_its_time_and_with_a_token() {
    let home = tempfile::tempdir().unwrap();
    let queue = Queue::open_or_create(home.path()).unwrap();
    let stop = CancelToken::new().unwrap();
    let boxes = ["a", "b"].map(|name| queue.mailbox(name).unwrap().until(&stop));
    let mut inboxes = queue.inboxes(boxes).unwrap();
    assert!(inboxes.recv_timeout(Duration::from_millis(1)).unwrap().is_none());
    let sender = queue.clone();
    let waiting = std::thread::spawn(move || {
        let message = inboxes.recv_timeout(PATIENCE).unwrap().expect("mail");
        message.settle().unwrap();
        (message.lease().mailbox.to_string(), inboxes)
    });
    sender.send("b", "task").unwrap();
    let (mailbox, mut inboxes) = waiting.join().unwrap();
    assert_eq!(mailbox, "b");
    let waiting = std::thread::spawn(move || inboxes.recv().unwrap().is_none());
    stop.cancel();
    assert!(waiting.join().unwrap(), "it has received something");
}

#[test]
fn several_mailboxes_give_delayed_mail_and_that_of_dead_holders() {
    let bed = Bed::new();
    let queue = bed.queue.clone();
    let inbox = queue.mailbox_with("a", &Settings::default().with_lease_seconds(60)).unwrap();
    inbox.send("held").unwrap();
    let _held = inbox.try_recv().unwrap().unwrap().keep();
    inbox.send(Draft::new("delayed").delay(MINUTE / 2)).unwrap();
    let mut inboxes = queue.inboxes([inbox]).unwrap();
    assert!(inboxes.try_recv().unwrap().is_none());
    assert_eq!(inboxes.next_look(), MINUTE / 2);
    bed.clock.advance(MINUTE / 2);
    let delayed = inboxes.try_recv().unwrap().expect("it is due");
    assert_eq!(delayed.body(), "delayed");
    delayed.settle().unwrap();
    assert!(inboxes.try_recv().unwrap().is_none());
    bed.clock.advance(MINUTE);
    let again = inboxes.try_recv().unwrap().expect("its lease has expired");
    assert_eq!((again.body(), again.delivery()), ("held", 2));
    again.settle().unwrap();
}

#[test]
fn a_mailbox_of_another_queue_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let [one, two] =
        ["one", "two"].map(|name| Queue::open_or_create(home.path().join(name)).unwrap());
    let refused = two.inboxes([one.mailbox("a").unwrap()]).unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
}

#[test]
fn a_mailbox_that_is_gone_or_cannot_be_watched_again_stops_no_other() {
    let Bed { queue, clock, home: _home, .. } = Bed::new();
    let boxes = ["gone", "broken", "kept"].map(|name| queue.mailbox(name).unwrap());
    let mut inboxes = queue.inboxes(boxes.clone()).unwrap();
    assert!(inboxes.try_recv().unwrap().is_none());
    let [gone, _, kept] = boxes;
    for removed in [gone, kept] {
        removed.remove(true).unwrap();
    }
    let broken = queue.root().join("mailbox/broken/new");
    std::fs::remove_dir(&broken).unwrap();
    std::os::unix::fs::symlink(&broken, &broken).unwrap();
    for _ in 0..2 {
        queue.mailbox("kept").unwrap().send("task").unwrap();
        assert!(inboxes.try_recv().is_err(), "it is reported");
        let received = (0..8).find_map(|_| inboxes.try_recv().ok().flatten());
        received.expect("the mail of the other").settle().unwrap();
        clock.advance(MINUTE);
    }
}

/// Every file below a directory, with its content.
fn files_below(root: &std::path::Path) -> Vec<(std::path::PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        found.push((path.clone(), std::fs::read(&path).ok()));
        if path.is_dir() {
            found.extend(files_below(&path));
        }
    }
    found.sort();
    found
}

#[test]
fn an_observer_sees_counts_ages_and_holders_and_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let queue = Queue::open_or_create(home.path()).unwrap();
    let inbox = queue.mailbox("worker-1").unwrap();
    inbox.send_all(["one", "two", "three", "four"]).unwrap();
    let held = inbox.as_holder("w-1").unwrap().try_recv().unwrap().unwrap();
    inbox.try_recv().unwrap().unwrap().settle().unwrap();
    inbox.try_recv().unwrap().unwrap().reject("no").unwrap();
    held.extend(Duration::from_secs(3_600)).unwrap();
    queue.mailbox("bad").unwrap();
    let cur = home.path().join("mailbox/bad/cur");
    std::fs::remove_dir(&cur).unwrap();
    std::fs::write(&cur, "").unwrap();
    let before = files_below(home.path());
    let view = Queue::open(home.path()).unwrap().observe().unwrap();
    assert_eq!(files_below(home.path()), before);
    let [mailbox] = view.mailboxes.as_slice() else { panic!("{view:?}") };
    assert_eq!(view.unreadable.keys().next().unwrap().as_str(), "bad");
    let counts = mailbox.counts;
    assert_eq!((counts.queued, counts.acked, counts.settled, counts.dead), (1, 1, 1, 1));
    assert_eq!(counts, inbox.counts().unwrap());
    assert!(mailbox.oldest_waiting.is_some_and(|at| at <= view.at));
    let [message] = mailbox.held.as_slice() else { panic!("{view:?}") };
    assert_eq!(&message.lease, held.lease());
    assert!(message.expires_at.since(message.since) > Duration::from_secs(3_000));
    // As a dashboard in another process does.
    let json = serde_json::to_string(&view).unwrap();
    assert_eq!(serde_json::from_str::<QueueView>(&json).unwrap(), view);
}

#[test]
fn serving_settles_what_worked_and_gives_the_error_to_the_dead_letter() {
    let bed = Bed::new();
    bed.inbox.configure(&Settings::default().with_attempts_max(1)).unwrap();
    let stop = CancelToken::new().unwrap();
    bed.inbox.send_all(["works", "fails", "is ended", "last"]).unwrap();
    let inbox = bed.inbox.until(&stop);
    inbox
        .serve(|message| match message.body() {
            "fails" => Err("no such file".into()),
            "is ended" => Ok(message.reject("not for me")?),
            "last" => {
                stop.cancel();
                Ok(())
            }
            _ => Ok(()),
        })
        .unwrap();
    let counts = inbox.counts().unwrap();
    assert_eq!((counts.queued, counts.acked, counts.settled, counts.dead), (0, 0, 2, 2));
    let reasons: Vec<_> = inbox.dead_letters().unwrap().into_iter().map(|it| it.reason).collect();
    assert!(reasons.contains(&"no such file after 1 attempt".to_owned()), "{reasons:?}");
}
