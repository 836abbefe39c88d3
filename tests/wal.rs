//! The write-ahead log: the next process to open the queue repairs any damage by a power cut to
//! logged files. Files without a record stay unchanged.
//!
//! The test simulates the worst power cut: the file of every logged message may be missing,
//! truncated, or back in its old place. `tests/power_cut` cuts at each step of real processes
//! instead.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, MessageId};
use ensemble_core::spool::{Options, Repair, Settings, Spool, State};
use support::{Bed, Process, Random, files, given, name, setting};

const MAILBOX: &str = "dispatch";

fn power(boot: &str) -> Options {
    let mut options = Options::default();
    options.durability = Durability::Power;
    options.boot = Some(boot.to_owned());
    options.wal = true;
    options
}

fn open(bed: &Bed, boot: &str) -> Spool {
    Spool::open(&bed.queue(), power(boot)).expect("the queue")
}

fn publish(spool: &Spool, id: &str) -> MessageId {
    let id = MessageId::new(id).expect("an id");
    let envelope = Envelope::new(name(MAILBOX), format!("the body of {id}\n"));
    spool.publish(&envelope.with_id(id.clone())).expect("published");
    id
}

fn settle(spool: &Spool, id: &str) {
    let id = MessageId::new(id).expect("an id");
    let held = spool.receive_id(&name(MAILBOX), &id, &name("holder")).expect("received");
    spool.settle(&held.expect("it waits").lease).expect("settled");
}

fn state(spool: &Spool, id: &str) -> Option<State> {
    let id = MessageId::new(id).expect("an id");
    spool.state(&name(MAILBOX), &id).expect("the mailbox")
}

fn at(bed: &Bed, below: &str) -> PathBuf {
    bed.in_queue(&format!("mailbox/{MAILBOX}/{below}"))
}

fn segments(bed: &Bed) -> Vec<PathBuf> {
    let ends = |path: &PathBuf| path.extension().is_some_and(|end| end == "wal");
    files(&bed.in_queue("wal")).into_iter().filter(ends).collect()
}

const QUEUED: Option<State> = Some(State::Queued { epoch: 0, not_before: 0 });

#[test]
fn a_child_process_plays_its_role() {
    let Some(role) = support::role() else { return };
    let mut options = power("before");
    options.wal_bytes = 40_000;
    let spool = Spool::open(given("QUEUE").as_ref(), options).expect("the queue");
    let told = PathBuf::from(given("TOLD"));
    let tell = |what: &str, id: &MessageId| {
        use std::io::Write as _;
        let file = fs::OpenOptions::new().append(true).create(true).open(&told);
        file.and_then(|mut file| file.write_all(format!("{what} {id}\n").as_bytes()))
            .expect("told");
    };
    match role.as_str() {
        "sender" => loop {
            let envelope = Envelope::new(name(MAILBOX), "the body\n");
            spool.publish(&envelope).expect("published");
            tell("published", &envelope.id);
        },
        "holder" => loop {
            let received = spool.receive(&name(MAILBOX), &name("holder")).expect("received");
            let Some(held) = received else {
                support::pause();
                continue;
            };
            spool.settle(&held.lease).expect("settled");
            tell("settled", &held.envelope.id);
        },
        other => panic!("there is no role `{other}`"),
    }
}

#[test]
fn acknowledged_messages_are_restored() {
    let bed = Bed::new();
    let spool = open(&bed, "before");
    for id in ["kept", "gone", "cut", "empty"] {
        publish(&spool, id);
    }
    settle(&spool, "kept");
    publish(&spool, "waits");
    drop(spool);
    fs::rename(at(&bed, "done/kept.yaml"), at(&bed, "new/kept.yaml")).unwrap();
    fs::remove_file(at(&bed, "new/gone.yaml")).unwrap();
    let cut = fs::read(at(&bed, "new/cut.yaml")).unwrap();
    fs::write(at(&bed, "new/cut.yaml"), &cut[..cut.len() / 2]).unwrap();
    fs::write(at(&bed, "new/empty.yaml"), "").unwrap();

    let spool = open(&bed, "before");
    assert_eq!(state(&spool, "gone"), None, "the machine has not been off: files are the truth");
    let spool = open(&bed, "after");
    assert_eq!(state(&spool, "kept"), Some(State::Settled));
    for id in ["gone", "cut", "empty", "waits"] {
        assert_eq!(state(&spool, id), QUEUED, "{id}");
        let text = spool.peek(&name(MAILBOX), &MessageId::new(id).unwrap()).unwrap().body;
        assert_eq!(text, format!("the body of {id}\n"));
    }
    assert!(segments(&bed).is_empty());
    assert_eq!(spool.fsck(false).unwrap(), []);
}

