//! Alarms of the blackboard with a real watcher: each occurrence is reported once, across kills.

use ensemble_team::board::{LockedBoard, NewAnomaly, NewSprint, NewTask};
use ensemble_team::proto::goal::SprintState;

use crate::*;

const CONFIG: &str = "alarms: {orphan: 1, draft: 1, untaken: 3600}\npoll_interval: 1";

fn bed() -> (Bed, Board) {
    bed_with(CONFIG)
}

fn bed_with(config: &str) -> (Bed, Board) {
    let bed = Bed::with(&Settings::default(), config);
    let options = BoardOptions::new("test").with_durability(Durability::Process);
    let board = Board::create(bed.state().parent().unwrap(), options).unwrap();
    for id in ["task-1", "task-2"] {
        add_task(&board, id);
    }
    (bed, board)
}

fn add_task(board: &Board, id: &str) {
    let task = NewTask::new(name(id), "work", "s.md", "done");
    change(board, |locked| locked.add_task(&task));
}

fn register(board: &Board, id: &str, role: &str) {
    change(board, |locked| locked.register(&NewAgent::new(name(id), role)));
}

/// Since the first day of the year.
fn pause(board: &Board) {
    let old: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    ActiveControl::put(board.path().parent().unwrap(), ControlFile::Pause, old, "lunch").unwrap();
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
        add_task(&board, &format!("more-{n}"));
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
fn an_alarm_that_cannot_be_saved_is_saved_later_and_not_raised_again() {
    let (bed, board) = bed();
    let file = bed.state().join("alarms.json");
    // No file can replace a directory.
    std::fs::create_dir(&file).unwrap();
    let watcher = Watcher::start(&bed);
    block(&board, "task-1", "stuck");
    wait_for(&bed, &["blocked task-1"]);
    std::fs::remove_dir(&file).unwrap();
    eventually_true(PATIENCE, "it is saved", || file.is_file());
    watcher.kill();
    let watcher = Watcher::start(&bed);
    block(&board, "task-2", "stuck, too");
    wait_for(&bed, &["blocked task-1", "blocked task-2"]);
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
    register(&board, "planner-1", "planner");
    let watcher = Watcher::start(&bed);
    change(&board, |locked| locked.add_task(&NewTask::draft(name("later"))));
    wait_for(&bed, &["stale_draft later"]);
    pause(&board);
    wait_for(&bed, &["stale_draft later", "pause_stale PAUSE"]);
    assert_eq!(told(&bed, "planner-1").len(), 2, "the planner is notified");
    assert_eq!(told(&bed, "conductor").len(), 0);
    watcher.stop();
}

/// No matter what the alarm, an addressee without a mailbox does not swallow it.
#[test]
fn alarms_of_a_planner_without_a_mailbox_go_to_the_conductor() {
    for to in ["", "to: lead, "] {
        let config = CONFIG.replace("orphan", &format!("{to}orphan"));
        let config = config.replace("untaken: 3600", "untaken: 1");
        let (bed, board) = bed_with(&config);
        register(&board, "planner-1", "planner");
        block(&board, "task-1", "stuck");
        change(&board, |locked| locked.add_task(&NewTask::draft(name("later"))));
        pause(&board);
        let watcher = Watcher::start(&bed);
        let expected =
            ["blocked task-1", "pause_stale PAUSE", "stale_draft later", "untaken task-2"];
        eventually_true(PATIENCE, "all are raised", || raised(&bed).len() >= expected.len());
        let mut all = raised(&bed);
        all.sort_unstable();
        assert_eq!(all, expected, "{to}");
        assert!(bed.records("alarm.raised").iter().all(|data| data["told"] == "conductor"), "{to}");
        assert_eq!(told(&bed, "conductor").len(), expected.len(), "{to}");
        watcher.stop();
    }
}

#[test]
fn an_alarm_waits_for_the_mailbox_of_its_recipient() {
    let (bed, board) = bed();
    let conductor = bed.queue().join("mailbox/conductor");
    let away = bed.queue().join("conductor");
    std::fs::rename(&conductor, &away).unwrap();
    let watcher = Watcher::start(&bed);
    block(&board, "task-1", "stuck");
    wait_for(&bed, &["blocked task-1"]);
    assert_eq!(bed.records("alarm.raised")[0]["told"], Value::Null);
    watcher.wait_for_status("it waits", |status| status["alarms"]["untold"] == 1);
    let kept = || std::fs::read_to_string(bed.state().join("alarms.json")).unwrap_or_default();
    eventually_true(PATIENCE, "it is kept", || kept().contains("stuck"));
    watcher.kill();
    let watcher = Watcher::start(&bed);
    watcher.wait_for_status("it waits still", |status| status["alarms"]["untold"] == 1);
    std::fs::rename(&away, &conductor).unwrap();
    watcher.wait_for_status("it is told", |status| status["alarms"]["untold"] == 0);
    assert_eq!(told(&bed, "conductor").len(), 1);
    assert_eq!(raised(&bed).len(), 1, "it is raised once");
    watcher.stop();
}

#[test]
fn an_alarm_says_what_helps_and_ends_with_its_cause() {
    let (bed, board) = bed();
    let watcher = Watcher::start(&bed);
    block(&board, "task-1", "stuck");
    wait_for(&bed, &["blocked task-1"]);
    let delivery = bed.spool().receive(&name("conductor"), &name("conductor")).unwrap().unwrap();
    assert_eq!(delivery.envelope.from.as_str(), "watcher");
    let body = &delivery.envelope.body;
    assert!(body.contains("`ensemble task unblock task-1`"), "{body}");
    assert_eq!(board.read().unwrap().anomalies[0].kind, "task_blocked");
    change(&board, |locked| locked.unblock(&name("task-1")));
    watcher.wait_for_status("it has ended", |status| status["alarms"]["raised"] == 0);
    watcher.stop();
}

#[test]
fn work_that_no_registered_agent_can_take_is_told() {
    let config = CONFIG.replace("untaken: 3600", "untaken: 1");
    let (bed, board) = bed_with(&config);
    let watcher = Watcher::start(&bed);
    wait_for(&bed, &["untaken task-1"]);
    let told = told(&bed, "conductor");
    assert!(told[0].contains("task-2 needs a coder"), "{told:?}");
    register(&board, "coder-1", "coder");
    watcher.wait_for_status("it has ended", |status| status["alarms"]["raised"] == 0);
    watcher.stop();
}

#[test]
fn the_sprint_follows_control_files_of_any_program() {
    let (bed, board) = bed();
    let sprint =
        NewSprint { id: name("s-1"), planned: Vec::new(), stretch: Vec::new(), deadline: None };
    change(&board, |locked| locked.start_sprint(&sprint));
    let status = || board.read().unwrap().sprint.unwrap().status.unwrap();
    let file = |name: &str| board.path().parent().unwrap().join(name);
    let watcher = Watcher::start(&bed);
    std::fs::write(file("CHECKPOINT"), "").unwrap();
    eventually_true(PATIENCE, "a checkpoint", || status() == SprintState::Checkpoint);
    std::fs::remove_file(file("CHECKPOINT")).unwrap();
    eventually_true(PATIENCE, "it goes on", || status() == SprintState::InProgress);
    std::fs::write(file("PAUSE"), "").unwrap();
    std::fs::write(file("ABORT"), "").unwrap();
    eventually_true(PATIENCE, "it is over", || status() == SprintState::Aborted);
    watcher.stop();
}

#[test]
fn the_circuit_breaker_trips_by_itself() {
    let (bed, board) = bed();
    let watcher = Watcher::start(&bed);
    let details = |text: &str| match serde_json::from_str(text).unwrap() {
        Value::Object(details) => details,
        other => panic!("{other}"),
    };
    let note = |count: u32, task: &str| {
        let anomaly = NewAnomaly {
            kind: "retry_loop".into(),
            task: Some(name(task)),
            reporter: "ann".into(),
            details: details(&format!("{{\"count\": {count}, \"error_pattern\": \"timeout\"}}")),
        };
        change(&board, |locked| locked.add_anomaly(&anomaly));
    };
    // One failure each is not a loop.
    for task in ["task-1", "task-2", "task-1"] {
        note(1, task);
    }
    note(2, "task-1");
    note(3, "task-2");
    block(&board, "task-1", "so that it looks");
    wait_for(&bed, &["blocked task-1"]);
    let stop = board.path().parent().unwrap().join("CHECKPOINT");
    assert!(!stop.exists());
    note(2, "task-2");
    let status = || board.read().unwrap().circuit_breaker.and_then(|breaker| breaker.status);
    eventually_true(PATIENCE, "it trips", || status().as_deref() == Some("TRIGGERED"));
    assert!(std::fs::read_to_string(&stop).unwrap().contains("circuit breaker"));
    assert!(stop.with_file_name("circuit_breaker_report.md").exists());
    assert_eq!(bed.records("control.put").len(), 1);
    watcher.stop();
}
