//! The event logs that a verb reads: this host's, and for a team on servers those of all hosts, merged by time
//! and number.
//!
//! The watcher brings the other hosts' lines into `.ensemble/servers/logs/`. Merged, they are one log in a
//! temporary directory, so that every reader of logs can read it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ensemble_core::Error;
use ensemble_core::event_log::{Record, read_all};

use crate::App;
use crate::diagnostics::say;
use crate::failure::Outcome;
use crate::text::plural;

const OTHERS: &str = "servers/logs";
const MERGED: &str = "session-20000101-000000.ndjson";

pub struct TeamLog {
    path: PathBuf,
    _merged: Option<tempfile::TempDir>,
}

impl TeamLog {
    pub fn open(app: &App) -> Outcome<Self> {
        let project = app.project()?;
        let own = project.logs();
        let others = hosts(&project.state.join(OTHERS));
        if others.is_empty() || !project.is_shared()? {
            return Ok(Self { path: own, _merged: None });
        }
        let mut records: Vec<Record> = Vec::new();
        for log in std::iter::once(&own).chain(&others) {
            let read = read_all(log).map(|mut read| {
                records.extend(read.by_ref());
                (read.bad_lines().count(), read.into_failure())
            });
            let (bad, failure) = read.unwrap_or_else(|error| (0, Some(error)));
            if bad > 0 {
                let (lines, log) = (plural(bad, "line"), log.display());
                say(&format!("warning: {lines} of {log} passed over: not records"));
            }
            match failure {
                Some(failure) if *log == own => return Err(failure.into()),
                // The logs of the other hosts can still be read.
                Some(failure) => say(&format!("warning: {failure}")),
                None => {}
            }
        }
        let directory =
            tempfile::tempdir().map_err(|e| Error::io("create", std::env::temp_dir(), e))?;
        let path = directory.path().join(MERGED);
        fs::write(&path, merged(records)).map_err(|e| Error::io("write", &path, e))?;
        Ok(Self { path: directory.path().to_owned(), _merged: Some(directory) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn hosts(others: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(others).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = found.map(|host| host.path()).filter(|p| p.is_dir()).collect();
    found.sort_unstable();
    found
}

/// All records by time and number, each once: one that was pulled twice is in a log twice.
fn merged(mut records: Vec<Record>) -> String {
    let key = |record: &Record| (record.timestamp, record.session_id.clone(), record.seq);
    records.sort_by_cached_key(key);
    let mut seen = BTreeSet::new();
    let lines = records.iter().map(|record| record.to_line().trim_end().to_owned());
    lines.filter(|line| seen.insert(line.clone())).map(|line| line + "\n").collect()
}
