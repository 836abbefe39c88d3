//! Worktrees and merges in `ensemble.yaml`.

use std::sync::Arc;
use std::time::Duration;

use ensemble_core::event_log::Recorder;
use ensemble_team::worktree::{GIT_LIMIT, Options, Tests};
use serde::{Deserialize, Serialize};

use super::Project;

/// Default time limit of tests.
const TESTS_LIMIT: Duration = Duration::from_secs(1_800);

/// `worktrees` in `ensemble.yaml`: the directories of tasks, and the branch for approved work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct WorktreesConfig {
    /// Directory of worktrees, relative to the project (default `.worktrees`).
    pub directory: Option<String>,
    /// The branch for approved work (default: `config.integration_branch` on the blackboard, else
    /// `integration`). The first claim makes it at HEAD.
    pub integration_branch: Option<String>,
    /// Command that must pass before that branch moves, as `sh -c` takes it. It runs in a worktree
    /// of the merge (default: none).
    pub tests: Option<String>,
    /// Time limit of the tests, in seconds (default 1800).
    pub tests_limit_seconds: Option<u64>,
    /// Time limit of a git command, in seconds (default 300).
    pub git_limit_seconds: Option<u64>,
}

impl WorktreesConfig {
    /// Fills absent settings from another configuration.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        Self {
            directory: self.directory.or(fallback.directory),
            integration_branch: self.integration_branch.or(fallback.integration_branch),
            tests: self.tests.or(fallback.tests),
            tests_limit_seconds: self.tests_limit_seconds.or(fallback.tests_limit_seconds),
            git_limit_seconds: self.git_limit_seconds.or(fallback.git_limit_seconds),
        }
    }
}

impl Project {
    /// Options for the worktrees of this project's tasks. The board's own options need
    /// [`WorktreesConfig::directory`], too.
    #[must_use]
    pub fn worktree_options(
        &self,
        actor: impl Into<String>,
        recorder: Arc<dyn Recorder>,
    ) -> Options {
        let config = &self.config.worktrees;
        let mut options = Options::new(actor)
            .with_durability(self.config.durability.unwrap_or_default())
            .with_recorder(recorder)
            .with_door(self.doorkeeper());
        options.integration.clone_from(&config.integration_branch);
        let limit = config.tests_limit_seconds.map_or(TESTS_LIMIT, Duration::from_secs);
        options.tests = config.tests.clone().map(|command| Tests { command, limit });
        options.git_limit = config.git_limit_seconds.map_or(GIT_LIMIT, Duration::from_secs);
        options
    }
}
