//! The watcher as other processes see it: its lock, and its status file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use ensemble_core::durable::FileLock;
use ensemble_core::message::Name;
use serde_json::Value;

use super::changes::Changes;
use super::kept::Kept;
use crate::members::{self, Observed};
use crate::project::Project;

/// The largest status file of a watcher, in bytes.
const STATUS_BYTES_MAX: u64 = 1024 * 1024;

/// The watcher of a project, as seen from outside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatcherView {
    /// The holder of the watcher's lock: process and program.
    pub holder: Option<String>,
    said: Arc<Said>,
}

/// The last status that a watcher has written (docs/schema).
#[derive(Debug, Default)]
pub(super) struct Said {
    status: Option<Value>,
    observed: Vec<Observed>,
}

impl WatcherView {
    /// The watcher of a project now.
    #[must_use]
    pub fn of(project: &Project) -> Self {
        let mut unread = Kept::of(Vec::new());
        Self::look(project, (&mut unread, &Changes::Anywhere), &mut Vec::new())
    }

    pub(super) fn look(
        project: &Project,
        (said, changes): (&mut Kept<Said>, &Changes),
        warnings: &mut Vec<String>,
    ) -> Self {
        let holder = FileLock::holder_in_words(&project.watch_lock()).unwrap_or_else(|error| {
            warnings.push(error.to_string());
            None
        });
        let said =
            said.get(changes, || Ok(Said::read(&project.watch_status()))).unwrap_or_default();
        Self { holder, said }
    }

    /// Whether a watcher runs.
    #[must_use]
    pub const fn runs(&self) -> bool {
        self.holder.is_some()
    }

    /// Whether the last status is of the watcher that runs now, and not of one before.
    #[must_use]
    pub fn has_reported(&self) -> bool {
        let pid = self.status().and_then(|status| status["pid"].as_u64());
        let by = pid.map(|pid| format!("(pid {pid})"));
        self.holder.as_deref().zip(by).is_some_and(|(holder, by)| holder.ends_with(&by))
    }

    /// The last status that a watcher has written (docs/schema).
    #[must_use]
    pub fn status(&self) -> Option<&Value> {
        self.said.status.as_ref()
    }

    /// The members as a watcher has seen them last.
    pub(super) fn observed(&self) -> &[Observed] {
        &self.said.observed
    }

    /// What the watcher last said of its nudges to an agent.
    #[must_use]
    pub fn why_not_notified(&self, agent: &Name) -> Option<String> {
        let row = self.rows().find(|row| row["agent"] == agent.as_str())?;
        let deferred = row["deferred"]["detail"].as_str().map(|why| format!("not notified: {why}"));
        let nudges = row["nudges"].as_u64().filter(|nudges| *nudges > 0);
        let times = |nudges| if nudges == 1 { "1 time".into() } else { format!("{nudges} times") };
        deferred.or_else(|| Some(format!("notified {}", times(nudges?))))
    }

    /// The agents that the watcher notifies, and their mailboxes.
    #[must_use]
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

impl Said {
    fn read(path: &Path) -> Self {
        let mut text = String::new();
        let read =
            File::open(path).and_then(|file| file.take(STATUS_BYTES_MAX).read_to_string(&mut text));
        let status: Option<Value> = read.ok().and_then(|_| serde_json::from_str(&text).ok());
        let observed = status.as_ref().map(members::observed_in).unwrap_or_default();
        Self { status, observed }
    }
}