#[test]
fn a_settled_message_without_a_file_stays_settled() {
    let bed = Bed::new();
    let spool = open(&bed, "before");
    publish(&spool, "one");
    settle(&spool, "one");
    fs::remove_file(at(&bed, "done/one.yaml")).unwrap();
    let spool = open(&bed, "after");
    assert_eq!(state(&spool, "one"), Some(State::Settled), "it is not stored a second time");
}

#[test]
fn scripts_leave_no_record() {
    let bed = Bed::new();
    let spool = open(&bed, "before");
    for id in ["finished", "taken-out", "back", "edited"] {
        publish(&spool, id);
    }
    // A worker in shell finishes one: it stays so.
    fs::rename(at(&bed, "new/finished.yaml"), at(&bed, "done/finished.yaml")).unwrap();
    // One is removed from the queue by hand: it comes again.
    fs::rename(at(&bed, "new/taken-out.yaml"), bed.outside().join("taken-out.yaml")).unwrap();
    // A settled one is put back by hand: it is settled again.
    settle(&spool, "back");
    fs::rename(at(&bed, "done/back.yaml"), at(&bed, "new/back.yaml")).unwrap();
    // Another text is written by hand: whole as it is, it stays.
    let edited = Envelope::new(name(MAILBOX), "another text\n");
    let edited = edited.with_id(MessageId::new("edited").unwrap()).encode().unwrap();
    fs::write(at(&bed, "new/edited.yaml"), &edited).unwrap();
    let spool = open(&bed, "after");
    assert_eq!(state(&spool, "finished"), Some(State::Settled));
    assert_eq!(state(&spool, "taken-out"), QUEUED);
    assert_eq!(state(&spool, "back"), Some(State::Settled));
    assert_eq!(fs::read(at(&bed, "new/edited.yaml")).unwrap(), edited);
}

#[test]
fn after_a_checkpoint_nothing_comes_again() {
    let bed = Bed::new();
    let spool = open(&bed, "before");
    publish(&spool, "taken-out");
    spool.checkpoint().unwrap();
    assert!(segments(&bed).is_empty());
    fs::remove_file(at(&bed, "new/taken-out.yaml")).unwrap();
    publish(&spool, "next");
    assert_eq!(state(&open(&bed, "after"), "taken-out"), None);
    assert_eq!(state(&open(&bed, "after"), "next"), QUEUED);
}

#[test]
fn a_dropped_letter_and_a_removed_mailbox_stay_away() {
    let bed = Bed::new();
    let spool = open(&bed, "before");
    let id = publish(&spool, "letter");
    spool.dead_letter_waiting(&name(MAILBOX), &id, "a reason").unwrap();
    spool.drop_dead(&name(MAILBOX), &id).unwrap();
    assert_eq!(state(&open(&bed, "after"), "letter"), None);
    let spool = open(&bed, "after");
    publish(&spool, "in-a-mailbox-that-goes");
    spool.remove_mailbox(&name(MAILBOX), true).unwrap();
    spool.add_mailbox(&name(MAILBOX), &Default::default()).unwrap();
    assert_eq!(state(&open(&bed, "even later"), "in-a-mailbox-that-goes"), None);
}

