//! The event log, written and read by real processes that are killed, stopped and cut off.

use std::os::unix::fs::PermissionsExt as _;

use ensemble_core::event_log::{
    LOCK_FILE_NAME, LOG_LOCK_PATIENCE, LogOptions, RecordType, Segment,
};

use crate::*;

mod documented;
mod reading;
mod throughput;

/// Rotates after a few records.
const TINY: u64 = 2_000;
/// Patience of writers whose lines must all be in order, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn play_role() {
    let Some(role) = cast() else { return };
    let dir = Path::new(&role[1]);
    // A machine that pauses for a second must not put lines out of order here.
    let options = |bytes: &str| {
        let patient = LogOptions::default().with_lock_patience(PATIENCE);
        patient.with_segment_bytes_max(bytes.parse().unwrap())
    };
    match role[0].as_str() {
        // Writes a number of records, in small steps through many rotations or in one go.
        "write" => {
            let log = EventLog::deferred(dir, options(&role[3]));
            let count = role[4].parse().unwrap();
            say("ready");
            wait_for_parent();
            for n in 0..count {
                log.try_record("test.line", &role[2], json!({ "n": n })).unwrap();
            }
        }
        // Says every record that was acknowledged, until it is killed.
        "acknowledge" => {
            let log = EventLog::deferred(dir, options(&role[3]));
            for n in 0_u64.. {
                let text = "x".repeat(usize::try_from(n % 2_800).unwrap());
                log.try_record("test.line", &role[2], json!({ "n": n, "text": text })).unwrap();
                say(n);
            }
        }
        "fail" => {
            let log = EventLog::deferred(dir, LogOptions::default());
            while log.failures().0 < 3 {
                log.record("test.line", &role[2], json!({ "text": "x".repeat(700) }));
            }
            say(log.failures().1.unwrap());
        }
        "session" => {
            say("ready");
            wait_for_parent();
            say(EventLog::start_session(dir, &role[2]).unwrap().session_id().unwrap());
        }
        "hold" => {
            let lock = fs::File::options().write(true).open(dir.join(LOCK_FILE_NAME)).unwrap();
            lock.lock().unwrap();
            say("locked");
            wait_for_parent();
        }
        other => panic!("no role {other}"),
    }
}

/// A directory for a log inside one that is removed at the end.
pub(crate) fn home() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let logs = home.path().join(".ensemble/logs");
    (home, logs)
}

pub(crate) fn writers(count: usize, dir: &Path, segment_bytes: u64, records: u64) -> Vec<Child> {
    let mut children: Vec<Child> = (0..count)
        .map(|n| {
            let (actor, bytes) = (format!("writer-{n}"), segment_bytes.to_string());
            let role =
                ["event_log::write", dir.to_str().unwrap(), &actor, &bytes, &records.to_string()];
            Child::spawn(&role)
        })
        .collect();
    for child in &mut children {
        assert_eq!(child.hear().as_deref(), Some("ready"));
    }
    children.iter_mut().for_each(Child::go);
    children
}

/// All records, of which all lines are whole and numbered without a gap in every session.
fn sound(dir: &Path) -> Vec<Record> {
    let mut records = read_all(dir).unwrap();
    let all: Vec<Record> = records.by_ref().collect();
    assert!(records.failure().is_none());
    assert_eq!(records.bad_lines().iter().next(), None);
    assert_numbered(&all);
    all
}

fn assert_numbered(records: &[Record]) {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for record in records {
        let last = last.entry(&record.session_id).or_default();
        if record.unordered {
            assert!(record.seq <= *last, "{record:?} after {last}");
        } else {
            assert_eq!(record.seq, *last + 1, "{record:?}");
            *last = record.seq;
        }
    }
}

/// Checks that every writer's records are all there, once, in its own order.
fn assert_complete(records: &[Record], writers: usize, each: u64) {
    let mut seen: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.kind.as_str() == "test.line") {
        seen.entry(&record.actor).or_default().push(record.data["n"].as_u64().unwrap());
    }
    assert_eq!(seen.len(), writers);
    for (actor, numbers) in seen {
        assert_eq!(numbers, Vec::from_iter(0..each), "{actor}");
    }
}

fn segments(dir: &Path) -> Vec<Segment> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut segments: Vec<Segment> =
        names.filter_map(|name| Segment::parse(name.to_str().unwrap())).collect();
    segments.sort();
    segments
}

