//! The states that a power cut may leave of a log of steps, and the log of a sabotaged program.
//!
//! ```text
//! step                       is safe once                        until then
//! a name made, moved, gone   its directory was synced, or that   kept or lost, whatever came after it; but
//!                            of the other name, or a later step  never against the order of one name
//!                            of the same name is safe
//! bytes written              their file was synced               kept, lost, the first half, or zeroes
//! ```
//!
//! A rename is one step. A file's sync saves its content and not its name, a directory's sync saves the
//! names and not the contents.

use std::collections::BTreeSet;

use super::*;

const FATES: [Fate; 4] = [Fate::Kept, Fate::Lost, Fate::Half, Fate::Zeroes];

/// Sabotage of a log, to check that violations are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    NoFileSync,
    NoDirectorySync,
    /// Renamed files are written directly under their final name.
    InPlace,
}

pub struct Cut<'a> {
    log: &'a Log,
    at: usize,
    /// Steps whose fate is open.
    open: Vec<usize>,
    is_open: Vec<bool>,
    /// For each step, the earlier ones without which it cannot be.
    needs: &'a [Vec<usize>],
}

const fn names_of(act: &Act) -> [Option<&Entry>; 2] {
    match act {
        Act::Add { at, .. } | Act::Remove { at } => [Some(at), None],
        Act::Rename { from, to } => [Some(from), Some(to)],
        Act::Write { .. } | Act::Resize { .. } | Act::Sync(_) | Act::Mark(_) => [None, None],
    }
}

const fn is_data(act: &Act) -> bool {
    matches!(act, Act::Write { .. } | Act::Resize { .. })
}

/// For each step, the latest earlier steps of the same names.
pub fn needs(log: &Log) -> Vec<Vec<usize>> {
    let mut latest: HashMap<&Entry, usize> = HashMap::new();
    let mut needs = Vec::new();
    for (at, act) in log.acts.iter().enumerate() {
        let names = names_of(act).into_iter().flatten();
        needs.push(names.filter_map(|name| latest.insert(name, at)).collect());
    }
    needs
}

impl<'a> Cut<'a> {
    pub fn new(log: &'a Log, at: usize, needs: &'a [Vec<usize>]) -> Self {
        let mut is_safe = vec![false; at];
        for (sync, act) in log.acts[..at].iter().enumerate() {
            let Act::Sync(inode) = act else { continue };
            for (step, act) in log.acts[..sync].iter().enumerate() {
                is_safe[step] |= match act {
                    Act::Write { inode: of, .. } | Act::Resize { inode: of, .. } => of == inode,
                    other => names_of(other).into_iter().flatten().any(|name| name.0 == *inode),
                };
            }
        }
        for step in (0..at).rev().filter(|step| names_of(&log.acts[*step])[0].is_some()) {
            if is_safe[step] {
                needs[step].iter().for_each(|need| is_safe[*need] = true);
            }
        }
        let says_nothing = |act: &Act| matches!(act, Act::Sync(_) | Act::Mark(_));
        let is_open: Vec<bool> =
            (0..at).map(|step| !is_safe[step] && !says_nothing(&log.acts[step])).collect();
        let open = (0..at).filter(|step| is_open[*step]).collect();
        Self { log, at, open, is_open, needs }
    }

    /// How many states there may be at most; `None` if too many to count.
    fn count(&self) -> Option<u64> {
        self.open.iter().try_fold(1_u64, |count, step| {
            count.checked_mul(if is_data(&self.log.acts[*step]) { 4 } else { 2 })
        })
    }

    /// The states to check: all if there are at most `budget`, otherwise the extremes and as many more, drawn at
    /// random, as the budget allows.
    pub fn states(&self, budget: u64, random: &mut SimRng) -> Vec<Disk> {
        let mut choices: BTreeSet<Vec<usize>> = BTreeSet::new();
        if let Some(count) = self.count().filter(|count| *count <= budget) {
            choices.extend((0..count).map(|number| self.numbered(number)));
        } else {
            choices.extend(self.extremes());
            for _ in 0..budget {
                choices.insert(self.drawn(random));
            }
        }
        choices.iter().map(|choice| self.state(choice)).collect()
    }

    fn fates(&self, at: usize) -> usize {
        if is_data(&self.log.acts[self.open[at]]) { 4 } else { 2 }
    }

    fn numbered(&self, mut number: u64) -> Vec<usize> {
        (0..self.open.len())
            .map(|at| {
                let fates = self.fates(at) as u64;
                let fate = number % fates;
                number /= fates;
                fate as usize
            })
            .collect()
    }

