//! The watcher rejects a report that breaks its contract and notifies its author. It delivers a
//! file of another shape unchanged.

use ensemble_core::env::Monotonic;
use ensemble_core::proto::calendar::{Calendar, ClockReading};

use crate::*;

/// A message that reports a file that was set aside.
#[track_caller]
fn told(bed: &Bed, mailbox: &str) -> Envelope {
    eventually(PATIENCE, "the author is notified", || {
        let spool = bed.spool();
        let mailbox = name(mailbox);
        let delivery = spool.receive(&mailbox, &mailbox).expect("a mailbox")?;
        spool.settle(&delivery.lease).expect("it is held");
        Some(delivery.envelope)
    })
}

fn bed() -> Bed {
    let bed = Bed::new();
    for mailbox in ["worker-1", "conductor"] {
        if !bed.spool().mailboxes().unwrap().contains(&name(mailbox)) {
            bed.spool().add_mailbox(&name(mailbox), &Settings::default()).unwrap();
        }
    }
    bed
}

#[test]
fn a_broken_report_is_rejected_and_its_author_is_notified_once() {
    let bed = bed();
    // The contract is enforced even if lint is off.
    fs::write(bed.queue().parent().unwrap().join("ensemble.yaml"), "lint: {mode: off}\n").unwrap();
    let watcher = Watcher::start(&bed);
    let broken = "task_id: t-1\nworker_id: 1\nstatus: maybe\nsummary: {a: x}\n";
    bed.land("reports/t-1-completed.yaml", broken);
    let message = told(&bed, "worker-1");
    assert_eq!(message.kind.as_str(), "report.rejected");
    assert_eq!(message.task_id.as_deref(), Some("t-1"));
    assert!(message.body.contains("line 3: status is `maybe`"), "{}", message.body);
    assert!(message.body.contains("write one of success, failed, blocked"), "{}", message.body);
    assert!(message.body.contains("line 4: summary is a mapping"), "{}", message.body);

    let record = eventually(PATIENCE, "it is recorded", || bed.records("file.rejected").pop());
    assert_eq!(record["told"], serde_json::json!(["worker-1"]));
    let kept = bed.in_queue(record["kept_as"].as_str().unwrap());
    assert_eq!(fs::read_to_string(kept).unwrap(), broken, "nothing is lost");
    assert!(!bed.in_queue("reports/t-1-completed.yaml").exists());

    // Corrected, it is routed as if nothing had been.
    let good = "task_id: t-1\nworker_id: 1\nstatus: failure\nreason: no disk\n";
    bed.land("reports/t-1-completed.yaml", good);
    assert_eq!(bed.routed_times("reports/t-1-completed.yaml", 1), [good]);
    assert_eq!(bed.total("worker-1"), 1, "told once");
    assert_eq!(bed.total("dispatch"), 1);
    watcher.stop();
    bed.assert_clean();
}

#[test]
fn a_rejection_of_invalid_yaml_reaches_the_named_author_or_the_waiting_role() {
    let bed = bed();
    let watcher = Watcher::start(&bed);
    bed.land("reports/t-1-completed.yaml", "task_id: t-1\nworker_id: worker-1\nstatus: [\n");
    assert!(told(&bed, "worker-1").body.contains("line"));
    bed.land("reports/t-2-completed.yaml", "status: [\nworker_id: no-such-agent\n");
    let message = told(&bed, "dispatch");
    assert_eq!(
        (message.kind.as_str(), message.task_id.as_deref()),
        ("report.rejected", Some("t-2"))
    );
    eventually_true(PATIENCE, "both are recorded", || bed.records("file.rejected").len() == 2);
    watcher.stop();
}

#[test]
fn other_shapes_and_every_spelling_are_delivered() {
    let bed = bed();
    let watcher = Watcher::start(&bed);
    let fine = [
        ("reports/a-completed.yaml", "lines: 3\nfiles: [x]\n"),
        ("reports/b-completed.yaml", "taskId: b\nStatus: COMPLETED\n"),
        ("reports/c-completed.yaml", "status: failure\nmood: fine\nworker_id: 7\n"),
        ("reports/a-review.yaml", "task_id: a\nresult: approved\nfindings: 0\n"),
        ("reports/b-review.yaml", "score: 9\n"),
        ("reports/escalation-x.yaml", "why: no person is there\n"),
        ("reports/completion-summary.yaml", "workflow_id: w\nstatus: all_completed\n"),
    ];
    for (file, content) in fine {
        bed.land(file, content);
        eventually_true(PATIENCE, &format!("{file} is delivered"), || {
            let all = ["dispatch", "conductor"].map(|mailbox| bed.routed(mailbox));
            all.iter().any(|routed| routed.get(file).is_some_and(|bodies| *bodies == [content]))
        });
    }
    assert!(bed.records("file.rejected").is_empty());
    watcher.stop();
}

#[test]
fn a_file_of_a_drop_box_carries_its_trace_and_an_invalid_one_hinders_nothing() {
    let bed = bed();
    let watcher = Watcher::start(&bed);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (task, traceparent, carried) in [("a", parent, Some(parent)), ("b", "00-mine", None)] {
        let text = format!("why: no person is there\ntraceparent: {traceparent}\n");
        bed.land(&format!("reports/escalation-{task}.yaml"), &text);
        let message = told(&bed, "conductor");
        assert_eq!(message.body, text);
        let found = message.traceparent.map(|traceparent| traceparent.as_str().to_owned());
        assert_eq!(found.as_deref(), carried);
    }
    watcher.stop();
}

