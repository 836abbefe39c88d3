//! What a story tells, and that it stays small and harmless whatever the log says.

use ensemble_core::event_log::Record;
use serde_json::{Value, json};

use super::{Story, page};

fn record(millis: u64, kind: &str, actor: &str, data: Value) -> Record {
    let stamp = format!(
        "2026-11-21T10:{:02}:{:02}.{:03}Z",
        millis / 60_000 % 60,
        millis / 1_000 % 60,
        millis % 1_000
    );
    let line = json!({
        "timestamp": stamp, "session_id": "session-20261121-100000", "seq": 1, "type": kind,
        "actor": actor, "data": data,
    });
    Record::parse(line.to_string().as_bytes()).unwrap()
}

fn told(records: &[Record]) -> String {
    let mut story = Story::of(None);
    records.iter().for_each(|record| story.take(record));
    story.finish_all();
    page(&story)
}

fn message(at: u64, id: &str, mailbox: &str, task: &str) -> Vec<Record> {
    let place = json!({ "id": id, "mailbox": mailbox, "epoch": 1 });
    vec![
        record(
            at,
            "message.stored",
            "dispatch",
            json!({ "id": id, "mailbox": mailbox, "type": "task", "task_id": task }),
        ),
        record(
            at + 100,
            "receipt.submitted",
            "watcher",
            json!({ "mailbox": mailbox, "ids": [id] }),
        ),
        record(at + 400, "message.acked", mailbox, place.clone()),
        record(at + 2_400, "message.settled", mailbox, place),
    ]
}

#[test]
fn what_went_wrong_stands_first_and_the_worst_of_it_before_the_rest() {
    let mut records = message(0, "m1", "worker-1", "task-1");
    records.push(record(
        3_000,
        "nudge.unanswered",
        "watcher",
        json!({ "agent": "worker-2", "waiting": 1, "nudges": 4 }),
    ));
    records.push(record(
        4_000,
        "escalation",
        "dispatch",
        json!({ "worker_id": "worker-2", "task_id": "task-9", "reason": "unanswered", "phase": 3 }),
    ));
    let html = told(&records);
    let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(place("1 thing went wrong") < place("What went wrong"));
    assert!(place("task-9 was not taken") < place("did not react to nudges"));
    assert!(place("What went wrong") < place("Who did what when"));
    assert!(place("Who did what when") < place("How long it took"));
    assert!(html.contains("+4 s"), "{html}");
}

#[test]
fn latencies_and_totals_are_those_of_the_log() {
    let html = told(&message(0, "m1", "worker-1", "task-1"));
    assert!(html.contains("nothing went wrong"));
    for (chart, median) in
        [("Delivery", "100 ms"), ("Ack", "400 ms"), ("Waking", "300 ms"), ("Work", "2 s")]
    {
        let figure =
            html.split(&format!("<b>{chart}</b>")).nth(1).unwrap_or_else(|| panic!("{chart}"));
        let figure = figure.split("</figure>").next().unwrap();
        assert!(figure.contains(&format!("median <b>{median}</b>")), "{chart}: {figure}");
    }
    assert!(html.contains("<dt>median ack</dt><dd>400 ms</dd>"), "{html}");
    assert!(html.contains("<dt>median work</dt><dd>2 s</dd>"), "{html}");
    assert!(html.contains("<small>1 done · busy 83%</small>"), "{html}");
}

#[test]
fn nothing_in_a_log_becomes_markup_and_nothing_is_loaded() {
    let evil = "</style><script>alert(1)</script><img src=x onerror=y>\"'&";
    let mut records = message(0, "m1", "worker-1", evil);
    records.push(record(
        1,
        "message.stored",
        evil,
        json!({ "id": "m2", "mailbox": evil, "type": "task" }),
    ));
    records.push(record(2, "file.rejected", evil, json!({ "file": evil, "error": evil })));
    records.push(record(
        3,
        "nudge.deferred",
        evil,
        json!({ "agent": evil, "reason": evil, "detail": evil }),
    ));
    let html = told(&records);
    assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
    for outside in ["http://", "https://", "url(", "@import", "<link"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("&lt;script&gt;"));
}

#[test]
fn a_long_log_is_a_page_of_bounded_size() {
    let mut story = Story::of(None);
    for number in 0..4_000_u64 {
        // More agents than are told of, and more messages of one than are drawn.
        let worker = format!("worker-{}", if number < 100 { number } else { 1 });
        for record in message(number * 30, &format!("m{number}"), &worker, "task") {
            story.take(&record);
        }
        story.take(&record(
            number * 30,
            "message.dead",
            "x",
            json!({ "id": "z", "mailbox": worker, "reason": "r" }),
        ));
    }
    story.finish_all();
    let html = page(&story);
    assert!(html.len() < 4 * 1024 * 1024, "{} bytes", html.len());
    assert!(html.contains("4,000"), "all are counted");
    assert!(html.contains("3,800 more"), "troubles are counted");
    assert!(html.contains("4000 things went wrong"), "also those that are not listed");
}

#[test]
fn what_is_left_when_the_session_ends_is_named_and_the_newest_session_is_told() {
    let mut records = message(0, "m1", "worker-1", "old");
    let mut newer = vec![
        record(
            5_000,
            "message.stored",
            "dispatch",
            json!({ "id": "a", "mailbox": "worker-1", "type": "task", "task_id": "task-7" }),
        ),
        record(
            6_000,
            "message.stored",
            "dispatch",
            json!({ "id": "b", "mailbox": "worker-2", "type": "task", "task_id": "task-8" }),
        ),
        record(
            7_000,
            "message.acked",
            "worker-1",
            json!({ "id": "a", "mailbox": "worker-1", "epoch": 1 }),
        ),
        record(9_000, "session_end", "ensemble", json!({})),
    ];
    newer.iter_mut().for_each(|record| record.session_id = "session-20261121-110000".to_owned());
    records.extend(newer);
    let html = told(&records);
    assert!(html.contains("never finished: task-7 from dispatch"), "{html}");
    assert!(html.contains("never took: task-8 from dispatch"));
    assert!(!html.contains(": old from"), "another session");
    let mut story = Story::of(Some("20261121-100000".to_owned()));
    records.iter().for_each(|record| story.take(record));
    story.finish_all();
    assert!(page(&story).contains(": old from"));
}

#[test]
fn an_empty_story_is_a_page_too() {
    let story = Story::of(None);
    assert!(story.is_empty());
    assert!(page(&story).contains("not measured"));
}
