//! Exchanges reports about agents with the other hosts, and claims the names of this host's agents.
//!
//! | event | action |
//! |---|---|
//! | an agent starts, exits or changes its state; every 30 s | this host's report is written |
//! | another host has published a report; every 30 s | its report is kept in `servers/hosts/` |
//! | an agent runs here | its name is claimed; if another host has it, or the servers refuse it, `status` shows that |
//! | an agent has exited here | its name is released |
//! | the watcher ends | the report says so |

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ensemble_core::Result;
use ensemble_core::document::write_json;
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_nats::NatsTransport;
use ensemble_project::hosts::{HostReport, OtherHost, directory, others};
use ensemble_project::members::last_observed;

use super::log::make_directory;
use crate::context::WatchContext;

/// Interval at which a host reports on itself, and looks at the others, without a reason.
const BEAT_INTERVAL: Duration = Duration::from_secs(30);

pub(super) struct HostExchange {
    context: Arc<WatchContext>,
    host: Name,
    kept: PathBuf,
    /// Stamps of the roster and of the watcher's status at the last report.
    stamps: Option<[Option<SystemTime>; 2]>,
    told: String,
    next_report: Monotonic,
    next_pull: Monotonic,
    claimed: BTreeSet<Name>,
    /// Why this host does not have the name of one of its agents.
    pub(super) conflict: Option<String>,
}

impl HostExchange {
    pub(super) fn open(context: &Arc<WatchContext>, now: Monotonic) -> Result<Self> {
        Ok(Self {
            context: Arc::clone(context),
            host: context.project.host()?,
            kept: directory(&context.project.state),
            stamps: None,
            told: String::new(),
            next_report: now,
            next_pull: now,
            claimed: BTreeSet::new(),
            conflict: None,
        })
    }

    /// Tells what is new here, and keeps what is new there.
    pub(super) fn exchange(&mut self, now: Monotonic, queue: &NatsTransport) -> Result<()> {
        let context = Arc::clone(&self.context);
        let project = &context.project;
        let stamp = |path: PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
        let places = [project.roster().dir().to_owned(), project.watch_status()];
        let stamps = Some(places.map(stamp));
        if stamps != self.stamps || now >= self.next_report {
            let (members, _) = project.roster().entries()?;
            let report = HostReport::of(&members, &last_observed(&project.watch_status()));
            self.claim(&report, queue)?;
            let text = serde_json::to_string(&report).unwrap_or_default();
            if text != self.told || now >= self.next_report {
                queue.report_host(&self.host, &text)?;
                self.next_report = now + BEAT_INTERVAL;
                self.told = text;
            }
            self.stamps = stamps;
        }
        if queue.hosts_have_changed() || now >= self.next_pull {
            self.next_pull = now + BEAT_INTERVAL;
            self.pull(queue)?;
        }
        Ok(())
    }

    /// The watcher is stopping, so the agents of this host are no longer observed.
    pub(super) fn farewell(&mut self, queue: &NatsTransport) {
        // A host that cannot say so is silent soon.
        let _ = self.context.project.roster().entries().and_then(|(members, _)| {
            let report = HostReport { watched: false, ..HostReport::of(&members, &[]) };
            self.claim(&report, queue)?;
            queue.report_host(&self.host, &serde_json::to_string(&report).unwrap_or_default())
        });
    }

    /// Holds the names of the agents that are here, and gives the others back. A name that the servers refuse does not
    /// keep the others from being reported.
    fn claim(&mut self, report: &HostReport, queue: &NatsTransport) -> Result<()> {
        let here: BTreeSet<Name> = report.agents.iter().map(|agent| agent.name.clone()).collect();
        self.conflict = None;
        for agent in self.claimed.clone().difference(&here) {
            match queue.release_member(agent, &self.host) {
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    self.conflict
                        .get_or_insert_with(|| format!("the name {agent} is not freed: {error}"));
                }
                Ok(()) => drop(self.claimed.remove(agent)),
            }
        }
        for agent in here.difference(&self.claimed.clone()) {
            let why = match queue.claim_member(agent, &self.host) {
                Ok(None) => {
                    self.claimed.insert(agent.clone());
                    continue;
                }
                Ok(Some(host)) => {
                    format!("host {host} has an agent {agent}, too: shut one of them down")
                }
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => format!("the name {agent} is not taken: {error}"),
            };
            self.conflict.get_or_insert(why);
        }
        Ok(())
    }

    fn pull(&self, queue: &NatsTransport) -> Result<()> {
        let reports = queue.host_reports()?;
        let known = others(&self.context.project.state);
        for known in &known {
            if !reports.iter().any(|report| report.host == known.host) {
                let _ = fs::remove_file(self.file(&known.host));
            }
        }
        for told in reports.into_iter().filter(|told| told.host != self.host) {
            // A host of another version may send a report that this one cannot parse.
            let Ok(report) = serde_json::from_str::<HostReport>(&told.text) else { continue };
            let (host, at, is_silent) = (told.host, told.at, told.is_silent);
            let other = OtherHost { host, at, is_silent, report };
            if known.contains(&other) {
                continue;
            }
            make_directory(Some(&self.kept))?;
            write_json(&self.file(&other.host), &other)?;
        }
        Ok(())
    }

    fn file(&self, host: &Name) -> PathBuf {
        self.kept.join(format!("{host}.json"))
    }
}
