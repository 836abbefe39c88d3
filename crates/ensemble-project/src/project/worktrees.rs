//! Worktrees and merges in `ensemble.yaml`.

use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::event_log::Recorder;
use ensemble_core::{Error, Result};
use ensemble_team::board::is_branch;
use ensemble_team::worktree::{GIT_LIMIT, MergeTests, REMOTE_LIMIT, WorktreeOptions, is_remote};
use serde::{Deserialize, Serialize};

use super::Project;
use ensemble_core::message::ConfigDuration;

const TESTS_LIMIT: Duration = Duration::from_secs(1_800);

/// `worktrees` in `ensemble.yaml`: the directories of tasks, and the branch for approved work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct WorktreesConfig {
    /// Directory of worktrees, relative to the project (default `.worktrees`).
    pub directory: Option<String>,
    /// The branch for approved work (default: `config.integration_branch` on the blackboard, or `integration`). The
    /// first claim creates it at HEAD.
    pub integration_branch: Option<String>,
    /// The git remote through which the hosts of a team share branches, and to which approved work goes
    /// (default: none). Without one, each host merges in its own repository.
    pub remote: Option<String>,
    /// Time limit of a git command that asks the remote (default 1m).
    pub remote_limit: Option<ConfigDuration>,
    /// Command that must pass before that branch moves, as `sh -c` takes it. It runs in a worktree
    /// of the merge (default: none).
    pub tests: Option<String>,
    /// Time limit of the tests (default 30m).
    pub tests_limit: Option<ConfigDuration>,
    /// Time limit of a git command (default 5m).
    pub git_limit: Option<ConfigDuration>,
}

super::sections::fill_absent!(WorktreesConfig: directory, integration_branch, remote, remote_limit, tests, tests_limit, git_limit);

/// Directories of the project that have their own files.
const NOT_FOR_WORKTREES: [&str; 3] = [".git", ".ensemble", "queue"];

impl WorktreesConfig {
    /// Refuses a branch that git or its commands would not take as a name, and a directory that has other files.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        let refused = |field: &str, detail: String| {
            Err(Error::malformed(path, format!("worktrees.{field}"), detail))
        };
        if let Some(branch) = self.integration_branch.as_deref().filter(|it| !is_branch(it)) {
            return refused(
                "integration_branch",
                format!("`{branch}` is not the name of a branch"),
            );
        }
        if let Some(remote) = self.remote.as_deref().filter(|it| !is_remote(it)) {
            return refused("remote", format!("`{remote}` is not the name of a git remote"));
        }
        match self.directory.as_deref().map(|directory| (directory, trouble_with(directory))) {
            Some((directory, Some(trouble))) => {
                refused("directory", format!("`{directory}` {trouble}"))
            }
            _ => Ok(()),
        }
    }
}

fn trouble_with(directory: &str) -> Option<&'static str> {
    let mut parts = Path::new(directory).components().filter(|part| *part != Component::CurDir);
    let first = parts.clone().next();
    let is_other = |name: &str| first == Some(Component::Normal(name.as_ref()));
    if directory.chars().any(char::is_control) {
        Some("has a control character")
    } else if parts.all(|part| !matches!(part, Component::Normal(_))) {
        Some("is the project's own directory, or one around it")
    } else if NOT_FOR_WORKTREES.into_iter().any(is_other) {
        Some("has other files of the project")
    } else {
        None
    }
}

impl Project {
    /// Options for the worktrees of this project's tasks. The board's own options need
    /// [`WorktreesConfig::directory`], too.
    pub fn worktree_options(
        &self,
        actor: impl Into<String>,
        recorder: Arc<dyn Recorder>,
    ) -> WorktreeOptions {
        let config = &self.config.worktrees;
        let mut options = WorktreeOptions::new(actor)
            .with_durability(self.config.durability.unwrap_or_default())
            .with_recorder(recorder);
        options.door = Some(self.doorkeeper());
        options.integration.clone_from(&config.integration_branch);
        options.remote.clone_from(&config.remote);
        options.state_dir = Some(self.state.clone());
        options.remote_limit = config.remote_limit.map_or(REMOTE_LIMIT, Duration::from);
        let limit = config.tests_limit.map_or(TESTS_LIMIT, Duration::from);
        options.tests = config.tests.clone().map(|command| MergeTests { command, limit });
        options.git_limit = config.git_limit.map_or(GIT_LIMIT, Duration::from);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worktrees_may_lie_beside_the_project_and_in_no_directory_with_other_files() {
        for directory in [".worktrees", "./trees", "../trees", "/srv/trees", "-rf", "$(touch x)"] {
            assert_eq!(trouble_with(directory), None, "{directory}");
        }
        for directory in
            ["", ".", "..", "../..", "/", "./.git", ".git/x", ".ensemble", "queue/reports", "a\nb"]
        {
            assert!(trouble_with(directory).is_some(), "{directory}");
        }
    }
}
