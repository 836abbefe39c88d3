//! Automatic messages, with a real watcher: they are never answered automatically, no matter what a worker makes
//! of them.

use ensemble_core::message::MessagePurpose;
use ensemble_core::proto::request::RequestKind;
use ensemble_core::requests::{Kinds, PlanGates};

use crate::support::messages;

use crate::*;

/// How often a worker looks for more work after it has had none.
const ROUNDS: usize = 4;

fn bed(config: &str) -> Bed {
    let bed = Bed::with(&Settings::default(), config);
    bed.spool().add_mailbox(&name("worker-1"), &Settings::default()).unwrap();
    bed
}

fn send(bed: &Bed, id: &str, kind: &str) {
    let task = Envelope::new(name("worker-1"), "count the lines\n").with_kind(name(kind));
    bed.spool().publish(&task.with_task(id).from(name("dispatch"))).unwrap();
}

/// Waits until the watcher has done all that follows from what has landed so far. It takes one file after the
/// other, so it has when it has routed a file that landed later.
#[track_caller]
pub(crate) fn settle_down(bed: &Bed, round: usize) {
    let (file, content) = (format!("reports/mark-{round}-review.yaml"), format!("mark: {round}\n"));
    bed.land(&file, content);
    bed.routed_times(&file, 1);
    let is_recorded = || bed.records("file.routed").iter().any(|record| record["file"] == *file);
    eventually_true(PATIENCE, "the mark is recorded", is_recorded);
    // The next step begins after all that this one has written.
    let after = format!("reports/after-{round}-review.yaml");
    bed.land(&after, format!("after: {round}\n"));
    bed.routed_times(&after, 1);
}

/// The shipped worker, until there is no work for it.
fn shell_worker(bed: &Bed, command: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/worker.sh");
    let output = Command::new("sh")
        .arg(script)
        .arg(bed.queue())
        .args(["worker-1", "worker-1", "sh", "-c", command])
        .env("IDLE", "exit")
        .env_remove("DELAY")
        .env_remove("LEASE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// A worker that takes each message for a task, as those of before did: what it has reported.
fn naive_worker(bed: &Bed, reported: &mut usize) {
    let (spool, me) = (bed.spool(), name("worker-1"));
    while let Some(delivery) = spool.receive(&me, &me).unwrap() {
        let envelope = &delivery.envelope;
        let task = envelope.task_id.clone().unwrap_or_else(|| envelope.id.to_string());
        let report = format!(
            "task_id: {task}\nworker_id: worker-1\nstatus: success\noutput: some tests pass\n"
        );
        bed.land(&format!("reports/{task}-completed.yaml"), report);
        *reported += 1;
        spool.settle(&delivery.lease).unwrap();
    }
}

fn reports(bed: &Bed) -> Vec<String> {
    let names = fs::read_dir(bed.in_queue("reports")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with("-completed.yaml")).collect()
}

#[test]
fn one_task_for_the_shell_worker_is_one_report() {
    for (mode, output) in
        [("warn", "echo 42"), ("warn", "echo some tests fixed"), ("refuse", "echo 42")]
    {
        let bed = bed(&format!("lint: {{mode: {mode}}}\n"));
        let watcher = Watcher::start(&bed);
        send(&bed, "t-1", "task");
        // It reads what is automatic, and says nothing to it.
        for kind in ["report.advice", "report.completed", "shutdown_response"] {
            send(&bed, kind, kind);
        }
        for round in 0..ROUNDS {
            shell_worker(&bed, &format!("cat >/dev/null; {output}"));
            settle_down(&bed, round);
        }
        assert_eq!(reports(&bed), ["t-1-completed.yaml"], "{mode} {output}");
        assert_eq!(bed.bodies("reports/t-1-completed.yaml").len(), 1, "{mode} {output}");
        assert_eq!(bed.total("worker-1"), 4, "{mode} {output}");
        assert!(bed.records("report.vague").is_empty(), "its summary passes the lint");
        assert!(bed.records("file.rejected").is_empty(), "{mode} {output}");
        let counts = bed.spool().counts(&name("worker-1")).unwrap();
        assert_eq!((counts.settled, counts.dead), (4, 0), "{mode} {output}");
        watcher.stop();
    }
}

#[test]
fn a_worker_that_reports_on_advice_and_on_rejections_is_not_answered_again() {
    // Advice is sent once per task. A rejection asks for the same file again, and is sent up to five times.
    for (mode, most, why) in [("warn", 2, "notice"), ("refuse", 6, "row")] {
        let bed = bed(&format!("lint: {{mode: {mode}}}\n"));
        let watcher = Watcher::start(&bed);
        send(&bed, "t-1", "task");
        let mut reported = 0;
        for round in 0..2 * ROUNDS {
            naive_worker(&bed, &mut reported);
            settle_down(&bed, round);
        }
        assert_eq!(reported, most, "{mode}");
        let found = bed.records("loop_detected");
        assert_eq!(found.len(), 1, "{mode}: {found:?}");
        assert_eq!((&found[0]["worker_id"], &found[0]["why"]), (&"worker-1".into(), &why.into()));
        watcher.stop();
    }
}

#[test]
fn an_author_is_advised_once_a_task_and_at_most_five_times_in_a_row() {
    let bed = bed("");
    let watcher = Watcher::start(&bed);
    let vague = |task: &str, version: usize| {
        let text = format!(
            "task_id: {task}\nworker_id: worker-1\nstatus: success\nsummary: some pass\nv: {version}\n"
        );
        bed.land(&format!("reports/{task}-completed.yaml"), text);
        let times = || bed.bodies(&format!("reports/{task}-completed.yaml")).len() == version;
        eventually_true(PATIENCE, "it is routed", times);
    };
    vague("t-1", 1);
    vague("t-1", 2);
    for task in 2..9 {
        vague(&format!("t-{task}"), 1);
    }
    settle_down(&bed, 0);
    // Five answers, of which the second was about a task that has its advice.
    assert_eq!(bed.total("worker-1"), 4);
    let found = bed.records("loop_detected");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["cycles"], &found[0]["limit"]), (&5.into(), &5.into()));
    assert_eq!(found[0]["why"], "row");
    assert_eq!(bed.records("report.vague").len(), 9, "each is in the log");
    watcher.stop();
}

