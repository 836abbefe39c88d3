//! A snapshot of all processes of the machine.

use std::collections::{BTreeMap, BTreeSet};

use crate::provider::process::uncollected_status;
use crate::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessRow {
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    /// The foreground group of its terminal; 0 without a terminal.
    pub(super) foreground: u32,
    /// Start in clock ticks since boot. Together with the pid it identifies a process uniquely.
    pub(super) started: u64,
    /// Processor time, in clock ticks.
    pub(super) used: u64,
    /// Whether it has ended and its parent has not reaped it yet.
    pub(super) zombie: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ProcessTable {
    pub(super) rows: BTreeMap<u32, ProcessRow>,
}

impl ProcessTable {
    /// Reads the table. Processes that end in the meantime are left out.
    pub(super) fn read() -> std::io::Result<Self> {
        let mut rows = BTreeMap::new();
        for pid in sys::all()? {
            if let Some(row) = read_row(pid) {
                rows.insert(pid, row);
            }
        }
        Ok(Self { rows })
    }

    /// `pid` and its ancestors, the nearest first.
    pub(super) fn line_of(&self, pid: u32) -> Vec<u32> {
        let mut line = vec![pid];
        while let Some(row) = line.last().and_then(|pid| self.rows.get(pid)) {
            if row.parent == 0 || line.contains(&row.parent) {
                break;
            }
            line.push(row.parent);
        }
        line
    }

    /// Adds all descendants of `seeds`, except those at or below `walls`.
    pub(super) fn with_descendants(
        &self,
        seeds: &BTreeSet<u32>,
        walls: &BTreeSet<u32>,
    ) -> BTreeSet<u32> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, row) in &self.rows {
            children.entry(row.parent).or_default().push(*pid);
        }
        let mut found = BTreeSet::new();
        let mut next: Vec<u32> = seeds.iter().copied().collect();
        while let Some(pid) = next.pop() {
            if !walls.contains(&pid) && found.insert(pid) {
                next.extend(children.get(&pid).into_iter().flatten());
            }
        }
        found
    }
}

pub(super) fn read_row(pid: u32) -> Option<ProcessRow> {
    parse_row(&sys::stat(pid)?)
}

/// Whether a process is a command line of an interactive shell, in the foreground of its terminal: of the session of its
/// parent, in another process group.
pub fn is_foreground_job(pid: u32) -> bool {
    let Some(own) = read_row(pid) else { return false };
    // The system shows no numbers of what is outside of a container: its init may have session 0.
    read_row(own.parent).is_some_and(|parent| {
        own.session == parent.session && own.group != parent.group && own.foreground == own.group
    })
}

/// Parses a row. The second field, the name, is in parentheses and may contain spaces and
/// parentheses.
fn parse_row(stat: &str) -> Option<ProcessRow> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<i64>().ok());
    let pid = |index: usize| number(index).map(|n| u32::try_from(n).unwrap_or(0));
    Some(ProcessRow {
        zombie: matches!(*fields.first()?, "Z" | "X"),
        parent: pid(1)?,
        group: pid(2)?,
        session: pid(3)?,
        foreground: pid(5)?,
        used: number(11).and_then(|user| u64::try_from(user + number(12)?).ok())?,
        started: number(19).and_then(|n| u64::try_from(n).ok())?,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFate {
    Lives,
    /// The process has ended, and its parent has not reaped it yet.
    Unnoticed {
        /// Exit status; `None` if a signal ended the process.
        exit_code: Option<i32>,
    },
    /// There is no such process, or its parent has reaped it.
    Gone,
}

/// State of process `pid`.
///
/// A parent may reap late or never: a tmux server sometimes misses the end of a process. Until
/// then, the system shows the exit status to the process's owner.
pub fn fate(pid: u32) -> ProcessFate {
    match sys::stat(pid) {
        Some(stat) if parse_row(&stat).is_some_and(|row| row.zombie) => {
            ProcessFate::Unnoticed { exit_code: uncollected_status(&stat) }
        }
        Some(_) => ProcessFate::Lives,
        None => ProcessFate::Gone,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, WaitId, WaitIdOptions};

    use super::*;

    #[test]
    fn exit_of_an_unreaped_process_is_reported() {
        let fate_of = |script: &str| {
            let mut child = Command::new("sh").args(["-c", script]).spawn().expect("a process");
            // Wait until it exits, without reaping it.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let pid = Pid::from_child(&child);
            rustix::process::waitid(WaitId::Pid(pid), options).expect("its end");
            let found = fate(child.id());
            child.wait().expect("noticed");
            (found, fate(child.id()))
        };
        let (found, noticed) = fate_of("exit 3");
        assert_eq!(found, ProcessFate::Unnoticed { exit_code: Some(3) });
        assert_eq!(noticed, ProcessFate::Gone);
        assert_eq!(fate_of("kill -9 $$").0, ProcessFate::Unnoticed { exit_code: None });
    }

    #[test]
    fn row_is_parsed_after_a_hostile_name() {
        let stat = "7 (a) b) T 41 42 43 34816 -1 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        let row = parse_row(stat).expect("a row");
        assert_eq!((row.parent, row.group, row.session), (41, 42, 43));
        assert_eq!((row.foreground, row.started, row.zombie), (0, 4242, false));
        assert_eq!(row.used, 11 + 12);
        assert_eq!(parse_row("7 (a"), None);
    }

    #[test]
    fn descendants_stop_at_walls() {
        let row = |parent| ProcessRow {
            parent,
            group: 0,
            session: 0,
            foreground: 0,
            started: 0,
            used: 0,
            zombie: false,
        };
        let rows = [(1, 0), (10, 1), (11, 10), (12, 11), (13, 10), (14, 13)];
        let table = ProcessTable { rows: rows.map(|(pid, parent)| (pid, row(parent))).into() };
        let found = table.with_descendants(&[10].into(), &[13].into());
        assert_eq!(found, [10, 11, 12].into());
        assert_eq!(table.line_of(12), [12, 11, 10, 1]);
    }

    #[test]
    fn table_contains_this_process_and_its_ancestors() {
        let table = ProcessTable::read().expect("a table");
        assert!(table.rows.contains_key(&std::process::id()));
    }
}
