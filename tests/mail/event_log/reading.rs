//! Reads logs with any content, whole or as they grow.

use std::io::Write as _;

use ensemble_core::event_log::{Follower, LogPosition};

use super::{TINY, assert_numbered, sound};

use crate::*;

#[test]
fn garbage_is_counted_and_passed_over() {
    let (home, dir) = home();
    let log = EventLog::open(&dir).unwrap();
    let path = log.segment_path().unwrap();
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    let huge = "x".repeat(3_000_000);
    let nested = "[".repeat(50_000);
    let garbage: [&[u8]; 7] = [
        b"\0\0\0\0",
        b"not json",
        b"{\"timestamp\":\"now\"}",
        b"\xff\xfe",
        huge.as_bytes(),
        nested.as_bytes(),
        b"{\"timestamp\":\"2026-11-21T22:50:01.123Z\",\"session_id\":\"s\",\"seq\":-1}",
    ];
    for bad in garbage {
        file.write_all(bad).unwrap();
        log.record("test.good", "test", json!({ "text": "\0\u{1b}[2J\n" }));
    }
    // None of these is a segment.
    std::os::unix::fs::symlink(home.path(), dir.join("session-20990101-000000.ndjson")).unwrap();
    fs::create_dir(dir.join("session-20990101-000001.ndjson")).unwrap();
    fs::write(dir.join("session-20990101-000002.ndjson.gz"), b"\0").unwrap();
    fs::write(dir.join("notes.txt"), b"\n").unwrap();

    let mut records = read_all(&dir).unwrap();
    let all: Vec<Record> = records.by_ref().collect();
    assert_numbered(&all);
    assert_eq!(all.iter().filter(|record| record.kind.as_str() == "test.good").count(), 7);
    let bad: Vec<(&Path, u64)> =
        records.bad_lines().iter().map(|bad| (bad.path.as_path(), bad.line)).collect();
    assert_eq!(bad, [2, 4, 6, 8, 10, 12, 14].map(|line| (path.as_path(), line)));
    let newcomer = EventLog::open(&dir).unwrap();
    assert_eq!(newcomer.segment_path().unwrap(), path);
}

#[test]
fn a_follower_sees_every_record_once_through_rotation_and_sessions() {
    let (_home, dir) = home();
    let mut follower = Follower::from_start(&dir);
    assert_eq!(follower.poll().unwrap(), []);
    let children = writers(4, &dir, TINY, 300);
    let mut seen = Vec::new();
    let mut steps = 0;
    wait_until("all was seen", || {
        seen.extend(follower.poll().unwrap());
        steps += 1;
        if steps % 10 == 1 {
            EventLog::start_session(&dir, "conductor").unwrap();
        }
        if steps % 3 == 0
            && let Some(position) = follower.position()
        {
            // As after a restart.
            let stored = serde_json::to_string(&position).unwrap();
            let position: LogPosition = serde_json::from_str(&stored).unwrap();
            follower = Follower::resume(&dir, position);
        }
        seen.iter().filter(|record: &&Record| record.kind.as_str() == "test.line").count() == 1_200
    });
    children.into_iter().for_each(Child::finish);
    seen.extend(follower.poll().unwrap());
    assert_eq!(seen, sound(&dir));
}

#[test]
fn a_follower_waits_for_the_newline_and_notices_truncation() {
    let (_home, dir) = home();
    let log = EventLog::open(&dir).unwrap();
    let path = log.segment_path().unwrap();
    log.record("test.one", "test", json!({}));
    let mut follower = Follower::from_end(&dir).unwrap();
    assert_eq!(follower.poll().unwrap(), []);

    let line = fs::read_to_string(&path).unwrap().lines().last().unwrap().to_owned() + "\n";
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    for byte in line.as_bytes() {
        assert_eq!(follower.poll().unwrap(), []);
        file.write_all(&[*byte]).unwrap();
    }
    assert_eq!(follower.poll().unwrap().len(), 1);
    assert_eq!(follower.position().unwrap().lines, 3);

    // Truncated, replaced, deleted and made again: read from the start.
    file.set_len(0).unwrap();
    assert_eq!(follower.poll().unwrap(), []);
    file.write_all(line.as_bytes()).unwrap();
    assert_eq!(follower.poll().unwrap().len(), 1);
    fs::write(dir.join("new"), line.repeat(9)).unwrap();
    fs::rename(dir.join("new"), &path).unwrap();
    assert_eq!(follower.poll().unwrap().len(), 9);
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(follower.poll().unwrap(), []);
    log.record("test.two", "test", json!({}));
    let kinds: Vec<String> =
        follower.poll().unwrap().into_iter().map(|record| record.kind.to_string()).collect();
    assert_eq!(kinds, ["log.recreated", "test.two"]);
    assert_eq!(follower.bad_lines().count(), 0);
}
