//! A recorded log with everything that becomes a span, and what must be exported of it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// 2026-01-15T09:30:00Z in milliseconds since 1970.
pub(super) const BEGIN_MS: u64 = 1_768_469_400_000;
/// The trace of the first message's sender.
pub(super) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A record: its time in milliseconds since the beginning, type, actor and data.
type Line = (u64, &'static str, &'static str, Value);

/// The records of the session.
///
/// `m1` is a task that needs a nudge, a rung of the ladder and two deliveries. `m2` prompts its step. The settle of
/// `m3` is before its publish. `m4` is dead and is redriven. `m5` waits.
fn records() -> Vec<Line> {
    let task = json!({ "task_id": "T1", "worker_id": "w1", "attempt": 1 });
    let with = |more: Value| {
        let mut data = task.clone();
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        data
    };
    let of = |id: &str, epoch: u64| json!({ "id": id, "mailbox": "w1", "epoch": epoch });
    let stored = |id: &str| json!({ "id": id, "mailbox": "w1", "type": "message", "bytes": 5 });
    let first = json!({
        "id": "m1", "mailbox": "w1", "type": "task", "bytes": 5, "task_id": "T1", "correlation_id": "r1",
        "source": "tasks/T1-task.yaml", "traceparent": format!("00-{TRACE}-b7ad6b7169203331-01"),
    });
    let step = |more: Value| {
        let mut data = json!({ "task_id": "T1", "step_index": 0, "attempt": 1, "epoch": 1 });
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        data
    };
    let nudge = json!({ "agent": "w1", "mailbox": "w1", "pane": "%1", "attempt": 1 });
    let sent = json!({ "mailbox": "w1", "ids": ["m1"], "evidence": "pane" });
    let is_lost = json!({
        "id": "m1", "mailbox": "w1", "epoch": 1, "why": "lease expired", "delay_ms": 0,
    });
    let dead = json!({ "id": "m4", "mailbox": "w1", "epoch": 1, "reason": "malformed: x" });
    let done = with(json!({ "status": "success", "by": "settle", "id": "m1" }));
    let taken = with(json!({ "phase": 1, "id": "m1" }));
    vec![
        (0, "session_start", "lead", json!({})),
        (0, "message.stored", "lead", first),
        (1, "ladder.begun", "dispatch", with(json!({ "id": "m1", "mailbox": "w1" }))),
        (2, "worker_assign", "dispatch", with(json!({ "id": "m1", "mailbox": "w1" }))),
        (100, "receipt.notified", "watcher", sent.clone()),
        (110, "nudge.sent", "watcher", nudge),
        (111, "receipt.submitted", "watcher", sent),
        (60_000, "ladder.phase", "dispatch", with(json!({ "phase": 1 }))),
        (70_000, "message.acked", "w1", of("m1", 1)),
        (70_001, "task_start", "dispatch", taken),
        (80_000, "message.extended", "w1", of("m1", 1)),
        (400_000, "message.released", "watcher", is_lost),
        (400_100, "message.acked", "w1", of("m1", 2)),
        (410_000, "message.stored", "dispatch", stored("m2")),
        (410_001, "step.taken", "w1", step(json!({}))),
        (410_002, "step.prompted", "dispatch", step(json!({ "id": "m2", "mailbox": "w1" }))),
        (411_000, "message.acked", "w1", of("m2", 1)),
        (412_000, "message.settled", "w1", of("m2", 1)),
        (420_000, "step.completed", "w1", step(json!({ "next_attempt": 2, "paused": false }))),
        (430_000, "message.settled", "w1", of("m1", 2)),
        (430_001, "task_complete", "w1", done),
        (440_000, "message.acked", "w1", of("m3", 1)),
        (440_010, "message.settled", "w1", of("m3", 1)),
        (440_011, "message.stored", "lead", stored("m3")),
        (450_000, "message.stored", "lead", stored("m4")),
        (450_010, "message.acked", "w1", of("m4", 1)),
        (450_020, "message.dead", "w1", dead),
        (460_000, "message.redriven", "lead", of("m4", 1)),
        (460_010, "message.acked", "w1", of("m4", 2)),
        (460_020, "message.settled", "w1", of("m4", 2)),
        (470_000, "message.stored", "lead", stored("m5")),
    ]
}

