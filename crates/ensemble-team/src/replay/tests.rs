//! Tests on handwritten logs.

use serde_json::json;

use super::*;

/// A record, read as a reader of the log reads it.
fn record(session: &str, seq: u64, kind: &str, actor: &str, data: &Value) -> Record {
    let timestamp = Timestamp::from_unix_millis(1_000);
    let record = json!({ "timestamp": timestamp, "session_id": session, "seq": seq, "type": kind,
        "actor": actor, "data": data });
    serde_json::from_value(record).unwrap()
}

fn log(records: &[(&str, &str, Value)]) -> Replay {
    let told = records.iter().enumerate().map(|(index, (kind, actor, data))| {
        record("session-20260115-093000", index as u64 + 1, kind, actor, data)
    });
    Replay::from_records(told)
}

fn stored() -> (&'static str, &'static str, Value) {
    ("message.stored", "l", json!({ "id": "m", "mailbox": "box" }))
}

fn message(kind: &str, epoch: u64) -> (&str, &str, Value) {
    (kind, "w", json!({ "id": "m", "mailbox": "box", "epoch": epoch }))
}

fn on_disk(places: &[MessagePlace]) -> DiskState {
    let files = places.iter().map(|place| DiskMessage {
        place: place.clone(),
        path: "queue/mailbox/box/m".to_owned(),
        extended: None,
    });
    let mut mailbox = DiskMailbox { done_days: 7, ..DiskMailbox::default() };
    mailbox.messages.insert("m".to_owned(), files.collect());
    let mut disk = DiskState::default();
    disk.mailboxes.insert("box".to_owned(), mailbox);
    disk
}

fn held(holder: &str, epoch: u64) -> MessagePlace {
    MessagePlace::Held { holder: holder.to_owned(), epoch }
}

const fn queued(epoch: u64) -> MessagePlace {
    MessagePlace::Queued { epoch }
}

fn verdict(records: &[(&str, &str, Value)], places: &[MessagePlace]) -> Option<DifferenceKind> {
    let found = log(records).compare(&on_disk(places), Timestamp::from_unix_millis(2_000));
    assert!(found.len() <= 1, "{found:?}");
    found.first().map(|difference| difference.kind)
}

#[test]
fn the_highest_epoch_decides_in_any_order_of_records() {
    let mut records = vec![
        stored(),
        message("message.acked", 1),
        message("message.released", 1),
        message("message.acked", 2),
    ];
    for _ in 0..records.len() {
        records.rotate_left(1);
        assert_eq!(verdict(&records, &[held("w", 2)]), None, "{records:?}");
    }
    records.push(message("message.dead", 2));
    assert_eq!(verdict(&records, &[MessagePlace::Dead]), None);
    records.push(message("message.redriven", 2));
    assert_eq!(verdict(&records, &[queued(2)]), None);
    records.push(message("message.acked", 3));
    records.push(message("message.settled", 3));
    assert_eq!(verdict(&records, &[MessagePlace::Settled]), None);
}

#[test]
fn only_states_reached_by_allowed_moves_are_unrecorded() {
    use DifferenceKind::{Contradiction, Unrecorded};
    let waits = [stored()];
    let is_held = [stored(), message("message.acked", 2)];
    let settled = [stored(), message("message.acked", 2), message("message.settled", 2)];
    let dead = [stored(), message("message.dead", 2)];
    let cases: [(&[_], &[MessagePlace], DifferenceKind); 17] = [
        (&waits, &[held("x", 1)], Unrecorded),
        (&waits, &[queued(1)], Unrecorded),
        (&waits, &[MessagePlace::Settled], Unrecorded),
        (&waits, &[], Contradiction),
        (&waits, &[queued(0), MessagePlace::Settled], Contradiction),
        (&is_held, &[queued(2)], Unrecorded),
        (&is_held, &[held("x", 3)], Unrecorded),
        (&is_held, &[held("x", 2)], Contradiction),
        (&is_held, &[held("w", 1)], Contradiction),
        (&is_held, &[queued(1)], Contradiction),
        (&is_held, &[], Contradiction),
        (&settled, &[queued(2)], Contradiction),
        (&settled, &[held("w", 3)], Contradiction),
        (&settled, &[], Contradiction),
        (&dead, &[queued(2)], Unrecorded),
        (&dead, &[], Unrecorded),
        (&dead, &[queued(1)], Contradiction),
    ];
    for (records, places, kind) in cases {
        assert_eq!(verdict(records, places), Some(kind), "{records:?} {places:?}");
    }
    // The message was swept after its retention time.
    let later = Timestamp::from_unix_millis(8 * 24 * 60 * 60 * 1_000);
    assert_eq!(log(&settled).compare(&on_disk(&[]), later), []);
}

