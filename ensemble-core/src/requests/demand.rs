//! A plan that is demanded before a task may be finished, whichever agent takes it. In seed 004 the
//! lead says "refactor auth" and gets a plan first.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::message::{FORMAT_VERSION, Name, Timestamp, yaml};

/// The content of a demand: `gates/<task>@.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    version: u32,
    pub task_id: String,
    /// The agent or person that demands the plan, and reviews it.
    pub by: Name,
    pub at: Timestamp,
}

impl Demand {
    pub fn new(task: &str, by: Name, at: Timestamp) -> Self {
        Self { version: FORMAT_VERSION, task_id: task.to_owned(), by, at }
    }

    /// The content of a demand's file. A damaged one is a demand of the Conductor.
    pub fn parse(content: &[u8], task: &str) -> Result<Self> {
        let text = String::from_utf8_lossy(content);
        let read = yaml::parse::<Self>(&text, "a demand".as_ref()).ok();
        match read.filter(|demand| demand.task_id == task) {
            Some(demand) => Ok(demand),
            None => Ok(Self::new(task, Name::new("conductor")?, Timestamp::from_unix_millis(0))),
        }
    }
}
