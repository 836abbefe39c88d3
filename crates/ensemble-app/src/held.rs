//! Held messages: finding one by its id alone, and settling, releasing and extending it.

use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::env::Lease;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::{Found, State};

use crate::failure::{Failure, Outcome};
use crate::mail::delivered::count_waiting;
use crate::mail::settling::{UnheldMessage, judge_unheld, settle_lease};
use crate::queue::ProjectQueue;
use crate::text::one_line;
use crate::{App, ids};

pub struct HeldMessage {
    /// Its id, or a unique prefix of it.
    pub id: MessageId,
    /// Its mailbox, where the id alone is not clear.
    pub mailbox: Option<Name>,
    /// The delivery that is meant, where any later one is to be refused.
    pub epoch: Option<u64>,
}

impl HeldMessage {
    /// The same with its whole id.
    pub fn completed(mut self, app: &App, queue: &ProjectQueue) -> Outcome<Self> {
        // An agent nearly always means a message in its own mailbox.
        let own = || app.agent().map(|agent| agent.map(|agent| queue.mailbox_of(&agent)));
        let mailbox = self.mailbox.clone().map_or_else(own, |it| Ok(Some(it)))?;
        self.id = match &mailbox {
            Some(mailbox) => ids::message_of(queue, mailbox, &self.id)?,
            None => ids::message(queue, &self.id)?,
        };
        Ok(self)
    }

    /// The lease under which the message is held. If the caller is known, it is the caller's lease.
    pub fn lease(&self, app: &App, queue: &dyn Broker) -> Outcome<Lease> {
        let agent = app.agent()?;
        let found = self.find(queue, agent.as_ref())?;
        self.lease_of(found, agent)
    }

    pub fn lease_of(&self, (mailbox, state): (Name, State), agent: Option<Name>) -> Outcome<Lease> {
        let State::Acked { holder, epoch } = state else {
            let text = format!("message `{}` is not held: it is {}", self.id, word(&state));
            return Err(Failure::refused(text));
        };
        if let Some(agent) = agent.filter(|agent| *agent != holder) {
            let text = format!("message `{}` is held by {holder}, not by {agent}", self.id);
            let hint = format!("`ensemble why {}` shows since when", self.id);
            return Err(Failure::refused(text).with_hint(hint));
        }
        // An older epoch is refused where it is checked against the file itself.
        let epoch = self.epoch.unwrap_or(epoch);
        Ok(Lease { mailbox, id: self.id.clone(), holder, epoch })
    }

    pub fn find(&self, queue: &dyn Broker, agent: Option<&Name>) -> Outcome<(Name, State)> {
        if let Some(mailbox) = &self.mailbox {
            let missing = || ids::missing_in(mailbox, &self.id);
            let state = queue.state(mailbox, &self.id)?.ok_or_else(missing)?;
            return Ok((mailbox.clone(), state));
        }
        // Try the agent's own mailbox first, where the message nearly always is.
        if let Some((agent, mailbox)) = agent.map(|agent| (agent, queue.mailbox_of(agent)))
            && let Ok(Some(state)) = queue.state(&mailbox, &self.id)
            && is_held_by(&state, agent)
        {
            return Ok((mailbox, state));
        }
        match queue.find(&self.id) {
            Ok(Found { mailbox, state, .. }) => Ok((mailbox, state)),
            Err(Error::Ambiguous { id, mailboxes }) => {
                let mut mine = Vec::new();
                for name in &mailboxes {
                    let name = Name::new(name).map_err(Error::from)?;
                    let state = queue.state(&name, &self.id)?;
                    let is_mine = |s: &State| match agent {
                        Some(agent) => is_held_by(s, agent),
                        None => matches!(s, State::Acked { .. }),
                    };
                    mine.extend(state.filter(is_mine).map(|state| (name, state)));
                }
                match mine.len() {
                    1 => Ok(mine.remove(0)),
                    _ => Err(Error::Ambiguous { id, mailboxes }.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }
}

pub enum SettledMessage {
    Now {
        lease: Lease,
        waiting: usize,
    },
    /// Nothing was left to do: something else has settled it.
    Before {
        mailbox: Name,
        id: MessageId,
        /// What settled it, in words.
        how: String,
    },
}

/// Settles a message that the caller holds, or has held last.
pub fn settle_message(
    app: &App,
    queue: &ProjectQueue,
    message: HeldMessage,
) -> Outcome<SettledMessage> {
    let store = queue.request_store();
    let message = message.completed(app, queue)?;
    let (agent, id) = (app.agent()?, &message.id);
    let (mailbox, state) = message.find(&**queue, agent.as_ref())?;
    let place = (&mailbox, id);
    let lease = match judge_unheld(app, store, place, &state, agent.as_ref(), message.epoch)? {
        UnheldMessage::Reported(task) => {
            let how = format!("the report of {}", one_line(&task));
            return Ok(SettledMessage::Before { mailbox, id: id.clone(), how });
        }
        UnheldMessage::Answered => {
            let how = "its answer".to_owned();
            return Ok(SettledMessage::Before { mailbox, id: id.clone(), how });
        }
        UnheldMessage::Again(lease) => lease,
        UnheldMessage::None => message.lease_of((mailbox, state), agent)?,
    };
    settle_lease(app, store, &lease)?;
    let waiting = count_waiting(queue, &lease.mailbox);
    Ok(SettledMessage::Now { lease, waiting })
}

/// Gives a message back to its mailbox. Returns its lease, and what it is now.
pub fn release_message(
    app: &App,
    queue: &ProjectQueue,
    message: HeldMessage,
    delay: Duration,
) -> Outcome<(Lease, &'static str)> {
    let lease = message.completed(app, queue)?.lease(app, &**queue)?;
    queue.release(&lease, delay)?;
    let state = queue.state(&lease.mailbox, &lease.id)?.map_or("gone", |state| state.word());
    Ok((lease, state))
}

/// Holds a message for longer. Returns its lease.
pub fn extend_message(
    app: &App,
    queue: &ProjectQueue,
    message: HeldMessage,
    lease_duration: Duration,
) -> Outcome<Lease> {
    let lease = message.completed(app, queue)?.lease(app, &**queue)?;
    queue.extend(&lease, lease_duration)?;
    Ok(lease)
}

fn is_held_by(state: &State, agent: &Name) -> bool {
    matches!(state, State::Acked { holder, .. } if holder == agent)
}

fn word(state: &State) -> &'static str {
    match state {
        State::Dead => "a dead letter",
        other => other.word(),
    }
}
