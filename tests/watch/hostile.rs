//! Hostile files in a drop box: the watcher rejects or ignores each with a record and at little
//! cost, and routes a good file afterwards.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::time::SystemTime;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::*;

/// The time limit for all of them together on a busy machine, in addition to the patience with
/// files that may still be completed.
const TOTAL: Duration = Duration::from_secs(60);

/// Such a file is neither routed nor ignored: it is set aside and shown in the log and in `status`, whether found by
/// an event or by a listing.
#[test]
fn a_file_whose_name_is_not_text_is_put_aside_and_recorded() {
    let bed = Bed::new();
    let odd = |name: &[u8]| bed.in_queue("reports").join(OsStr::from_bytes(name));
    let put = |name: &[u8]| fs::rename(bed.stage("n: 1\n"), odd(name)).unwrap();
    put(b"before-\xff-completed.yaml");
    let mut findings = bed.spool().fsck(false).unwrap();
    println!(
        "{findings:?} {:?}",
        std::fs::read_dir(bed.in_queue("reports")).unwrap().collect::<Vec<_>>()
    );
    let finding = findings.pop().unwrap();
    assert!(finding.path.starts_with("reports/before-"), "{finding:?}");
    assert_eq!((finding.problem.as_str(), findings.len()), ("its name is not UTF-8", 0));
    let watcher = Watcher::start(&bed);
    fs::create_dir(odd(b"directory-\xff")).unwrap();
    put(b"after-\xff\n-completed.yaml");
    let records = eventually(PATIENCE, "both are recorded", || {
        let records = bed.records("file.rejected");
        (records.len() == 2).then_some(records)
    });
    for record in &records {
        let kept_as = record["kept_as"].as_str().unwrap();
        assert_eq!(fs::read_to_string(bed.in_queue(kept_as)).unwrap(), "n: 1\n");
        let reason = fs::read_to_string(bed.in_queue(&format!("{kept_as}@reason.yaml"))).unwrap();
        assert!(reason.contains("is not UTF-8"), "{reason}");
    }
    assert!(!odd(b"before-\xff-completed.yaml").exists() && odd(b"directory-\xff").exists());
    watcher.wait_for_status("it says so", |status| status["rejected"] == 2);
    watcher.stop();
    assert_eq!(bed.spool().fsck(true).unwrap().len(), 1, "the directory");
}

#[test]
fn a_request_without_its_question_is_named_and_removed_if_it_is_empty_and_old() {
    let bed = Bed::new();
    let home = |name: &str| bed.in_queue(&format!("requests/{name}"));
    for name in ["young", "old", "half"] {
        fs::create_dir_all(home(name)).unwrap();
    }
    fs::write(home("half").join("decision.yaml"), "approve: true\n").unwrap();
    for name in ["old", "half"] {
        let hour_ago = SystemTime::now() - Duration::from_secs(3_600);
        fs::File::open(home(name)).unwrap().set_modified(hour_ago).unwrap();
    }
    let found = bed.spool().fsck(true).unwrap();
    let mut repaired: Vec<_> = found.iter().map(|it| (it.path.as_str(), it.repaired)).collect();
    repaired.sort_unstable();
    assert_eq!(repaired, [("requests/half", false), ("requests/old", true)]);
    assert_eq!(
        [home("half"), home("old"), home("young")].map(|it| it.exists()),
        [true, false, true]
    );
}

#[test]
fn a_long_name_that_is_not_ascii_is_routed() {
    let (bed, watcher) = watched_bed();
    let end = "-completed.yaml";
    for letters in ["é".repeat((255 - end.len()) / 2), "x".repeat(255 - end.len())] {
        bed.land(&format!("reports/{letters}{end}"), format!("name: {letters}\n"));
    }
    eventually_true(PATIENCE, "both are routed", || bed.total("dispatch") == 2);
    watcher.stop();
}

