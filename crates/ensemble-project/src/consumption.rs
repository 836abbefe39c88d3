//! The usage of a project's agents, read as their records and the event log grow: for budgets, `agent usage`, the
//! live view and the page.
//!
//! Hooks name the records of most agents. Those of a Codex without hooks are found by [`Rollouts`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ensemble_core::Result;
use ensemble_core::event_log::{Follower, Record, types};
use ensemble_core::message::{Name, Timestamp};
use ensemble_team::roster::Member;
use ensemble_tmux::session::AgentSession;
use ensemble_usage::{
    AgentUsage, HeldTasks, Prices, ReadingLimit, RolloutClaim, Rollouts, TeamRecords,
    UnclearRollout,
};

use crate::project::Project;

const CODEX: &str = "codex";
/// The variable that names another home of Codex.
const CODEX_HOME: &str = "CODEX_HOME";

#[derive(Debug)]
pub struct UsageReader {
    project: Project,
    records: TeamRecords,
    held: HeldTasks,
    log: Option<Follower>,
    prices: Prices,
    /// Times at which agents came up.
    ups: BTreeMap<String, Vec<Timestamp>>,
    rollouts: BTreeMap<PathBuf, Rollouts>,
    /// Records that may belong to several agents, and count for none, as of the last reading.
    pub unclear: Vec<UnclearRollout>,
}

impl UsageReader {
    pub fn new(project: &Project, prices: Prices) -> Self {
        Self {
            project: project.clone(),
            records: TeamRecords::default(),
            held: HeldTasks::default(),
            log: None,
            prices,
            ups: BTreeMap::new(),
            rollouts: BTreeMap::new(),
            unclear: Vec::new(),
        }
    }

    /// Reads what is new. What each agent has used in all.
    pub fn update(&mut self) -> Result<BTreeMap<Name, AgentUsage>> {
        self.update_within(&mut ReadingLimit::none())
    }

    /// As [`UsageReader::update`], as far as `limit` allows: what each agent has used as far as it was read.
    pub fn update_within(
        &mut self,
        limit: &mut ReadingLimit,
    ) -> Result<BTreeMap<Name, AgentUsage>> {
        let logs = self.project.logs();
        if self.log.is_none() && logs.is_dir() {
            let wanted = HeldTasks::TYPES.into_iter().chain([types::AGENT_UP]);
            self.log = Some(Follower::from_start(&logs).only(wanted));
        }
        while let Some(log) = &mut self.log {
            let new = log.poll()?;
            if new.is_empty() {
                break;
            }
            new.iter().for_each(|record| self.apply_record(record));
        }
        let mut sessions = self.project.sessions().all()?;
        self.find_rollouts(&mut sessions, limit)?;
        self.records.update(&sessions, limit);
        Ok(self.records.usage(&self.held, &self.prices))
    }

    fn apply_record(&mut self, record: &Record) {
        self.held.apply_record(record);
        if record.kind.as_str() == types::AGENT_UP
            && let Some(agent) = record.data.get("agent").and_then(|agent| agent.as_str())
        {
            self.ups.entry(agent.to_owned()).or_default().push(record.timestamp);
        }
    }

    fn find_rollouts(
        &mut self,
        sessions: &mut Vec<AgentSession>,
        limit: &mut ReadingLimit,
    ) -> Result<()> {
        let named: BTreeSet<PathBuf> =
            sessions.iter().flat_map(|session| session.records.iter().cloned()).collect();
        let mut claims: BTreeMap<PathBuf, Vec<RolloutClaim>> = BTreeMap::new();
        for member in self.project.roster().entries()?.0 {
            let is_named =
                sessions.iter().any(|it| it.agent == member.name && !it.records.is_empty());
            if member.provider == CODEX
                && !is_named
                && let Some(home) = codex_home(&member)
            {
                claims.entry(home).or_default().extend(self.claim(&member));
            }
        }
        self.unclear.clear();
        for (home, claims) in claims {
            let rollouts =
                self.rollouts.entry(home.clone()).or_insert_with(|| Rollouts::new(&home));
            let (found, unclear) = rollouts.of(&claims, &named, limit);
            self.unclear.extend(unclear);
            for (agent, records) in found {
                let mut session = AgentSession::new(agent.clone());
                CODEX.clone_into(&mut session.provider);
                session.records = records;
                sessions.retain(|session| session.agent != agent);
                sessions.push(session);
            }
        }
        Ok(())
    }

    fn claim(&self, member: &Member) -> Option<RolloutClaim> {
        let directory = member.directory.clone()?;
        let ups = self.ups.get(member.name.as_str()).map_or(&[][..], Vec::as_slice);
        // A life ends with the next one, and the last with the agent.
        let next = ups.iter().skip(1).copied().map(Some);
        let ended = member.ended.as_ref().map(|ended| ended.at);
        let lives = match ups.is_empty() {
            true => vec![(member.since, ended)],
            false => ups.iter().copied().zip(next.chain([ended])).collect(),
        };
        let directory = self.project.root().join(directory);
        Some(RolloutClaim {
            agent: member.name.clone(),
            mailbox: member.mailbox.clone(),
            directory,
            lives,
        })
    }
}

fn codex_home(member: &Member) -> Option<PathBuf> {
    let configured = |name: &str| member.env.get(name).map(PathBuf::from);
    let own = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let below = |home: PathBuf| home.join(".codex");
    configured(CODEX_HOME)
        .or_else(|| configured("HOME").map(below))
        .or_else(|| own(CODEX_HOME))
        .or_else(|| own("HOME").map(below))
}