#[test]
fn after_five_rejections_in_a_row_those_who_wait_for_the_report_are_told_once() {
    let bed = bed("");
    let watcher = Watcher::start(&bed);
    for version in 0..8 {
        let broken = format!("task_id: t-1\nworker_id: 1\nstatus: maybe\nv: {version}\n");
        bed.land("reports/t-1-completed.yaml", broken);
        let records = || bed.records("file.rejected").len() == version + 1;
        eventually_true(PATIENCE, "it is put aside", records);
    }
    assert_eq!((bed.total("worker-1"), bed.total("dispatch")), (5, 1));
    assert_eq!(bed.records("loop_detected").len(), 1);
    let told: Vec<_> = bed.records("file.rejected").iter().map(|r| r["told"].clone()).collect();
    assert_eq!(told[4..7], [["worker-1"].into(), ["dispatch"].into(), serde_json::json!([])]);
    watcher.stop();
}

#[test]
fn the_shell_worker_leaves_requests_and_types_that_it_does_not_know() {
    let bed = bed("");
    let spool = bed.spool();
    let ask =
        NewRequest::new("shutdown", name("dispatch"), name("worker-1"), "enough").with_id("s1");
    Requests::new(&spool).ask(ask).unwrap();
    send(&bed, "weather-1", "weather");
    send(&bed, "t-1", "task");
    shell_worker(&bed, "cat");
    assert_eq!(reports(&bed), ["t-1-completed.yaml"]);
    let mut left: Vec<_> = messages(&bed.queue(), "worker-1")
        .into_iter()
        .filter(|(place, _)| !place.to_string_lossy().contains("/done/"))
        .map(|(_, envelope)| (envelope.kind.to_string(), envelope.purpose()))
        .collect();
    left.sort_by(|a, b| a.0.cmp(&b.0));
    let expected =
        [("shutdown_request", MessagePurpose::Request), ("weather", MessagePurpose::Other)];
    assert_eq!(left, expected.map(|(kind, purpose)| (kind.to_owned(), purpose)));
    assert_eq!(Requests::new(&spool).get("s1").unwrap().state(), "pending");
}

