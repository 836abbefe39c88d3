//! Stories: what a process does, what must exist after a power cut, and what PROTOCOL.md says may be missing.

use std::collections::HashSet;
use std::fmt;

use ensemble_core::Result;

use super::cuts::{Cut, needs};
use crate::support::in_memory;
use crate::support::traced::between_marks;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It was acknowledged and is missing.
    Lost,
    /// It was acknowledged and exists, but is not complete.
    Torn,
    /// It exists twice, or was done twice.
    Twice,
    /// A settle, a dead letter or a redrive was acknowledged, and it waits again as if it was not.
    Undone,
    /// A receive or a release was acknowledged and has to be done again.
    GivenBack,
    /// Half of the message has its final name, and no process was notified that it is stored.
    HalfSeen,
    /// It happened, and the log does not have it.
    Untold,
    /// The remaining state cannot be opened, repaired, or used.
    Stuck,
}

/// The defects that a judge has found in one state.
#[derive(Debug, Default)]
pub struct Findings(pub Vec<(Kind, String)>);

impl Findings {
    pub fn note(&mut self, kind: Kind, what: impl fmt::Display) {
        self.0.push((kind, what.to_string()));
    }
}

/// Printed by a process that is killed later, before it can sync a directory, which is the last
/// action before an acknowledgement. The second one is printed by its successor.
pub const KILLED: &str = "killed";
pub const ANOTHER: &str = "another";

/// Arguments of the process.
pub struct Stage {
    pub queue: PathBuf,
    pub state: PathBuf,
    pub durability: Durability,
}

/// Says in the trace that something is acknowledged.
pub fn say(what: impl fmt::Display) {
    let _ = Path::new(&format!("{}{what}", trace::MARK)).exists();
}

pub struct Story {
    pub name: &'static str,
    /// The durable state before the story.
    pub prepare: fn(&Path),
    pub act: fn(&Stage),
    pub judge: fn(&Bed, &[String], &mut Findings) -> Result<()>,
    /// The defects that PROTOCOL.md allows at `durability: power`, and at `process`.
    pub weak: [&'static [Kind]; 2],
}

impl Story {
    pub fn weak_at(&self, durability: Durability) -> Vec<Kind> {
        self.weak[usize::from(durability == Durability::Process)].to_vec()
    }
}

pub const STORIES: &[Story] = &[
    mail::PUBLISH,
    mail::BATCH,
    mail::AGAIN,
    mail::LIFE,
    mail::SETTLE_BATCH,
    mail::DEAD,
    mail::NEW_QUEUE,
    mail::ATTACH,
    mail::ROUTE,
    documents::DECIDE,
    documents::DECIDE_AGAIN,
    documents::BOARD,
    documents::DOCUMENT,
    documents::LOG,
    documents::STEPS,
    documents::TELL,
    moves::MIGRATE,
];

pub fn find(name: &str) -> &'static Story {
    STORIES.iter().find(|story| story.name == name).expect("a story of that name")
}

/// In the process under strace: `<story>@power` or `<story>@process`, or `<story>@killed` for one whose
/// calls are counted.
pub fn play(role: &str) {
    let (name, how) = role.split_once('@').expect("a story and its durability");
    let durability = if how == "process" { Durability::Process } else { Durability::Power };
    let queue = PathBuf::from(given("QUEUE"));
    let state = queue.with_file_name(".ensemble");
    let act = || (find(name).act)(&Stage { queue, state, durability });
    if how == "killed" {
        between_marks(act)
    } else {
        act()
    }
    say("end");
}

/// Not on the tape: strace's own file, and what SQLite shares by memory and makes again.
fn is_skipped(name: &str) -> bool {
    name == "trace" || name.ends_with("-shm")
}

/// Lets a process play the story and returns what it has done to the disk. What is left in the model
/// if nothing is lost must be what is on disk. In memory, where names do not go with files, as in the model.
pub fn record(story: &Story, durability: Durability) -> Log {
    let home = in_memory();
    (story.prepare)(home.path());
    let bed = Bed::found(home.path());
    let start = Disk::read(home.path(), is_skipped);
    let word = if durability == Durability::Power { "power" } else { "process" };
    let role = format!("power_cut::{}@{word}", story.name);
    let options = ["-s", "4194304", "-xx", "-e", trace::SHOWN];
    let status = start_traced(&bed, &role, &options).wait().expect("strace runs");
    assert!(status.success(), "{role}: {status}");
    let text = std::fs::read(home.path().join("trace")).expect("a trace");
    let mut log = tape::read(home.path(), start, &String::from_utf8_lossy(&text));
    without_syncs_of_killed(&mut log);
    assert_eq!(log.marks(log.acts.len()).last().map(String::as_str), Some("end"), "{role}");
    let (real, end) = (Disk::read(home.path(), is_skipped), log.end());
    let trees = (without_skipped(&end), without_skipped(&real));
    assert!(trees.0 == trees.1, "{role}: the model differs from the disk: {:#?}", differs(&trees));
    log
}