#[test]
fn old_settled_messages_are_removed_only_after_a_checkpoint() {
    let mut settings = Settings::default();
    settings.done_days = 0;
    let bed = Bed::with(&settings, "");
    let spool = open(&bed, "before");
    publish(&spool, "one");
    let script = at(&bed, "done/one.yaml");
    fs::rename(at(&bed, "new/one.yaml"), &script).unwrap();
    support::eventually_true(support::PATIENCE, "it is a moment old", || {
        spool.sweep().unwrap();
        !script.exists()
    });
    assert_eq!(state(&open(&bed, "after"), "one"), None);
}

/// Spoils the place of the log.
type Break = fn(&Path);

#[test]
fn a_log_that_cannot_be_used_is_done_without() {
    let breaks: [(&str, Break); 3] = [
        ("a file in its place", |wal| fs::write(wal, "").unwrap()),
        ("segments that are none", |wal| {
            fs::create_dir(wal).unwrap();
            fs::write(wal.join("1.wal"), "no segment").unwrap();
        }),
        ("a link to nowhere", |wal| std::os::unix::fs::symlink("/nowhere", wal).unwrap()),
    ];
    for (what, spoil) in breaks {
        let bed = Bed::new();
        spoil(&bed.in_queue("wal"));
        let Ok(spool) = Spool::open(&bed.queue(), power("before")) else {
            assert_ne!(what, "segments that are none");
            continue;
        };
        publish(&spool, "one");
        settle(&spool, "one");
        publish(&spool, "two");
        assert_eq!(state(&open(&bed, "after"), "two"), QUEUED, "{what}");
    }
}

#[test]
fn nothing_is_logged_or_removed_after_a_failed_sync_until_it_is_repaired() {
    let bed = Bed::new();
    let spool = open(&bed, "before");
    publish(&spool, "one");
    let segment = segments(&bed).remove(0);
    let text = fs::read_to_string(&segment).unwrap();
    fs::write(&segment, text.replacen(" open ", " kept ", 1)).unwrap();
    publish(&spool, "two");
    settle(&spool, "one");
    assert_eq!(fs::read_to_string(&segment).unwrap(), text.replacen(" open ", " kept ", 1));
    assert!(spool.checkpoint().is_err());
    let before = fs::metadata(at(&bed, "done/one.yaml")).unwrap();
    let findings = spool.fsck(true).unwrap();
    assert!(findings.iter().any(|f| f.repair == Repair::Replay && f.repaired), "{findings:?}");
    use std::os::unix::fs::MetadataExt as _;
    let after = fs::metadata(at(&bed, "done/one.yaml")).unwrap();
    assert_ne!(before.ino(), after.ino(), "a file that counts as written is rewritten");
    assert!(segments(&bed).is_empty());
    publish(&spool, "three");
    assert_eq!(segments(&bed).len(), 1);
}

#[test]
fn ends_that_were_cut_and_garbage_cost_nothing_else() {
    let bed = Bed::new();
    let spool = open(&bed, "before");
    publish(&spool, "one");
    let segment = segments(&bed).remove(0);
    let add = |bytes: &[u8]| {
        use std::io::Write as _;
        let mut file = fs::OpenOptions::new().append(true).open(&segment).unwrap();
        file.write_all(bytes).unwrap();
    };
    add(b"%wal publish dispatch new/torn.yaml 300 0123456789abcdef\nid: to");
    publish(&spool, "two");
    add(&[0; 5_000]);
    publish(&spool, "three");
    add(b"%wal settle dispatch one 0 0123456789abcdef\n\n%wal");
    for file in files(&at(&bed, "new")) {
        fs::remove_file(file).unwrap();
    }
    let spool = open(&bed, "after");
    for id in ["one", "two", "three"] {
        assert_eq!(state(&spool, id), QUEUED, "{id}");
    }
}

#[test]
fn large_messages_and_owned_names_are_synced_by_themselves() {
    let bed = Bed::new();
    let spool = open(&bed, "before");
    spool.publish(&Envelope::new(name(MAILBOX), "x".repeat(40_000))).unwrap();
    let mut options = power("before");
    options.owners = ensemble_core::spool::Owners::new([(name("holder"), 7)]);
    publish(&Spool::open(&bed.queue(), options).unwrap(), "one");
    let bytes: u64 = segments(&bed).iter().map(|s| fs::metadata(s).unwrap().len()).sum();
    assert!(bytes < 300, "{bytes}");
}

