//! What an agent may name on one of our lines: files of its project, and no other project.

use std::path::{Path, PathBuf};

use ensemble_core::message::Name;
use ensemble_tmux::reaper::PASS_VARIABLE;

use crate::App;
use crate::failure::{Failure, Outcome};
use crate::handle::is_same_place;

impl App {
    /// Refuses an agent a file outside of its project, and another project.
    pub fn admit(&self, files: &[PathBuf]) -> Outcome {
        if let Some(queue) = self.queue_flag() {
            self.admit_queue(queue)?;
        }
        if files.is_empty() {
            return Ok(());
        }
        let identity = self.identity()?;
        let Some(agent) = identity.name.clone().filter(|_| identity.is_member()) else {
            return Ok(());
        };
        let roots = self.readable(&agent)?;
        let Some(file) = files.iter().find(|file| !is_inside(file, &roots)) else {
            return Ok(());
        };
        let text = format!(
            "{} is outside of the project, and {agent} is an agent: it reads only files of the project and its \
             worktrees",
            file.display()
        );
        Err(Failure::refused(text)
            .with_hint("pass the content on stdin (`-f -`), or ask a person to run this"))
    }

    /// An agent works in the project that its surroundings name, and in no other.
    fn admit_queue(&self, queue: &Path) -> Outcome {
        let home = Self::new(None, None, self.caller);
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

/// Whether a file is in one of these directories. A link may lead out of them. A file that does not exist counts by its
/// directory.
fn is_inside(file: &Path, roots: &[PathBuf]) -> bool {
    let parent = || file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let real =
        file.canonicalize().or_else(|_| parent().unwrap_or_else(|| Path::new(".")).canonicalize());
    real.is_ok_and(|real| roots.iter().any(|root| real.starts_with(root)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_and_a_name_with_dots_lead_where_they_lead() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("project").canonicalize();
        assert!(root.is_err());
        std::fs::create_dir(home.path().join("project")).unwrap();
        let root = home.path().join("project").canonicalize().unwrap();
        std::fs::write(home.path().join("secret"), "x").unwrap();
        std::fs::write(root.join("mine"), "x").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
        let roots = [root.clone()];
        for (file, inside) in [
            ("mine", true),
            ("absent", true),
            ("link", false),
            ("../secret", false),
            ("../absent", false),
            ("../project/mine", true),
        ] {
            assert_eq!(is_inside(&root.join(file), &roots), inside, "{file}");
        }
        assert!(!is_inside(Path::new("/dev/zero"), &roots));
    }
}
