//! `ensemble agent handoff`: notes for the agent that continues the task.

use ensemble_core::message::Name;
use ensemble_team::board::{NewHandoff, Say, Status};
use ensemble_team::proto::agent;
use ensemble_team::proto::task::Holder;
use serde_json::{Map, Value, json};

use crate::acting;
use crate::context::Context;
use crate::exit::{Failure, Outcome};

/// Leave notes for the agent that continues your task, and announce exit status 42
///
/// For a context that is used up. End afterwards: with exit status 42 if you can choose it, else
/// with 0.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: ensemble agent handoff --summary \"parser done\" --next-action \"write its tests\""
)]
pub(super) struct Handoff {
    /// Work done so far
    #[arg(long, value_name = "TEXT")]
    summary: String,
    /// Next action
    #[arg(long, value_name = "TEXT")]
    next_action: String,
    /// Approach taken so far
    #[arg(long, value_name = "TEXT")]
    approach: Option<String>,
    /// Obstacles
    #[arg(long, value_name = "TEXT")]
    blockers: Option<String>,
    /// A file that was changed; may be repeated
    #[arg(long = "changed", alias = "file", value_name = "PATH")]
    files: Vec<String>,
    /// A further step; may be repeated
    #[arg(long = "step", value_name = "TEXT")]
    steps: Vec<String>,
    /// Used share of the context
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    context_used: Option<u64>,
}

impl Handoff {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let mut notes =
            NewHandoff { summary: self.summary, next_action: self.next_action, more: Map::new() };
        let texts = [("approach", self.approach), ("blockers", self.blockers)];
        for (name, text) in texts {
            notes.more.extend(text.map(|text| (name.to_owned(), json!(text))));
        }
        for (name, list) in [("files_modified", self.files), ("next_steps", self.steps)] {
            if !list.is_empty() {
                notes.more.insert(name.to_owned(), json!(list));
            }
        }
        notes.more.extend(self.context_used.map(|used| ("context_used".to_owned(), json!(used))));
        let task = hand_over(context, |_| None, &notes)?;
        if context.out.is_json() {
            return context.out.object(&json!({ "task_id": task, "exit": 42 }));
        }
        match task {
            Some(task) => context.out.line(format!("notes for `{task}` are left; end with 42 now")),
            None => context.out.line("there is no task to leave notes for; end with 42 now"),
        }
    }
}

/// Leaves the notes for the task that the asking agent has claimed, and says that it ends with 42.
/// Returns the task; reviewers and planners have none, and only say that. `known` is the number of a
/// claim, where the asker remembers it better than its environment.
pub(crate) fn hand_over(
    context: &Context,
    known: impl Fn(&Name) -> Option<u64>,
    notes: &NewHandoff,
) -> Outcome<Option<Name>> {
    let board = context.board()?;
    let mut locked = board.lock()?;
    let agent = acting::registered(context, locked.state())?;
    let given = acting::given_number()?;
    let mine = locked.state().tasks.iter().find(|task| {
        task.status == Status::Claimed && task.assigned_to.as_ref() == Some(&agent.by)
    });
    let task = mine.map(|task| (task.id.clone(), task.lease_epoch.unwrap_or_default()));
    let entry = locked.state().agents.get(&agent.by).map(|entry| entry.status);
    match (&task, entry) {
        (Some((id, epoch)), _) => {
            let epoch = known(id).or(given).unwrap_or(*epoch);
            let holder = Holder { by: agent.by.clone(), epoch };
            locked.hand_off(id, &holder, notes)?;
        }
        (None, Some(agent::State::Reviewing)) => {}
        (None, Some(_)) if is_planner(&locked, &agent) => {}
        (None, _) => {
            let text = format!("`{}` has no task that it could hand over", agent.by);
            return Err(Failure::refused(text).with_hint("`ensemble task list` says who has what"));
        }
    }
    if matches!(entry, Some(agent::State::Working | agent::State::Reviewing)) {
        locked.agent_event(&agent, agent::Event::HandOff)?;
    }
    let used = notes.more.get("context_used").and_then(Value::as_u64);
    if let Some(percent) = used {
        locked.note_context(&agent, percent)?;
    }
    let state = locked.commit()?;
    let say = Say::Leaving { code: 42, reason: &notes.summary };
    let sign = board.give_sign(&agent, &say, state.config.lease_duration())?;
    if let Some(percent) = used {
        board.note_context(sign, &agent, percent)?;
    }
    Ok(task.map(|(id, _)| id))
}

fn is_planner(board: &ensemble_team::board::LockedBoard<'_>, agent: &Holder) -> bool {
    let entry = board.state().agents.get(&agent.by);
    entry.and_then(|entry| entry.role.as_deref()) == Some("planner")
}
