//! Under which fencing number an agent acts on the blackboard.

use ensemble_core::message::Name;
use ensemble_team::board::{State, TaskStatus, released_claim};
use ensemble_team::driver::supervise::{EPOCH_VARIABLE, TASK_EPOCH_VARIABLE};
use ensemble_team::holdings::{HeldAs, Holding};
use ensemble_team::proto::task::TaskHolder;
use serde_json::{Value, json};

use crate::App;
use crate::failure::{Failure, Outcome};

/// The agent that acts on a task, under the given number or, without one, that on the board.
pub fn holder(app: &App, state: &State, id: &Name, given: Option<u64>) -> Outcome<TaskHolder> {
    let by = app.agent_required()?;
    let on_board = state.task(id).and_then(|task| match task.status {
        TaskStatus::ReadyForReview => task.review_epoch,
        _ => task.lease_epoch.or_else(|| {
            let released = released_claim(task).filter(|claim| claim.by == by)?;
            Some(released.epoch)
        }),
    });
    Ok(TaskHolder { by, epoch: given.or(on_board).unwrap_or_default() })
}

/// The tasks of the blackboard among what an agent holds, as `whoami` says them: `duty` is `work` or
/// `review`.
pub fn board_tasks(holds: &[Holding]) -> Vec<Value> {
    let task = |it: &Holding| {
        let duty = duty(it.held_as)?;
        let Holding { task_id, epoch, worktree, .. } = it;
        Some(json!({ "task": task_id, "duty": duty, "epoch": epoch, "worktree": worktree }))
    };
    holds.iter().filter_map(task).collect()
}

pub const fn duty(held_as: HeldAs) -> Option<&'static str> {
    match held_as {
        HeldAs::Task => Some("work"),
        HeldAs::Review => Some("review"),
        HeldAs::Message | HeldAs::Step => None,
    }
}

/// The agent in whose name a task is blocked: its holder, under the number that it was given or that on the board.
/// `None` for a planner or a person, who may block any task.
pub fn find_blocker(
    app: &App,
    state: &State,
    id: &Name,
    given: Option<u64>,
) -> Outcome<Option<TaskHolder>> {
    match (given, check_planner(app, state)) {
        (None, Ok(())) => Ok(None),
        (given, _) => holder(app, state, id, given).map(Some),
    }
}

/// Refuses a planner's decision to an agent of the blackboard that is not a planner, or was replaced.
pub fn check_planner(app: &App, state: &State) -> Outcome {
    let Some(agent) = check_current(app, state)? else { return Ok(()) };
    if is_planner(state, &agent) {
        return Ok(());
    }
    let text = format!("`{}` is not a planner: it decides only about its own work", agent.by);
    Err(Failure::refused(text).with_hint("a planner or a person can do it"))
}

/// The agent of the blackboard that runs this command; `None` if a person or another agent does. Refuses an agent that
/// was replaced.
pub fn check_current(app: &App, state: &State) -> Outcome<Option<TaskHolder>> {
    let known = app.agent()?.filter(|name| state.agents.contains_key(name));
    match known.is_none() && number(EPOCH_VARIABLE)?.is_none() {
        true => Ok(None),
        false => check_registered(app, state).map(Some),
    }
}

pub(crate) fn is_planner(state: &State, agent: &TaskHolder) -> bool {
    let entry = state.agents.get(&agent.by);
    entry.and_then(|entry| entry.role.as_deref()) == Some("planner")
}

pub fn registered(app: &App, state: &State) -> Outcome<TaskHolder> {
    let by = app.agent_required()?;
    let Some(entry) = state.agents.get(&by) else {
        let text = format!("`{by}` is not registered on the blackboard");
        let hint = format!("`ensemble agent register --as {by} --role coder` does that");
        return Err(Failure::nothing(text).with_hint(hint));
    };
    let epoch = number(EPOCH_VARIABLE)?.or(entry.epoch).unwrap_or_default();
    Ok(TaskHolder { by, epoch })
}

/// The number of the claim or the review that an agent was given by its environment.
pub fn given_number() -> Outcome<Option<u64>> {
    number(TASK_EPOCH_VARIABLE)
}

/// As [`registered`]. Refuses an agent that was replaced: its registration has another number by now.
pub fn check_registered(app: &App, state: &State) -> Outcome<TaskHolder> {
    let agent = registered(app, state)?;
    let on_board = state.agents.get(&agent.by).and_then(|entry| entry.epoch);
    match on_board.filter(|number| *number != agent.epoch) {
        None => Ok(agent),
        Some(number) => {
            let (by, old) = (&agent.by, agent.epoch);
            let text = format!("registration {old} of `{by}` has ended, {number} runs now");
            Err(Failure::refused(text).with_hint("stop: another agent continues your work"))
        }
    }
}

fn number(variable: &str) -> Outcome<Option<u64>> {
    let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| Failure::usage(format!("{variable} is not a number")))
}
