//! Which agents may stop or resume others.
//!
//! | act | key in `authority:` | by default |
//! |---|---|---|
//! | take the team down | `down` | `conductor`, `lead`, `orchestrator`, `dispatch` |
//! | ask another agent to shut down | `shutdown` | the same |
//! | remove, bind or unbind the mailbox of another agent | `shutdown` | the same |
//! | abort the sprint | `abort` | the same |
//! | lift PAUSE, CHECKPOINT or ABORT | `resume` | no agent |
//!
//! Each key lists roles and names of agents. A person may do all of this: a process outside of the team,
//! under a name that neither the roster nor the blackboard has. Every agent may ask for its own shutdown,
//! and put PAUSE or CHECKPOINT.

use serde::{Deserialize, Serialize};

use crate::board::State;
use crate::roster::Member;
use ensemble_core::AreaError;
use ensemble_core::message::Name;

const LEADS: [&str; 4] = ["conductor", "lead", "orchestrator", "dispatch"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthorityAct {
    Down,
    Shutdown,
    /// Remove, bind or unbind the mailbox of another agent, which then gets no mail.
    Mailbox,
    Abort,
    Resume,
}

/// `authority` in `ensemble.yaml`: the roles, or names, of the agents that may do it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Authority {
    /// Who may take the team down (default: conductor, lead, orchestrator, dispatch).
    pub down: Option<Vec<Name>>,
    /// Who may ask another agent to shut down (default: as for `down`).
    pub shutdown: Option<Vec<Name>>,
    /// Who may abort the sprint (default: as for `down`).
    pub abort: Option<Vec<Name>>,
    /// Who may lift PAUSE, CHECKPOINT and ABORT (default: no agent, a person).
    pub resume: Option<Vec<Name>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActorStanding {
    /// A person, or a program outside of the team.
    Person,
    Agent {
        name: Name,
        role: Name,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} (role {role}) may not {}: `authority: {{{}: …}}` in ensemble.yaml lists {}", act.words(), act.key(),
    listed(allowed)
)]
pub struct NotAuthorized {
    pub name: Name,
    pub role: Name,
    pub act: AuthorityAct,
    pub allowed: Vec<Name>,
}

impl AreaError for NotAuthorized {}

impl AuthorityAct {
    pub const fn key(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Shutdown | Self::Mailbox => "shutdown",
            Self::Abort => "abort",
            Self::Resume => "resume",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Down => "take the team down",
            Self::Shutdown => "ask another agent to shut down",
            Self::Mailbox => "change the mailbox of another agent",
            Self::Abort => "abort the sprint",
            Self::Resume => "let the team continue",
        }
    }
}

impl ActorStanding {
    /// The roles of a name, by the roster and the blackboard.
    pub fn of(name: &Name, members: &[Member], board: Option<&State>) -> Self {
        if let Some(member) = members.iter().find(|m| m.name == *name && m.is_present()) {
            return Self::Agent { name: name.clone(), role: member.role.clone() };
        }
        let entry = board.and_then(|state| state.agents.get(name));
        let role = entry.map(|entry| entry.role.as_deref().unwrap_or("worker"));
        role.map_or(Self::Person, |role| {
            let role = Name::new(role).unwrap_or_else(|_| name.clone());
            Self::Agent { name: name.clone(), role }
        })
    }
}

impl Authority {
    pub fn check(&self, act: AuthorityAct, by: &ActorStanding) -> Result<(), NotAuthorized> {
        let ActorStanding::Agent { name, role } = by else { return Ok(()) };
        let allowed = self.allowed(act);
        if allowed.contains(name) || allowed.contains(role) {
            return Ok(());
        }
        Err(NotAuthorized { name: name.clone(), role: role.clone(), act, allowed })
    }

    /// As [`Authority::check`], for the shutdown of `whom`. Every agent may ask for its own.
    pub fn check_shutdown(&self, by: &ActorStanding, whom: &Name) -> Result<(), NotAuthorized> {
        match by {
            ActorStanding::Agent { name, .. } if name == whom => Ok(()),
            _ => self.check(AuthorityAct::Shutdown, by),
        }
    }

    fn allowed(&self, act: AuthorityAct) -> Vec<Name> {
        let (listed, usual): (_, &[&str]) = match act {
            AuthorityAct::Down => (&self.down, &LEADS),
            AuthorityAct::Shutdown | AuthorityAct::Mailbox => (&self.shutdown, &LEADS),
            AuthorityAct::Abort => (&self.abort, &LEADS),
            AuthorityAct::Resume => (&self.resume, &[]),
        };
        let usual = || usual.iter().filter_map(|name| Name::new(*name).ok()).collect();
        listed.clone().unwrap_or_else(usual)
    }
}

fn listed(allowed: &[Name]) -> String {
    if allowed.is_empty() {
        return "no agent: a person may".to_owned();
    }
    allowed.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_core::proto::testing::name;

    fn agent(who: &str, role: &str) -> ActorStanding {
        ActorStanding::Agent { name: name(who), role: name(role) }
    }

    #[test]
    fn each_act_has_its_roles() {
        use AuthorityAct::{Abort, Down, Mailbox, Resume, Shutdown};
        let rules = Authority::default();
        let lead = &[Down, Shutdown, Mailbox, Abort][..];
        for (who, may) in [
            (agent("w1", "worker"), &[][..]),
            (agent("c1", "coder"), &[]),
            (agent("p1", "planner"), &[]),
            (agent("x", "conductor"), lead),
            (agent("lead", "worker"), lead),
            (agent("d", "dispatch"), lead),
            (ActorStanding::Person, &[Down, Shutdown, Mailbox, Abort, Resume]),
        ] {
            for act in [Down, Shutdown, Mailbox, Abort, Resume] {
                assert_eq!(rules.check(act, &who).is_ok(), may.contains(&act), "{who:?} {act:?}");
            }
        }
    }

    #[test]
    fn a_list_replaces_the_default_and_is_named_in_the_refusal() {
        let rules = Authority { down: Some(vec![name("w1")]), ..Authority::default() };
        let (worker, conductor) = (agent("w1", "worker"), agent("x", "conductor"));
        assert_eq!(rules.check(AuthorityAct::Down, &worker), Ok(()));
        let refused = |act, who| rules.check(act, who).unwrap_err().to_string();
        let expected = "x (role conductor) may not take the team down: `authority: {down: …}` in ensemble.yaml lists w1";
        assert_eq!(refused(AuthorityAct::Down, &conductor), expected);
        let resume = refused(AuthorityAct::Resume, &worker);
        assert!(resume.ends_with("lists no agent: a person may"), "{resume}");
    }

    #[test]
    fn an_agent_may_leave_by_itself() {
        let rules = Authority::default();
        assert!(rules.check_shutdown(&agent("w1", "worker"), &name("w1")).is_ok());
        assert!(rules.check_shutdown(&agent("w1", "worker"), &name("w2")).is_err());
    }
}