/// Versions of two files in turns: of one file alone the system merges the events that follow each other.
#[test]
fn versions_that_were_overwritten_before_they_were_read_are_counted() {
    const VERSIONS: u64 = 100;
    let (bed, mut watcher) = watched_bed();
    if !watcher.hears_events() {
        println!("skipped: what is overwritten between two looks is not seen without events");
        return;
    }
    let staged: Vec<_> = (0..VERSIONS).map(|n| bed.stage(format!("n: {n}\n"))).collect();
    watcher.stand_still();
    for (number, path) in staged.into_iter().enumerate() {
        let file = format!("reports/same-{}-completed.yaml", number % 2);
        fs::rename(path, bed.in_queue(&file)).unwrap();
    }
    watcher.signal(rustix::process::Signal::CONT);
    let lost = || -> u64 {
        let records = bed.records("file.overwritten");
        records.iter().filter_map(|record| record["versions"].as_u64()).sum()
    };
    eventually_true(PATIENCE, "each version was routed or is counted", || {
        bed.total("dispatch") + lost() == VERSIONS
    });
    assert_eq!(bed.total("dispatch"), 2, "the last of each");
    watcher.wait_for_status("it says so", |status| status["overwritten"] == VERSIONS - 2);
    // One that is read is not counted, no matter what found it.
    for number in 0..20 {
        bed.land("reports/other-completed.yaml", format!("n: {number}\n"));
        bed.routed_times("reports/other-completed.yaml", number + 1);
    }
    watcher.stop();
    bed.land("reports/found-completed.yaml", "n: found\n");
    let watcher = Watcher::start(&bed);
    bed.routed_times("reports/found-completed.yaml", 1);
    watcher.stop();
    assert_eq!(lost(), VERSIONS - 2);
}

#[test]
fn the_author_of_a_task_that_is_put_down_again_is_told() {
    let bed = Bed::new();
    let task = "id: task-7\nfrom: lead\ndescription: count the lines of src/\n";
    for mailbox in ["lead", "worker-1"] {
        bed.spool().add_mailbox(&name(mailbox), &Settings::default()).unwrap();
    }
    let mut watcher = Watcher::start(&bed);
    bed.land("tasks/worker-1-task.yaml", task);
    eventually_true(PATIENCE, "it is routed", || bed.total("worker-1") == 1);
    fs::remove_file(bed.in_queue("tasks/worker-1-task.yaml")).unwrap();
    bed.land("tasks/worker-1-task.yaml", task);
    eventually_true(PATIENCE, "its author is told", || bed.total("lead") == 1);
    let told = bed.spool().receive(&name("lead"), &name("lead")).unwrap().unwrap().envelope;
    assert_eq!((told.kind.as_str(), told.from.as_str()), ("mail.again", "watcher"));
    assert!(told.body.contains("tasks/worker-1-task.yaml was put down again"), "{}", told.body);
    eventually_true(PATIENCE, "it is recorded", || bed.records("file.again").len() == 1);
    // The author is notified once, even by the next watcher.
    watcher.assert_running();
    watcher.stop();
    let watcher = Watcher::start(&bed);
    bed.land("reports/last-completed.yaml", "n: 1\n");
    bed.routed_times("reports/last-completed.yaml", 1);
    watcher.stop();
    assert_eq!((bed.total("lead"), bed.total("worker-1")), (1, 1));
}

fn land(bed: &Bed, file: &str, make: impl FnOnce(&Path)) {
    let made = bed.outside().join("made");
    make(&made);
    fs::rename(made, bed.in_queue("reports").join(file)).unwrap();
}

/// Files that cannot be a report: rejected with a reason.
fn land_what_is_put_aside(bed: &Bed) -> Vec<&'static str> {
    let write = |file: &str, content: &[u8]| land(bed, file, |p| fs::write(p, content).unwrap());
    land(bed, "sparse-completed.yaml", |p| File::create(p).unwrap().set_len(1 << 30).unwrap());
    let laughs: String = (1..10)
        .map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(",")))
        .collect();
    write("laughs-completed.yaml", format!("a0: &a0 lol\n{laughs}").as_bytes());
    write("alias-completed.yaml", b"a: &a x\nb: *a\n");
    write("flow-completed.yaml", "{a: ".repeat(16_000).as_bytes());
    write("quote-completed.yaml", format!("a: \"{}", "\\".repeat(65_000)).as_bytes());
    write(
        "deep-completed.yaml",
        format!("a: {}{}\n", "[".repeat(50_000), "]".repeat(50_000)).as_bytes(),
    );
    write("twice-completed.yaml", b"a: 1\na: 2\n");
    write("documents-completed.yaml", b"a: 1\n---\nb: 2\n");
    write("scalar-completed.yaml", b"just text\n");
    write("empty-completed.yaml", b"");
    write("binary-completed.yaml", &[0xff, 0xfe, 0x00, 0x01]);
    land(bed, "pipe-completed.yaml", |p| {
        mknodat(CWD, p, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    });
    land(bed, "socket-completed.yaml", |p| drop(UnixListener::bind(p).unwrap()));
    land(bed, "link-completed.yaml", |p| symlink("/etc/passwd", p).unwrap());
    land(bed, "dangling-completed.yaml", |p| symlink("/nowhere/at/all", p).unwrap());
    let mut aside = vec![
        "sparse",
        "laughs",
        "alias",
        "flow",
        "quote",
        "deep",
        "twice",
        "documents",
        "scalar",
        "empty",
        "binary",
        "pipe",
        "socket",
        "link",
        "dangling",
    ];
    let null = makedev(1, 3);
    let made = bed.outside().join("device");
    match mknodat(CWD, &made, FileType::CharacterDevice, Mode::RUSR, null) {
        Ok(()) => {
            fs::rename(made, bed.in_queue("reports/device-completed.yaml")).unwrap();
            aside.push("device");
        }
        Err(error) => println!("skipped: a device cannot be made here: {error}"),
    }
    aside
}

