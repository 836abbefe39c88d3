//! The blackboard: `claim_task` and `handoff` (seeds 001 and 004).

use ensemble_core::message::Name;
use ensemble_team::board::NewHandoff;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Answer, Trouble};
use crate::commands::{hand_over, take_task};
use crate::mcp::Desk;

/// Arguments of `claim_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// Which task; without it, the most urgent that you can take.
    task_id: Option<Name>,
    /// True to review it instead of working on it.
    #[serde(default)]
    review: bool,
}

/// Arguments of `handoff`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Handoff {
    /// Summary of the work so far.
    summary: String,
    /// The next action on the task.
    next_action: String,
    /// The approach that was taken so far.
    approach: Option<String>,
    /// What stands in the way.
    blockers: Option<String>,
    /// Files that were changed.
    #[serde(default)]
    files_modified: Vec<String>,
    /// Further steps.
    #[serde(default)]
    next_steps: Vec<String>,
    /// How much of your context is used, in percent.
    #[schemars(range(max = 100))]
    context_used: Option<u8>,
}

pub(super) fn claim(desk: &Desk, claim: Claim) -> Answer {
    let taken = take_task(&desk.context(), claim.task_id, claim.review)?;
    let (task, epoch) = taken.held();
    desk.claimed(task.clone(), epoch);
    let mut object = taken.to_json();
    object["message"] = json!("It is yours: work in the worktree at `path`, and nowhere else.");
    Ok(object)
}

pub(super) fn hand_off(desk: &Desk, handoff: Handoff) -> Answer {
    for (field, text) in [("summary", &handoff.summary), ("next_action", &handoff.next_action)] {
        if text.trim().is_empty() {
            return Err(Trouble::new(format!("{field}: is empty: the next agent needs it")));
        }
    }
    let task = hand_over(&desk.context(), |task| desk.claim_of(task), &handoff.notes())?;
    Ok(json!({
        "task": task, "exit": 42,
        "message": "Your notes are kept for the next agent. End now, with exit status 42 if you can.",
    }))
}

impl Handoff {
    fn notes(self) -> NewHandoff {
        let mut more = Map::new();
        for (name, text) in [("approach", self.approach), ("blockers", self.blockers)] {
            more.extend(text.map(|text| (name.to_owned(), json!(text))));
        }
        for (name, list) in
            [("files_modified", self.files_modified), ("next_steps", self.next_steps)]
        {
            if !list.is_empty() {
                more.insert(name.to_owned(), Value::from(list));
            }
        }
        more.extend(self.context_used.map(|used| ("context_used".to_owned(), json!(used))));
        NewHandoff { summary: self.summary, next_action: self.next_action, more }
    }
}
