//! Files in the drop boxes, by contract: task, report, review, escalation, summary, instruction; and acks.
//!
//! An input's first line is the file's name, the rest its content.

use std::path::Path;

use ensemble_core::message::Name;
use ensemble_reports::contract::{
    BrokenDocument, Contract, ContractKind, EscalationReport, Instruction, Reading, Review,
    Summary, TaskReport, WorkerTask, read_as, write,
};

/// Maximum number of problems reported for one file.
const PROBLEMS_MAX: usize = 20;

/// A document written under a contract passes it and reads back the same.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (name, content) = text.split_once('\n').unwrap_or((&text, ""));
    if name.ends_with(".ack") {
        // The first line must be an agent's name, or the file is rejected.
        let agent = content.lines().next().unwrap_or_default().trim();
        if let Ok(name) = Name::new(agent) {
            assert_eq!(name.as_str(), agent);
            assert!(!agent.contains(['/', '@', '\0']) && !agent.starts_with(['.', '-']));
        }
        return;
    }
    match ContractKind::of(name) {
        Some(ContractKind::Task) => round_trip::<WorkerTask>(name, content),
        Some(ContractKind::Report) => round_trip::<TaskReport>(name, content),
        Some(ContractKind::Review) => round_trip::<Review>(name, content),
        Some(ContractKind::Escalation) => round_trip::<EscalationReport>(name, content),
        Some(ContractKind::Summary) => round_trip::<Summary>(name, content),
        Some(ContractKind::Instruction) => round_trip::<Instruction>(name, content),
        None => {}
    }
}

fn round_trip<T: Contract + PartialEq + std::fmt::Debug>(name: &str, content: &str) {
    let document = match read_as::<T>(content, Path::new(name)) {
        Ok(Reading::Whole(document)) => document,
        Ok(Reading::Foreign) => return,
        Err(BrokenDocument { problems, .. }) => {
            assert!((1..=PROBLEMS_MAX).contains(&problems.len()));
            return;
        }
    };
    let written = write(&document);
    assert!(written.ends_with("\n...\n"), "without an end mark: {written}");
    match read_as::<T>(&written, Path::new(name)) {
        Ok(Reading::Whole(again)) => assert_eq!(again, document, "{written}"),
        other => panic!("a written document does not read back: {other:?}\n{written}"),
    }
}
