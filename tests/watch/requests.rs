//! Requests with a real watcher: it ends silent requests, counts decisions of scripts, and finishes
//! interrupted work.

use ensemble_core::durable::FileLock;
use ensemble_core::requests::RequestEntry;
use ensemble_tmux::tmux::Binding;

use crate::*;

const CONFIG: &str = "requests: {kinds: {tea: {deadline: 1, at_expiry: escalate}}}";

fn bed() -> (Bed, Spool) {
    let bed = Bed::with(&Settings::default(), CONFIG);
    let spool = bed.spool();
    for mailbox in ["lead", "w1"] {
        spool.add_mailbox(&name(mailbox), &Settings::default()).unwrap();
    }
    (bed, spool)
}

fn ask(spool: &Spool, id: &str, seconds: u64) -> RequestEntry {
    let ask = NewRequest::new("plan_approval", name("w1"), name("lead"), "a plan").with_id(id);
    Requests::new(spool).ask(ask.with_deadline_seconds(seconds).with_task("task-1")).unwrap()
}

/// Waits until everything about a request is done; how it was decided.
#[track_caller]
fn closed(spool: &Spool, id: &str) -> String {
    eventually(PATIENCE, &format!("{id} is closed"), || {
        let entry = Requests::new(spool).get(id).ok()?;
        entry.is_closed.then(|| entry.state().to_owned())
    })
}

fn types(spool: &Spool, agent: &str) -> Vec<String> {
    let agent = name(agent);
    std::iter::from_fn(|| spool.receive(&agent, &agent).unwrap())
        .map(|delivery| delivery.envelope.kind.to_string())
        .collect()
}

/// As `ln` does it: whole, and never over another.
fn decide_by_hand(bed: &Bed, id: &str, text: &str) {
    let staged = bed.stage(text);
    let file = bed.in_queue(&format!("requests/{id}/decision.yaml"));
    std::fs::hard_link(staged, file).unwrap();
}

#[test]
fn a_silent_request_ends_at_its_deadline_without_any_agent() {
    let (bed, spool) = bed();
    let _watcher = Watcher::start(&bed);
    ask(&spool, "quiet", 1);
    assert_eq!(closed(&spool, "quiet"), "expired");
    assert_eq!(types(&spool, "w1"), ["plan_approval_response"]);
    assert_eq!(types(&spool, "conductor"), ["request.expired"]);
    assert_eq!(bed.records("request.expired").len(), 1);
}

#[test]
fn a_script_decides_with_ln_and_invalid_decisions_are_rejected() {
    let (bed, spool) = bed();
    let watcher = Watcher::start(&bed);
    ask(&spool, "p1", 600);
    watcher.wait_for_status("the watcher knows of it", |s| s["requests"]["pending"] == 1);
    for (n, bad) in ["approve: [\n...\n", "approve: true\nby: w1\n...\n"].iter().enumerate() {
        decide_by_hand(&bed, "p1", bad);
        eventually_true(PATIENCE, "it is put aside", || {
            bed.records("request.rejected_file").len() == n + 1
        });
    }
    decide_by_hand(&bed, "p1", "approve: true\nby: lead\nfeedback: by hand\n");
    assert_eq!(closed(&spool, "p1"), "approved");
    assert_eq!(types(&spool, "w1"), ["plan_approval_response", "request.rejected"]);
    assert!(!bed.in_queue("gates").exists());
}

#[test]
fn after_a_kill_between_decision_and_response_the_next_watcher_sends_the_response() {
    let (bed, spool) = bed();
    for n in 0..5 {
        let id = format!("p{n}");
        let watcher = Watcher::start(&bed);
        ask(&spool, &id, 600);
        watcher.wait_for_status("the watcher knows of it", |s| s["requests"]["pending"] == 1);
        decide_by_hand(&bed, &id, "approve: false\nby: lead\n");
        // Most often it has read the decision but not sent the response yet.
        watcher.kill();
        let watcher = Watcher::start(&bed);
        assert_eq!(closed(&spool, &id), "rejected");
        watcher.stop();
        assert_eq!(types(&spool, "w1"), ["plan_approval_response"], "once");
    }
}

