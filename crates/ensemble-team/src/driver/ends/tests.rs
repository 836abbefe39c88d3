//! Every way in which a task can end, in every order: one record for each end.

use std::sync::Arc;

use super::*;
use ensemble_core::env::{Delivery, Monotonic};
use ensemble_core::proto::calendar::ClockReading;
use ensemble_core::proto::testing::name;
use ensemble_core::sim::SimRecorder;
use ensemble_core::spool::{Settings, SpoolOptions};
use ensemble_reports::contract;

struct Bed {
    home: tempfile::TempDir,
    spool: Spool,
    log: SimRecorder,
}

fn worker() -> Name {
    name("worker-1")
}

fn task_message() -> Envelope {
    Envelope::new(worker(), "count").with_kind(name("task")).with_task("t")
}

impl Bed {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let log = SimRecorder::default();
        let mut options = SpoolOptions::default().with_recorder(Arc::new(log.clone()));
        options.durability = Durability::Process;
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        spool.add_mailbox(&worker(), &Settings::default()).unwrap();
        std::fs::create_dir_all(home.path().join("queue/reports")).unwrap();
        Self { home, spool, log }
    }

    fn reviews(&self) -> ReviewCounts {
        ReviewCounts::new(&self.home.path().join("queue"), &self.home.path().join("state"), None)
    }

    fn ends(&self) -> TaskEnds {
        let (queue, state) = (self.home.path().join("queue"), self.home.path().join("state"));
        TaskEnds::new(&queue, &state, self.reviews())
    }

    fn assign(&self) -> Delivery {
        self.spool.publish(&task_message()).unwrap();
        self.receive()
    }

    fn receive(&self) -> Delivery {
        self.spool.receive(&worker(), &worker()).unwrap().unwrap()
    }

    fn text(status: Status, version: u32) -> (TaskReport, String) {
        let mut report = TaskReport::new("t", status);
        report.worker_id = Some("1".to_owned());
        report.test_results = Some(version.into());
        let text = contract::write(&report);
        (report, text)
    }

    fn report(&self, status: Status, version: u32) -> bool {
        let (report, text) = Self::text(status, version);
        self.ends().reported(&self.spool, &report, text.as_bytes(), &self.log).unwrap()
    }

    fn settle(&self, delivery: &Delivery) -> bool {
        self.spool.settle(&delivery.lease).unwrap();
        self.ends().settled(&delivery.envelope, &worker(), &self.log).unwrap()
    }

    fn counts(&self) -> (usize, usize) {
        (self.log.count("task_complete"), self.log.count("task_failed"))
    }
}

#[test]
fn a_report_and_the_settle_of_its_message_are_one_end_in_either_order() {
    let bed = Bed::new();
    let delivery = bed.assign();
    assert!(bed.report(Status::Success, 1));
    assert!(!bed.report(Status::Success, 1), "the watcher meets the same report");
    assert!(!bed.settle(&delivery));
    assert_eq!(bed.counts(), (1, 0));
    let delivery = bed.assign();
    assert!(bed.settle(&delivery));
    assert!(!bed.report(Status::Success, 2));
    assert_eq!(bed.counts(), (2, 0));
    // An author may write its name in another case.
    let _held = bed.assign();
    let (mut report, text) = Bed::text(Status::Success, 3);
    report.worker_id = Some("Worker-1".to_owned());
    assert!(bed.ends().reported(&bed.spool, &report, text.as_bytes(), &bed.log).unwrap());
}

#[test]
fn a_failed_report_is_an_end_and_a_settle_after_it_no_success() {
    for is_in_the_box in [false, true] {
        let bed = Bed::new();
        let delivery = bed.assign();
        if is_in_the_box {
            let file = bed.home.path().join("queue/reports/t-completed.yaml");
            std::fs::write(file, Bed::text(Status::Failed, 1).1).unwrap();
        } else {
            assert!(bed.report(Status::Failed, 1));
        }
        assert_eq!(bed.settle(&delivery), is_in_the_box);
        assert!(!bed.report(Status::Failed, 1), "read by the settle, if by nothing else");
        assert_eq!(bed.counts(), (0, 1), "{is_in_the_box}");
    }
}

