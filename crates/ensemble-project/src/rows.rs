//! The one roster: every agent is a row, however it came.
//!
//! | came | from | host | way in |
//! |---|---|---|---|
//! | `started` | `up`, `spawn` | its pane | keystrokes |
//! | `joined` | `join` | its pane | keystrokes |
//! | `wrapped` | `ensemble claude` and its like | a terminal of a person | keystrokes of its wrapper |
//! | `supervised` | `ensemble agent supervise` outside of the team's panes | the supervisor's process | its next prompt |
//! | `registered` | an entry on the blackboard, without a file in the roster | unknown | none: it reads by itself |
//! | `remote` | what another host reports on its agents; a mailbox on the servers that no host reports | another host | that host's |
//! | `recorded` | a file in the roster without pane and process | none | none |
//!
//! A member with a pane whose command is `ensemble agent supervise` keeps its pane as its host. Its way in is its
//! next prompt.

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Name, Timestamp};
use ensemble_team::holdings::Holding;
use ensemble_team::roster::{Member, MemberOrigin, PaneObservation, Presence, State};
use serde::Serialize;

use crate::hosts::{HostAgent, OtherHost};
use crate::project::Project;
use crate::workload::TaskBooks;
use crate::{members, sessions};

/// How a hint that mail waits reaches an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WayIn {
    /// A background waiter in its session wakes it.
    Waiter,
    /// A line that its wrapper types into its terminal under the guard.
    Terminal,
    /// A line that is typed into its pane under the guard.
    Keystrokes,
    /// Its supervisor puts the mail into the next prompt.
    Prompt,
    /// None: the agent reads its mailbox by itself.
    None,
}

#[derive(Clone, Debug)]
pub struct RosterRow {
    /// The agent as its file in the roster has it, or as its other place says.
    pub member: Member,
    pub came: MemberOrigin,
    pub elsewhere: Option<RemotePresence>,
}

/// An agent of another host, as that host's watcher sees it.
#[derive(Clone, Debug)]
pub struct RemotePresence {
    pub place: String,
    pub machine: String,
    pub presence: Presence,
    pub since: Option<Timestamp>,
}

/// The programs that have a wrapper command, such as `ensemble claude`, which runs them in a person's terminal.
pub const WRAPPERS: [&str; 4] = ["claude", "codex", "opencode", "gemini"];

fn wrapper_line(provider: &str, name: &Name) -> String {
    format!("`ensemble {provider} --name {name}`")
}

const ROLE_UNKNOWN: &str = "unknown";
const PROVIDER_UNKNOWN: &str = "-";

impl RosterRow {
    pub fn of(member: Member) -> Self {
        let came = member.came();
        Self { member, came, elsewhere: None }
    }

    /// A row without a file in the roster.
    fn beside(name: &Name, role: &str, came: MemberOrigin, since: Timestamp) -> Option<Self> {
        let role = Name::new(role).or_else(|_| Name::new(ROLE_UNKNOWN)).ok()?;
        let member = Member::new(name.clone(), role, PROVIDER_UNKNOWN, since);
        Some(Self { member, came, elsewhere: None })
    }

    fn of_host(host: &OtherHost, agent: &HostAgent) -> Self {
        let since = agent.since.unwrap_or(host.at);
        let mut member =
            Member::new(agent.name.clone(), agent.role.clone(), agent.provider.clone(), since);
        member.mailbox = agent.mailbox.clone();
        (member.generation, member.state) = (agent.generation, agent.member);
        let (presence, since) = match host.silence() {
            Some(why) => (Presence::new(State::Unknown, why), None),
            None => (Presence::new(agent.state, agent.why.clone()), agent.since),
        };
        let (place, machine) = (host.place(), host.report.machine.clone());
        let elsewhere = Some(RemotePresence { place, machine, presence, since });
        Self { member, came: MemberOrigin::Remote, elsewhere }
    }

