//! Registered agents of the board.

use serde_json::{Map, Value, json};

use super::Board;
use super::leases::beaten_until;
use super::locked::LockedBoard;
use super::schema::{self, AGENT};
use super::stamps::mark;
use super::state::{BoardTask, State, TaskStatus};
use super::steps::word;
use super::{BoardError, BoardObstacle};
use crate::proto::agent;
use crate::proto::task::TaskHolder;
use ensemble_core::Result;
use ensemble_core::message::{Name, ReservedName, Timestamp};

#[derive(Clone, Debug)]
pub struct NewAgent {
    pub id: Name,
    /// The agent's role: `planner`, `coder` or `code-reviewer`.
    pub role: String,
    /// The agent's terminal: `/dev/pts/0`, or `unknown`.
    pub terminal: String,
}

impl NewAgent {
    pub fn new(id: Name, role: impl Into<String>) -> Self {
        Self { id, role: role.into(), terminal: "unknown".to_owned() }
    }
}

impl Board {
    /// Until when the leases of an agent run: as the board says, or by its last beat. `None` without
    /// an entry, or without a lease. For people: an observer judges by itself.
    pub fn lease_until(&self, state: &State, name: &Name) -> Option<Timestamp> {
        let entry = state.agents.get(name)?;
        let holder = TaskHolder { by: name.clone(), epoch: entry.epoch.unwrap_or_default() };
        let directory = self.path().parent()?;
        entry.lease_expires.max(beaten_until(directory, &holder))
    }

    /// Checks that the leases of an agent have ended, by what is written.
    pub fn check_over(&self, state: &State, name: &Name, now: Timestamp) -> Result<()> {
        match self.lease_until(state, name).filter(|until| *until > now) {
            None => Ok(()),
            Some(until) => {
                let what = format!("take over agent `{name}`");
                Err(BoardError::not_allowed(what, BoardObstacle::LeaseRuns { until }))
            }
        }
    }
}