/// Odd but honest files: they are routed.
fn land_what_is_routed(bed: &Bed) -> Vec<String> {
    let long = format!("{}-completed.yaml", "x".repeat(255 - "-completed.yaml".len()));
    let names =
        ["-rf-completed.yaml", "two\nlines-completed.yaml", "$(touch x);-completed.yaml", &long];
    for (number, file) in names.iter().enumerate() {
        bed.land(&format!("reports/{file}"), format!("number: {number}\n"));
    }
    let secret = bed.stage("linked: yes\n");
    fs::hard_link(secret, bed.in_queue("reports/hard-completed.yaml")).unwrap();
    names.iter().map(|s| (*s).to_owned()).chain(["hard-completed.yaml".to_owned()]).collect()
}

#[test]
fn hostile_files_are_rejected_and_good_ones_are_routed_meanwhile_and_afterwards() {
    let (bed, mut watcher) = watched_bed();
    let start = Instant::now();
    let aside = land_what_is_put_aside(&bed);
    let routed = land_what_is_routed(&bed);
    fs::create_dir(bed.in_queue("reports/directory-completed.yaml")).unwrap();
    let unreadable = OsStr::from_bytes(b"not-\xff-utf8-completed.yaml");
    fs::write(bed.in_queue("reports").join(unreadable), "n: 1\n").unwrap();
    bed.land("tasks/-rf-task.yaml", "id: t\n");
    bed.land("tasks/..-task.yaml", "id: t\n");
    bed.land("ack/..%2f..-.ack", "../../etc\n");

    for file in &aside {
        let path = bed.in_queue(&format!("reports/{file}-completed.yaml"));
        eventually_true(PATIENCE, &format!("{file} is put aside"), || {
            path.symlink_metadata().is_err()
        });
    }
    for file in &aside {
        let path = format!("reports/{file}-completed.yaml");
        let record = eventually(PATIENCE, &format!("{file} is recorded"), || {
            bed.records("file.rejected").into_iter().find(|data| data["file"] == path)
        });
        let kept = bed.in_queue(record["kept_as"].as_str().unwrap());
        assert!(kept.symlink_metadata().is_ok(), "{file} is kept");
        let reason = fs::read_to_string(format!("{}@reason.yaml", kept.display())).unwrap();
        assert!(reason.contains(file) && reason.contains("error: "), "{reason}");
    }
    // The writers of the others are unknown, so the agent that waits for reports is notified.
    eventually_true(PATIENCE, "the honest ones are routed", || {
        bed.total("dispatch") == (routed.len() + aside.len()) as u64
    });
    eventually_true(PATIENCE, "a directory is recorded", || {
        bed.records("file.rejected").iter().any(|d| d["file"] == "reports/directory-completed.yaml")
    });
    bed.land("reports/good-completed.yaml", "good: yes\n");
    assert_eq!(bed.routed_times("reports/good-completed.yaml", 1), ["good: yes\n"]);
    let took = start.elapsed();
    assert!(took < TOTAL || !watcher.hears_events(), "{took:?}");
    watcher.assert_running();
    watcher.stop();
    bed.assert_clean();
    println!("{} put aside, {} routed, in {:.1} s", aside.len(), routed.len(), took.as_secs_f64());
}

