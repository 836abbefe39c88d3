//! The content of a story, and that it stays small and harmless for any log.

use ensemble_core::event_log::Record;
use serde_json::{Value, json};

use super::trouble::TroubleWeight;
use super::{SessionStory, page};

fn record(second: u64, kind: &str, actor: &str, data: Value) -> Record {
    let (hour, minute, second) = (10 + second / 3_600, second / 60 % 60, second % 60);
    let stamp = format!("2026-11-21T{hour:02}:{minute:02}:{second:02}.000Z");
    let line = json!({
        "timestamp": stamp, "session_id": "session-20261121-100000", "seq": 1, "type": kind,
        "actor": actor, "data": data,
    });
    Record::parse(line.to_string().as_bytes()).unwrap()
}

fn story(records: &[Record]) -> SessionStory {
    story_of(None, records)
}

fn story_of(session: Option<&str>, records: &[Record]) -> SessionStory {
    let mut story = SessionStory::of(session.map(str::to_owned));
    records.iter().for_each(|record| story.apply_record(record));
    story.finish_all();
    story
}

fn told(records: &[Record]) -> String {
    page(&story(records), None, None)
}

fn troubles(records: &[Record], weight: TroubleWeight) -> Vec<String> {
    let story = story(records);
    let all = story.troubles.iter().filter(|trouble| trouble.weight == weight);
    all.map(|trouble| format!("{} {}", trouble.who, trouble.what)).collect()
}

fn stored(second: u64, id: &str, mailbox: &str, kind: &str, task: &str) -> Record {
    let data = json!({ "id": id, "mailbox": mailbox, "type": kind, "task_id": task });
    record(second, "message.stored", "dispatch", data)
}

fn moved(second: u64, kind: &str, id: &str, mailbox: &str) -> Record {
    record(second, kind, mailbox, json!({ "id": id, "mailbox": mailbox, "epoch": 1 }))
}

fn watched(second: u64, kind: &str, data: Value) -> Record {
    record(second, kind, "watcher", data)
}

fn state(second: u64, agent: &str, to: &str, why: &str) -> Record {
    watched(second, "agent.state", json!({ "agent": agent, "to": to, "why": why }))
}

fn asked(second: u64, id: &str, kind: &str, from: &str, to: &str) -> Record {
    let data = json!({ "request_id": id, "kind": kind, "from": from, "to": to, "task_id": "t3" });
    record(second, "request.opened", from, data)
}

/// An hour with eight agents and seven troubles.
fn hour() -> Vec<Record> {
    let minute = |minute: u64| minute * 60;
    let gone =
        json!({ "agent": "coder-4", "why": "gone", "messages": [{ "id": "m4" }], "others": [] });
    let stalled = json!({ "alarm": "stalled", "about": "t5", "text": "task t5 has stalled" });
    let escalated = json!({ "worker_id": "worker-6", "task_id": "t6", "reason": "no ack", "phase": 3, "detail": "it shows a shell" });
    let dead = json!({ "id": "m8", "mailbox": "worker-8", "reason": "after 5 attempts" });
    let mut all = vec![
        state(1, "conductor", "idle", "ready"),
        state(1, "dispatch", "idle", "ready"),
        state(minute(2), "worker-7", "blocked", "permission prompt"),
        state(minute(51), "worker-7", "working", "busy"),
        state(minute(3), "worker-2", "limited", "resets 3pm"),
        state(minute(57), "worker-2", "working", "busy"),
        asked(minute(20), "ab12", "plan", "worker-3", "conductor"),
        stored(minute(5), "m4", "coder-4", "task", "t4"),
        moved(minute(6), "message.acked", "m4", "coder-4"),
        state(minute(6), "coder-4", "working", "busy"),
        state(minute(30), "coder-4", "gone", "its process has ended"),
        watched(minute(30) + 1, "lease.holder_gone", gone),
        watched(minute(40), "alarm.raised", stalled),
        stored(minute(10), "m6", "worker-6", "task", "t6"),
        watched(minute(14), "escalation", escalated),
        stored(minute(11), "m8", "worker-8", "task", "t8"),
        watched(minute(45), "message.dead", dead),
        state(minute(60), "worker-1", "working", "busy"),
    ];
    all.sort_by_key(|record| record.timestamp);
    all
}