#[test]
fn an_id_may_recur_after_its_message_was_dropped() {
    let dropped = ("message.dropped", "box", json!({ "id": "m", "mailbox": "box" }));
    let mut records = vec![stored(), message("message.dead", 1), dropped];
    assert_eq!(verdict(&records, &[]), None);
    records.push(stored());
    assert_eq!(verdict(&records, &[queued(0)]), None);
}

#[test]
fn an_incomplete_log_reports_its_gaps() {
    let record =
        |session: &str, seq: u64, kind: &str, data: Value| record(session, seq, kind, "a", &data);
    let gaps = |records: Vec<Record>| Replay::from_records(records).gaps;
    let start = || record("s", 1, "session_start", json!({}));
    let (s, next) = ("s".to_owned(), "session-20260115-093001.ndjson");
    assert_eq!(gaps(vec![start(), record("s", 2, "a.b", json!({}))]), []);
    let cut = gaps(vec![start(), record("s", 5, "a.b", json!({}))]);
    assert_eq!(cut, [LogGap::Numbers { session: s.clone(), from: 2, to: 4 }]);
    let headless = gaps(vec![record("s", 3, "a.b", json!({}))]);
    assert_eq!(headless, [LogGap::Numbers { session: s.clone(), from: 1, to: 2 }]);
    let twice = gaps(vec![start(), start()]);
    assert_eq!(twice, [LogGap::Again { session: s.clone(), seq: 1 }]);
    let rotated = gaps(vec![record("s", 1, "session_start", json!({ "after": "x" }))]);
    assert_eq!(rotated, [LogGap::Begin { session: s.clone(), after: "x".to_owned() }]);
    let open = gaps(vec![start(), record("s", 2, "log.continued", json!({ "next": next }))]);
    assert_eq!(open, [LogGap::End { next: Segment::parse(next).unwrap() }]);
    let anew = gaps(vec![start(), record("s", 2, "log.recreated", json!({}))]);
    assert_eq!(anew, [LogGap::Recreated { session: s }]);
}

fn board(revision: u64, steps: Value) -> (&'static str, &'static str, Value) {
    let count = steps.as_array().unwrap().len();
    let data = json!({ "revision": revision, "sha256": "aa", "steps": steps, "count": count });
    ("board.written", "p", data)
}

fn differences(replay: &Replay, disk: &DiskState) -> Vec<(&'static str, DifferenceKind)> {
    let found = replay.compare(disk, Timestamp::from_unix_millis(0));
    found.into_iter().map(|difference| (difference.about, difference.kind)).collect()
}

