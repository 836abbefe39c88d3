//! The environment of an agent.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::run::SupervisorRun;
use super::work::SupervisedWork;
use super::{
    EPOCH_VARIABLE, PROMPT_VARIABLE, TASK_EPOCH_VARIABLE, TASK_VARIABLE, WORKTREE_VARIABLE,
};
use crate::worktree::CEILING_VARIABLE;
use ensemble_tmux::reaper::PASS_VARIABLE;

impl SupervisorRun<'_> {
    pub(super) fn environment(&self, work: &SupervisedWork) -> BTreeMap<String, OsString> {
        let mut env = self.order.env.clone();
        let mut set = |name: &str, value: OsString| drop(env.insert(name.to_owned(), value));
        let id = self.order.id.as_str();
        set("ENSEMBLE_AGENT_ID", id.into());
        set("LIZA_AGENT_ID", id.into());
        set(PROMPT_VARIABLE, self.lock.prompt_path().into());
        if let Some(registered) = &self.registered {
            set(EPOCH_VARIABLE, registered.epoch.to_string().into());
        }
        if let Some(task) = work.task() {
            set(TASK_VARIABLE, task.as_str().into());
        }
        if let Some(holder) = work.holder() {
            set(TASK_EPOCH_VARIABLE, holder.epoch.to_string().into());
        }
        if let Some(path) = work.path() {
            set(WORKTREE_VARIABLE, self.board.project_in(path).into());
            // Otherwise git would work in the person's checkout wherever the worktree has lost its `.git`.
            set(CEILING_VARIABLE, path.parent().unwrap_or(path).into());
        }
        if let Some(pass) = self.desk.pass() {
            set(PASS_VARIABLE, pass.into());
        }
        env
    }
}
