//! The hosts of a team: what each reports on its agents, which of them has a name, and what one asks another to do.
//!
//! | key | content | written by | removed |
//! |---|---|---|---|
//! | `hosts.<host>.report` | a text about its agents | its watcher, on change and every 30 s | 30 days later |
//! | `members.<agent>.host` | the host that has the agent; empty once the agent has ended | that host, by compare-and-set | never |
//! | `calls.<host>.<call>` | what another host asks of this one | the asker | by the asker, or after 10 minutes |
//! | `answers.<host>.<call>` | what came of it | the asked host | the same |
//!
//! A host is silent once neither its report nor its claim is younger than [`SILENCE_MAX`] by the servers' time. The
//! names of a silent host are free. *A crash* of a host leaves its keys; it continues with them when it comes back.

use std::time::Duration;

use super::NatsTransport;
use super::server_time::{millis, timestamp};
use super::subject::TeamSubjects;
use super::versions::{ListedVersion, PutOutcome};
use ensemble_core::Result;
use ensemble_core::message::{MessageId, Name, Timestamp};

/// A host that has not reported for that long has stopped or cannot be reached.
pub const SILENCE_MAX: Duration = Duration::from_secs(120);
const REPORT_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long a call is kept if its asker does not remove it.
const CALL_KEPT: Duration = Duration::from_secs(10 * 60);
/// Most tries of one compare-and-set, each of which another process was quicker at.
const TRIES_MAX: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNews {
    pub host: Name,
    pub text: String,
    /// Time of the report, by the servers.
    pub at: Timestamp,
    /// Whether the host was silent since for [`SILENCE_MAX`].
    pub is_silent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCall {
    pub id: Name,
    pub text: String,
}

/// The last version of a key: its number, its content and its time by the servers, in milliseconds since 1970.
struct KeyVersion {
    number: u64,
    text: String,
    at: u64,
}

impl NatsTransport {
    pub fn report_host(&self, host: &Name, text: &str) -> Result<()> {
        let subject = self.subjects.host_report(host);
        for _ in 0..TRIES_MAX {
            let last = self.version(&subject)?.map_or(0, |last| last.number);
            if let PutOutcome::Done(_) = self.write_key(subject.clone(), last, text.to_owned())? {
                return Ok(());
            }
        }
        // Another process of this host is publishing the same report.
        Ok(())
    }

    pub fn host_reports(&self) -> Result<Vec<HostNews>> {
        let listed = self.list_keys(self.subjects.all_host_reports())?;
        let now = self.now();
        let report = |found: ListedVersion| {
            let (host, _) = TeamSubjects::parts_of_key(&found.subject)?;
            let text = String::from_utf8(found.payload.to_vec()).ok()?;
            let at = timestamp(found.at);
            let is_silent = now.since(at) >= SILENCE_MAX;
            (!text.is_empty()).then_some(HostNews { host, text, at, is_silent })
        };
        let mut reports: Vec<HostNews> = listed.into_iter().filter_map(report).collect();
        reports.sort_unstable_by(|one, other| one.host.cmp(&other.host));
        Ok(reports)
    }

    /// Takes the name of an agent for this host. `Some` is the host that has it instead.
    pub fn claim_member(&self, agent: &Name, host: &Name) -> Result<Option<Name>> {
        let subject = self.subjects.host_of_member(agent);
        for _ in 0..TRIES_MAX {
            let last = self.version(&subject)?;
            let (by, at) = last.as_ref().map_or((None, 0), |last| (holder(last), last.at));
            match by {
                Some(by) if by == *host => return Ok(None),
                Some(by) if !self.is_silent(&by, at)? => return Ok(Some(by)),
                Some(_) | None => {}
            }
            let number = last.map_or(0, |last| last.number);
            if let PutOutcome::Done(_) =
                self.write_key(subject.clone(), number, host.to_string())?
            {
                return Ok(None);
            }
        }
        Ok(self.version(&subject)?.as_ref().and_then(holder).filter(|by| by != host))
    }

    /// Gives the name of an agent back that has ended here.
    pub fn release_member(&self, agent: &Name, host: &Name) -> Result<()> {
        let subject = self.subjects.host_of_member(agent);
        match self.version(&subject)? {
            Some(last) if holder(&last).as_ref() == Some(host) => {
                self.write_key(subject, last.number, "").map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The host that has an agent, unless it is silent.
    pub fn host_of_member(&self, agent: &Name) -> Result<Option<Name>> {
        let Some(last) = self.version(&self.subjects.host_of_member(agent))? else {
            return Ok(None);
        };
        match holder(&last) {
            Some(host) if !self.is_silent(&host, last.at)? => Ok(Some(host)),
            Some(_) | None => Ok(None),
        }
    }

    /// Asks something of a host; returns the name of the call.
    pub fn call_host(&self, host: &Name, text: &str) -> Result<Name> {
        let call = Name::new(MessageId::generate().as_str())?;
        self.write_key(self.subjects.call_of(host, &call), 0, text.to_owned())?;
        Ok(call)
    }

    pub fn calls(&self, host: &Name) -> Result<Vec<HostCall>> {
        let mut calls = Vec::new();
        for found in self.list_keys(self.subjects.calls_of(host))? {
            let Some((_, id)) = TeamSubjects::parts_of_key(&found.subject) else { continue };
            let Ok(text) = String::from_utf8(found.payload.to_vec()) else { continue };
            let is_open = !text.is_empty() && !self.is_older(found.at, CALL_KEPT);
            if is_open && self.answer(host, &id)?.is_none() {
                calls.push(HostCall { id, text });
            }
        }
        Ok(calls)
    }

    /// Answers a call; only the first answer counts.
    pub fn answer_call(&self, host: &Name, call: &Name, text: &str) -> Result<()> {
        self.write_key(self.subjects.answer_of(host, call), 0, text.to_owned()).map(drop)
    }

    pub fn answer(&self, host: &Name, call: &Name) -> Result<Option<String>> {
        Ok(self.version(&self.subjects.answer_of(host, call))?.map(|last| last.text))
    }

    pub fn forget_call(&self, host: &Name, call: &Name) -> Result<()> {
        self.purge_key(self.subjects.call_of(host, call), u64::MAX - 1)?;
        self.purge_key(self.subjects.answer_of(host, call), u64::MAX - 1)
    }

    /// Removes reports and calls that are of no use any more; returns their number.
    pub fn sweep_hosts(&self) -> Result<usize> {
        let [calls, answers] = self.subjects.all_calls();
        let kinds = [
            (calls, CALL_KEPT),
            (answers, CALL_KEPT),
            (self.subjects.all_host_reports(), REPORT_KEPT),
        ];
        let mut removed = 0;
        for (pattern, kept) in kinds {
            for found in self.list_keys(pattern)? {
                if self.is_older(found.at, kept) {
                    self.purge_key(found.subject, found.seq)?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Whether a host has neither reported nor claimed anything for [`SILENCE_MAX`].
    fn is_silent(&self, host: &Name, claimed_at: u64) -> Result<bool> {
        let told = self.version(&self.subjects.host_report(host))?.map_or(0, |last| last.at);
        let last = timestamp(told.max(claimed_at));
        Ok(self.now().since(last) >= SILENCE_MAX)
    }

    fn version(&self, subject: &str) -> Result<Option<KeyVersion>> {
        let found = self.last_key("read a key", subject.to_owned())?;
        Ok(found.map(|found| KeyVersion {
            number: found.sequence,
            text: String::from_utf8_lossy(&found.payload).into_owned(),
            at: millis(found.time),
        }))
    }
}

fn holder(version: &KeyVersion) -> Option<Name> {
    Name::new(&version.text).ok()
}
