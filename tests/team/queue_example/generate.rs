//! Makes `queue.example/` from fixed ids and times, through the library wherever it writes the
//! format, by hand where people and scripts do.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::durable::Durability;
use ensemble_core::env::Delivery;
use ensemble_core::message::{Envelope, MessageId, Timestamp};
use ensemble_core::requests::{NewRequest, PlanGates, Requests};
use ensemble_core::sim::SimClock;
use ensemble_core::spool::{Settings, Spool, SpoolOptions};
use ensemble_reports::contract::{
    self, EscalationReport, Review, ReviewFinding, Status, Summary, SummaryStatus, TaskReport,
    TaskResult, Verdict, WorkerTask, Workflow,
};
use ensemble_team::driver::batch_of;

use crate::queue::name;

/// 2026-01-15, 09:00 UTC.
const MORNING: i64 = 1_768_467_600_000;

/// How the example is opened: as if it were noon of its day.
pub(crate) fn options() -> SpoolOptions {
    let mut options = SpoolOptions::default().with_admission(Arc::new(PlanGates));
    options.durability = Durability::Process;
    let morning = Timestamp::from_unix_millis(MORNING);
    options.clock = Arc::new(SimClock::new(morning.plus(Duration::from_secs(3 * 60 * 60))));
    options
}

/// A message of `minute` o'clock; its UUIDv7 carries the same time.
fn message(minute: i64, from: &str, to: &str, kind: &str, body: &str) -> Envelope {
    let millis = MORNING + minute * 60_000;
    let id = format!("{:08x}-{:04x}-7000-8000-{minute:012x}", millis >> 16, millis & 0xffff);
    let mut envelope = Envelope::new(name(to), body)
        .with_id(MessageId::new(id).unwrap())
        .with_kind(name(kind))
        .from(name(from));
    envelope.created_at = Timestamp::from_unix_millis(millis);
    envelope
}

/// Makes the example at `root`, which must not exist.
pub(crate) fn generate(root: &Path) {
    let spool = Spool::create(root, options()).unwrap();
    for agent in ["dispatch", "worker-1"] {
        spool.add_mailbox(&name(agent), &Settings::default()).unwrap();
    }
    let mut bounded = Settings::default();
    bounded.capacity = Some(1);
    spool.add_mailbox(&name("conductor"), &bounded).unwrap();
    worker(&spool);
    held_and_finished(&spool);
    dispatch(&spool);
    conductor(&spool);
    requests(&spool);
    drop_boxes(root);
}

fn publish_and_receive(spool: &Spool, envelope: &Envelope, holder: &str) -> Delivery {
    spool.publish(envelope).unwrap();
    spool.receive_id(&envelope.to, &envelope.id, &name(holder)).unwrap().unwrap()
}

/// Waiting messages: in `new/` the full and the shortest form, in `front/` urgent, released,
/// delayed.
fn worker(spool: &Spool) {
    let full =
        message(30, "dispatch", "worker-1", "task", "Count the lines of src/\n\n  and sum.\n")
            .with_task("task-005")
            .with_attempt(1)
            .with_correlation("request-7")
            .with_causation("reports/task-001-completed.yaml");
    spool.publish(&full).unwrap();
    let by_hand = spool.root().join("mailbox/worker-1/new/by-hand.yaml");
    std::fs::write(by_hand, "to: worker-1\nbody: Written by hand\n...\n").unwrap();

    let urgent = message(40, "conductor", "worker-1", "message", "Stop: main is broken\n")
        .with_priority(7)
        .with_expiry(Timestamp::from_unix_millis(MORNING).plus(Duration::from_secs(86_400)));
    spool.publish(&urgent).unwrap();
    let returned = message(10, "dispatch", "worker-1", "task", "Format src/lib.rs\n");
    let delivery = publish_and_receive(spool, &returned.with_task("task-002"), "worker-1");
    spool.release(&delivery.lease, Duration::ZERO).unwrap();
    let delayed = message(11, "dispatch", "worker-1", "task", "Try the download again\n");
    let delivery = publish_and_receive(spool, &delayed.with_task("task-004"), "worker-1");
    spool.release(&delivery.lease, Duration::from_secs(60 * 60)).unwrap();
}

/// Held messages, one with an extended lease; settled messages; dead letters.
fn held_and_finished(spool: &Spool) {
    let held = message(20, "dispatch", "worker-1", "task", "Write the tests\n");
    publish_and_receive(spool, &held.with_task("task-006"), "worker-1");
    let long = message(21, "dispatch", "worker-1", "task", "Run the benchmarks\n");
    let delivery = publish_and_receive(spool, &long.with_task("task-007"), "worker-1b");
    spool.extend(&delivery.lease, Duration::from_secs(900)).unwrap();

    let settled = message(1, "dispatch", "worker-1", "task", "Read the specification\n");
    let delivery = publish_and_receive(spool, &settled.with_task("task-001"), "worker-1");
    spool.settle(&delivery.lease).unwrap();
    let dead = message(3, "dispatch", "worker-1", "task", "Clone the repository\n");
    let delivery = publish_and_receive(spool, &dead.with_task("task-003"), "worker-1");
    spool.dead_letter(&delivery.lease, "no such repository").unwrap();
}

