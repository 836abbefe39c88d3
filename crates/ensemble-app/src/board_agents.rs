//! What an agent says of itself to the blackboard: signs of life, and notes for the agent that continues its task.

use std::path::Path;

use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_team::board::{AgentSign, Board, NewHandoff, SignContent, TaskStatus};
use ensemble_team::driver::supervise::seated;
use ensemble_team::proto::agent;
use ensemble_team::proto::beat::extended;
use ensemble_team::proto::task::TaskHolder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::App;
use crate::acting::{check_registered, given_number, is_planner, registered};
use crate::failure::{Failure, Outcome};

/// What an agent leaves for the one that continues its task. Fields without content are left out.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HandoffNotes {
    /// Summary of the work so far.
    pub summary: String,
    /// The next action on the task.
    pub next_action: String,
    /// The approach that was taken so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approach: Option<String>,
    /// What is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blockers: Option<String>,
    /// Files that were changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_modified: Vec<String>,
    /// Further steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next_steps: Vec<String>,
    /// How much of your context is used, in percent.
    #[schemars(range(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_used: Option<u8>,
}

impl From<&HandoffNotes> for NewHandoff {
    fn from(notes: &HandoffNotes) -> Self {
        let (summary, next_action) = (notes.summary.clone(), notes.next_action.clone());
        let mut more = json!(notes).as_object_mut().map(std::mem::take).unwrap_or_default();
        more.retain(|name, _| !["summary", "next_action"].contains(&name.as_str()));
        Self { summary, next_action, more }
    }
}

pub fn directory_of(board: &Board) -> &Path {
    board.path().parent().unwrap_or_else(|| Path::new("."))
}

/// Leaves the notes for the task that the asking agent has claimed, and says that it ends with 42.
/// Returns the task; reviewers and planners have none, and only say that. `known` is the number of a
/// claim, where the asker remembers it better than its environment.
pub fn hand_over(
    app: &App,
    known: impl Fn(&Name) -> Option<u64>,
    notes: &HandoffNotes,
) -> Outcome<Option<Name>> {
    let board = app.board()?;
    let mut locked = board.lock()?;
    let agent = registered(app, locked.state())?;
    let given = given_number()?;
    let mine = locked.state().tasks.iter().find(|task| {
        task.status == TaskStatus::Claimed && task.assigned_to.as_ref() == Some(&agent.by)
    });
    let task = mine.map(|task| (task.id.clone(), task.lease_epoch.unwrap_or_default()));
    let entry = locked.state().agents.get(&agent.by).map(|entry| entry.status);
    match (&task, entry) {
        (Some((id, epoch)), _) => {
            let epoch = known(id).or(given).unwrap_or(*epoch);
            let holder = TaskHolder { by: agent.by.clone(), epoch };
            locked.hand_off(id, &holder, &notes.into())?;
        }
        (None, Some(agent::State::Reviewing)) => {}
        (None, Some(_)) if is_planner(locked.state(), &agent) => {}
        (None, _) => {
            let text = format!("`{}` has no task that it could hand over", agent.by);
            return Err(Failure::refused(text).with_hint("`ensemble task list` says who has what"));
        }
    }
    if matches!(entry, Some(agent::State::Working | agent::State::Reviewing)) {
        locked.agent_event(&agent, agent::Event::HandOff)?;
    }
    let used = notes.context_used.map(u64::from);
    if let Some(percent) = used {
        locked.note_context(&agent, percent)?;
    }
    let state = locked.commit()?;
    let say = SignContent::Leaving { code: 42, reason: &notes.summary };
    let sign = board.give_sign(&agent, &say, state.config.lease_duration())?;
    if let Some(percent) = used {
        board.note_context(sign, &agent, percent)?;
    }
    Ok(task.map(|(id, _)| id))
}

#[derive(Clone, Copy, Debug, Default)]
pub struct LifeSign<'a> {
    /// The long operation that begins, if one does.
    pub long: Option<&'a str>,
    /// The used share of the agent's app, in percent.
    pub context_percent: Option<u64>,
}

/// Gives the sign of life of the asking agent: an ordinary one, or that it is at something long.
pub fn give_sign(app: &App, says: LifeSign<'_>) -> Outcome<(TaskHolder, AgentSign)> {
    let board = app.board()?;
    let state = board.read()?;
    let agent = check_registered(app, &state)?;
    let say = says.long.map_or(SignContent::Alive, SignContent::Long);
    let directory = directory_of(&board);
    let mut sign = board.give_sign(&agent, &say, state.config.lease_duration())?;
    if let Some(percent) = says.context_percent {
        sign = board.note_context(sign, &agent, percent)?;
    }
    // A supervisor that listens records it itself.
    let is_heard = seated(directory, &agent.by)?.is_some_and(|(_, lives)| lives);
    if let Some(long) = says.long.filter(|_| !is_heard) {
        let data = json!({ "agent": agent.by, "epoch": agent.epoch, "line": extended(long) });
        app.recorder()?.record(types::LEASE_EXTENDED_LONG, agent.by.as_str(), data);
    }
    Ok((agent, sign))
}
