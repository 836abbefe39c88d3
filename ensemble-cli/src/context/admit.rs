//! What an agent may name on a line of ours: files of its project, and no other project.

use std::path::{Path, PathBuf};

use ensemble_core::message::Name;
use ensemble_tmux::reaper::PASS_VARIABLE;

use super::{Context, is_same_place};
use crate::args::Globals;
use crate::exit::{Failure, Outcome};
use crate::unasked::NamedFiles;

impl Context {
    /// Refuses an agent a file outside of its project, and another project.
    pub(crate) fn admit(&self, files: &NamedFiles) -> Outcome {
        if let Some(queue) = &self.queue {
            self.admit_queue(queue)?;
        }
        if files.is_empty() {
            return Ok(());
        }
        let identity = self.identity()?;
        let Some(agent) = identity.name.clone().filter(|_| identity.is_member()) else {
            return Ok(());
        };
        let Some(file) = files.outside(&self.readable(&agent)?).map(Path::display) else {
            return Ok(());
        };
        let text = format!(
            "{file} is outside of the project, and {agent} is an agent: it reads only files of the project and its \
             worktrees"
        );
        Err(Failure::refused(text)
            .with_hint("pass the content on stdin (`-f -`), or ask a person to run this"))
    }

    /// An agent works in the project that its surroundings name, and in no other.
    fn admit_queue(&self, queue: &Path) -> Outcome {
        let home = Self::new(Globals { queue: None, agent: None, json: false }, self.verb);
        let is_agent = match home.project() {
            Ok(project) if is_same_place(queue, &project.queue) => false,
            Ok(_) => home.identity().map_or_else(|_| has_pass(), |identity| identity.is_member()),
            Err(_) => has_pass(),
        };
        if !is_agent {
            return Ok(());
        }
        let text =
            format!("{} is another project, and an agent acts only in its own", queue.display());
        Err(Failure::refused(text).with_hint("leave out `--queue`, or ask a person to run this"))
    }

    /// The directories whose files an agent may read, without links in their names.
    fn readable(&self, agent: &Name) -> Outcome<Vec<PathBuf>> {
        let project = self.project()?;
        let own = project.roster().get(agent)?.and_then(|member| member.directory);
        let all = std::iter::once(project.root().to_owned()).chain(own);
        Ok(all.filter_map(|root| root.canonicalize().ok()).collect())
    }
}

fn has_pass() -> bool {
    std::env::var_os(PASS_VARIABLE).is_some_and(|pass| !pass.is_empty())
}