pub(super) fn write(logs: &Path) {
    let session = "session-20260115-093000";
    let lines = records().into_iter().enumerate().map(|(index, (at, kind, actor, data))| {
        let minutes = 30 + at / 60_000;
        let (seconds, millis) = (at / 1000 % 60, at % 1000);
        json!({
            "timestamp": format!("2026-01-15T09:{minutes}:{seconds:02}.{millis:03}Z"),
            "session_id": session, "seq": index + 1, "type": kind, "actor": actor, "data": data,
        })
        .to_string()
    });
    let lines: Vec<String> = lines.collect();
    fs::write(logs.join(format!("{session}.ndjson")), lines.join("\n") + "\n").unwrap();
}

/// `[parent] name message kind from..to outcome code why: events`, in the order of ends.
pub(super) const SPANS: [&str; 13] = [
    "[] publish w1 m2 4 410000..412000 settled 1 : message.acked message.settled",
    "[publish w1 m2] process w1 m2 5 411000..412000 settled 1 : ",
    "[publish w1 m2] step w1  1 410001..420000 completed 1 : step.prompted",
    "[b7ad6b7169203331] publish w1 m1 4 0..430000 settled 1 : receipt.notified nudge.sent \
        receipt.submitted message.acked message.released message.acked message.settled",
    "[publish w1 m1] process w1 m1 5 70000..400000 released 0 : message.extended",
    "[publish w1 m1] process w1 m1 5 400100..430000 settled 1 : ",
    "[publish w1 m1] attempt w1 m1 1 1..430001 completed 1 : ladder.begun worker_assign ladder.phase \
        task_start task_complete",
    "[] publish w1 m3 4 440000..440010 settled 1 : message.acked message.settled",
    "[publish w1 m3] process w1 m3 5 440000..440010 settled 1 : ",
    "[] publish w1 m4 4 450000..450020 dead 2 malformed: x: message.acked message.dead",
    "[publish w1 m4] process w1 m4 5 450010..450020 dead 2 malformed: x: ",
    "[publish w1 m4] redrive w1 m4 4 460000..460020 settled 1 : message.redriven message.acked \
        message.settled",
    "[redrive w1 m4] process w1 m4 5 460010..460020 settled 1 : ",
];

/// Lines that the metrics of this log have.
pub(super) const METRICS: [&str; 14] = [
    "ensemble_messages_stored_total{mailbox=\"w1\"} 5",
    "ensemble_messages_acked_total{mailbox=\"w1\"} 6",
    "ensemble_messages_settled_total{mailbox=\"w1\"} 4",
    "ensemble_messages_released_total{mailbox=\"w1\"} 1",
    "ensemble_messages_dead_total{mailbox=\"w1\"} 1",
    "ensemble_tasks_completed_total{worker_id=\"w1\"} 1",
    "ensemble_nudges_total{agent=\"w1\",result=\"sent\"} 1",
    "ensemble_message_ack_seconds_bucket{mailbox=\"w1\",le=\"0.1\"} 1",
    "ensemble_message_ack_seconds_bucket{mailbox=\"w1\",le=\"1\"} 2",
    "ensemble_message_ack_seconds_bucket{mailbox=\"w1\",le=\"+Inf\"} 3",
    "ensemble_message_ack_seconds_sum{mailbox=\"w1\"} 71.01",
    "ensemble_message_settle_seconds_count{mailbox=\"w1\"} 3",
    "ensemble_watcher_up 0",
    "ensemble_mailbox_messages{mailbox=\"w1\",state=\"dead\"} 0",
];