#[test]
fn threads_of_one_process_share_a_segment_and_go_on_to_the_next() {
    let bed = Bed::new();
    let mut options = power("before");
    options.wal_bytes = 5_000;
    let spool = Spool::open(&bed.queue(), options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let spool = &spool;
            scope.spawn(move || {
                for _ in 0..30 {
                    let envelope = Envelope::new(name(MAILBOX), "the body\n");
                    spool.publish(&envelope).expect("published");
                }
            });
        }
    });
    assert_eq!(bed.total(MAILBOX), 120);
    assert!(segments(&bed).len() < 3, "{:?}", segments(&bed));
}

/// Possible states of a file after a power cut, if the log has its message.
fn spoil(bed: &Bed, random: &mut Random, id: &str, is_new_in_log: bool) {
    for state in ["new", "cur", "done"] {
        let dir = at(bed, state);
        for path in files(&dir) {
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            if !file.starts_with(id) {
                continue;
            }
            match random.below(4) {
                0 if is_new_in_log => fs::remove_file(&path).unwrap(),
                1 if is_new_in_log => fs::write(&path, "").unwrap(),
                2 => fs::rename(&path, at(bed, &format!("new/{id}.yaml"))).unwrap(),
                _ => {}
            }
        }
    }
}

#[test]
fn many_processes_that_are_killed_lose_nothing_to_a_power_cut() {
    let mut random = Random::printed("many processes");
    let bed = Bed::new();
    let (queue, told) = (bed.queue(), bed.home.path().join("told"));
    let variables = [("QUEUE", queue.to_str().unwrap()), ("TOLD", told.to_str().unwrap())];
    let kills = setting("WAL_KILLS", 24);
    let mut crowd: Vec<(&str, Process)> = Vec::new();
    for role in ["sender", "holder"].repeat(4) {
        crowd.push((role, Process::role(role, &variables)));
    }
    let lines = || fs::read_to_string(&told).unwrap_or_default().lines().count();
    for _ in 0..kills {
        let enough = lines() + 20;
        support::eventually_true(support::PATIENCE, "they go on", || lines() > enough);
        let (role, process) = crowd.swap_remove(random.below(crowd.len() as u64) as usize);
        process.kill();
        crowd.push((role, Process::role(role, &variables)));
    }
    crowd.into_iter().for_each(|(_, process)| process.kill());

    let mut logged: BTreeMap<String, bool> = BTreeMap::new();
    for segment in segments(&bed) {
        let text = String::from_utf8_lossy(&fs::read(segment).unwrap()).into_owned();
        for line in text.lines().filter_map(|line| line.strip_prefix("%wal ")) {
            let words: Vec<&str> = line.split(' ').collect();
            let id = words[2].trim_start_matches("new/").trim_end_matches(".yaml").to_owned();
            *logged.entry(id).or_default() |= words[0] == "publish";
        }
    }
    assert!(!logged.is_empty());
    for (id, is_new_in_log) in &logged {
        spoil(&bed, &mut random, id, *is_new_in_log);
    }
    let spool = open(&bed, "after");
    let told = fs::read_to_string(&told).unwrap();
    let (mut published, mut settled) = (0, BTreeSet::new());
    for (what, id) in told.lines().filter_map(|line| line.split_once(' ')) {
        let now = state(&spool, id);
        if what == "settled" {
            assert_eq!(now, Some(State::Settled), "{id} was settled");
            assert!(settled.insert(id.to_owned()), "{id} was settled twice");
        } else {
            assert!(now.is_some(), "{id} was published");
            published += 1;
        }
    }
    assert!(published > 100 && settled.len() > 20, "{published}, {}", settled.len());
    let torn = spool.fsck(false).unwrap();
    assert_eq!(torn, [], "nothing is torn or in two places");
    println!("{published} published, {} settled, {} told of", settled.len(), logged.len());
}