fn without_syncs_of_killed(log: &mut Log) {
    let (mut is_killed, start) = (false, log.start.clone());
    log.acts.retain(|act| {
        match act {
            Act::Mark(said) if said == KILLED => is_killed = true,
            Act::Mark(said) if said == ANOTHER => is_killed = false,
            _ => {}
        }
        !(is_killed && matches!(act, Act::Sync(inode) if start.is_directory(*inode)))
    });
}

type Tree<'a> = BTreeMap<String, Option<&'a [u8]>>;

fn without_skipped(disk: &Disk) -> Tree<'_> {
    disk.tree().into_iter().filter(|(path, _)| !path.ends_with("-shm")).collect()
}

fn differs(trees: &(Tree<'_>, Tree<'_>)) -> Vec<String> {
    let names = trees.0.keys().chain(trees.1.keys());
    names.filter(|name| trees.0.get(*name) != trees.1.get(*name)).cloned().collect()
}

#[derive(Debug, Default)]
pub struct Report {
    /// Changes and syncs after which the power was cut.
    pub steps: usize,
    /// States that differ, in what is left or in what had been acknowledged.
    pub states: usize,
    /// How many of them were judged: all, or as many as the budget allows.
    pub judged: u64,
    /// How many of them show a violation of a kind.
    pub found: BTreeMap<Kind, usize>,
    /// The first two of each kind.
    pub examples: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps, {} states, {} judged", self.steps, self.states, self.judged)?;
        for (kind, count) in &self.found {
            write!(f, ", {count} {kind:?}")?;
        }
        Ok(())
    }
}

/// Cuts the power after every step and judges what may be left.
pub fn judge(story: &Story, log: &Log) -> Report {
    let mut random = SimRng::new(setting("TORTURE_SEED", 1));
    let (drawn, judged) = (setting("POWER_CUT_DRAWN", 10), setting("POWER_CUT_STATES", 25));
    let needs = needs(log);
    let (mut seen, mut states) = (HashSet::new(), Vec::new());
    for at in 0..=log.acts.len() {
        // A state possible after a sync was possible before it, too.
        if at > 0 && matches!(log.acts[at - 1], Act::Sync(_)) {
            continue;
        }
        let marks = log.marks(at);
        for disk in Cut::new(log, at, &needs).states(drawn, &mut random) {
            if seen.insert((disk.digest(), marks.len())) {
                states.push((at, disk));
            }
        }
    }
    let mut report = Report { steps: log.acts.len(), states: states.len(), ..Report::default() };
    while !states.is_empty() && report.judged < judged {
        let (at, disk) = states.swap_remove(random.below(states.len() as u64) as usize);
        examine(story, &disk, &log.marks(at), at, &mut report);
    }
    report
}

fn examine(story: &Story, disk: &Disk, marks: &[String], at: usize, report: &mut Report) {
    let home = in_memory();
    disk.write(home.path());
    let bed = Bed::found(home.path());
    let mut found = Findings::default();
    if let Err(error) = (story.judge)(&bed, marks, &mut found) {
        found.note(Kind::Stuck, error);
    }
    report.judged += 1;
    let kinds: std::collections::BTreeSet<Kind> = found.0.iter().map(|(kind, _)| *kind).collect();
    for kind in kinds {
        let count = report.found.entry(kind).or_default();
        *count += 1;
        if *count <= 2 {
            let told: Vec<&String> = found.0.iter().filter(|f| f.0 == kind).map(|f| &f.1).collect();
            let tree: Vec<String> = disk.tree().into_iter().map(shown).collect();
            report
                .examples
                .push(format!("{kind:?} after step {at}, {marks:?}: {told:?}\n{tree:#?}"));
        }
    }
}

fn shown((path, content): (String, Option<&[u8]>)) -> String {
    match content {
        Some(content) => format!("{path} ({} bytes)", content.len()),
        None => format!("{path}/"),
    }
}
