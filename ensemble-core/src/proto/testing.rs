//! Helpers that tests share (feature `sim`): names, a clock set by hand, and tables of pairs.

use std::fmt::Write as _;
use std::time::Duration;

use super::Machine;
use crate::env::Monotonic;
use crate::message::Name;

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn at(seconds: u64) -> Monotonic {
    at_millis(seconds * 1_000)
}

pub fn at_millis(millis: u64) -> Monotonic {
    Monotonic::ZERO + Duration::from_millis(millis)
}

pub fn drain<M: Machine>(machine: &mut M) -> Vec<M::Effect> {
    std::iter::from_fn(|| machine.poll_effect()).collect()
}

/// Runs a machine alone until `end`: wakes it at its own deadlines and notes what it asks for.
pub fn run<M: Machine>(machine: &mut M, end: Monotonic) -> Vec<(Monotonic, M::Effect)> {
    let mut seen = Vec::new();
    while let Some(due) = machine.poll_timeout().filter(|due| *due <= end) {
        machine.handle_timeout(due);
        seen.extend(drain(machine).into_iter().map(|effect| (due, effect)));
        assert!(machine.poll_timeout() > Some(due) || machine.poll_timeout().is_none(), "it spins");
    }
    seen
}

/// One line an event, one column a state: what happens to every pair.
pub fn pairs<S, E>(
    states: &[(&str, S)],
    events: &[(&str, E)],
    outcome: impl Fn(&S, &E) -> String,
) -> String {
    let mut cells = vec![
        std::iter::once("")
            .chain(states.iter().map(|s| s.0))
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    ];
    for (name, event) in events {
        let row = states.iter().map(|(_, state)| outcome(state, event));
        cells.push(std::iter::once((*name).to_owned()).chain(row).collect());
    }
    let width =
        |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=states.len()).map(width).collect();
    let mut table = String::from("\n");
    for row in &cells {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(table, "{}", line.trim_end());
    }
    table
}
