//! Tasks of step queues and of the blackboard, from their records.

use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;
use serde_json::Value;

use super::story::SessionStory;
use super::trouble::{SessionTrouble, TroubleWeight, member};
use super::work::TaskStage;

impl SessionStory {
    pub(super) fn follow_steps(&mut self, record: &Record) {
        let task = member(record, "task_id");
        let (at, actor) = (record.timestamp, record.actor.clone());
        match record.kind.as_str() {
            types::STEP_ADDED
            | types::STEP_COMPLETED
            | types::STEP_FAILED
            | types::STEP_LEASE_ENDED
            | types::STEP_RETRIED
            | types::STEP_UNBLOCKED => self.enter(&task, at, TaskStage::Queued, ""),
            types::STEP_TAKEN => self.enter(&task, at, TaskStage::Held, &actor),
            types::STEP_BLOCKED => self.enter(&task, at, TaskStage::Stopped, &actor),
            types::STEPS_DONE => self.enter(&task, at, TaskStage::Over, ""),
            _ => {}
        }
    }

    pub(super) fn follow_board(&mut self, record: &Record) {
        if record.kind.as_str() != types::BOARD_WRITTEN {
            return;
        }
        let at = record.timestamp;
        let steps = record.data.get("steps").and_then(Value::as_array);
        for step in steps.into_iter().flatten() {
            let text = |name: &str| step[name].as_str().unwrap_or_default();
            let (task, agent, what) = (text("task"), text("agent"), text("what"));
            if task.is_empty() {
                continue;
            }
            let coder = self.work.last_holder(task);
            let (stage, who) = match text("status") {
                _ if what == "task.review_claimed" => (TaskStage::Review, agent),
                "DRAFT" | "UNCLAIMED" => (TaskStage::Queued, ""),
                "CLAIMED" if what != "task.iteration" => (TaskStage::Held, agent),
                "REJECTED" => (TaskStage::Held, coder.as_str()),
                "READY_FOR_REVIEW" | "APPROVED" => (TaskStage::Review, ""),
                "BLOCKED" | "INTEGRATION_FAILED" => (TaskStage::Stopped, agent),
                "MERGED" | "SUPERSEDED" | "ABANDONED" => (TaskStage::Over, ""),
                _ => continue,
            };
            self.enter(task, at, stage, who);
            self.board_trouble(at, text("status"), what, task, agent);
        }
    }

    fn board_trouble(&mut self, at: Timestamp, status: &str, what: &str, task: &str, agent: &str) {
        let (weight, said) = match status {
            "REJECTED" if what.contains("reject") => {
                (TroubleWeight::Odd, format!("rejected {task}"))
            }
            "INTEGRATION_FAILED" => (TroubleWeight::Odd, format!("could not merge {task}")),
            "BLOCKED" => (TroubleWeight::Bad, format!("{task} is blocked")),
            _ => return,
        };
        self.trouble(SessionTrouble {
            weight,
            at: Some(at),
            until: None,
            who: agent.to_owned(),
            what: said,
            why: String::new(),
            subjects: vec![task.to_owned()],
            story: format!("t:{task}"),
            may_follow: false,
        });
    }
}
