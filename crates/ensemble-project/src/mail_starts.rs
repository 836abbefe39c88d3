//! How often an agent was started by its mail today: one file for each agent, `.ensemble/starts/<name>.json`.
//!
//! *Owner.* The watcher, of which one runs, counts a start before it begins. *A crash* in between costs one start of
//! that day and never allows one too many. The day is that of the queue's calendar, in UTC.

use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::document::{read_json, write_json};
use ensemble_core::durable::make_directory;
use ensemble_core::message::{Name, Timestamp};
use ensemble_team::roster::MemberState;
use serde::{Deserialize, Serialize};

use crate::project::{AgentConfig, Project};

const DIRECTORY: &str = "starts";
const FILE_BYTES_MAX: usize = 1024;
/// Starts a day, unless the configuration says otherwise.
const STARTS_MAX: u32 = 10;
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct StartCount {
    day: i64,
    count: u32,
    /// When the last one began, in milliseconds since 1970.
    #[serde(default)]
    at: i64,
}

impl AgentConfig {
    pub fn starts_max(&self) -> u32 {
        self.mail_starts_max.unwrap_or(STARTS_MAX)
    }
}

/// How often the mail of an agent may still start it today. A count that cannot be read allows none.
pub fn starts_left(project: &Project, name: &Name, agent: &AgentConfig, now: Timestamp) -> u32 {
    let count = read(project, name).map(|count| count.on(now));
    count.map_or(0, |count| agent.starts_max().saturating_sub(count.count))
}

pub fn last_start(project: &Project, name: &Name, now: Timestamp) -> Option<Duration> {
    let at = read(project, name).ok().map(|count| count.at).filter(|at| *at > 0)?;
    Some(now.since(Timestamp::from_unix_millis(at)))
}

/// Counts a start, which may begin once this returns. Returns how many there were today.
pub fn count_start(project: &Project, name: &Name, now: Timestamp) -> Result<u32> {
    let mut count = read(project, name)?.on(now);
    count.count += 1;
    count.at = now.unix_millis();
    let directory = project.state.join(DIRECTORY);
    make_directory(&directory)?;
    write_json(&directory.join(format!("{name}.json")), &count)?;
    Ok(count.count)
}

/// Whether neither an agent that its mail may start nor another reader of its mailbox is up: each was never started,
/// has left, or its process has ended.
pub fn is_absent(project: &Project, (name, mailbox): (&Name, &Name)) -> Result<bool> {
    let roster = project.roster();
    // Of an agent whose row cannot be read, nothing is known.
    roster.get(name)?;
    let (members, _) = roster.entries()?;
    let mut readers = members.iter().filter(|it| it.name == *name || it.mailbox == *mailbox);
    Ok(readers.all(|member| match member.state {
        MemberState::Shutdown => true,
        MemberState::Up => member.binding.as_ref().is_some_and(|binding| !binding.lives()),
        MemberState::Leaving => false,
    }))
}

impl StartCount {
    fn on(self, now: Timestamp) -> Self {
        let day = now.unix_millis().div_euclid(DAY_MILLIS);
        if self.day == day { self } else { Self { day, count: 0, ..self } }
    }
}

fn read(project: &Project, name: &Name) -> Result<StartCount> {
    let path = project.state.join(DIRECTORY).join(format!("{name}.json"));
    Ok(read_json(&path, FILE_BYTES_MAX)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ensemble_team::roster::Member;

    use super::*;

    #[test]
    fn mail_that_another_agent_reads_starts_none() {
        let home = tempfile::tempdir().unwrap();
        let project = Project::discover(Some(&home.path().join("queue"))).unwrap();
        project.ensure_state().unwrap();
        let [gem, eve, pool] = ["gem", "eve", "pool"].map(|name| Name::new(name).unwrap());
        let is_unread = || is_absent(&project, (&gem, &pool)).unwrap();
        assert!(is_unread());
        let mut member = Member::new(eve.clone(), gem.clone(), "shell", Timestamp::now());
        member.mailbox = pool.clone();
        project.roster().change(&eve, |_| Ok(Some(member))).unwrap();
        assert!(!is_unread());
    }

    #[test]
    fn a_day_has_as_many_starts_as_the_configuration_says() {
        let home = tempfile::tempdir().unwrap();
        let project = Project::discover(Some(&home.path().join("queue"))).unwrap();
        let name = Name::new("gem").unwrap();
        let agent = AgentConfig { mail_starts_max: Some(2), ..AgentConfig::default() };
        let at = |hours: i64| Timestamp::from_unix_millis(hours * 60 * 60 * 1000);
        let left = |hours| starts_left(&project, &name, &agent, at(hours));
        assert_eq!(left(0), 2);
        assert_eq!(count_start(&project, &name, at(1)).unwrap(), 1);
        // Counted before it begins: a crash now does not undo that.
        assert_eq!(left(2), 1);
        assert_eq!(count_start(&project, &name, at(23)).unwrap(), 2);
        assert_eq!((left(23), left(24)), (0, 2));
        std::fs::write(project.state.join(DIRECTORY).join("gem.json"), "{").unwrap();
        assert_eq!(left(24), 0, "a count that cannot be read allows none");
    }
}
