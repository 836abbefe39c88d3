//! Rollouts of Codex that no hook has named: which agent each belongs to.
//!
//! | what the rollout says | it belongs to |
//! |---|---|
//! | a hint for one mailbox was typed into it, and it was written in a directory and a life of that mailbox's agent | that agent |
//! | no hint; one agent alone was up in its directory when it began | that agent |
//! | otherwise, and two or more agents are possible | no agent: it is *unclear*, and counts for none |
//!
//! The first line of a rollout has its directory (`cwd`) and the time at which it began. It names no process and no
//! terminal. The hint is the line that the watcher types for waiting mail: it names the mailbox, and only the agent's own
//! terminal gets it. Rollouts that a hook has named are left out.
//!
//! *Limit*: a Codex that a person runs in the directory of a single agent without hooks counts for that agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::message::{Name, Timestamp, read_foreign_json};
use serde::Serialize;
use serde_json::Value;

use super::lines::{FilePosition, ReadingLimit, read_new};

/// The directory of rollouts in the home of Codex: `YYYY/MM/DD/rollout-*.jsonl`, by local days.
const SESSIONS: &str = "sessions";
const ROLLOUTS_MAX: usize = 10_000;
const HINT_BYTES_MAX: usize = 120;
/// Local days begin up to a day before or after those of UTC.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An agent that runs Codex without hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutClaim {
    pub agent: Name,
    pub mailbox: Name,
    pub directory: PathBuf,
    pub lives: Vec<(Timestamp, Option<Timestamp>)>,
}

/// A rollout that may belong to several agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnclearRollout {
    pub path: PathBuf,
    pub agents: Vec<Name>,
}

/// The rollouts of one home of Codex, read as they grow.
#[derive(Debug)]
pub struct Rollouts {
    sessions: PathBuf,
    known: BTreeMap<PathBuf, Rollout>,
}

#[derive(Debug, Default)]
struct Rollout {
    position: FilePosition,
    began: Option<(PathBuf, Timestamp)>,
    hints: Vec<(Name, Timestamp)>,
}

impl RolloutClaim {
    fn was_up(&self, at: Timestamp) -> bool {
        self.lives.iter().any(|(from, until)| *from <= at && until.is_none_or(|until| at <= until))
    }

    fn is_in(&self, directory: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.directory == directory || real(&self.directory) == real(directory)
    }
}

impl Rollouts {
    /// Those below this home of Codex. Nothing is read yet.
    pub fn new(codex_home: &Path) -> Self {
        Self { sessions: codex_home.join(SESSIONS), known: BTreeMap::new() }
    }

    /// The rollouts of each agent, and those that are unclear. `named` are those that a hook has named.
    pub fn of(
        &mut self,
        claims: &[RolloutClaim],
        named: &BTreeSet<PathBuf>,
        limit: &mut ReadingLimit,
    ) -> (BTreeMap<Name, Vec<PathBuf>>, Vec<UnclearRollout>) {
        let (mut found, mut unclear) = (BTreeMap::<Name, Vec<PathBuf>>::new(), Vec::new());
        let first = claims.iter().flat_map(|claim| &claim.lives).map(|(from, _)| *from).min();
        let Some(first) = first else { return (found, unclear) };
        for path in files_since(&self.sessions, first) {
            if named.contains(&path) {
                continue;
            }
            let rollout = self.known.entry(path.clone()).or_default();
            rollout.read(&path, claims, limit);
            match rollout.owners(claims).as_slice() {
                [] => {}
                [owner] => found.entry(owner.agent.clone()).or_default().push(path),
                several => {
                    let agents = several.iter().map(|claim| claim.agent.clone()).collect();
                    unclear.push(UnclearRollout { path, agents });
                }
            }
        }
        (found, unclear)
    }
}

impl Rollout {
    /// Reads what is new. A rollout of another directory is read no further than to its first line.
    fn read(&mut self, path: &Path, claims: &[RolloutClaim], limit: &mut ReadingLimit) {
        if let Some((directory, _)) = &self.began
            && !claims.iter().any(|claim| claim.is_in(directory))
        {
            return;
        }
        let Self { position, began, hints } = self;
        // A rollout that cannot be read now is tried again at the next look. One that was replaced is read again.
        if read_new(path, position, limit, |line| read_hints(line, began, hints)).is_err() {
            *self = Self::default();
        }
    }

    fn owners<'c>(&self, claims: &'c [RolloutClaim]) -> Vec<&'c RolloutClaim> {
        let Some((directory, began)) = &self.began else { return Vec::new() };
        let here = || claims.iter().filter(|claim| claim.is_in(directory));
        let is_hinted = |claim: &&RolloutClaim| {
            self.hints.iter().any(|(mailbox, at)| claim.mailbox == *mailbox && claim.was_up(*at))
        };
        let hinted: Vec<&RolloutClaim> = here().filter(is_hinted).collect();
        match hinted.is_empty() {
            false => hinted,
            true => here().filter(|claim| claim.was_up(*began)).collect(),
        }
    }
}

fn read_hints(
    line: &[u8],
    began: &mut Option<(PathBuf, Timestamp)>,
    hints: &mut Vec<(Name, Timestamp)>,
) {
    let Ok(line) = read_foreign_json::<Value>(line) else { return };
    let (payload, at) =
        (&line["payload"], line["timestamp"].as_str().and_then(|at| at.parse().ok()));
    match (line["type"].as_str(), payload["type"].as_str()) {
        (Some("session_meta"), _) if began.is_none() => {
            let at = payload["timestamp"].as_str().and_then(|at| at.parse().ok()).or(at);
            *began = payload["cwd"].as_str().map(PathBuf::from).zip(at);
        }
        (Some("event_msg"), Some("user_message")) => {
            let mailbox = payload["message"].as_str().and_then(hinted_mailbox);
            hints.extend(mailbox.zip(at));
        }
        _ => {}
    }
}

