//! What the blackboard, the steps, assignments and reports ask before an agent begins something.

use std::sync::Arc;

use ensemble_core::message::Name;
use ensemble_core::requests::Requests;
use ensemble_core::{Error, Result};
use ensemble_team::admission::{Doorkeeper, TaskAct};

use super::Project;

impl Project {
    /// The doorkeeper of this project. It opens the queue or connects to the servers for each question, so that
    /// nothing else needs them.
    pub fn doorkeeper(&self) -> Arc<dyn Doorkeeper> {
        Arc::new(ProjectDoor(self.clone()))
    }
}

#[derive(Debug)]
struct ProjectDoor(Project);

impl Doorkeeper for ProjectDoor {
    fn check(&self, act: TaskAct, task: &str, agent: &Name) -> Result<()> {
        match self.0.open_unrecorded() {
            Ok(queue) => self.0.admissions().check(act, queue.request_store(), (task, agent)),
            // A blackboard needs no queue. Without one there are no plans.
            Err(Error::NoQueue { .. }) => {
                let circumstances = self.0.admissions().whatever_the_task(agent, None)?;
                let obstacle = circumstances.obstacle(act);
                obstacle.map_or(Ok(()), |obstacle| Err(obstacle.into_error()))
            }
            Err(error) => Err(error),
        }
    }

    fn demand_plan(&self, task: &str, by: &Name) -> Result<()> {
        let queue = self.0.open_unrecorded()?;
        Requests::new(queue.request_store()).demand_plan(task, by).map(drop)
    }
}