#[test]
fn an_hour_with_seven_troubles_names_seven() {
    let mut found = troubles(&hour(), TroubleWeight::Bad);
    found.sort();
    let expected = [
        " alarm: task t5 has stalled",
        "coder-4 was gone for 30 min",
        "worker-2 was at its usage limit for 54 min",
        "worker-3 has waited 40 min for conductor to decide on the plan of t3",
        "worker-6 did not take t6",
        "worker-7 waited for a person for 49 min",
        "worker-8 has a dead letter: t8",
    ];
    assert_eq!(found, expected);
    // What follows from one is shown with it.
    assert_eq!(troubles(&hour(), TroubleWeight::Odd), [""; 0]);
    let html = told(&hour());
    assert!(html.contains("7 things went wrong<"), "{html}");
    assert!(html.contains("left work behind: 1 message"), "told with the coder");
    assert!(html.contains("no ack after phase 3: it shows a shell"));
}

#[test]
fn an_ordinary_life_of_a_team_is_calm() {
    let expired = json!({ "request_id": "s1", "kind": "shutdown", "outcome": "expired" });
    let dead = json!({ "id": "s1.request", "mailbox": "worker-1", "reason": "expired" });
    let records = [
        state(1, "worker-1", "idle", "ready"),
        stored(2, "m1", "worker-1", "task", "t1"),
        moved(3, "message.acked", "m1", "worker-1"),
        state(3, "worker-1", "working", "busy"),
        state(5, "worker-1", "blocked", "a dialog"),
        state(20, "worker-1", "working", "a person has answered it"),
        moved(60, "message.settled", "m1", "worker-1"),
        asked(70, "s1", "shutdown", "operator", "worker-1"),
        stored(70, "s1.request", "worker-1", "shutdown_request", ""),
        watched(190, "request.expired", expired),
        watched(191, "message.dead", dead),
        state(192, "worker-1", "gone", "its process has ended"),
        state(193, "worker-1", "shutdown", "it did not answer"),
        watched(200, "session_end", json!({})),
    ];
    let html = told(&records);
    assert!(html.contains("nothing went wrong"), "{html}");
}

#[test]
fn a_task_is_one_row_however_it_comes() {
    let board = |second, what: &str, status: &str, agent: &str| {
        let steps = json!([{ "what": what, "task": "t2", "status": status, "agent": agent }]);
        record(second, "board.written", agent, json!({ "steps": steps }))
    };
    let step = |second, kind: &str| {
        record(second, kind, "worker-1", json!({ "task_id": "t3", "step_index": 1, "epoch": 1 }))
    };
    let records = [
        stored(0, "m1", "worker-1", "task", "t1"),
        moved(10, "message.acked", "m1", "worker-1"),
        moved(20, "message.released", "m1", "worker-1"),
        moved(30, "message.acked", "m1", "worker-1"),
        moved(40, "message.settled", "m1", "worker-1"),
        board(0, "task.created", "UNCLAIMED", "planner"),
        board(10, "task.claimed", "CLAIMED", "coder-1"),
        board(20, "task.submitted", "READY_FOR_REVIEW", "coder-1"),
        board(25, "task.review_claimed", "READY_FOR_REVIEW", "reviewer-1"),
        board(30, "task.rejected", "REJECTED", "reviewer-1"),
        board(50, "task.merged", "MERGED", "reviewer-1"),
        step(5, "step.taken"),
        step(15, "step.completed"),
        step(16, "steps.done"),
    ];
    let story = story(&records);
    let stages = |task: &str| -> Vec<String> {
        let spans = story.work.tracks[task].spans.iter();
        let times = spans.map(|span| (span, span.to.since(span.from).as_secs()));
        times.map(|(span, time)| format!("{:?} {} {time}", span.stage, span.who)).collect()
    };
    let mail = ["Queued worker-1 10", "Held worker-1 10", "Queued worker-1 10", "Held worker-1 10"];
    assert_eq!(stages("t1"), mail);
    let board =
        ["Queued  10", "Held coder-1 10", "Review  5", "Review reviewer-1 5", "Held coder-1 20"];
    assert_eq!(stages("t2"), board);
    assert_eq!(stages("t3"), ["Held worker-1 10", "Queued  1"]);
    let found: Vec<&str> = story.troubles.iter().map(|trouble| trouble.what.as_str()).collect();
    assert_eq!(found, ["rejected t2"]);
    let holds = story.agents["coder-1"].holds.iter();
    let labels: Vec<&str> = holds.map(|hold| hold.label.as_str()).collect();
    assert_eq!(labels, ["t2", "t2"], "an agent's lane shows the tasks of the board as well");
}