/// What only `mv` can do: the question is in `done/`, and nothing has answered it.
#[test]
fn a_question_that_is_moved_to_done_by_hand_stays_open_and_its_addressee_is_reminded() {
    let config = "requests: {kinds: {tea: {deadline: 10m, remind_every: 1}}}\n";
    let bed = bed(config);
    let asks_plan_gates = support::options().with_admission(Arc::new(PlanGates));
    let spool = Spool::open(&bed.queue(), asks_plan_gates).unwrap();
    let watcher = Watcher::start(&bed);
    let mut ask =
        NewRequest::new("tea", name("dispatch"), name("worker-1"), "green?").with_id("q1");
    ask = ask.with_deadline_seconds(600);
    let tea = RequestKind { remind_every: Duration::from_secs(1), ..RequestKind::new("tea") };
    Requests::new(&spool).with_kinds(Kinds::default().with(tea)).ask(ask).unwrap();
    let (me, id) = (name("worker-1"), MessageId::new("q1.request").unwrap());
    spool.receive_id(&me, &id, &me).unwrap().unwrap();
    let home = bed.in_queue("mailbox/worker-1");
    fs::rename(home.join("cur/q1.request@worker-1@1.yaml"), home.join("done/q1.request.yaml"))
        .unwrap();
    assert_eq!(spool.state(&me, &id).unwrap(), Some(State::Settled));
    let reminder = eventually(PATIENCE, "it is reminded", || spool.receive(&me, &me).unwrap());
    // A watcher that only polls comes to it later, and then reminds once for all that was missed.
    assert!(reminder.envelope.id.as_str().starts_with("q1.remind-"), "{}", reminder.envelope.id);
    assert_eq!(Requests::new(&spool).get("q1").unwrap().state(), "pending");
    let refused = spool.settle(&reminder.lease).unwrap_err();
    assert!(refused.to_string().contains("request q1 has no answer yet"), "{refused}");
    Requests::new(&spool).respond("q1", &me, true, "yes").unwrap();
    let settled = spool.state(&me, &reminder.envelope.id).unwrap();
    assert_eq!(settled, Some(State::Settled), "the answer takes its questions along");
    watcher.stop();
}

#[test]
fn each_ack_that_lands_counts_whatever_its_content_was_before() {
    let bed = bed("");
    let watcher = Watcher::start(&bed);
    for attempt in 1..=3 {
        send(&bed, "t-1", "task");
        let counts = || bed.spool().counts(&name("worker-1")).unwrap();
        // As the original's workers acknowledge: who, and when.
        bed.land("ack/t-1.ack", "worker-1\n2026-02-03T10:00:00\n");
        eventually_true(PATIENCE, "it is taken", || counts().acked == 1);
        // Said again, it changes nothing, and its report still settles it.
        bed.land("ack/t-1.ack", "worker-1\n");
        eventually_true(PATIENCE, "both were heard", || {
            bed.records("ack.received").len() == 2 * attempt
        });
        let report = format!("task_id: t-1\nworker_id: 1\nstatus: success\nattempt: {attempt}\n");
        bed.land("reports/t-1-completed.yaml", report);
        eventually_true(PATIENCE, "it is settled", || {
            (counts().settled, counts().acked) == (attempt as u64, 0)
        });
        assert_eq!(bed.records("task_complete").len(), attempt, "once for each end");
    }
    watcher.stop();
}

