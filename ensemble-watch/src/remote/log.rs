//! The event logs of all hosts: this host's lines go to the servers, and the others' come into
//! `.ensemble/servers/logs/HOST/`, where readers find them.
//!
//! ```text
//! .ensemble/logs/…          --ship-->  the team's log on the servers
//! .ensemble/servers/logs/HOST/session-YYYYMMDD-000000.ndjson  <--pull--  the lines of another host, by their day
//! .ensemble/servers/log.json           how far both have come; written after the work
//! ```
//!
//! After a crash, lines are shipped or pulled again, and once a line can be written that could not be, all since then
//! are pulled again. Readers pass over a line that they have read before.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use ensemble_core::document::{read_json, write_json};
use ensemble_core::durable::{Dir, FileModes};
use ensemble_core::event_log::{Follower, LogPosition, Record};
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};
use ensemble_nats::{NatsTransport, ShippedLine};
use serde::{Deserialize, Serialize};

const PULLED_MAX: usize = 1000;
const SHIPPED_MAX: usize = 500;
const PROGRESS_BYTES_MAX: usize = 64 * 1024;
/// Days that the lines of other hosts are kept, as on the servers.
const DAYS_MAX: u64 = 30;
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

#[derive(Debug, Default, Serialize, Deserialize)]
struct LogProgress {
    /// In this host's log.
    shipped: Option<LogPosition>,
    /// In the team's log, up to the first line that cannot be written.
    pulled: u64,
}

#[derive(Debug)]
pub(super) struct LogExchange {
    host: Name,
    others: PathBuf,
    file: PathBuf,
    progress: LogProgress,
    own: Follower,
    pending: Vec<String>,
    /// In the team's log, past lines that cannot be written.
    passed: u64,
    unwritten: Option<ShippedLine>,
}

impl LogExchange {
    pub(super) fn open(host: Name, logs: &Path, state: &Path) -> Result<Self> {
        let file = state.join("servers/log.json");
        let read = read_json(&file, PROGRESS_BYTES_MAX).ok().flatten();
        let progress: LogProgress = read.unwrap_or_default();
        let own = match progress.shipped.clone() {
            Some(position) => Follower::resume(logs, position),
            None => Follower::from_start(logs),
        };
        let (others, passed) = (state.join("servers/logs"), progress.pulled);
        let (pending, unwritten) = (Vec::new(), None);
        Ok(Self { host, others, file, progress, own, pending, passed, unwritten })
    }

    /// Ships what is new here and pulls what is new there. A host that may not ship its log reads the others' anyway.
    pub(super) fn exchange(&mut self, queue: &NatsTransport) -> Result<()> {
        let shipped = self.ship_lines(queue);
        if shipped.as_ref().is_err_and(Error::is_transient) {
            return shipped.map(drop);
        }
        let mut written = self.unwritten.as_ref().map_or(Ok(()), |line| self.append_line(line));
        if written.is_ok() {
            self.passed = self.unwritten.take().map_or(self.passed, |line| line.number);
        }
        let pulled = queue.shipped_after(self.passed, PULLED_MAX)?;
        let has_news = !pulled.is_empty() || matches!(shipped, Ok(true));
        for line in pulled {
            self.passed = line.number;
            if line.host != self.host
                && let Err(error) = self.append_line(&line)
            {
                // It does not keep the lines of the other hosts away.
                self.unwritten.get_or_insert(line);
                written = Err(error);
            }
        }
        self.progress.pulled = self.unwritten.as_ref().map_or(self.passed, |line| line.number - 1);
        if has_news {
            make_directory(self.file.parent())?;
            write_json(&self.file, &self.progress)?;
        }
        shipped.map(drop).and(written)
    }

    fn ship_lines(&mut self, queue: &NatsTransport) -> Result<bool> {
        if self.pending.is_empty() {
            let records = self.own.poll()?;
            self.pending
                .extend(records.iter().map(|record| record.to_line().trim_end().to_owned()));
        }
        let has_news = !self.pending.is_empty();
        while !self.pending.is_empty() {
            let count = self.pending.len().min(SHIPPED_MAX);
            queue.ship_log(&self.host, &self.pending[..count])?;
            self.pending.drain(..count);
        }
        self.progress.shipped = self.own.position();
        Ok(has_news)
    }

    fn append_line(&self, line: &ShippedLine) -> Result<()> {
        // A line that is not a record cannot be merged by time.
        let Ok(record) = Record::parse(line.text.as_bytes()) else { return Ok(()) };
        let day: String =
            record.timestamp.to_string().chars().filter(char::is_ascii_digit).take(8).collect();
        let directory = self.others.join(line.host.as_str());
        make_directory(Some(&self.others))?;
        make_directory(Some(&directory))?;
        let name = format!("session-{day}-000000.ndjson");
        let mut file = Dir::open(&directory)?.open_append(&name, FileModes::default())?;
        file.write_all(format!("{}\n", line.text).as_bytes())
            .map_err(|error| Error::io("write", directory.join(name), error))
    }

    pub(super) fn sweep(&self) {
        let hosts = fs::read_dir(&self.others).into_iter().flatten().flatten();
        for file in hosts.flat_map(|host| fs::read_dir(host.path())).flatten().flatten() {
            let age = file.metadata().and_then(|data| data.modified()).map(|at| at.elapsed());
            if matches!(age, Ok(Ok(age)) if age.as_secs() > DAYS_MAX * SECONDS_PER_DAY) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

pub(super) fn make_directory(directory: Option<&Path>) -> Result<()> {
    directory.map_or(Ok(()), ensemble_core::durable::make_directory)
}