/// Content that is too large for an envelope.
fn dispatch(spool: &Spool) {
    let log = "warning: unused variable\n".repeat(4);
    let attachment = spool.attach(log.as_bytes()).unwrap();
    let body = "The log of task-001 is attached\n";
    let envelope = message(50, "worker-1", "dispatch", "report.log", body);
    spool.publish(&envelope.with_task("task-001").with_attachment(attachment)).unwrap();
}

/// A mailbox with room for one message, and a second one that was refused.
fn conductor(spool: &Spool) {
    spool.publish(&message(55, "dispatch", "conductor", "message", "All tasks are out\n")).unwrap();
    let refused = message(56, "worker-1", "conductor", "message", "One more\n");
    assert!(matches!(spool.publish(&refused), Err(Error::Full { .. })));
}

/// A plan that waits for its review, with its gate, and a shutdown that was rejected.
fn requests(spool: &Spool) {
    let requests = Requests::new(spool);
    let plan = "1. copy the table\n2. drop the column\n";
    let plan = NewRequest::new("plan_approval", name("worker-1"), name("dispatch"), plan);
    let plan = plan.with_id("5f3c9a10").with_task("task-010").with_source("plan.md");
    requests.ask(plan).unwrap();
    let reason = "Please shut down gracefully.";
    let shutdown = NewRequest::new("shutdown", name("lead"), name("dispatch"), reason);
    requests.ask(shutdown.with_id("b81e0c77")).unwrap();
    requests.respond("b81e0c77", &name("dispatch"), false, "two tasks are out").unwrap();
}

/// Files from agents and scripts.
fn drop_boxes(root: &Path) {
    let put = |path: &str, content: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let at = |minute: i64| Some(Timestamp::from_unix_millis(MORNING + minute * 60_000).to_string());
    let mut report = TaskReport::new("task-001", Status::Success);
    report.worker_id = Some("worker-1".to_owned());
    let read = "3 of 3 chapters (100%) are read; the retry limit is in src/retry.rs:45-52";
    report.summary = Some(read.to_owned());
    report.files_created = vec!["notes/specification.md".to_owned()];
    report.completed_at = at(25);
    put("reports/task-001-completed.yaml", &contract::write(&report));
    let finding =
        "LOW notes/specification.md:12: the unit of the limit is missing => write seconds";
    let mut review = Review::new("task-001", Verdict::Approved);
    review.reviewer = Some("worker-2".to_owned());
    review.summary = Some("1 finding in 40 of 40 lines (100%)".to_owned());
    review.findings = vec![ReviewFinding::parse(finding)];
    review.reviewed_at = at(35);
    put("reports/task-001-review.yaml", &contract::write(&review));
    let mut escalation = EscalationReport::new("task-003", "undeliverable");
    escalation.worker = Some("worker-1".to_owned());
    (escalation.attempt, escalation.phase) = (Some(1), Some(0));
    escalation.detail = Some("the message is a dead letter: no such repository".to_owned());
    escalation.from = Some("dispatch".to_owned());
    escalation.escalated_at = at(45);
    escalation.action = Some("manual_intervention".to_owned());
    put("reports/escalation-task-003.yaml", &contract::write(&escalation));
    let mut summary = Summary::new(2);
    summary.batch_id = Some(batch_of(["task-001", "task-003"]));
    summary.status = SummaryStatus::Partial;
    (summary.completed_tasks, summary.failed_tasks) = (1, 1);
    summary.summary = Some("1 of 2 tasks (50%) are done, 1 failed".to_owned());
    summary.task_results =
        vec![TaskResult::new("task-001", "success"), TaskResult::new("task-003", "failed")];
    summary.errors = vec!["task-003 failed: no such repository".to_owned()];
    summary.completed_at = at(50);
    put("reports/completion-summary.yaml", &contract::write(&summary));
    let mut task = WorkerTask::new("task-008", "Update the changelog");
    task.files = vec!["CHANGELOG.md".to_owned()];
    task.workflow = Some(Workflow::Simple);
    task.created_at = at(58);
    put("tasks/worker-1-task.yaml", &contract::write(&task));
    put("ack/task-008.ack", "worker-1\n");
    put("rejected/reports.task-009-completed.yaml.4711.c0ffee.0", "task_id: [task-009\n...\n");
    put(
        "rejected/reports.task-009-completed.yaml.4711.c0ffee.0@reason.yaml",
        "file: reports/task-009-completed.yaml\n\
         error: \"reports/task-009-completed.yaml: line 2, column 1: a sequence is not closed\"\n\
         at: \"2026-01-15T11:58:00.000Z\"\n",
    );
}
