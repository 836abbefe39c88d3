//! Enforces authority over files that are made by hand: have it shut down, or interrupt it.

use ensemble_core::message::{Envelope, Name, SenderProof};
use ensemble_core::proto::request::SHUTDOWN;
use ensemble_core::requests::RequestEntry;
use ensemble_project::Project;
use ensemble_project::workload::TaskBooks;
use ensemble_team::authority::{ActorStanding, AuthorityAct, NotAuthorized};

#[derive(Debug)]
pub(crate) struct AuthorityGuard {
    project: Project,
}

impl AuthorityGuard {
    pub(crate) fn new(project: &Project) -> Self {
        Self { project: project.clone() }
    }

    /// Why this request must not be carried out; `None` if it may be, or is decided.
    pub(crate) fn refuses(&self, entry: &RequestEntry) -> Option<NotAuthorized> {
        let asked = &entry.request;
        if entry.decision.is_some() || asked.kind.as_str() != SHUTDOWN {
            return None;
        }
        let standing = self.standing(&asked.from)?;
        self.project.config.authority.check_shutdown(&standing, &asked.to).err()
    }

    /// Whether a message may interrupt a turn of its reader: a person's may, and that of an agent that may stop others.
    /// Who sends it must be proved, since agents send without a person being asked.
    pub(crate) fn may_interrupt(&self, envelope: &Envelope) -> bool {
        match envelope.proof {
            Some(SenderProof::Person) => true,
            Some(_) if envelope.project.is_none() => {
                let standing = self.standing(&envelope.from);
                let authority = &self.project.config.authority;
                standing.is_some_and(|it| authority.check(AuthorityAct::Shutdown, &it).is_ok())
            }
            _ => false,
        }
    }

    fn standing(&self, name: &Name) -> Option<ActorStanding> {
        let (members, _) = self.project.roster().entries().ok()?;
        let books = TaskBooks::open(&self.project);
        Some(ActorStanding::of(name, &members, books.board()))
    }
}

#[cfg(test)]
mod tests {
    use ensemble_team::roster::Member;

    use super::*;
    use ensemble_core::env::{Clock as _, SystemClock};

    #[test]
    fn a_person_and_a_lead_interrupt_and_a_worker_and_a_mere_name_do_not() {
        let home = tempfile::tempdir().unwrap();
        let queue = home.path().join("queue");
        std::fs::create_dir(&queue).unwrap();
        let project = Project::discover(Some(&queue)).unwrap();
        std::fs::create_dir(&project.state).unwrap();
        let name = |text: &str| Name::new(text).unwrap();
        for (agent, role) in [("ann", "conductor"), ("bob", "worker")] {
            let member = Member::new(name(agent), name(role), "claude", SystemClock.wall());
            project.roster().change(&name(agent), |_| Ok(Some(member.clone()))).unwrap();
        }
        let guard = AuthorityGuard::new(&project);
        let may = |from: &str, proof| {
            let mut envelope = Envelope::new(name("w1"), String::new()).with_proof(proof);
            envelope.from = name(from);
            guard.may_interrupt(&envelope)
        };
        assert!(may("operator", Some(SenderProof::Person)));
        assert!(may("ann", Some(SenderProof::Pass)));
        assert!(!may("bob", Some(SenderProof::Pass)));
        assert!(!may("ann", None) && !may("operator", None));
    }
}