#[test]
fn requests_are_arrows_and_waits() {
    let decided = json!({ "request_id": "ab12", "kind": "plan", "outcome": "approved" });
    let html = told(&[
        state(0, "worker-3", "working", "busy"),
        state(0, "lead", "idle", ""),
        asked(10, "ab12", "plan", "worker-3", "lead"),
        record(130, "request.decided", "lead", decided),
        state(200, "lead", "idle", ""),
    ]);
    assert!(html.contains("class=\"arrow up\""), "{html}");
    assert!(html.contains("worker-3 asked lead: plan of t3, approved after 2 min"), "{html}");
    assert!(html.contains("nothing went wrong"));
}

#[test]
fn names_and_reasons_are_text_whatever_they_contain() {
    let evil = "</script><script>alert(1)</script>\"'&\u{202e}";
    let records = [
        stored(0, "m1", "w1", "task", evil),
        record(5, "message.dead", "w1", json!({ "id": "m1", "mailbox": "w1", "reason": evil })),
        state(6, evil, "blocked", evil),
        state(90, evil, "idle", evil),
        asked(90, "r1", evil, evil, "w1"),
    ];
    let html = told(&records);
    assert_eq!(html.matches("<script").count(), 2, "the page's own");
    // Names may turn the writing around only in the data, which the page shows as text.
    let before_the_data = &html[..html.find("id=\"stories\"").unwrap()];
    assert!(!before_the_data.contains('\u{202e}'));
    assert!(!html.contains("alert(1)</script>\"'"));
}

#[test]
fn a_long_log_makes_a_page_of_bounded_size() {
    let mut story = SessionStory::of(None);
    for number in 0..25_000_u64 {
        let second = number / 10;
        let (id, worker) = (format!("m{number}"), format!("w{}", number % 80));
        story.apply_record(&stored(second, &id, &worker, "task", &format!("t{number}")));
        story.apply_record(&moved(second, "message.acked", &id, &worker));
        story.apply_record(&moved(second + 3, "message.settled", &id, &worker));
        if number % 10 == 0 {
            let to = if number % 20 == 0 { "working" } else { "idle" };
            story.apply_record(&state(second, &worker, to, ""));
            let dead = json!({ "id": format!("z{number}"), "mailbox": worker, "reason": "r" });
            story.apply_record(&record(second, "message.dead", "x", dead));
        }
    }
    story.finish_all();
    let html = page(&story, None, None);
    assert!(html.len() < 4 * 1024 * 1024, "{} bytes", html.len());
    assert!(html.contains("2500 things went wrong"), "also those that are not listed");
    assert!(html.contains("and 2,400 more"), "troubles are counted");
    assert!(html.contains(">25,000</dd>"), "tasks are counted");
}

#[test]
fn the_newest_session_is_told_unless_another_is_wanted() {
    let mut newer = stored(5, "m2", "worker-1", "task", "new");
    newer.session_id = "session-20261121-110000".to_owned();
    let records = [stored(0, "m1", "worker-1", "task", "old"), newer];
    let html = told(&records);
    assert!(html.contains("t:new") && !html.contains("t:old"), "{html}");
    let story = story_of(Some("20261121-100000"), &records);
    assert!(page(&story, None, None).contains("t:old"));
    assert!(!story.is_newest());
}

#[test]
fn an_empty_story_is_a_page_too() {
    let story = SessionStory::of(None);
    assert!(story.is_empty());
    assert!(page(&story, None, None).contains("not measured"));
}
