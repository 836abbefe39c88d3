//! `queue.example/` is a real queue: it opens, is whole, and is what today's code writes.
//!
//! After a change of a format, `BLESS=1 cargo test -p ensemble-team --test team -- queue_example` writes it
//! again; the difference then shows what has changed on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ensemble_core::dropbox::{BoxSpec, DROP_BOXES, DropBox, Routes};
use ensemble_core::env::Counts;
use ensemble_core::requests::Requests;
use ensemble_core::spool::{Spool, State};
use ensemble_reports::contract::{
    self, Contract, ContractKind, EscalationReport, Instruction, Reading, Review, Summary,
    TaskReport, WorkerTask,
};
use ensemble_reports::lint::{LintOptions, Linter, TextShape};

use crate::queue::name;

mod generate;

/// The one file that is written by hand.
const README: &str = "README.md";

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../queue.example")
}

/// All files below a directory, by their paths below it.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let below = path.strip_prefix(root).unwrap().to_owned();
                found.insert(below, std::fs::read(&path).unwrap());
            }
        }
    }
    found.remove(Path::new(README));
    // It reports the boots of one machine.
    found.remove(Path::new("calendar.json"));
    found
}

fn write(root: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (below, content) in files {
        let path = root.join(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// A copy as `git clone` would make it: without empty directories.
fn clone() -> (tempfile::TempDir, Spool) {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("queue");
    write(&root, &files(&committed()));
    let spool = Spool::open(&root, generate::options()).unwrap();
    (home, spool)
}

#[test]
fn it_is_what_the_code_writes_today() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("queue");
    generate::generate(&root);
    let generated = files(&root);
    if std::env::var_os("BLESS").is_some() {
        for below in files(&committed()).keys() {
            std::fs::remove_file(committed().join(below)).unwrap();
        }
        write(&committed(), &generated);
    }
    let committed = files(&committed());
    assert_eq!(
        generated.keys().collect::<Vec<_>>(),
        committed.keys().collect::<Vec<_>>(),
        "see the top of this file"
    );
    for (below, content) in &generated {
        let (new, old) = (String::from_utf8_lossy(content), &committed[below]);
        assert_eq!(new, String::from_utf8_lossy(old), "{}", below.display());
    }
}

#[test]
fn messages_of_every_state_are_found_and_read() {
    let (_home, spool) = clone();
    let mailboxes = spool.mailboxes().unwrap();
    assert_eq!(mailboxes, ["conductor", "dispatch", "worker-1"].map(name));
    let mut expected = Counts::default();
    (expected.queued, expected.delayed, expected.acked) = (5, 1, 2);
    (expected.settled, expected.dead) = (1, 1);
    assert_eq!(spool.counts(&name("worker-1")).unwrap(), expected);

    let mut states = Vec::new();
    for mailbox in &mailboxes {
        for file in message_files(&spool.root().join("mailbox").join(mailbox.as_str())) {
            let id = file.split('@').next().unwrap().trim_end_matches(".yaml").parse().unwrap();
            let envelope = spool.peek(mailbox, &id).unwrap();
            assert_eq!((&envelope.id, &envelope.to), (&id, mailbox));
            if let Some(attachment) = &envelope.attachment {
                spool.read_attachment(attachment).unwrap();
            }
            states.push(spool.state(mailbox, &id).unwrap().unwrap().word());
        }
    }
    states.sort_unstable();
    states.dedup();
    assert_eq!(states, ["acked", "dead", "queued", "settled"]);
    assert_eq!(spool.dead_letters(&name("worker-1")).unwrap()[0].reason, "no such repository");
    assert_eq!(spool.overflow(&name("conductor")).unwrap().unwrap().refused, 1);
}

#[test]
fn requests_are_read_and_a_gate_is_heeded() {
    let (_home, spool) = clone();
    let (entries, errors) = Requests::new(&spool).list().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    let states: Vec<_> = entries.iter().map(|e| (e.request.kind.as_str(), e.state())).collect();
    assert_eq!(states, [("plan_approval", "pending"), ("shutdown", "rejected")]);
    let gate = Requests::new(&spool).gate("task-010", &name("worker-1")).unwrap().unwrap();
    assert!(gate.is_closed());
}

fn message_files(mailbox: &Path) -> Vec<String> {
    let listed = ["new", "front", "cur", "done", "dead"].map(|state| mailbox.join(state));
    listed
        .iter()
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flat_map(|entries| entries.map(|e| e.unwrap().file_name().into_string().unwrap()))
        .filter(|file| !file.ends_with("@reason.yaml"))
        .collect()
}

#[test]
fn nothing_is_wrong_with_it_and_work_can_go_on() {
    let (_home, spool) = clone();
    assert_eq!(spool.fsck(false).unwrap(), []);
    let (worker, mut bodies) = (name("worker-1"), Vec::new());
    while let Some(delivery) = spool.receive(&worker, &worker).unwrap() {
        bodies.push(delivery.envelope.body.lines().next().unwrap_or_default().to_owned());
        spool.settle(&delivery.lease).unwrap();
    }
    let expected = ["Stop: main is broken", "Format", "Count the lines", "Written by hand"];
    assert_eq!(bodies.len(), expected.len(), "{bodies:?}");
    assert!(bodies.iter().zip(expected).all(|(body, e)| body.starts_with(e)), "{bodies:?}");
    let delayed = spool.unfinished(&worker, 1).unwrap();
    assert!(!matches!(delayed[0].state, State::Settled | State::Dead));
    let observed = spool.observe(&worker).unwrap();
    let durations: Vec<_> = observed.iter().map(|o| (o.sequence, o.duration.as_secs())).collect();
    assert_eq!(durations, [(0, 300), (1, 900)]);
}

#[test]
fn what_agents_report_keeps_its_contract_and_the_lint() {
    let linter = Linter::new(&LintOptions::default());
    let mut kinds = Vec::new();
    for (below, content) in files(&committed()) {
        let path = below.to_string_lossy().into_owned();
        let is_ours = path.starts_with("reports/") || path.starts_with("tasks/");
        let Some(kind) = ContractKind::of(&path).filter(|_| is_ours) else { continue };
        let text = String::from_utf8(content.clone()).unwrap();
        let read = match kind {
            ContractKind::Task => written_back::<WorkerTask>(&text, &below),
            ContractKind::Report => written_back::<TaskReport>(&text, &below),
            ContractKind::Review => written_back::<Review>(&text, &below),
            ContractKind::Escalation => written_back::<EscalationReport>(&text, &below),
            ContractKind::Summary => written_back::<Summary>(&text, &below),
            ContractKind::Instruction => written_back::<Instruction>(&text, &below),
        };
        assert_eq!(read, text, "{path} differs from the output under its contract");
        let findings = linter.file(&below, &content, TextShape::of(&below)).findings;
        assert!(findings.is_empty(), "{path}: {findings:?}");
        kinds.push(kind);
    }
    let expected = [
        ContractKind::Summary,
        ContractKind::Escalation,
        ContractKind::Report,
        ContractKind::Review,
        ContractKind::Task,
    ];
    assert_eq!(kinds, expected);
}

fn written_back<T: Contract>(text: &str, path: &Path) -> String {
    match contract::read_as::<T>(text, path) {
        Ok(Reading::Whole(document)) => contract::write(&document),
        Ok(Reading::Foreign) => panic!("{} is another shape", path.display()),
        Err(broken) => panic!("{}: {broken}", path.display()),
    }
}

#[test]
fn every_drop_box_has_files_and_each_has_its_recipient() {
    let (_home, spool) = clone();
    let routes = Routes::new(&[]).unwrap();
    let mut routed = Vec::new();
    for box_name in DROP_BOXES {
        let drop_box = DropBox::open(spool.root(), &BoxSpec::named(box_name)).unwrap();
        let mut names = drop_box.dir().names().unwrap();
        names.sort_unstable();
        assert!(!names.is_empty(), "{box_name}");
        for file in names.iter().filter(|file| file.ends_with(".yaml")) {
            let (_, content) = drop_box.read(file, 1 << 20).unwrap().unwrap();
            assert!(DropBox::has_end_mark(&content), "{file}");
            drop_box.parse(file, &content).unwrap();
            let to = routes.destination(&drop_box.path_of(file)).unwrap().unwrap().to.remove(0);
            routed.push(format!("{file} -> {to}"));
        }
    }
    let expected = [
        "completion-summary.yaml -> conductor",
        "escalation-task-003.yaml -> conductor",
        "task-001-completed.yaml -> dispatch",
        "task-001-review.yaml -> dispatch",
        "worker-1-task.yaml -> worker-1",
    ];
    assert_eq!(routed, expected);
    assert_eq!(std::fs::read_dir(spool.root().join("rejected")).unwrap().count(), 2);
}
