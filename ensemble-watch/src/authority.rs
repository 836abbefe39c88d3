//! Requests for a shutdown that were put down by hand, by an agent without authority.

use ensemble_core::proto::request::SHUTDOWN;
use ensemble_core::requests::Entry;
use ensemble_project::Project;
use ensemble_project::workload::Books;
use ensemble_team::authority::{NotAuthorized, Standing};

/// The rules of a project, with the agents that they are about.
#[derive(Debug)]
pub(crate) struct Guard {
    project: Project,
}

impl Guard {
    pub(crate) fn new(project: &Project) -> Self {
        Self { project: project.clone() }
    }

    /// Why this request must not be carried out; `None` if it may be, or is decided.
    pub(crate) fn refuses(&self, entry: &Entry) -> Option<NotAuthorized> {
        let asked = &entry.request;
        if entry.decision.is_some() || asked.kind.as_str() != SHUTDOWN {
            return None;
        }
        let (members, _) = self.project.roster().entries().ok()?;
        let books = Books::open(&self.project);
        let standing = Standing::of(&asked.from, &members, books.board());
        self.project.config.authority.check_shutdown(&standing, &asked.to).err()
    }
}