#[test]
fn control_characters_in_a_report_are_escaped_or_the_report_is_rejected() {
    let (bed, watcher) = watched_bed();
    let contents = [
        "esc: \"\u{1b}[201~\"\n",
        "nul: \"a\0b\"\n",
        "bidi: \"\u{202e}abc\"\n",
        "c1: \"\u{9b}m\"\n",
    ];
    for (number, content) in contents.iter().enumerate() {
        bed.land(&format!("reports/control-{number}-completed.yaml"), content);
    }
    let settled = |number: usize| {
        let file = format!("reports/control-{number}-completed.yaml");
        !bed.bodies(&file).is_empty() || bed.in_queue(&file).symlink_metadata().is_err()
    };
    eventually_true(PATIENCE, "each is routed or put aside", || (0..contents.len()).all(settled));
    for state in ["new", "cur"] {
        for path in support::files(&bed.in_queue("mailbox/dispatch").join(state)) {
            let text = fs::read_to_string(&path).unwrap();
            let bare = text.chars().any(|c| c.is_control() && c != '\n');
            assert!(!bare, "a control character stands bare in {}", path.display());
        }
    }
    println!("{} routed, {} put aside", bed.total("dispatch"), bed.records("file.rejected").len());
    watcher.stop();
}

#[test]
fn a_file_in_another_users_name_is_rejected_in_strong_mode() {
    if !rustix::process::geteuid().is_root() {
        println!(
            "notice: only root can give files to other users; tests of `Owners` show the rest"
        );
        return;
    }
    let config = "agents:\n  worker-1: { user: 4001 }\n  worker-2: { user: 4002 }\n";
    let bed = Bed::with(&Settings::default(), config);
    let trial = bed.home.path().join("trial");
    fs::write(&trial, "").unwrap();
    if let Err(error) = std::os::unix::fs::chown(&trial, Some(4001), None) {
        println!("skipped: a file cannot be given to another user here: {error}");
        return;
    }
    let land = |file: &str, author: &str, user: u32| {
        let path = bed.home.path().join(file);
        fs::write(&path, format!("from: {author}\ntext: {file}\n")).unwrap();
        std::os::unix::fs::chown(&path, Some(user), None).unwrap();
        fs::rename(path, bed.in_queue("reports").join(file)).unwrap();
    };
    let mut watcher = Watcher::start(&bed);
    land("forged-completed.yaml", "worker-1", 4002);
    land("boss-completed.yaml", "operator", 4002);
    land("own-completed.yaml", "worker-1", 4001);
    assert_eq!(bed.routed_times("reports/own-completed.yaml", 1).len(), 1);
    let rejected = eventually(PATIENCE, "both are put aside", || {
        Some(bed.records("file.rejected")).filter(|records| records.len() == 2)
    });
    let why: Vec<String> = rejected.iter().map(|data| data["error"].to_string()).collect();
    assert!(
        why.iter().any(|why| why.contains("`worker-1`, user 4001, and is user 4002's")),
        "{why:?}"
    );
    assert!(why.iter().any(|why| why.contains("user 4002's, who is `worker-2`")), "{why:?}");
    watcher.assert_running();
    watcher.stop();

    // A message that was put into a mailbox by hand.
    let project = Project::discover(Some(&bed.queue())).unwrap();
    let spool = project.open_spool(Arc::new(NullRecorder)).unwrap();
    spool.sweep().unwrap();
    while let Some(delivery) = spool.receive(&name("dispatch"), &name("dispatch")).unwrap() {
        spool.settle(&delivery.lease).unwrap();
    }
    for (id, user) in [("forged", 4002), ("own", 4001)] {
        let envelope = Envelope::new(name("dispatch"), "do it\n").from(name("worker-1"));
        let envelope = envelope.with_id(MessageId::new(id).unwrap());
        spool.publish(&envelope).unwrap();
        let file = bed.in_queue(&format!("mailbox/dispatch/new/{id}.yaml"));
        std::os::unix::fs::chown(file, Some(user), None).unwrap();
    }
    let received = spool.receive(&name("dispatch"), &name("dispatch")).unwrap().unwrap();
    assert_eq!(received.envelope.id.as_str(), "own");
    assert!(spool.receive(&name("dispatch"), &name("dispatch")).unwrap().is_none());
    let letters = spool.dead_letters(&name("dispatch")).unwrap();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("is written as `worker-1`"), "{}", letters[0].reason);
}