#[test]
fn an_ack_counts_by_a_name_with_its_agent_or_attempt_and_for_no_other_task() {
    let bed = bed("");
    // A mailbox that cannot be read keeps no agent from its task.
    bed.spool().add_mailbox(&name("broken"), &Settings::default()).unwrap();
    let new = bed.in_queue("mailbox/broken/new");
    let away = new.with_extension("away");
    std::fs::rename(&new, &away).unwrap();
    std::fs::write(&new, "").unwrap();
    let watcher = Watcher::start(&bed);
    let held = || bed.spool().counts(&name("worker-1")).unwrap().acked;
    let named =
        [("t-1", "worker-1-t-1"), ("t-2", "ACK_t-2"), ("t-3", "t-3@2"), ("t-4", "#T-4-task")];
    for (count, (task, file)) in (1..).zip(named) {
        send(&bed, task, "task");
        bed.land(&format!("ack/{file}.ack"), "");
        eventually_true(PATIENCE, file, || held() == count);
    }
    std::fs::remove_file(&new).unwrap();
    std::fs::rename(&away, &new).unwrap();
    send(&bed, "t-5", "task");
    bed.land("ack/t-5-1.ack", "");
    eventually_true(PATIENCE, "it was read", || {
        bed.records("ack.received").iter().any(|it| it["task_id"] == "t-5-1")
    });
    assert_eq!(held(), 4, "the other one waits");
    watcher.stop();
}

#[test]
fn an_ack_waits_for_its_task_and_its_author_learns_that_it_fits_none() {
    let bed = bed("");
    let watcher = Watcher::start(&bed);
    bed.land("ack/t-1.ack", "worker-1\n");
    bed.land("ack/typo.ack", "worker-1\n");
    let heard = || bed.records("ack.received").len() == 2;
    eventually_true(PATIENCE, "both were heard", heard);
    send(&bed, "t-1", "task");
    let held = || bed.spool().counts(&name("worker-1")).unwrap().acked;
    eventually_true(PATIENCE, "the task is taken", || held() == 1);
    let notices = || -> Vec<Envelope> {
        let all = messages(&bed.queue(), "worker-1").into_iter().map(|(_, envelope)| envelope);
        all.filter(|it| it.kind.as_str() == "report.rejected").collect()
    };
    eventually_true(PATIENCE, "its author is notified", || !notices().is_empty());
    assert!(notices()[0].body.starts_with("ack/typo.ack was not delivered: no open task fits"));
    // An ack of a task that has ended is late, and not misnamed.
    bed.land("reports/t-1-completed.yaml", "task_id: t-1\nworker_id: 1\nstatus: success\n");
    eventually_true(PATIENCE, "it has ended", || held() == 0);
    bed.land("ack/t-1.ack", "worker-1 \n");
    eventually_true(PATIENCE, "it was heard", || bed.records("ack.received").len() == 4);
    settle_down(&bed, 1);
    assert_eq!(notices().len(), 1);
    watcher.stop();
}

#[test]
fn a_report_ends_the_open_task_that_it_writes_in_another_case_or_with_a_number_sign() {
    let bed = bed("");
    let watcher = Watcher::start(&bed);
    let counts = || bed.spool().counts(&name("worker-1")).unwrap();
    let report = |file: &str, task: &str| {
        let text = format!("task_id: '{task}'\nworker_id: 1\nstatus: success\n");
        bed.land(&format!("reports/{file}-completed.yaml"), text);
        bed.routed_times(&format!("reports/{file}-completed.yaml"), 1);
    };
    for (settled, (task, written)) in
        (1..).zip([("T-1", "t-1"), ("T-2", "#T-2"), ("t-3", "#T-3"), ("#4", "4")])
    {
        send(&bed, task, "task");
        report(&format!("r{settled}"), written);
        eventually_true(PATIENCE, written, || counts().settled == settled);
        let routed = bed.records("file.routed");
        assert_eq!(routed.last().unwrap()["task_id"], task);
        let ended = bed.records("task_complete");
        assert_eq!(
            (ended.len() as u64, &ended.last().unwrap()["task_id"]),
            (settled, &task.into())
        );
    }
    // Of two tasks that differ only in case, the one that is written so is meant, and neither by a third spelling.
    for task in ["x-1", "X-1"] {
        send(&bed, task, "task");
    }
    report("r5", "#x-1");
    settle_down(&bed, 1);
    assert_eq!(counts().settled, 4);
    report("r6", "X-1");
    eventually_true(PATIENCE, "one is settled", || counts().settled == 5);
    assert_eq!(bed.records("task_complete").last().unwrap()["task_id"], "X-1");
    // The one that has ended under its own name does not end the other one when it is said again.
    bed.land(
        "reports/r7-completed.yaml",
        "task_id: X-1\nworker_id: 1\nstatus: success\nsummary: b\n",
    );
    settle_down(&bed, 2);
    assert_eq!(counts().settled, 5);
    watcher.stop();
}