#[test]
fn a_corrected_report_is_no_second_end_and_another_status_or_round_is_one() {
    let bed = Bed::new();
    let delivery = bed.assign();
    assert!(bed.report(Status::Failed, 1));
    assert!(!bed.report(Status::Failed, 2), "said more exactly");
    assert!(bed.report(Status::Success, 3), "tried again");
    bed.settle(&delivery);
    assert_eq!(bed.counts(), (1, 1));
    let review = b"task_id: t\nreviewer: w-2\nstatus: needs_fix\n";
    bed.reviews().count("t-review.yaml", review, &bed.log).unwrap();
    assert!(bed.report(Status::Success, 4), "after a fix");
    assert_eq!(bed.counts(), (2, 1));
}

#[test]
fn only_a_task_message_ends_its_task_and_a_dead_one_has_failed() {
    let bed = Bed::new();
    for kind in ["message", "step", "report.advice"] {
        let about = Envelope::new(worker(), "x").with_kind(name(kind));
        assert!(!bed.ends().settled(&about.with_task("t"), &worker(), &bed.log).unwrap());
    }
    let delivery = bed.assign();
    bed.spool.dead_letter(&delivery.lease, "cannot be done").unwrap();
    assert_eq!(bed.counts(), (0, 1));
    let delivery = bed.assign();
    bed.spool.dead_letter(&delivery.lease, "superseded by t.2").unwrap();
    assert_eq!(bed.counts(), (0, 1), "the next attempt goes on");
}

#[test]
fn a_report_is_of_the_latest_attempt_that_its_author_has_received() {
    let bed = Bed::new();
    let attempt = || bed.ends().attempt(&bed.spool, "t", &worker()).unwrap();
    let publish = |task: &Envelope| {
        bed.spool.publish(task).unwrap();
    };
    publish(&task_message().with_attempt(1));
    assert_eq!(attempt(), None, "it has received none");
    let first = bed.receive();
    assert_eq!(attempt(), Some(1));
    bed.settle(&first);
    publish(&task_message().with_attempt(2));
    assert_eq!(attempt(), Some(1), "the second one is unread");
    let second = bed.receive();
    assert_eq!(attempt(), Some(2));
    bed.spool.release(&second.lease, Duration::ZERO).unwrap();
    assert_eq!(attempt(), Some(2), "it is the last holder");
    bed.settle(&bed.receive());
    assert_eq!(attempt(), Some(2));
    publish(&task_message().with_attempt(1).with_correlation("another-batch"));
    assert_eq!(attempt(), None, "it may be the end of the other batch");
    assert_eq!(bed.ends().attempt(&bed.spool, "t", &name("no-mailbox")).unwrap(), None);
}

#[test]
fn a_thousand_tasks_leave_a_bounded_number_of_files() {
    let bed = Bed::new();
    let ends = bed.ends();
    for number in 0..1000 {
        let mut report = TaskReport::new(format!("t-{number}"), Status::Success);
        report.worker_id = Some("1".to_owned());
        let text = contract::write(&report);
        let is_new = || ends.reported(&bed.spool, &report, text.as_bytes(), &bed.log).unwrap();
        assert_eq!([is_new(), is_new()], [true, false]);
    }
    assert_eq!(bed.counts(), (1000, 0));
    let files = Dir::open(&ends.dir).unwrap().names().unwrap().len();
    assert!(files <= 2 * usize::from(SHARDS), "{files} files, each shard with its lock");
}

const DAY: u64 = 24 * 60 * 60;

/// What the clocks say this many seconds after they began.
fn reading(seconds: u64, wall: Timestamp) -> ClockReading {
    ClockReading::new("boot", Monotonic::ZERO + Duration::from_secs(seconds), wall)
}

/// A calendar that began a day ago, `seconds` later.
fn later(seconds: u64) -> Calendar {
    let began = Timestamp::from_unix_millis(SystemClock.wall().unix_millis() - 86_400_000);
    let mut calendar = Calendar::begin(&reading(0, began));
    let passed = seconds + DAY;
    calendar.read_clocks(&reading(passed, began.plus(Duration::from_secs(passed))));
    calendar
}

#[test]
fn a_jump_of_the_wall_clock_forgets_no_end() {
    let bed = Bed::new();
    assert!(bed.report(Status::Failed, 1));
    let mut calendar = later(1);
    let jumped = SystemClock.wall().plus(Duration::from_secs(400 * DAY));
    calendar.read_clocks(&reading(DAY + 2, jumped));
    assert_eq!(bed.ends().sweep(&bed.spool, &mut calendar).unwrap(), 0);
    assert!(!bed.report(Status::Failed, 1), "it is still known");
}