    /// One choice, with its own chance that steps are lost.
    fn drawn(&self, random: &mut SimRng) -> Vec<usize> {
        let chance = [10, 50, 90][random.below(3) as usize];
        (0..self.open.len())
            .map(|at| match random.percent(chance) {
                true => 1 + random.below(self.fates(at) as u64 - 1) as usize,
                false => 0,
            })
            .collect()
    }

    /// All, none, all names and no content, the reverse; the names in their order up to each one; each
    /// step lost alone and kept alone.
    fn extremes(&self) -> Vec<Vec<usize>> {
        let count = self.open.len();
        let data = |at: usize| is_data(&self.log.acts[self.open[at]]);
        let by = |names: usize, content: usize| -> Vec<usize> {
            (0..count).map(|at| if data(at) { content } else { names }).collect()
        };
        let mut choices: Vec<_> = (0..4).map(|content| by(0, content)).collect();
        choices.extend((0..2).map(|content| by(1, content)));
        for limit in 0..count {
            for lost in [0, 1, 3] {
                let content = |at: usize| if at < limit { 0 } else { lost };
                let name = |at: usize| usize::from(at >= limit);
                choices.push(
                    (0..count).map(|at| if data(at) { content(at) } else { name(at) }).collect(),
                );
            }
            choices.push((0..count).map(|at| usize::from(at == limit)).collect());
            choices.push((0..count).map(|at| usize::from(at != limit)).collect());
        }
        choices
    }

    fn state(&self, choice: &[usize]) -> Disk {
        let mut fates = vec![Fate::Kept; self.at];
        for (at, step) in self.open.iter().enumerate() {
            fates[*step] = FATES[choice[at]];
        }
        // A later step of a name that never came to be cannot be kept.
        for step in 0..self.at {
            if self.is_open[step] && self.needs[step].iter().any(|need| fates[*need] == Fate::Lost)
            {
                fates[step] = Fate::Lost;
            }
        }
        let mut disk = self.log.start.clone();
        for (act, fate) in self.log.acts[..self.at].iter().zip(fates) {
            disk.apply(act, fate);
        }
        disk
    }
}

impl Sabotage {
    /// The log of a program without this step.
    pub fn of(self, log: &Log) -> Log {
        let is_directory = |inode: &Inode| log.start.is_directory(*inode);
        let kept = |act: &&Act| match (self, act) {
            (Self::NoFileSync, Act::Sync(inode)) => is_directory(inode),
            (Self::NoDirectorySync, Act::Sync(inode)) => !is_directory(inode),
            _ => true,
        };
        let acts: Vec<Act> = log.acts.iter().filter(kept).cloned().collect();
        let log = Log { acts, start: log.start.clone() };
        if self == Self::InPlace { in_place(&log) } else { log }
    }
}

/// Acts as if each renamed new file was created under its final name, or written over the old file.
fn in_place(log: &Log) -> Log {
    let mut disk = log.start.clone();
    // For each new file, its first name, and the target of its first rename.
    let mut created: HashMap<Inode, usize> = HashMap::new();
    let mut moved: HashMap<Inode, (usize, Entry, Option<Inode>)> = HashMap::new();
    for (at, act) in log.acts.iter().enumerate() {
        match act {
            Act::Add { inode, .. } if !log.start.is_directory(*inode) => {
                created.entry(*inode).or_insert(at);
            }
            Act::Rename { from, to } => {
                let inode = disk.child(from).expect("what was renamed is there");
                if created.contains_key(&inode) && !moved.contains_key(&inode) {
                    moved.insert(inode, (at, to.clone(), disk.child(to)));
                }
            }
            _ => {}
        }
        disk.apply(act, Fate::Kept);
    }
    let over = |inode: Inode| moved.get(&inode).and_then(|(_, _, over)| *over).unwrap_or(inode);
    let mut acts = Vec::new();
    for (at, act) in log.acts.iter().enumerate() {
        acts.push(match act.clone() {
            Act::Add { inode, .. } if created.get(&inode) == Some(&at) => match moved.get(&inode) {
                Some((_, _, Some(over))) => Act::Resize { inode: *over, bytes: 0 },
                Some((_, to, None)) => Act::Add { at: to.clone(), inode },
                None => act.clone(),
            },
            Act::Rename { .. } if moved.values().any(|(rename, ..)| *rename == at) => continue,
            Act::Write { inode, offset, bytes } => Act::Write { inode: over(inode), offset, bytes },
            Act::Resize { inode, bytes } => Act::Resize { inode: over(inode), bytes },
            Act::Sync(inode) => Act::Sync(over(inode)),
            other => other,
        });
    }
    Log { start: log.start.clone(), acts }
}
