//! The rows of supervised agents. Their supervisor writes them while it holds its lock.
//!
//! ```text
//!                        begin                          end
//! no row, or shut down   a row of the next generation   shutdown (exited), unless it is leaving
//! a row with a pane      the row names the supervisor   the row names none
//! a killed supervisor's  the next generation            shutdown (exited), unless it is leaving
//! ```
//!
//! A killed supervisor leaves its row as it was; the row's process is gone then, and so is the agent. A
//! supervisor that has agreed to a shutdown leaves the row *leaving*: the departure completes it.

use super::{EndCause, Member, MemberEnd, MemberState, Roster, SupervisorProcess};
use ensemble_core::Result;
use ensemble_core::message::{Digest, Name, Timestamp};

/// The row that a supervisor adds to the roster.
#[derive(Clone, Debug)]
pub struct Enrolment {
    pub name: Name,
    pub role: Name,
    /// The agent's provider, for a new row.
    pub provider: String,
    /// Digest of the pass that its agents get, for a new row.
    pub pass_sha256: Option<Digest>,
    pub supervisor: SupervisorProcess,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupervisorFarewell {
    /// It has agreed to a shutdown, which another process completes.
    Agreed,
    /// It has ended for another reason.
    Ended,
}

impl Enrolment {
    pub fn new(name: Name, role: Name, provider: impl Into<String>, at: Timestamp) -> Self {
        let supervisor = SupervisorProcess::current();
        Self { name, role, provider: provider.into(), pass_sha256: None, supervisor, at }
    }
}

impl Roster {
    /// Enters a supervisor. A member that has a pane, or a command, keeps its row.
    pub fn enrol(&self, enrolment: &Enrolment) -> Result<Option<Member>> {
        let Enrolment { name, role, provider, pass_sha256, supervisor, at } = enrolment;
        self.change(name, |current| {
            let keeps = |member: &Member| {
                member.is_present() && (member.command.is_some() || member.binding.is_some())
            };
            let generation = current.as_ref().map_or(0, |member| member.generation);
            let mut member = match current {
                Some(member) if keeps(&member) => member,
                _ => {
                    let mut member = Member::new(name.clone(), role.clone(), provider.clone(), *at);
                    member.generation = generation + 1;
                    member.pass_sha256 = *pass_sha256;
                    member
                }
            };
            member.supervisor = Some(*supervisor);
            Ok(Some(member))
        })
    }

    /// Takes a supervisor out again, if the row is still its own.
    pub fn dismiss(
        &self,
        name: &Name,
        supervisor: SupervisorProcess,
        farewell: SupervisorFarewell,
        at: Timestamp,
    ) -> Result<()> {
        self.change(name, |current| {
            let Some(mut member) = current.filter(|m| m.supervisor == Some(supervisor)) else {
                return Ok(None);
            };
            let is_alone = member.is_supervised_alone();
            match (member.state, farewell) {
                (MemberState::Up, SupervisorFarewell::Agreed) => {
                    (member.state, member.since) = (MemberState::Leaving, at);
                }
                (MemberState::Up, SupervisorFarewell::Ended) if is_alone => {
                    (member.state, member.since) = (MemberState::Shutdown, at);
                    (member.pass_sha256, member.ended) =
                        (None, Some(MemberEnd::new(at, EndCause::Exited)));
                }
                (MemberState::Up, SupervisorFarewell::Ended)
                | (MemberState::Leaving | MemberState::Shutdown, _) => {}
            }
            // A departure ends what this process has left: it must know the process.
            if member.state != MemberState::Leaving || !is_alone {
                member.supervisor = None;
            }
            Ok(Some(member))
        })
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{member, name};
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    fn bed() -> (tempfile::TempDir, Roster) {
        let home = tempfile::tempdir().unwrap();
        let roster = Roster::open(home.path());
        (home, roster)
    }

    fn enrol(roster: &Roster) -> Member {
        let enrolment = Enrolment::new(name("coder-1"), name("coder"), "generic", at(1));
        roster.enrol(&enrolment).unwrap().unwrap()
    }

    /// Dismisses the supervisor of a row; returns the new row.
    fn dismiss(roster: &Roster, row: &Member, farewell: SupervisorFarewell) -> Member {
        roster.dismiss(&row.name, row.supervisor.unwrap(), farewell, at(2)).unwrap();
        roster.get(&row.name).unwrap().unwrap()
    }

    #[test]
    fn a_supervised_agent_has_a_row_while_its_supervisor_runs() {
        let (_home, roster) = bed();
        let row = enrol(&roster);
        assert_eq!((row.state, row.generation), (MemberState::Up, 1));
        assert!(row.is_supervised_alone() && row.supervisor.unwrap().lives());
        let row = dismiss(&roster, &row, SupervisorFarewell::Ended);
        assert_eq!(row.state, MemberState::Shutdown);
        assert_eq!(row.ended.map(|ended| ended.how), Some(EndCause::Exited));
        assert_eq!(enrol(&roster).generation, 2);
    }

    #[test]
    fn an_agreed_shutdown_is_left_to_the_departure() {
        let (_home, roster) = bed();
        let row = dismiss(&roster, &enrol(&roster), SupervisorFarewell::Agreed);
        assert_eq!((row.state, row.supervisor.is_some()), (MemberState::Leaving, true));
    }

    #[test]
    fn a_member_with_a_command_keeps_its_row_and_pass() {
        let (_home, roster) = bed();
        let mut started = member("coder-1");
        (started.command, started.generation) = (Some("ensemble agent supervise".to_owned()), 4);
        started.pass_sha256 = Some(Digest::of(b"pass"));
        roster.change(&started.name, |_| Ok(Some(started.clone()))).unwrap();
        let row = enrol(&roster);
        assert_eq!((row.generation, row.pass_sha256), (4, started.pass_sha256));
        assert_eq!(dismiss(&roster, &row, SupervisorFarewell::Ended), started);
    }

    #[test]
    fn a_supervisor_that_came_later_is_not_taken_out() {
        let (_home, roster) = bed();
        let row = enrol(&roster);
        let other = SupervisorProcess { pid: 1, started: Some(1) };
        roster.dismiss(&row.name, other, SupervisorFarewell::Ended, at(2)).unwrap();
        assert_eq!(roster.get(&row.name).unwrap(), Some(row));
    }
}
