//! Finding a held message by its id alone, for the verbs that need its lease.

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::env::Lease;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::{Found, State};

use crate::failure::{Failure, Outcome};
use crate::queue::Queue;
use crate::{App, ids};

/// The held message that is meant.
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
    pub fn completed(mut self, app: &App, queue: &Queue) -> Outcome<Self> {
        // An agent nearly always means a message in its own mailbox.
        let mailbox = self.mailbox.clone().map_or_else(|| app.agent(), |it| Ok(Some(it)))?;
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

    /// The lease of a message that was found.
    pub fn lease_of(&self, (mailbox, state): (Name, State), agent: Option<Name>) -> Outcome<Lease> {
        let State::Acked { holder, epoch } = state else {
            let text = format!("message `{}` is not held: it is {}", self.id, word(&state));
            return Err(Failure::refused(text));
        };
        if let Some(agent) = agent.filter(|agent| *agent != holder) {
            let text = format!("message `{}` is held by {holder}, not by {agent}", self.id);
            let hint = format!("`ensemble why {}` tells since when", self.id);
            return Err(Failure::refused(text).with_hint(hint));
        }
        // An older epoch is refused where it is checked against the file itself.
        let epoch = self.epoch.unwrap_or(epoch);
        Ok(Lease { mailbox, id: self.id.clone(), holder, epoch })
    }

    /// The mailbox and the state of the message that is meant.
    pub fn find(&self, queue: &dyn Broker, agent: Option<&Name>) -> Outcome<(Name, State)> {
        if let Some(mailbox) = &self.mailbox {
            let place = || format!("in mailbox `{mailbox}`");
            let absent = || Error::NoMessage { id: self.id.to_string(), place: place() };
            let state = queue.state(mailbox, &self.id)?.ok_or_else(absent)?;
            return Ok((mailbox.clone(), state));
        }
        // Nearly always it is there.
        if let Some(agent) = agent
            && let Ok(Some(state)) = queue.state(agent, &self.id)
            && is_held_by(&state, agent)
        {
            return Ok((agent.clone(), state));
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

fn is_held_by(state: &State, agent: &Name) -> bool {
    matches!(state, State::Acked { holder, .. } if holder == agent)
}

fn word(state: &State) -> &'static str {
    match state {
        State::Dead => "a dead letter",
        other => other.word(),
    }
}