impl LockedBoard<'_> {
    /// Registers an agent as STARTING. The agent's supervisor must state the returned registration
    /// epoch in every later call. The entry of another agent is never touched.
    pub fn register(&mut self, agent: &NewAgent) -> Result<TaskHolder> {
        ReservedName::refuse_agent(&agent.id)?;
        let same = |name: &&Name| name.as_str().eq_ignore_ascii_case(agent.id.as_str());
        if let Some(other) = self.state().agents.keys().find(same) {
            let why = BoardObstacle::Registered { agent: other.clone() };
            return Err(BoardError::not_allowed(format!("register agent `{}`", agent.id), why));
        }
        let epoch = self.draw_epoch();
        let now = self.now();
        let end = now.plus(self.state().config.lease_duration());
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| schema::set(&mut fields, AGENT, name, value);
        set("role", json!(agent.role));
        set("status", word(agent::State::Starting).into());
        set("epoch", json!(epoch));
        set("lease_expires", json!(end));
        set("heartbeat", json!(now));
        set("beat", json!(mark(0, now, end)));
        set("terminal", json!(agent.terminal));
        set("iterations_total", json!(0));
        set("context_percent", json!(0));
        fields.extend(self.take_former(&agent.id));
        if let Value::Object(agents) = self.section("agents", json!({})) {
            agents.insert(agent.id.to_string(), Value::Object(fields));
        }
        let step = json!({ "agent": agent.id, "role": agent.role, "epoch": epoch });
        self.record_step("agent.registered", step);
        self.refresh()?;
        Ok(TaskHolder { by: agent.id.clone(), epoch })
    }

    /// Applies a step to an agent. The agent's registration must be the current one.
    pub fn agent_event(&mut self, agent: &TaskHolder, event: agent::Event) -> Result<()> {
        self.registered(agent, &format!("change agent `{}`", agent.by))?;
        let keeps = match event {
            agent::Event::Finish | agent::Event::Ready => false,
            agent::Event::Work
            | agent::Event::Review
            | agent::Event::Wait
            | agent::Event::HandOff
            | agent::Event::Exit => true,
        };
        let entry = self.state().agents.get(&agent.by);
        let current = entry.and_then(|entry| entry.current_task.clone()).filter(|_| keeps);
        self.agent_step(&agent.by, event, current.as_ref())?;
        self.record_step(
            "agent.stepped",
            json!({ "agent": agent.by, "event": format!("{event:?}") }),
        );
        Ok(())
    }

    pub fn note_context(&mut self, agent: &TaskHolder, percent: u64) -> Result<()> {
        self.registered(agent, &format!("note the context of `{}`", agent.by))?;
        // An earlier sign would say something older with the next write.
        self.fold_beats()?;
        if let Some(mut fields) = self.agent_fields(&agent.by) {
            fields.set("context_percent", percent);
        }
        self.refresh()
    }

    /// Records that a fresh agent continues under the same registration. The restart is counted,
    /// and the hand-over flag is cleared.
    pub fn fresh_agent(&mut self, agent: &TaskHolder) -> Result<()> {
        self.registered(agent, &format!("start `{}` again", agent.by))?;
        let entry = self.state().agents.get(&agent.by);
        let (count, current, status) = entry.map_or((0, None, agent::State::Idle), |entry| {
            (entry.iterations_total.unwrap_or(0), entry.current_task.clone(), entry.status)
        });
        if let Some(mut fields) = self.agent_fields(&agent.by) {
            fields.set("iterations_total", count + 1).set("context_percent", 0);
        }
        self.refresh()?;
        let is_review = |id: &Name| {
            self.state().task(id).is_some_and(|t| t.status == TaskStatus::ReadyForReview)
        };
        let event = match (status, &current) {
            (agent::State::Handoff, Some(id)) if is_review(id) => agent::Event::Review,
            (agent::State::Handoff, _) => agent::Event::Work,
            _ => return Ok(()),
        };
        self.agent_step(&agent.by, event, current.as_ref())
    }

    /// Removes an agent's entry and releases what the agent held. Its name is free again; its epoch
    /// is not reused. Fields that Ensemble does not know wait in `former_agents` until an agent of that
    /// name registers again.
    pub fn unregister(&mut self, agent: &TaskHolder, reason: &str) -> Result<()> {
        self.registered(agent, &format!("unregister `{}`", agent.by))?;
        let its = |task: &BoardTask| {
            let hold = task.hold().filter(|hold| *hold.by == agent.by)?;
            Some((task.id.clone(), hold.epoch))
        };
        let held: Vec<(Name, u64)> = self.state().tasks.iter().filter_map(its).collect();
        for (id, epoch) in held {
            self.release(&id, epoch, reason)?;
        }
        let mut removed = None;
        if let Value::Object(agents) = self.section("agents", json!({})) {
            removed = agents.shift_remove(agent.by.as_str());
        }
        self.keep_former(&agent.by, removed);
        let step = json!({ "agent": agent.by, "epoch": agent.epoch, "reason": reason });
        self.record_step("agent.unregistered", step);
        self.refresh()
    }

    fn keep_former(&mut self, name: &Name, removed: Option<Value>) {
        let Some(Value::Object(mut fields)) = removed else { return };
        fields.retain(|key, _| AGENT.iter().all(|known| known.name != key));
        if fields.is_empty() {
            return;
        }
        if let Value::Object(former) = self.section("former_agents", json!({})) {
            former.insert(name.to_string(), Value::Object(fields));
        }
    }

    fn take_former(&mut self, name: &Name) -> Map<String, Value> {
        let Value::Object(board) = self.value_mut() else { return Map::new() };
        let Some(Value::Object(former)) = board.get_mut("former_agents") else { return Map::new() };
        let taken = former.shift_remove(name.as_str());
        if former.is_empty() {
            board.shift_remove("former_agents");
        }
        match taken {
            Some(Value::Object(mut fields)) => {
                fields.retain(|key, _| AGENT.iter().all(|known| known.name != key));
                fields
            }
            _ => Map::new(),
        }
    }
}
