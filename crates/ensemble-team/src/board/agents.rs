//! Registered agents of the board.

use serde_json::{Map, Value, json};

use super::BoardError;
use super::locked::LockedBoard;
use super::schema::{self, AGENT};
use super::state::Status;
use super::steps::word;
use crate::proto::agent;
use crate::proto::task::Holder;
use ensemble_core::Result;
use ensemble_core::message::Name;

/// An agent to register.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewAgent {
    /// The agent's name.
    pub id: Name,
    /// The agent's role: `planner`, `coder` or `code-reviewer`.
    pub role: String,
    /// The agent's terminal: `/dev/pts/0`, or `unknown`.
    pub terminal: String,
}

impl NewAgent {
    /// An agent whose terminal is not known.
    #[must_use]
    pub fn new(id: Name, role: impl Into<String>) -> Self {
        Self { id, role: role.into(), terminal: "unknown".to_owned() }
    }
}

impl LockedBoard<'_> {
    /// Registers an agent as STARTING. The agent's supervisor must state the returned registration
    /// epoch in every later call. The entry of another agent is never touched.
    ///
    /// # Errors
    /// [`BoardError::NotAllowed`] if an agent of that name is registered.
    pub fn register(&mut self, agent: &NewAgent) -> Result<Holder> {
        let same = |name: &&Name| name.as_str().eq_ignore_ascii_case(agent.id.as_str());
        if let Some(other) = self.state().agents.keys().find(same) {
            let what = format!("register agent `{}`", agent.id);
            let why = format!("`{other}` is registered; unregister it, or use another name");
            return Err(BoardError::NotAllowed { what, why }.into());
        }
        let epoch = self.draw_epoch();
        let now = self.now();
        let end = self.lease_end(self.state().config.lease_duration());
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| schema::set(&mut fields, AGENT, name, value);
        set("role", json!(agent.role));
        set("status", word(agent::State::Starting));
        set("epoch", json!(epoch));
        set("lease_expires", end);
        set("heartbeat", json!(now));
        set("terminal", json!(agent.terminal));
        set("iterations_total", json!(0));
        set("context_percent", json!(0));
        if let Value::Object(agents) = self.section("agents", json!({})) {
            agents.insert(agent.id.to_string(), Value::Object(fields));
        }
        let step = json!({ "agent": agent.id, "role": agent.role, "epoch": epoch });
        self.note("agent.registered", step);
        self.refresh()?;
        Ok(Holder { by: agent.id.clone(), epoch })
    }

    /// Applies a step to an agent. The agent's registration must be the current one.
    ///
    /// # Errors
    /// [`BoardError::Fenced`] if the registration is over; [`BoardError::NotAllowed`] if the table of
    /// [`crate::proto::agent`] has no such step.
    pub fn agent_event(&mut self, agent: &Holder, event: agent::Event) -> Result<()> {
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
        self.note("agent.stepped", json!({ "agent": agent.by, "event": format!("{event:?}") }));
        Ok(())
    }

    /// Records for people that an agent is alive and until when its leases run, as its beat file
    /// states. The record decides nothing.
    ///
    /// # Errors
    /// [`BoardError::Fenced`] if the registration is over.
    pub fn note_beat(&mut self, agent: &Holder, lease: std::time::Duration) -> Result<()> {
        self.registered(agent, &format!("extend the lease of `{}`", agent.by))?;
        let (now, end) = (self.now(), self.lease_end(lease));
        if let Some(mut fields) = self.agent_fields(&agent.by) {
            fields.set("lease_expires", end.clone()).set("heartbeat", json!(now));
        }
        let mine = |task: &&super::Task| {
            (task.status == Status::Claimed && task.assigned_to.as_ref() == Some(&agent.by))
                || task.reviewing_by.as_ref() == Some(&agent.by)
        };
        let held: Vec<(Name, &str)> = self
            .state()
            .tasks
            .iter()
            .filter(mine)
            .map(|task| match task.status {
                Status::Claimed => (task.id.clone(), "lease_expires"),
                _ => (task.id.clone(), "review_lease_expires"),
            })
            .collect();
        for (id, field) in held {
            self.fields(&id)?.set(field, end.clone());
        }
        self.note("agent.beat", json!({ "agent": agent.by }));
        self.refresh()
    }

    /// Records that a fresh agent continues under the same registration. The restart is counted,
    /// and the hand-over flag is cleared.
    ///
    /// # Errors
    /// [`BoardError::Fenced`] if the registration is over.
    pub fn fresh_agent(&mut self, agent: &Holder) -> Result<()> {
        self.registered(agent, &format!("start `{}` anew", agent.by))?;
        let entry = self.state().agents.get(&agent.by);
        let (count, current, status) = entry.map_or((0, None, agent::State::Idle), |entry| {
            (entry.iterations_total.unwrap_or(0), entry.current_task.clone(), entry.status)
        });
        if let Some(mut fields) = self.agent_fields(&agent.by) {
            fields.set("iterations_total", count + 1);
        }
        self.refresh()?;
        let is_review =
            |id: &Name| self.state().task(id).is_some_and(|t| t.status == Status::ReadyForReview);
        let event = match (status, &current) {
            (agent::State::Handoff, Some(id)) if is_review(id) => agent::Event::Review,
            (agent::State::Handoff, _) => agent::Event::Work,
            _ => return Ok(()),
        };
        self.agent_step(&agent.by, event, current.as_ref())
    }

    /// Removes an agent's entry and releases what the agent held. Its name is free again; its epoch
    /// is not reused.
    ///
    /// # Errors
    /// [`BoardError::Fenced`] if another registration of that name is current.
    pub fn unregister(&mut self, agent: &Holder, reason: &str) -> Result<()> {
        self.registered(agent, &format!("unregister `{}`", agent.by))?;
        let mut held = Vec::new();
        for task in &self.state().tasks {
            match task.status {
                Status::Claimed if task.assigned_to.as_ref() == Some(&agent.by) => {
                    held.push((task.id.clone(), task.lease_epoch.unwrap_or_default()));
                }
                Status::ReadyForReview if task.reviewing_by.as_ref() == Some(&agent.by) => {
                    held.push((task.id.clone(), task.review_epoch.unwrap_or_default()));
                }
                _ => {}
            }
        }
        for (id, epoch) in held {
            self.release(&id, epoch, reason)?;
        }
        if let Value::Object(agents) = self.section("agents", json!({})) {
            agents.shift_remove(agent.by.as_str());
        }
        let step = json!({ "agent": agent.by, "epoch": agent.epoch, "reason": reason });
        self.note("agent.unregistered", step);
        self.refresh()
    }
}