#[test]
fn eight_processes_write_whole_lines_in_one_order() {
    let (_home, dir) = home();
    writers(8, &dir, 1 << 30, 2_000).into_iter().for_each(Child::finish);
    let records = sound(&dir);
    assert_complete(&records, 8, 2_000);
    assert!(records.iter().all(|record| !record.unordered));
    assert_eq!(records[0].kind, RecordType::SESSION_START);
    assert_eq!(records.len(), 8 * 2_000 + 1);

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in fs::read_dir(&dir).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

#[test]
fn killed_writers_tear_one_line_each_at_most_and_lose_nothing_acknowledged() {
    const KILLS: u64 = 200;
    let (_home, dir) = home();
    let mut dice = Dice(0x5eed);
    let mut acknowledged = BTreeSet::new();
    let spawn = |n: u64| {
        let actor = format!("writer-{n}");
        (Child::spawn(&["event_log::acknowledge", dir.to_str().unwrap(), &actor, "100000"]), actor)
    };
    let mut alive: Vec<(Child, String)> = (0..3).map(spawn).collect();
    for n in 0..KILLS {
        let victim = usize::try_from(dice.below(3)).unwrap();
        let (mut child, actor) = std::mem::replace(&mut alive[victim], spawn(n + 3));
        for _ in 0..dice.below(30) {
            acknowledged.insert((actor.clone(), child.hear().unwrap()));
        }
        acknowledged.extend(child.kill().into_iter().map(|said| (actor.clone(), said)));
    }
    drop(alive);

    let mut records = read_all(&dir).unwrap();
    let all: Vec<Record> = records.by_ref().collect();
    assert!(records.bad_lines().count() <= KILLS + 3);
    assert_numbered(&all);
    assert!(all.iter().all(|record| !record.unordered));
    let found: BTreeSet<(String, String)> = all
        .iter()
        .filter(|record| record.kind.as_str() == "test.line")
        .map(|record| (record.actor.clone(), record.data["n"].to_string()))
        .collect();
    assert!(acknowledged.len() > 1_000);
    assert_eq!(acknowledged.difference(&found).next(), None);
    EventLog::open(&dir).unwrap().try_record("test.end", "test", json!({})).unwrap();
    assert_eq!(read_all(&dir).unwrap().last().unwrap().kind.as_str(), "test.end");
}

#[test]
fn rotation_loses_nothing() {
    let (_home, dir) = home();
    writers(4, &dir, TINY, 500).into_iter().for_each(Child::finish);
    assert_complete(&sound(&dir), 4, 500);

    let segments = segments(&dir);
    assert!(segments.len() > 100, "{} segments", segments.len());
    for pair in segments.windows(2) {
        let text = fs::read(dir.join(pair[0].to_string())).unwrap();
        let last = text.trim_ascii_end().rsplit(|b| *b == b'\n').next().unwrap();
        let last = Record::parse(last).unwrap();
        assert_eq!(last.kind, RecordType::LOG_CONTINUED);
        assert_eq!(last.data["next"], pair[1].to_string());
    }
}

#[test]
fn writers_move_to_a_session_that_begins_while_they_write() {
    let (_home, dir) = home();
    let children = writers(4, &dir, 20_000, 3_000);
    let mut sessions = BTreeSet::new();
    for n in 0..5 {
        let written = || fs::metadata(&dir).map_or(0, |_| read_all(&dir).unwrap().count());
        wait_until("more is written", || written() > n * 400);
        let log = EventLog::start_session(&dir, "conductor").unwrap();
        assert!(sessions.insert(log.session_id().unwrap()), "every session is a new one");
    }
    children.into_iter().for_each(Child::finish);

    let records = sound(&dir);
    assert_complete(&records, 4, 3_000);
    let starts = records.iter().filter(|record| record.kind == RecordType::SESSION_START);
    let by_conductor = starts.filter(|record| record.actor == "conductor").map(|record| {
        assert_eq!(record.seq, 1);
        record.session_id.clone()
    });
    assert_eq!(by_conductor.collect::<BTreeSet<_>>(), sessions);
    let last = &records.last().unwrap().session_id;
    assert_eq!(Some(last), sessions.last());
    let joined = EventLog::open(&dir).unwrap();
    assert_eq!(joined.session_id().as_ref(), Some(last));
    assert_eq!(joined.end_session("conductor").unwrap().session_id, *last);
}

#[test]
fn sessions_of_the_same_second_have_different_files() {
    let (_home, dir) = home();
    let mut children: Vec<Child> = (0..6)
        .map(|n| {
            Child::spawn(&["event_log::session", dir.to_str().unwrap(), &format!("starter-{n}")])
        })
        .collect();
    for child in &mut children {
        assert_eq!(child.hear().as_deref(), Some("ready"));
    }
    children.iter_mut().for_each(Child::go);
    let ids: BTreeSet<String> = children.iter_mut().map(|child| child.hear().unwrap()).collect();
    assert_eq!(ids.len(), 6);
    let starts: Vec<Record> =
        sound(&dir).into_iter().filter(|record| record.kind == RecordType::SESSION_START).collect();
    let starters: BTreeSet<&str> = starts.iter().map(|record| record.actor.as_str()).collect();
    assert_eq!((starts.len(), starters.len(), segments(&dir).len()), (6, 6, 6));
}

#[test]
fn a_session_whose_starter_died_half_way_is_begun_by_the_next_writer() {
    let (_home, dir) = home();
    let old = EventLog::open(&dir).unwrap();
    let old_path = old.segment_path().unwrap();
    EventLog::start_session(&dir, "conductor").unwrap();
    // As if the starter had been killed after `log.continued`.
    let new_path = dir.join(segments(&dir)[1].to_string());
    fs::remove_file(&new_path).unwrap();
    old.record("test.line", "worker-1", json!({}));
    assert_ne!(old.segment_path().unwrap(), old_path);
    let records = sound(&dir);
    let [.., start, line] = &records[..] else { panic!("{records:?}") };
    assert_eq!((&start.kind, start.actor.as_str()), (&RecordType::SESSION_START, "conductor"));
    assert_eq!((line.actor.as_str(), line.seq), ("worker-1", 2));
}

#[test]
fn a_deleted_file_or_directory_is_made_anew_and_numbers_go_on() {
    let (home, dir) = home();
    let log = EventLog::open(&dir).unwrap();
    let other = EventLog::open(&dir).unwrap();
    let session = log.session_id();
    let deletions: [&dyn Fn(); 4] = [
        &|| fs::remove_file(log.segment_path().unwrap()).unwrap(),
        &|| fs::remove_dir_all(&dir).unwrap(),
        &|| fs::rename(&dir, home.path().join("elsewhere")).unwrap(),
        &|| fs::remove_dir_all(home.path().join(".ensemble")).unwrap(),
    ];
    for delete in deletions {
        let before = log.try_record("test.before", "a", json!({})).unwrap().seq;
        delete();
        let after = log.try_record("test.after", "a", json!({})).unwrap();
        assert_eq!((after.seq, after.ordered), (before + 2, true));
        assert_eq!(other.try_record("test.after", "b", json!({})).unwrap().seq, before + 3);
        let kinds: Vec<String> = read_all(&dir).unwrap().map(|r| r.kind.to_string()).collect();
        assert_eq!(kinds, ["log.recreated", "test.after", "test.after"]);
        assert_eq!(log.session_id(), session);
    }
    fs::write(log.segment_path().unwrap(), b"").unwrap();
    let after = log.try_record("test.after", "a", json!({})).unwrap().seq;
    assert_eq!(other.try_record("test.after", "b", json!({})).unwrap().seq, after + 1);
    // A project that was moved does not begin again at its old path.
    let moved = home.path().with_extension("moved");
    fs::rename(home.path(), &moved).unwrap();
    assert!(log.try_record("test.after", "a", json!({})).is_err());
    assert!(!home.path().exists());
    fs::rename(&moved, home.path()).unwrap();
}

#[test]
fn writers_survive_a_directory_that_keeps_vanishing() {
    let (_home, dir) = home();
    let mut children = writers(3, &dir, TINY, 3_000);
    for _ in 0..30 {
        // The writers may be quicker than the remover, and then no writer recreates it.
        wait_until("the log is there", || {
            dir.join(LOCK_FILE_NAME).exists() || children.iter_mut().all(Child::has_ended)
        });
        let _ = fs::remove_dir_all(&dir);
    }
    children.into_iter().for_each(Child::finish);
    let log = EventLog::open(&dir).unwrap();
    assert!(log.try_record("test.end", "test", json!({})).unwrap().ordered);
    let mut records = read_all(&dir).unwrap();
    assert_eq!(records.by_ref().last().unwrap().kind.as_str(), "test.end");
    assert_eq!(records.bad_lines().count(), 0);
}

#[test]
fn a_stopped_lock_holder_costs_a_bounded_wait_and_no_line() {
    let (_home, dir) = home();
    let log = EventLog::open(&dir).unwrap();
    let before = log.try_record("test.before", "test", json!({})).unwrap();
    let mut holder = Child::spawn(&["event_log::hold", dir.to_str().unwrap()]);
    assert_eq!(holder.hear().as_deref(), Some("locked"));
    holder.stop();

    let start = Instant::now();
    let during = log.try_record("test.during", "test", json!({})).unwrap();
    let waited = start.elapsed();
    assert_eq!((during.seq, during.ordered), (before.seq, false));
    assert!(waited >= LOG_LOCK_PATIENCE && waited < 50 * LOG_LOCK_PATIENCE, "{waited:?}");
    // More of them than a writer reads back, and none waits that long again.
    let start = Instant::now();
    for _ in 0..100 {
        log.record("test.during", "test", json!({ "text": "x".repeat(500) }));
    }
    assert!(start.elapsed() < 50 * LOG_LOCK_PATIENCE, "each of them has waited");
    let error = EventLog::start_session(&dir, "conductor").unwrap_err();
    assert!(error.to_string().contains(&format!("(pid {})", holder.pid())), "{error}");

    holder.signal(Signal::CONT);
    holder.kill();
    let other = EventLog::open(&dir).unwrap();
    assert_eq!(other.try_record("test.after", "test", json!({})).unwrap().seq, before.seq + 1);
    let after = log.try_record("test.after", "test", json!({})).unwrap();
    assert_eq!((after.seq, after.ordered), (before.seq + 2, true));
    let records = sound(&dir);
    assert_eq!(records.iter().filter(|record| record.unordered).count(), 101);
    assert_eq!(log.failures(), (0, None));
}

#[test]
fn a_writer_waits_for_the_lock_as_long_as_it_was_told_to() {
    let (_home, dir) = home();
    let hasty = EventLog::open(&dir).unwrap();
    let mut holder = Child::spawn(&["event_log::hold", dir.to_str().unwrap()]);
    assert_eq!(holder.hear().as_deref(), Some("locked"));
    let options = LogOptions::default().with_lock_patience(PATIENCE);
    let patient = std::thread::spawn({
        let dir = dir.clone();
        move || EventLog::deferred(&dir, options).try_record("test.late", "test", json!({}))
    });
    assert!(!hasty.try_record("test.soon", "test", json!({})).unwrap().ordered);
    assert!(!patient.is_finished());
    holder.go();
    holder.finish();
    assert!(patient.join().unwrap().unwrap().ordered);
}

#[test]
fn writers_that_are_stopped_anywhere_and_go_on_keep_the_order() {
    let (_home, dir) = home();
    let mut dice = Dice(0x5eed);
    let children = writers(2, &dir, 50_000, 20_000);
    let log = EventLog::open(&dir).unwrap();
    for n in 0..20_u64 {
        let child = &children[usize::try_from(n % 2).unwrap()];
        for _ in 0..dice.below(2_000) {
            std::hint::spin_loop();
        }
        child.stop();
        log.record("test.other", "test", json!({ "n": n }));
        child.signal(Signal::CONT);
    }
    children.into_iter().for_each(Child::finish);
    let records = sound(&dir);
    assert_complete(&records, 2, 20_000);
    assert_eq!(records.iter().filter(|record| record.actor == "test").count(), 20);
}

#[test]
fn a_line_that_does_not_fit_the_disk_fails_alone() {
    let (_home, dir) = home();
    EventLog::open(&dir).unwrap().record("test.before", "test", json!({}));
    // 4 blocks of 512 bytes a file; past that a write stores a part, then nothing.
    let setup = "ulimit -f 4; trap '' XFSZ";
    let mut child = Child::spawn_after(setup, &["event_log::fail", dir.to_str().unwrap(), "child"]);
    let failure = child.hear().unwrap();
    assert!(failure.contains("append to") && failure.contains("session-"), "{failure}");
    child.finish();

    let log = EventLog::open(&dir).unwrap();
    log.try_record("test.after", "test", json!({})).unwrap();
    let mut records = read_all(&dir).unwrap();
    let all: Vec<Record> = records.by_ref().collect();
    assert_numbered(&all);
    assert_eq!(all.last().unwrap().kind.as_str(), "test.after");
    assert_eq!(records.bad_lines().count(), 1, "the torn line");
}

#[test]
fn an_unusable_place_is_an_error_and_never_a_panic() {
    let (home, _) = home();
    let dir = home.path().join("file/logs");
    fs::write(home.path().join("file"), b"").unwrap();
    assert!(EventLog::open(&dir).unwrap_err().to_string().contains("file/logs"));
    let log = EventLog::deferred(&dir, LogOptions::default());
    log.record("task_start", "worker-1", json!({}));
    log.record("no type", "worker-1", json!({}));
    let (count, last) = log.failures();
    assert_eq!(count, 2);
    assert!(last.unwrap().contains("`no type`"));
    assert_eq!(read_all(&home.path().join("absent")).unwrap().count(), 0);
}
