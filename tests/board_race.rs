//! Eight processes change one board and are killed. No update is lost, the board stays valid, and
//! the log agrees with it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_core::durable::Durability;
use ensemble_core::event_log::{EventLog, LogOptions, read_all};
use ensemble_core::message::{Digest, Name};
use ensemble_team::board::{Board, BoardOptions, NewTask, State};

mod children;
use children::{Child, Dice, cast, say, wait_for_parent, wait_until};

const WRITERS: usize = 8;
const KILLS: usize = 20;

fn open(home: &Path, actor: &str) -> Board {
    let log = EventLog::deferred(&home.join(".ensemble/logs"), LogOptions::default());
    // These tests kill processes, they do not cut the power.
    let mut options =
        BoardOptions::new(actor).with_durability(Durability::Process).with_recorder(Arc::new(log));
    options.patience = children::DEADLINE;
    Board::find(home, options).unwrap()
}

#[test]
fn play_role() {
    let Some(role) = cast() else { return };
    let (home, writer) = (Path::new(&role[0]), &role[1]);
    let board = open(home, writer);
    for n in 0.. {
        let id = format!("{writer}.{n}");
        wait_for_parent();
        say(format!("try {id}"));
        let mut locked = board.lock().unwrap();
        locked.add_task(&NewTask::draft(Name::new(&*id).unwrap())).unwrap();
        locked.commit().unwrap();
        say(format!("did {id}"));
    }
}

/// Reads as a stranger, and adds up what each writer has on the board.
fn read(home: &Path) -> (State, String) {
    let board = open(home, "reader");
    let text = board.read_text().unwrap();
    (ensemble_team::board::check(&text, board.path()).unwrap(), text)
}

#[test]
fn eight_writers_that_are_killed_lose_nothing() {
    let home = tempfile::tempdir().unwrap();
    Board::create(home.path(), BoardOptions::new("test")).unwrap();
    let name = home.path().to_str().unwrap();
    let mut dice = Dice(0x5eed);
    let mut count = 0;
    let mut spawn = || {
        count += 1;
        Child::spawn(&[name, &format!("w{count}")])
    };
    let mut writers: Vec<Child> = (0..WRITERS).map(|_| spawn()).collect();
    let (mut tried, mut did) = (Vec::new(), Vec::new());
    let mut heard = |line: String| match line.split_once(' ').unwrap() {
        ("try", id) => tried.push(id.to_owned()),
        ("did", id) => did.push(id.to_owned()),
        other => panic!("{other:?}"),
    };
    for _ in 0..KILLS {
        // All at once, and one of them is killed somewhere in its work.
        writers.iter_mut().for_each(Child::go);
        let victim = dice.below(WRITERS as u64) as usize;
        for _ in 0..dice.below(3) {
            writers[victim].hear().map(&mut heard).unwrap();
        }
        let pace = Instant::now();
        let wait = Duration::from_micros(dice.below(4_000));
        wait_until("it is somewhere else", || pace.elapsed() >= wait);
        writers[victim].kill().into_iter().for_each(&mut heard);
        for (at, writer) in writers.iter_mut().enumerate().filter(|(at, _)| *at != victim) {
            for _ in 0..2 {
                heard(writer.hear().unwrap_or_else(|| panic!("writer {at} has ended")));
            }
        }
        read(home.path());
        writers[victim] = spawn();
    }
    for writer in &mut writers {
        writer.kill().into_iter().for_each(&mut heard);
    }
    // The next lock holder writes the records that the dead process could not.
    let last = open(home.path(), "last");
    drop(last.lock().unwrap());

    let (state, text) = read(home.path());
    let on_board: Vec<String> = state.tasks.iter().map(|task| task.id.to_string()).collect();
    for id in &did {
        assert!(on_board.contains(id), "{id} is lost");
    }
    for id in &on_board {
        assert!(tried.contains(id), "{id} came from nowhere");
    }
    assert_eq!(state.revision, on_board.len() as u64, "one revision a write");
    agrees(home.path(), &state, &text);
}

/// The log reports each revision, and its last record has exactly what is on the board.
fn agrees(home: &Path, state: &State, text: &str) {
    let mut digests: BTreeMap<u64, String> = BTreeMap::new();
    let mut tasks = Vec::new();
    for record in read_all(&home.join(".ensemble/logs")).unwrap() {
        if record.kind.matches("session_start") {
            continue;
        }
        assert_eq!(record.kind.as_str(), "board.written", "no other program wrote: {record:?}");
        let revision = record.data["revision"].as_u64().unwrap();
        let digest = record.data["sha256"].as_str().unwrap().to_owned();
        // Recorded twice if its writer died between the record and the note of it.
        if let Some(first) = digests.insert(revision, digest.clone()) {
            assert_eq!(first, digest);
            continue;
        }
        tasks.push(record.data["steps"][0]["task"].as_str().unwrap().to_owned());
    }
    let revisions: Vec<u64> = digests.keys().copied().collect();
    assert_eq!(revisions, (1..=state.revision).collect::<Vec<_>>());
    assert_eq!(digests[&state.revision], Digest::of(text.as_bytes()).to_string());
    let on_board: Vec<String> = state.tasks.iter().map(|task| task.id.to_string()).collect();
    assert_eq!(tasks, on_board, "the board can be told from the log");
    let litter: Vec<String> = std::fs::read_dir(home.join(".ensemble"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(litter.len() <= 6, "{litter:?}");
}
