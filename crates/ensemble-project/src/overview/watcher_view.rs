//! The watcher as other processes see it: its lock, and its status file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::durable::{FileLock, read_file};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Name, Timestamp};
use ensemble_team::roster::{Member, MemberOrigin};
use serde_json::Value;

use super::changes::ProjectChanges;
use super::kept::CachedPart;
use crate::attention::WatcherState;
use crate::members::{self, ObservedMember};
use crate::project::{CONFIG_FILE, Project};
use crate::status::{self, SILENCE_MAX, STATUS_BYTES_MAX};
use crate::troubles::BoardTrouble;

const FOR_TEAM: &str = "`ensemble up`";
const FOR_QUEUE: &str = "`ensemble admin watch &`";

const FAILING: &str = "failing";

#[derive(Clone, Debug)]
pub struct WatcherView {
    /// The holder of the watcher's lock: process and program.
    pub holder: Option<String>,
    pub pid: Option<u32>,
    /// How long the holder has given no sign of life, if known.
    pub silent: Option<Duration>,
    said: Arc<WrittenStatus>,
}

#[derive(Debug, Default)]
pub(super) struct WrittenStatus {
    status: Option<Value>,
    observed: Vec<ObservedMember>,
}

impl WatcherView {
    pub fn of(project: &Project) -> Self {
        let mut unread = CachedPart::of(Vec::new());
        Self::read_status(project, (&mut unread, &ProjectChanges::Anywhere), &mut Vec::new())
    }

    pub(super) fn read_status(
        project: &Project,
        (said, changes): (&mut CachedPart<WrittenStatus>, &ProjectChanges),
        warnings: &mut Vec<String>,
    ) -> Self {
        let lock = project.watch_lock();
        let is_held = FileLock::is_held(&lock).unwrap_or_else(|error| {
            warnings.push(error.to_string());
            false
        });
        let said = said
            .get(changes, || Ok(WrittenStatus::read(&project.watch_status())))
            .unwrap_or_default();
        let written = said.status.as_ref().and_then(|status| status["pid"].as_u64());
        let likely = written.and_then(|pid| u32::try_from(pid).ok());
        let pid = is_held.then(|| FileLock::holder_near(&lock, likely)).flatten();
        let holder = is_held.then(|| FileLock::words_of(pid));
        let beat = |pid| status::last_beat(said.status.as_ref()?, pid);
        // No wall clock: it may be set, and the machine may have slept.
        let silent = pid.and_then(beat).map(|at| SystemClock.monotonic().since(at));
        Self { holder, pid, silent, said }
    }

    pub fn state(&self) -> WatcherState {
        match (&self.holder, self.silent) {
            (None, _) => WatcherState::Missing,
            (Some(_), Some(silent)) if silent > SILENCE_MAX => WatcherState::Hangs(silent),
            (Some(_), _) => WatcherState::Runs,
        }
    }

    /// Whether a process has the watcher's lock; [`WatcherView::state`] says whether it does its work.
    pub const fn runs(&self) -> bool {
        self.holder.is_some()
    }

    /// Whether the last status is of the watcher that runs now, and not of one before.
    pub fn has_reported(&self) -> bool {
        let pid = self.status().and_then(|status| status["pid"].as_u64());
        let by = pid.map(|pid| format!("(pid {pid})"));
        self.holder.as_deref().zip(by).is_some_and(|(holder, by)| holder.ends_with(&by))
    }

    pub fn status(&self) -> Option<&Value> {
        self.said.status.as_ref()
    }

    pub(super) fn servers_lost_at(&self) -> Option<Timestamp> {
        let servers = &self.status().filter(|_| self.runs())?["servers"];
        servers["gone_since"].as_str()?.parse().ok()
    }

    pub(super) fn failures(&self) -> Vec<BoardTrouble> {
        let status = self.status().filter(|_| self.runs() && self.has_reported());
        let failures = status.and_then(|status| status["failures"].as_array());
        let trouble = |failure: &Value| {
            let of = |field: &str| failure[field].as_str().unwrap_or_default();
            let count = times(failure["count"].as_u64().unwrap_or_default());
            let text = format!("the watcher {}: {} ({count})", of("what"), of("error"));
            let help = "fix that; the watcher retries by itself".to_owned();
            BoardTrouble::new(FAILING, of("what"), text, help)
        };
        failures.into_iter().flatten().map(trouble).collect()
    }

    pub(super) fn observed(&self) -> &[ObservedMember] {
        &self.said.observed
    }

    /// The watcher's last note on its nudges to an agent.
    pub fn why_not_notified(&self, agent: &Name) -> Option<String> {
        let row = self.rows().find(|row| row["agent"] == agent.as_str())?;
        let deferred = row["deferred"]["detail"].as_str().map(|why| format!("not notified: {why}"));
        let nudges = row["nudges"].as_u64().filter(|nudges| *nudges > 0);
        deferred.or_else(|| Some(format!("notified {}", times(nudges?))))
    }

    pub fn notified(&self) -> Vec<(Name, Name)> {
        let name = |row: &Value, field: &str| Name::new(row[field].as_str()?).ok();
        self.rows().filter_map(|row| Some((name(row, "agent")?, name(row, "mailbox")?))).collect()
    }

    /// The agents that a running watcher notifies, in its own words.
    fn rows(&self) -> impl Iterator<Item = &Value> {
        let status = self.status().filter(|_| self.runs());
        status.and_then(|status| status["agents"].as_array()).into_iter().flatten()
    }
}

/// Whether the watcher has started before the last change of the configuration, which it reads only then.
pub fn has_old_config(project: &Project) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    let started = changed(&project.watch_lock());
    started.is_some() && changed(&project.queue.with_file_name(CONFIG_FILE)) > started
}

fn times(count: u64) -> String {
    if count == 1 { "1 time".to_owned() } else { format!("{count} times") }
}

/// What a person can do to start the watcher of this project. The command between backticks at its beginning, if there is
/// one, does not hold the terminal.
pub fn watcher_remedy(project: &Project) -> &'static str {
    // The wrappers of other members keep a watcher themselves.
    let is_upheld = |it: &Member| {
        it.is_present() && matches!(it.came(), MemberOrigin::Started | MemberOrigin::Joined)
    };
    let has_team = || {
        let members = project.roster().entries().map(|(members, _)| members);
        members.is_ok_and(|members| members.iter().any(is_upheld))
    };
    let is_team = !project.config.agents.is_empty() || has_team();
    if is_team { FOR_TEAM } else { FOR_QUEUE }
}

impl WrittenStatus {
    fn read(path: &Path) -> Self {
        let content = read_file(path, STATUS_BYTES_MAX).ok().flatten();
        let status: Option<Value> = content.and_then(|text| serde_json::from_slice(&text).ok());
        let observed = status.as_ref().map(members::observed_in).unwrap_or_default();
        Self { status, observed }
    }
}
