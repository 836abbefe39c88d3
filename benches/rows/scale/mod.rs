//! Measures how the cost of an operation, a start and memory grow with the queue's content. That is
//! messages of one mailbox, mailboxes, files of a drop box, and lines of the event log.

mod boxes;
mod log;
mod mailboxes;
mod messages;
mod project;

use crate::support::points::Points;
use crate::support::table;
use crate::support::{Outcome, go_on};

type Part = (&'static str, fn(&mut Points) -> Outcome<()>);

/// The parts, one or two charts each. Parts that leave most files behind come last.
const PARTS: [Part; 4] = [
    ("log", log::run),
    ("mailboxes", mailboxes::run),
    ("boxes", boxes::run),
    ("messages", messages::run),
];

pub fn run() -> Outcome<()> {
    let wanted = std::env::var("ENSEMBLE_BENCH_SCALE").unwrap_or_default();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.split(',').any(|w| w.trim() == name);
    let mut points = Points::new();
    let mut failed = Vec::new();
    for (name, run) in PARTS.into_iter().filter(|(name, _)| is_wanted(name)) {
        if let Err(error) = go_on().and_then(|()| run(&mut points)) {
            println!("  scale, {name}: {error}");
            failed.push(name);
        }
        points.write()?;
    }
    table::note(&format!("the points are in {}", points.path().display()));
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}