/// The mailbox of a hint: `ensemble: 2 messages for worker-1. Run: ensemble recv`.
fn hinted_mailbox(text: &str) -> Option<Name> {
    let hint = text.trim().strip_prefix("ensemble: ").filter(|it| it.len() <= HINT_BYTES_MAX)?;
    let (_, rest) = hint.split_once(" for ")?;
    let mailbox = rest.split_once(". Run:").map_or(rest, |(mailbox, _)| mailbox);
    Name::new(mailbox).ok()
}

/// The rollouts in the directories of all days since then, by name.
fn files_since(sessions: &Path, since: Timestamp) -> Vec<PathBuf> {
    let millis = i64::try_from(DAY.as_millis()).unwrap_or_default();
    let first = Timestamp::from_unix_millis(since.unix_millis().saturating_sub(millis)).to_string();
    let mut dirs = vec![(sessions.to_owned(), true)];
    for part in first.get(..10).unwrap_or_default().split('-') {
        let below = |(dir, is_first): (PathBuf, bool)| {
            names(&dir).into_iter().filter_map(move |name| match is_first && *name < *part {
                true => None,
                false => Some((dir.join(&name), is_first && *name == *part)),
            })
        };
        dirs = dirs.into_iter().flat_map(below).collect();
    }
    let files = dirs.into_iter().flat_map(|(dir, _)| {
        let is_rollout = |name: &String| name.starts_with("rollout-") && name.ends_with(".jsonl");
        names(&dir).into_iter().filter(is_rollout).map(move |name| dir.join(name))
    });
    files.take(ROLLOUTS_MAX).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(minute: u32) -> Timestamp {
        format!("2026-11-25T10:{minute:02}:00.000Z").parse().unwrap()
    }

    fn claim(agent: &str, directory: &Path, from: u32, until: Option<u32>) -> RolloutClaim {
        let agent = Name::new(agent).unwrap();
        let lives = vec![(at(from), until.map(at))];
        RolloutClaim { mailbox: agent.clone(), agent, directory: directory.to_owned(), lives }
    }

    /// A rollout that began then in that directory, and the lines that a person or the watcher typed.
    fn rollout(home: &Path, name: &str, cwd: &Path, began: u32, typed: &[(u32, &str)]) -> PathBuf {
        let dir = home.join("sessions/2026/11/25");
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join(format!("rollout-{name}.jsonl"));
        let payload = json!({ "cwd": cwd, "timestamp": at(began), "originator": "codex-tui" });
        let mut lines =
            vec![json!({ "timestamp": at(began), "type": "session_meta", "payload": payload })];
        lines.extend(typed.iter().map(|(minute, text)| {
            let payload = json!({ "type": "user_message", "message": text });
            json!({ "timestamp": at(*minute), "type": "event_msg", "payload": payload })
        }));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_rollout_belongs_to_the_one_agent_that_it_can_be_of() {
        let home = tempfile::tempdir().unwrap();
        let (here, there) = (home.path().join("a"), home.path().join("b"));
        let claims = [claim("w1", &here, 10, Some(20)), claim("w2", &there, 10, None)];
        let own = rollout(home.path(), "1", &here, 12, &[(12, "do it")]);
        rollout(home.path(), "before", &here, 9, &[]);
        rollout(home.path(), "after", &here, 21, &[]);
        rollout(home.path(), "elsewhere", home.path(), 12, &[]);
        let hooked = rollout(home.path(), "hooked", &there, 12, &[]);
        let mut rollouts = Rollouts::new(home.path());
        let (found, unclear) = rollouts.of(&claims, &[hooked].into(), &mut ReadingLimit::none());
        assert_eq!(found, [(Name::new("w1").unwrap(), vec![own])].into());
        assert_eq!(unclear, []);
    }

    #[test]
    fn of_two_agents_in_one_directory_the_hint_tells_and_without_one_neither_gets_it() {
        let home = tempfile::tempdir().unwrap();
        let here = home.path().join("a");
        let claims = [claim("w1", &here, 10, None), claim("w2", &here, 11, None)];
        let first = rollout(home.path(), "1", &here, 12, &[]);
        let quoted = "why did it say: ensemble: mail for w2";
        let second = rollout(home.path(), "2", &here, 12, &[(13, quoted)]);
        let mut rollouts = Rollouts::new(home.path());
        let (found, unclear) = rollouts.of(&claims, &BTreeSet::new(), &mut ReadingLimit::none());
        assert_eq!(found, BTreeMap::new(), "it could be of two agents");
        let paths: Vec<&Path> = unclear.iter().map(|it| it.path.as_path()).collect();
        assert_eq!(paths, [&first, &second]);
        assert_eq!(unclear[0].agents.len(), 2);

        let hint = "ensemble: 2 messages for w2. Run: ensemble recv --as w2";
        rollout(home.path(), "1", &here, 12, &[(13, hint)]);
        let (found, unclear) = rollouts.of(&claims, &BTreeSet::new(), &mut ReadingLimit::none());
        assert_eq!(found, [(Name::new("w2").unwrap(), vec![first])].into());
        assert_eq!(unclear.len(), 1);
    }

    #[test]
    fn hints_name_a_mailbox_and_other_lines_name_none() {
        let w1 = Name::new("w.1").ok();
        assert_eq!(hinted_mailbox("ensemble: mail for w.1"), w1);
        assert_eq!(hinted_mailbox("ensemble: 1 message for w.1. Run: ensemble recv"), w1);
        assert_eq!(hinted_mailbox("look for w1"), None);
        assert_eq!(hinted_mailbox("ensemble: what is it for you and me"), None);
    }
}