#[test]
fn a_report_ends_a_task_that_was_sent_before_the_clock_was_set_back() {
    let bed = bed("");
    let watcher = Watcher::start(&bed);
    let mut task = Envelope::new(name("worker-1"), "count the lines\n").with_kind(name("task"));
    task.created_at = task.created_at.plus(Duration::from_secs(3_600));
    bed.spool().publish(&task.with_task("t-1").from(name("dispatch"))).unwrap();
    bed.land("reports/t-1-completed.yaml", "task_id: t-1\nworker_id: 1\nstatus: success\n");
    let settled = || bed.spool().counts(&name("worker-1")).unwrap().settled;
    eventually_true(PATIENCE, "it is settled", || settled() == 1);
    watcher.stop();
}

#[test]
fn a_bare_ack_counts_where_exactly_one_mailbox_has_the_task() {
    let bed = bed("");
    bed.spool().add_mailbox(&name("worker-2"), &Settings::default()).unwrap();
    let watcher = Watcher::start(&bed);
    send(&bed, "t-1", "task");
    // Advice about a task is not work on it.
    let notice = Envelope::new(name("worker-2"), "x").with_kind(name("report.rejected"));
    bed.spool().publish(&notice.with_task("t-1")).unwrap();
    bed.land("ack/t-1.ack", "ack\n");
    let held = |worker: &str| bed.spool().counts(&name(worker)).unwrap().acked;
    eventually_true(PATIENCE, "it is taken", || held("worker-1") == 1);
    assert_eq!(held("worker-2"), 0);
    for worker in ["worker-1", "worker-2"] {
        let task = Envelope::new(name(worker), "both").with_kind(name("task"));
        bed.spool().publish(&task.with_task("t-2")).unwrap();
    }
    bed.land("ack/t-2.ack", "ack\n");
    eventually_true(PATIENCE, "it was heard", || bed.records("ack.received").len() == 2);
    assert_eq!((held("worker-1"), held("worker-2")), (1, 0), "two have it: whose ack is it?");
    watcher.stop();
}

#[test]
fn the_author_of_a_file_that_leads_nowhere_learns_what_to_call_it() {
    let bed = bed("");
    let new = bed.in_queue("mailbox/worker-1/new");
    let away = new.with_extension("away");
    std::fs::rename(&new, &away).unwrap();
    std::fs::write(&new, "").unwrap();
    let watcher = Watcher::start(&bed);
    // With a status it would be a report in spite of its name.
    let report = "task_id: t-1\nWorker-ID: 1\n";
    bed.land("reports/t-1_Complete.yml", report);
    eventually_true(PATIENCE, "it waits", || !bed.records("file.waiting").is_empty());
    std::fs::remove_file(&new).unwrap();
    std::fs::rename(&away, &new).unwrap();
    let notice = |to: &'static str, about: &'static str| {
        eventually(PATIENCE, about, || {
            let found = bed.spool().unfinished(&name(to), 10).unwrap();
            let mut bodies = found
                .iter()
                .map(|found| bed.spool().peek(&name(to), &found.id).unwrap().body)
                .filter(|body| body.contains(about));
            bodies.next()
        })
    };
    let told = notice("worker-1", "reports/t-1_Complete.yml was not delivered");
    assert!(told.contains("rename it to reports/t-1-completed.yaml"), "{told}");
    // Without an author, those who get the reports.
    bed.land("tasks/worker1-task.yaml", "id: t-2\ninstruction: count\n");
    let told = notice("dispatch", "tasks/worker1-task.yaml was not delivered");
    assert!(told.contains("did you mean worker-1?"), "{told}");
    assert!(bed.in_queue("reports/t-1_Complete.yml").exists(), "it stays where it is");
    watcher.stop();
}