#[test]
fn a_report_broken_while_no_watcher_runs_is_rejected_by_the_next_one_unless_replaced() {
    let bed = bed();
    bed.land("reports/t-1-completed.yaml", "status: maybe\nworker_id: worker-1\n");
    bed.land("reports/t-2-completed.yaml", "status: maybe\nworker_id: worker-1\n");
    bed.land("reports/t-2-completed.yaml", "status: ok\nworker_id: worker-1\n");
    let watcher = Watcher::start(&bed);
    // The advice on the other one comes first: a file that was found may still be completed for a while.
    let told = [told(&bed, "worker-1"), told(&bed, "worker-1")].map(|message| message.task_id);
    assert!(told.contains(&Some("t-1".to_owned())), "{told:?}");
    assert_eq!(
        bed.routed_times("reports/t-2-completed.yaml", 1),
        ["status: ok\nworker_id: worker-1\n"]
    );
    // The record may follow the message.
    eventually_true(PATIENCE, "one is recorded", || bed.records("file.rejected").len() == 1);
    watcher.stop();
}

const VAGUE: &str =
    "task_id: t-1\nworker_id: worker-1\nstatus: success\nsummary: some tests pass\n";

#[test]
fn lint_refuse_rejects_a_vague_report_and_lint_off_accepts_it() {
    for (mode, is_refused) in [("refuse", true), ("off", false)] {
        let bed = bed();
        let config = bed.queue().parent().unwrap().join("ensemble.yaml");
        fs::write(config, format!("lint: {{mode: {mode}}}\n")).unwrap();
        let watcher = Watcher::start(&bed);
        bed.land("reports/t-1-completed.yaml", VAGUE);
        if is_refused {
            let message = told(&bed, "worker-1");
            assert_eq!(message.kind.as_str(), "report.rejected");
            assert!(message.body.contains("`some` is vague"), "{}", message.body);
            assert!(bed.bodies("reports/t-1-completed.yaml").is_empty());
        } else {
            assert_eq!(bed.routed_times("reports/t-1-completed.yaml", 1), [VAGUE]);
            assert_eq!(bed.total("worker-1"), 0);
        }
        watcher.stop();
    }
}

/// The queue's calendar has seen the time pass since 2019, on a machine that has been started again since.
fn saw_2019(bed: &Bed) {
    let (then, now) = (Timestamp::from_unix_millis(1_546_300_800_000), Timestamp::now());
    let at = |passed, wall| ClockReading::new("an earlier start", Monotonic::ZERO + passed, wall);
    let mut calendar = Calendar::begin(&at(Duration::ZERO, then));
    calendar.read_clocks(&at(now.since(then), now));
    fs::write(bed.queue().join("calendar.json"), serde_json::to_string(&calendar).unwrap())
        .unwrap();
}

#[test]
fn ends_of_tasks_are_swept_like_settled_messages() {
    let bed = bed();
    let ends = bed.state().join("ends");
    fs::create_dir_all(&ends).unwrap();
    let shard = ends.join("07.ndjson");
    let old = r#"{"task_id":"old","status":"success","at":"2020-01-01T00:00:00.000Z"}"#;
    let new = r#"{"task_id":"new","status":"success","at":"2120-01-01T00:00:00.000Z"}"#;
    fs::write(&shard, format!("{old}\n{new}\n")).unwrap();
    saw_2019(&bed);
    let watcher = Watcher::start(&bed);
    let swept = eventually(PATIENCE, "the watcher sweeps", || bed.records("queue.swept").pop());
    assert_eq!(swept["ends"], 1, "{swept}");
    assert_eq!(fs::read_to_string(&shard).unwrap(), format!("{new}\n"));
    watcher.stop();
}

#[test]
fn a_recipient_that_is_full_withholds_a_file_from_no_other() {
    let route = "{match: 'reports/*-note.yaml', to: [full, worker-1], type: note}";
    let bed = Bed::with(&Settings::default(), &format!("routes: [{route}]\n"));
    let mut settings = Settings::default();
    settings.capacity = Some(1);
    for (mailbox, settings) in [("full", &settings), ("worker-1", &Settings::default())] {
        bed.spool().add_mailbox(&name(mailbox), settings).unwrap();
    }
    bed.spool().publish(&Envelope::new(name("full"), "first")).unwrap();
    let watcher = Watcher::start(&bed);
    bed.land("reports/t-1-note.yaml", "note: x\n");
    bed.land("reports/t-1-completed.yaml", "status: maybe\nworker_id: full\n");
    assert_eq!(told(&bed, "dispatch").kind.as_str(), "report.rejected", "its author is full");
    assert_eq!(told(&bed, "worker-1").body, "note: x\n");
    assert_eq!(told(&bed, "full").body, "first");
    assert_eq!(told(&bed, "full").body, "note: x\n", "it is tried again");
    bed.spool().publish(&Envelope::new(name("full"), "second")).unwrap();
    let (file, task) = ("tasks/worker-1-task.yaml", "id: t-2\nfrom: full\ndescription: count\n");
    bed.land(file, task);
    eventually_true(PATIENCE, "it is routed", || bed.total("worker-1") == 2);
    bed.land(file, task);
    eventually_true(PATIENCE, "its author has no room", || {
        bed.records("file.waiting").iter().any(|waiting| waiting["file"] == file)
    });
    assert_eq!(told(&bed, "full").body, "second");
    assert_eq!(told(&bed, "full").kind.as_str(), "mail.again", "it is tried again");
    watcher.stop();
}