#[test]
fn a_handmade_request_is_announced_and_an_unreadable_one_is_rejected() {
    let (bed, spool) = bed();
    let _watcher = Watcher::start(&bed);
    let land = |id: &str, text: &str| {
        let staged = bed.outside().join(id);
        std::fs::create_dir(&staged).unwrap();
        std::fs::write(staged.join("request.yaml"), text).unwrap();
        std::fs::rename(staged, bed.in_queue("requests").join(id)).unwrap();
    };
    let head = "kind: tea\nfrom: w1\nto: lead\ncreated_at: \"2100-01-01T00:00:00Z\"\ndeadline_seconds: 60\n";
    land("good", &format!("request_id: good\n{head}content: green?\n"));
    land("bad", &format!("request_id: other\n{head}"));
    eventually_true(PATIENCE, "it is announced", || {
        types(&spool, "lead").contains(&"tea_request".to_owned())
    });
    eventually_true(PATIENCE, "it is put aside", || !bed.in_queue("requests/bad").exists());
    let kept = support::files(&bed.in_queue("rejected"));
    assert!(kept.iter().any(|p| p.join("request.yaml").exists()), "{kept:?}");
}

#[test]
fn a_decided_shutdown_is_handed_over_at_each_start_until_it_is_closed() {
    let (bed, spool) = bed();
    let requests = Requests::new(&spool);
    requests
        .ask(NewRequest::new("shutdown", name("lead"), name("w1"), "enough").with_id("s1"))
        .unwrap();
    let handed_over = |times: usize| {
        eventually_true(PATIENCE, "it is handed over", || {
            bed.records("request.handed_over").len() >= times
        });
        assert_eq!(bed.records("request.handed_over").len(), times);
    };
    // Another process holds the lock: the watcher's work stays undone.
    let locks = bed.state().join("locks");
    std::fs::create_dir_all(&locks).unwrap();
    let lock = FileLock::acquire(&locks.join("departure-w1.lock"), PATIENCE).unwrap();
    // It does not wait for room for the answer.
    let full = Settings::default().with_capacity(1);
    spool.configure_mailbox(&name("lead"), &full).unwrap();
    spool.publish(&Envelope::new(name("lead"), "unread")).unwrap();
    let watcher = Watcher::start(&bed);
    assert!(requests.respond("s1", &name("w1"), true, "").unwrap().untold.is_some());
    handed_over(1);
    watcher.kill();
    let watcher = Watcher::start(&bed);
    handed_over(2);
    assert!(!requests.get("s1").unwrap().is_closed);
    drop(lock);
    spool.configure_mailbox(&name("lead"), &Settings::default()).unwrap();
    assert_eq!(closed(&spool, "s1"), "approved");
    watcher.wait_for_status("it is forgotten", |s| s["requests"]["decided"] == 0);
    watcher.stop();
    let times = bed.records("request.handed_over").len();
    // Each start scans before it says that it watches.
    let watcher = Watcher::start(&bed);
    ask(&spool, "later", 0);
    closed(&spool, "later");
    watcher.stop();
    assert_eq!(bed.records("request.handed_over").len(), times);
}

#[test]
fn a_worker_that_waits_for_a_review_keeps_its_task_and_is_not_nudged_for_gated_ones() {
    let (bed, spool) = bed();
    let worker = name("w1");
    let task = || Envelope::new(worker.clone(), "work\n").with_task("task-1");
    spool.publish(&task()).unwrap();
    spool.receive(&worker, &worker).unwrap().unwrap();
    ask(&spool, "p1", 600);
    spool.publish(&task()).unwrap();
    bind(&bed, &worker);
    let watcher = Watcher::start(&bed);
    eventually_true(PATIENCE, "the lease is extended", || {
        spool.observe(&worker).unwrap()[0].sequence > 0
    });
    let waiting = |n: u64| {
        watcher.wait_for_status("mail is counted", |s| s["agents"][0]["waiting"] == n);
    };
    waiting(0);
    spool.publish(&Envelope::new(worker.clone(), "other")).unwrap();
    waiting(1);
    Requests::new(&spool).respond("p1", &name("lead"), true, "").unwrap();
    // The response, the other message, and the task.
    waiting(3);
}

/// Says that an agent runs in a pane of a server that does not run.
fn bind(bed: &Bed, agent: &Name) {
    let binding = serde_json::json!({
        "socket": bed.outside().join("no-server"), "id": "%0", "token": "none", "pid": 1, "started": 1,
    });
    let binding: Binding = serde_json::from_value(binding).unwrap();
    let directory = bed.state().join("panes");
    std::fs::create_dir_all(&directory).unwrap();
    let entry = PaneEntry::new(agent.clone(), agent.clone(), "shell", binding);
    panes::write(&directory, &entry).unwrap();
}