#[test]
fn a_sweep_forgets_ends_as_late_as_settled_messages_and_never_those_with_a_report() {
    let bed = Bed::new();
    let ends = bed.ends();
    assert_eq!(ends.sweep(&bed.spool, &mut later(0)).unwrap(), 0, "no task has ended");
    let settings = serde_json::from_value(json!({ "done_days": 10 })).unwrap();
    bed.spool.add_mailbox(&name("worker-2"), &settings).unwrap();
    assert!(bed.settle(&bed.assign()));
    assert!(bed.report(Status::Failed, 1));
    let sweep = |days: u64| ends.sweep(&bed.spool, &mut later(days * DAY)).unwrap();
    assert_eq!(sweep(9), 0, "a mailbox keeps its messages longer");
    let file = bed.home.path().join("queue/reports/t-completed.yaml");
    std::fs::write(&file, Bed::text(Status::Failed, 1).1).unwrap();
    assert_eq!(sweep(11), 0);
    assert!(!bed.report(Status::Failed, 1), "its report is read again, and is no other end");
    std::fs::remove_file(&file).unwrap();
    let busy = ends.lock_shard("t").unwrap();
    assert_eq!(sweep(11), 0, "a shard in use waits");
    drop(busy);
    assert_eq!(sweep(11), 1);
    assert_eq!(ends.lock_shard("t").unwrap().read().unwrap().unwrap(), b"");
    assert!(bed.report(Status::Failed, 1), "it is not known any more");
}

#[test]
fn a_sweep_dates_a_line_without_a_time_by_its_shard() {
    let bed = Bed::new();
    let shard = bed.ends().lock_shard("t").unwrap();
    shard.append_line(b"{\"task_id\":\"t\",\"status\":\"success\"}").unwrap();
    drop(shard);
    let keep = retention(&bed.spool).unwrap().as_secs();
    assert_eq!(bed.ends().sweep(&bed.spool, &mut later(keep / 2)).unwrap(), 0);
    assert_eq!(bed.ends().sweep(&bed.spool, &mut later(2 * keep)).unwrap(), 1);
}

#[test]
fn a_part_of_a_line_and_lines_of_other_tasks_do_not_count() {
    let bed = Bed::new();
    assert!(bed.report(Status::Failed, 1));
    let shard = bed.ends().lock_shard("t").unwrap().path();
    let mut content = std::fs::read(&shard).unwrap();
    content.extend_from_slice(b"{\"task_id\":\"t2\",\"status\":\"success\"}\n");
    content.extend_from_slice(b"{\"task_id\":\"t\",\"status\":\"succ");
    std::fs::write(&shard, content).unwrap();
    assert!(!bed.report(Status::Failed, 2), "its last whole line says `failed`");
    assert!(bed.report(Status::Success, 3), "and the new line begins after the part");
    assert!(!bed.report(Status::Success, 4));
    assert_eq!(bed.counts(), (1, 1));
}

#[test]
fn a_shard_that_is_full_keeps_the_newest_line_of_its_newest_tasks() {
    let line = |task: &str, status: &str| {
        let ended = TaskEndRecord { status: Some(status.to_owned()), ..TaskEndRecord::default() };
        json!(TaskEndRecord { task_id: task.to_owned(), ..ended }).to_string()
    };
    let mut shard = String::new();
    while shard.len() < SHARD_BYTES_MAX {
        let number = shard.len();
        shard += &format!("{}\n{}\n", line(&format!("t-{number}"), "failed"), line("x", "failed"));
    }
    let kept = compacted(shard.as_bytes(), &line("x", "success"));
    assert!(kept.len() <= SHARD_BYTES_MAX / 2 + 100, "{}", kept.len());
    assert_eq!(last_line_of("x", &kept).unwrap().status.as_deref(), Some("success"));
    assert_eq!(last_line_of("t-0", &kept), None, "the oldest");
    let text = String::from_utf8(kept).unwrap();
    assert_eq!(text.matches("\"x\"").count(), 1);
    let newest = shard.lines().rev().nth(1).unwrap();
    assert!(text.lines().any(|line| line == newest), "{newest}");
    assert!(text.lines().all(|line| serde_json::from_str::<TaskEndRecord>(line).is_ok()));
}