    pub fn host(&self) -> String {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.place.clone();
        }
        match (&self.member.binding, self.member.supervisor, self.came) {
            (Some(binding), ..) if binding.is_terminal() => {
                format!("terminal, process {}", binding.pid)
            }
            (Some(binding), ..) => format!("pane {}", binding.id),
            (None, Some(supervisor), _) => format!("process {}", supervisor.pid),
            (None, None, MemberOrigin::Registered) => "board".to_owned(),
            (None, None, MemberOrigin::Remote) => "another host".to_owned(),
            (None, None, _) => "-".to_owned(),
        }
    }

    /// The command that starts it again once it is gone: only agents that the team has started come back by `up`.
    pub fn again(&self, project: &Project) -> String {
        let Member { name, provider, .. } = &self.member;
        let is_configured = project.config.agents.contains_key(name);
        match self.came {
            // The row of a wrapped agent that has exited no longer has a terminal.
            MemberOrigin::Recorded if !is_configured && WRAPPERS.contains(&provider.as_str()) => {
                wrapper_line(provider, name)
            }
            MemberOrigin::Wrapped => wrapper_line(provider, name),
            MemberOrigin::Joined => {
                format!("start it in its pane, or run `ensemble agent join {name}` in another")
            }
            _ => format!("`ensemble up {name}`"),
        }
    }

    pub fn way_in(&self, project: &Project) -> WayIn {
        let is_woken = || sessions::is_woken_by_itself(&project.sessions(), &self.member.name);
        match (self.member.supervisor, &self.member.binding) {
            (Some(_), _) => WayIn::Prompt,
            _ if self.member.is_present() && is_woken() => WayIn::Waiter,
            (None, Some(binding)) if binding.is_terminal() => WayIn::Terminal,
            (None, Some(_)) => WayIn::Keystrokes,
            (None, None) => WayIn::None,
        }
    }

    /// Its presence, from the present observation, its waits and what it holds. Where it cannot be observed, unknown
    /// with the reason.
    pub fn presence_or_why(
        &self,
        project: &Project,
        waits_for: Option<&String>,
        holds: &[Holding],
    ) -> Presence {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.presence.clone();
        }
        let observed = match self.came {
            MemberOrigin::Registered | MemberOrigin::Remote => Ok(PaneObservation::NoPane),
            _ => members::observe_member(project, &self.member),
        };
        let observation = match observed {
            Ok(observation) => observation,
            Err(error) => return Presence::new(State::Unknown, error.to_string()),
        };
        let reported = sessions::reported(&project.sessions(), &self.member.name);
        let mut presence = members::judge(&self.member, observation, reported, waits_for, holds);
        if self.came == MemberOrigin::Remote && presence.state == State::Idle {
            presence.state = State::Unknown;
            "no host reports it; holds nothing".clone_into(&mut presence.why);
        }
        presence
    }
}

/// All rows by name: those of the roster's files, of the blackboard, of other hosts, and of `mailboxes` on servers.
pub fn rows(
    members: Vec<Member>,
    books: &TaskBooks,
    mailboxes: &[Name],
    hosts: &[OtherHost],
) -> Vec<RosterRow> {
    let mut rows: Vec<RosterRow> = members.into_iter().map(RosterRow::of).collect();
    let now = SystemClock.wall();
    if let Some(state) = books.board() {
        for (name, entry) in &state.agents {
            let at = rows.iter().position(|row| row.member.name == *name);
            // One that was shut down and has registered again is present.
            let is_up = at.is_some_and(|at| rows[at].member.is_present());
            if is_up {
                continue;
            }
            let role = entry.role.as_deref().unwrap_or(ROLE_UNKNOWN);
            let since = entry.heartbeat.unwrap_or(now);
            if let Some(row) = RosterRow::beside(name, role, MemberOrigin::Registered, since) {
                if let Some(at) = at {
                    rows.remove(at);
                }
                rows.push(row);
            }
        }
    }
    for (host, agent) in
        hosts.iter().flat_map(|host| host.report.agents.iter().map(move |a| (host, a)))
    {
        let at = rows.iter().position(|row| row.member.name == agent.name);
        // One that was shut down here is up there now.
        match at {
            Some(at) if rows[at].member.is_present() => {}
            Some(at) => rows[at] = RosterRow::of_host(host, agent),
            None => rows.push(RosterRow::of_host(host, agent)),
        }
    }
    for mailbox in mailboxes {
        let is_known =
            rows.iter().any(|row| row.member.name == *mailbox || row.member.mailbox == *mailbox);
        if !is_known {
            rows.extend(RosterRow::beside(mailbox, ROLE_UNKNOWN, MemberOrigin::Remote, now));
        }
    }
    rows.sort_unstable_by(|a, b| a.member.name.cmp(&b.member.name));
    rows
}
