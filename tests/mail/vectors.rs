//! The test vectors of `conformance/` hold for our own library, and speak of PROTOCOL.md's own words.

use std::sync::Barrier;
use std::time::{SystemTime, UNIX_EPOCH};

use cases::{CaseVerdict, VectorCase};
use own::OwnClient;

use crate::*;

#[path = "../../crates/ensemble-conformance/src/cases.rs"]
mod cases;
#[path = "../../crates/ensemble-conformance/src/own.rs"]
mod own;

/// Races between a release and a send; some of them meet.
const RACES: u32 = 3000;

fn judged(case: &VectorCase) -> CaseVerdict {
    let home = tempfile::tempdir().unwrap();
    cases::judge(case, home.path(), OwnClient::open)
}

#[test]
fn our_library_passes_every_vector_and_refuses_none() {
    let wrong: Vec<String> = cases::all()
        .iter()
        .map(|(file, case)| (format!("{file}/{}", case.name), judged(case)))
        .filter(|(_, verdict)| *verdict != CaseVerdict::Passed)
        .map(|(name, verdict)| format!("{name}: {verdict:?}"))
        .collect();
    assert!(wrong.is_empty(), "{} vectors:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn each_vector_quotes_the_protocol() {
    let page = include_str!("../../PROTOCOL.md");
    let section = |heading: &str| {
        let start = page.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{heading}"));
        let text = &page[start + 1..];
        let text = &text[..text.find("\n## ").unwrap_or(text.len())];
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut names = BTreeSet::new();
    for (file, case) in cases::all() {
        assert!(names.insert((file, case.name.clone())), "{file}/{} stands twice", case.name);
        let text = section(&case.section);
        assert!(
            text.contains(&case.rule),
            "{file}/{}: not in {}: {}",
            case.name,
            case.section,
            case.rule
        );
    }
    assert!(names.len() > 200, "{} vectors", names.len());
}

#[test]
fn a_release_without_a_lock_hides_no_chosen_id() {
    let home = tempfile::tempdir().unwrap();
    let options = SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() };
    let spool = Spool::create(&home.path().join("queue"), options).unwrap();
    let worker = Name::new("w").unwrap();
    spool.add_mailbox(&worker, &Settings::default()).unwrap();
    let mailbox = spool.root().join("mailbox/w");
    for race in 0..RACES {
        let id = MessageId::new(format!("race-{race}")).unwrap();
        let envelope = || Envelope::new(worker.clone(), "x\n").with_id(id.clone());
        assert_eq!(spool.publish(&envelope()).unwrap(), PublishOutcome::Stored);
        let delivery = spool.receive_id(&worker, &id, &worker).unwrap().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(2);
        let (held, front) = (
            mailbox.join(format!("cur/{id}@w@{}.yaml", delivery.lease.epoch)),
            mailbox.join(format!("front/{id}@p0@e1@t{}.yaml", now.as_millis())),
        );
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                (0..race % 200 * 20).for_each(|_| std::hint::spin_loop());
                std::fs::rename(&held, &front).unwrap();
            });
            start.wait();
            let again = spool.publish(&envelope()).unwrap();
            assert_eq!(again, PublishOutcome::AlreadyStored, "race {race}");
        });
        std::fs::remove_file(&front).unwrap();
    }
}
