//! Alarms of the blackboard with a real watcher: each occurrence is reported once, across kills.

mod support;
#[path = "support/watcher.rs"]
mod watcher;

use ensemble_core::durable::Durability;
use ensemble_core::message::Timestamp;
use ensemble_core::spool::Settings;
use ensemble_team::board::{Board, BoardOptions, Control, ControlFile, LockedBoard, NewTask};
use serde_json::Value;
use support::{Bed, PATIENCE, eventually_true, name};
use watcher::Watcher;

const CONFIG: &str = "alarms: {orphan_seconds: 1, draft_seconds: 1}\npoll_interval_seconds: 1";

fn bed() -> (Bed, Board) {
    let bed = Bed::with(&Settings::default(), CONFIG);
    let options = BoardOptions::new("test").with_durability(Durability::Process);
    let board = Board::create(bed.state().parent().unwrap(), options).unwrap();
    for id in ["task-1", "task-2"] {
        let task = NewTask::new(name(id), "work", "s.md", "done");
        change(&board, |locked| locked.add_task(&task));
    }
    (bed, board)
}

fn change<T>(
    board: &Board,
    change: impl FnOnce(&mut LockedBoard<'_>) -> ensemble_core::Result<T>,
) -> T {
    let mut locked = board.lock().unwrap();
    let result = change(&mut locked).unwrap();
    locked.commit().unwrap();
    result
}

fn block(board: &Board, id: &str, reason: &str) {
    change(board, |locked| locked.block(&name(id), None, reason, &["why?".to_owned()]));
}

/// The records: alarm, and its subject.
fn raised(bed: &Bed) -> Vec<String> {
    let text = |data: &Value| {
        format!("{} {}", data["alarm"].as_str().unwrap(), data["about"].as_str().unwrap())
    };
    bed.records("alarm.raised").iter().map(text).collect()
}

#[track_caller]
fn wait_for(bed: &Bed, expected: &[&str]) {
    eventually_true(PATIENCE, &format!("{expected:?}"), || raised(bed).len() >= expected.len());
    assert_eq!(raised(bed), expected);
}

/// Renames a board into place, so that no reader sees half of one.
fn put(bed: &Bed, board: &Board, text: &str) {
    std::fs::rename(bed.stage(text), board.path()).unwrap();
}

/// The bodies of the alarms in a mailbox; those of one millisecond in any order.
fn told(bed: &Bed, mailbox: &str) -> Vec<String> {
    let (spool, mailbox) = (bed.spool(), name(mailbox));
    let messages = std::iter::from_fn(|| spool.receive(&mailbox, &mailbox).unwrap());
    messages
        .map(|delivery| {
            assert_eq!(delivery.envelope.kind.as_str(), "board.alarm");
            delivery.envelope.body
        })
        .collect()
}

#[test]
fn each_occurrence_is_reported_once_across_restarts() {
    let (bed, board) = bed();
    let watcher = Watcher::start(&bed);
    block(&board, "task-1", "no answer since 2026-01-17T14:57:30Z: ask");
    wait_for(&bed, &["blocked task-1"]);
    for n in 0..5 {
        let task = NewTask::new(name(&format!("more-{n}")), "work", "s.md", "done");
        change(&board, |locked| locked.add_task(&task));
    }
    block(&board, "task-2", "again");
    wait_for(&bed, &["blocked task-1", "blocked task-2"]);
    // An alarm that is raised but not saved is recorded again; another test covers this.
    let kept = || std::fs::read_to_string(bed.state().join("alarms.json")).unwrap_or_default();
    eventually_true(PATIENCE, "both are kept", || kept().contains("task-2"));
    watcher.kill();
    let watcher = Watcher::start(&bed);
    // A second time is another occurrence.
    change(&board, |locked| locked.unblock(&name("task-1")));
    block(&board, "task-1", "again");
    wait_for(&bed, &["blocked task-1", "blocked task-2", "blocked task-1"]);
    let bodies = told(&bed, "conductor");
    assert_eq!(bodies.len(), 3, "{bodies:?}");
    let asks = |body: &String| body.contains("no answer since 2026-01-17T14:57:30Z: ask");
    assert_eq!(bodies.iter().filter(|body| asks(body)).count(), 1, "{bodies:?}");
    // A raised alarm is cleared when its condition ends, and kept otherwise.
    change(&board, |locked| locked.unblock(&name("task-2")));
    watcher.wait_for_status("one is left", |status| status["alarms"]["raised"] == 1);
    watcher.stop();
}

#[test]
fn a_watcher_killed_before_saving_its_alarms_stores_no_second_message() {
    let (bed, board) = bed();
    let watcher = Watcher::start(&bed);
    block(&board, "task-1", "stuck");
    wait_for(&bed, &["blocked task-1"]);
    let file = bed.state().join("alarms.json");
    eventually_true(PATIENCE, "it is kept", || file.exists());
    watcher.kill();
    std::fs::remove_file(&file).unwrap();
    let watcher = Watcher::start(&bed);
    wait_for(&bed, &["blocked task-1", "blocked task-1"]);
    let ids: Vec<_> = bed.records("alarm.raised").iter().map(|r| r["id"].clone()).collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(told(&bed, "conductor").len(), 1);
    watcher.stop();
}

#[test]
fn an_unreadable_board_raises_an_alarm_and_clears_none() {
    let (bed, board) = bed();
    let watcher = Watcher::start(&bed);
    block(&board, "task-1", "stuck");
    wait_for(&bed, &["blocked task-1"]);
    let good = std::fs::read_to_string(board.path()).unwrap();
    put(&bed, &board, &good.replace("status: BLOCKED", "status: STUCK"));
    wait_for(&bed, &["blocked task-1", "invalid_state board"]);
    put(&bed, &board, &good);
    watcher.wait_for_status("it is over", |status| status["alarms"]["raised"] == 1);
    assert_eq!(raised(&bed).len(), 2, "the blocked task was not told of again");
    let bodies = told(&bed, "conductor");
    let stuck = |body: &String| body.contains("tasks[0].status: is `STUCK`");
    assert!(bodies.len() == 2 && bodies.iter().any(stuck), "{bodies:?}");
    watcher.stop();
}

#[test]
fn a_lasting_condition_raises_its_alarm_after_its_grace_without_an_event() {
    let (bed, board) = bed();
    bed.spool().add_mailbox(&name("planner-1"), &Settings::default()).unwrap();
    let planner = ensemble_team::board::NewAgent::new(name("planner-1"), "planner");
    change(&board, |locked| locked.register(&planner));
    let watcher = Watcher::start(&bed);
    change(&board, |locked| locked.add_task(&NewTask::draft(name("later"))));
    wait_for(&bed, &["stale_draft later"]);
    let old: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Control::put(board.path().parent().unwrap(), ControlFile::Pause, old, "lunch").unwrap();
    wait_for(&bed, &["stale_draft later", "pause_stale PAUSE"]);
    assert_eq!(told(&bed, "planner-1").len(), 2, "the planner is notified");
    assert_eq!(told(&bed, "conductor").len(), 0);
    watcher.stop();
}