#[test]
fn tasks_and_registrations_are_compared_with_the_board() {
    use DifferenceKind::{Contradiction, Unrecorded};
    let (status, holder) = ("CLAIMED".to_owned(), Some("c".to_owned()));
    let mut now = DiskBoard { revision: 2, sha256: "aa".to_owned(), ..DiskBoard::default() };
    now.tasks.insert("t".to_owned(), DiskTask { status, holder, epoch: Some(2) });
    now.agents.insert("c".to_owned(), 1);
    let disk = DiskState { board: Some(now), ..DiskState::default() };
    let claimed = json!([{ "what": "task.claimed", "task": "t", "status": "CLAIMED", "agent": "c", "epoch": 2 }]);
    let registered = json!([{ "what": "agent.registered", "agent": "c", "epoch": 1 }]);
    let records = [board(1, registered), board(2, claimed)];
    let replay = log(&records);
    assert_eq!(differences(&replay, &disk), []);
    let broken = |change: fn(&mut DiskBoard)| {
        let mut disk = disk.clone();
        change(disk.board.as_mut().unwrap());
        differences(&replay, &disk)
    };
    let status = |b: &mut DiskBoard| b.tasks.get_mut("t").unwrap().status = "MERGED".to_owned();
    assert_eq!(broken(status), [("task", Contradiction)]);
    let epoch = |b: &mut DiskBoard| b.tasks.get_mut("t").unwrap().epoch = Some(3);
    assert_eq!(broken(epoch), [("task", Contradiction)]);
    assert_eq!(broken(|b| drop(b.tasks.remove("t"))), [("task", Contradiction)]);
    let agent = |b: &mut DiskBoard| *b.agents.get_mut("c").unwrap() = 9;
    assert_eq!(broken(agent), [("agent", Contradiction)]);
    assert_eq!(broken(|b| b.revision = 1)[..], [], "the digest is what counts");
    let text = |b: &mut DiskBoard| b.sha256 = "bb".to_owned();
    assert_eq!(broken(text), [("board", Unrecorded)]);
    let older = |b: &mut DiskBoard| (b.sha256, b.revision) = ("bb".to_owned(), 1);
    assert_eq!(broken(older), [("board", Contradiction)]);
    // A record without the full content makes the state unknown.
    let mut many = board(3, json!([]));
    many.2["count"] = json!(17);
    let replay = log(&[records[0].clone(), records[1].clone(), many]);
    assert_eq!(replay.counts()[2], ("tasks", 0));
}

#[test]
fn steps_and_requests_are_compared_with_the_disk() {
    use DifferenceKind::{Contradiction, Unrecorded};
    let step = |kind: &'static str, epoch: u64| {
        (kind, "w", json!({ "task_id": "t", "step_index": 0, "epoch": epoch }))
    };
    let records = [
        step("step.taken", 1),
        step("step.completed", 1),
        ("request.opened", "w", json!({ "request_id": "r" })),
        ("request.decided", "l", json!({ "request_id": "r", "outcome": "approved", "by": "l" })),
    ];
    let replay = log(&records);
    let verdicts = |status: &str, epoch: u64, state: &str, by: Option<&str>| {
        let mut disk = DiskState::default();
        let now = DiskStep { status: status.to_owned(), epoch };
        disk.steps = Some(BTreeMap::from([(("t".to_owned(), 0), now)]));
        let now = DiskRequest { state: state.to_owned(), by: by.map(str::to_owned) };
        disk.requests.insert("r".to_owned(), now);
        differences(&replay, &disk)
    };
    assert_eq!(verdicts("COMPLETED", 1, "approved", Some("l")), []);
    assert_eq!(verdicts("IN_PROGRESS", 2, "approved", Some("l")), [("step", Unrecorded)]);
    assert_eq!(verdicts("PENDING", 1, "approved", Some("l")), [("step", Contradiction)]);
    assert_eq!(verdicts("COMPLETED", 0, "approved", Some("l")), [("step", Contradiction)]);
    assert_eq!(verdicts("COMPLETED", 1, "rejected", Some("l")), [("request", Contradiction)]);
    assert_eq!(verdicts("COMPLETED", 1, "approved", Some("x")), [("request", Contradiction)]);
    assert_eq!(verdicts("COMPLETED", 1, "pending", None), [("request", Contradiction)]);
}
