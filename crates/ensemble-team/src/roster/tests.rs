//! The files of the roster.

use tempfile::TempDir;

use super::*;
use ensemble_core::message::{Digest, Timestamp};
use ensemble_tmux::tmux::Binding;

pub(super) use ensemble_core::proto::testing::name;

pub(super) fn member(called: &str) -> Member {
    Member::new(name(called), name("worker"), "claude", Timestamp::from_unix_millis(1_000))
}

pub(super) fn binding(socket: &Path, pid: u32, started: Option<u64>) -> Binding {
    // Would be a number if it were not quoted.
    let token = "01234567890123456789012345678901".to_owned();
    Binding { socket: socket.to_owned(), id: "%1".to_owned(), token, pid, started }
}

fn roster() -> (TempDir, Roster) {
    let home = tempfile::tempdir().unwrap();
    let roster = Roster::open(home.path());
    (home, roster)
}

fn put(roster: &Roster, member: &Member) {
    roster.change(&member.name, |_| Ok(Some(member.clone()))).unwrap();
}

#[test]
fn a_member_comes_back_as_it_was_written() {
    let (_home, roster) = roster();
    let mut full = member("worker-1");
    full.command = Some("claude --model 'x y'  # \"quoted\"".to_owned());
    full.directory = Some("/tmp/with space/ü".into());
    full.env.insert("EMPTY".to_owned(), String::new());
    full.env.insert("NUMBER".to_owned(), "007".to_owned());
    full.env.insert("LINES".to_owned(), "a\nb: c\n".to_owned());
    full.generation = 3;
    full.pass_sha256 = Some(Digest::of(b"pass"));
    full.binding = Some(binding(Path::new("/tmp/s"), 7, Some(9)));
    full.state = MemberState::Shutdown;
    let mut ended = MemberEnd::new(Timestamp::from_unix_millis(2_000), EndCause::Forced);
    ended.by = Some(name("conductor"));
    ended.request_id = Some(name("12345678"));
    ended.reason = Some("no: answer".to_owned());
    ended.exit_code = Some(137);
    full.ended = Some(ended);
    for member in [full, member("w2")] {
        put(&roster, &member);
        assert_eq!(roster.get(&member.name).unwrap(), Some(member));
    }
    let (members, errors) = roster.entries().unwrap();
    assert_eq!(members.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["w2", "worker-1"]);
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn no_roster_is_an_empty_one_and_reading_makes_none() {
    let (home, roster) = roster();
    assert!(roster.entries().unwrap().0.is_empty());
    assert_eq!(roster.get(&name("w")).unwrap(), None);
    assert!(!home.path().join(ROSTER_DIRECTORY).exists());
}

#[test]
fn a_damaged_file_is_an_error_of_its_own_and_is_kept() {
    let (_home, roster) = roster();
    put(&roster, &member("good"));
    let rest = "role: worker\nprovider: x\nmailbox: m\nsince: \"2026-01-01T00:00:00Z\"\n";
    let bad = [
        ("broken", "name: [\n", "broken.yaml"),
        ("newer", "version: 2\nname: newer\nstate: up\n", "version"),
        ("other", "name: another\nstate: up\n", "another"),
        ("unknown", "name: unknown\nstate: asleep\n", "asleep"),
    ]
    .map(|(file, begin, said)| (file, format!("{begin}{rest}"), said));
    for (file, text, _) in &bad {
        std::fs::write(roster.dir().join(format!("{file}.yaml")), text).unwrap();
    }
    let (members, errors) = roster.entries().unwrap();
    assert_eq!((members.len(), errors.len()), (1, bad.len()), "{errors:?}");
    for (file, text, said) in bad {
        let error = roster.get(&name(file)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        let changed = roster.change(&name(file), |_| Ok(Some(member(file))));
        assert!(changed.is_err(), "{file}");
        let path = roster.dir().join(format!("{file}.yaml"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    }
}

#[test]
fn fields_of_a_later_program_are_ignored() {
    let (_home, roster) = roster();
    put(&roster, &member("w"));
    let path = roster.dir().join("w.yaml");
    let text = std::fs::read_to_string(&path).unwrap() + "mood: good\n";
    std::fs::write(&path, text).unwrap();
    assert_eq!(roster.get(&name("w")).unwrap(), Some(member("w")));
}

#[test]
fn a_change_sees_what_is_there_and_may_leave_it() {
    let (_home, roster) = roster();
    assert_eq!(roster.change(&name("w"), Ok).unwrap(), None);
    put(&roster, &member("w"));
    let path = roster.dir().join("w.yaml");
    let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
    let before = inode();
    let left = roster.change(&name("w"), |_| Ok(None)).unwrap();
    assert_eq!((left, inode()), (Some(member("w")), before));
    let refused = roster.change(&name("w"), |_| Err(Error::malformed("x", "y", "z")));
    assert!(refused.is_err());
    let misnamed = roster.change(&name("w"), |_| Ok(Some(member("v"))));
    assert!(misnamed.unwrap_err().to_string().contains("`v`"));
    assert_eq!(roster.get(&name("w")).unwrap(), Some(member("w")));
}

#[test]
fn no_change_of_many_is_lost() {
    const EACH: u64 = 25;
    let (_home, roster) = roster();
    put(&roster, &member("w"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let grown = |current: Option<Member>| {
                        Ok(current.map(|m| Member { generation: m.generation + 1, ..m }))
                    };
                    roster.change(&name("w"), grown).unwrap();
                }
            });
        }
    });
    assert_eq!(roster.get(&name("w")).unwrap().unwrap().generation, 4 * EACH);
}

#[test]
fn in_a_copy_of_a_project_nothing_runs_until_the_original_is_gone() {
    let home = tempfile::tempdir().unwrap();
    let [first, copy, other] = ["first", "copy", "other"].map(|dir| home.path().join(dir));
    std::fs::create_dir(&first).unwrap();
    let original = Roster::open(&first);
    let mut running = member("worker-1");
    running.command = Some("claude".to_owned());
    running.binding = Some(binding(&first.join("tmux.sock"), 7, Some(9)));
    put(&original, &running);
    let file = "roster/worker-1.yaml";
    for place in [&copy, &other] {
        std::fs::create_dir_all(place.join(ROSTER_DIRECTORY)).unwrap();
        std::fs::copy(first.join(file), place.join(file)).unwrap();
    }
    let copied = Roster::open(&copy);
    let seen = copied.get(&running.name).unwrap().unwrap();
    assert_eq!((seen.state, seen.binding), (MemberState::Shutdown, None));
    let ended = seen.ended.unwrap();
    assert!(ended.returns && ended.reason.unwrap().contains("is a copy"), "`up` starts its own");
    assert_eq!(original.get(&running.name).unwrap(), Some(running.clone()));
    // One that is started in the copy runs there, while the others are still those of the original.
    put(&copied, &running);
    assert_eq!(copied.get(&running.name).unwrap(), Some(running.clone()));
    // A project that was moved is still the same project.
    std::fs::remove_dir_all(&first).unwrap();
    assert_eq!(Roster::open(&other).get(&running.name).unwrap(), Some(running));
}
