//! Finding a message by its id, and reading it without touching it.

use serde::{Deserialize, Serialize};

use super::mailbox::{MessageLocation, OpenMailbox};
use super::place::{self, FrontFile, HeldFile};
use super::{Spool, waiting};
use crate::env::Lease;
use crate::mail::no_message;
use crate::mailboxes::visit_all_mailboxes;
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, MessageId, Name};
use crate::{Error, Result};

/// Where a message is on its way; [`Mailbox`](crate::Mailbox) has an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum State {
    /// S2: waits.
    Queued {
        /// Deliveries so far.
        epoch: u64,
        /// Not to be received before this (milliseconds since the Unix epoch); 0 for now.
        not_before: u64,
    },
    /// S3: received, its lease runs.
    Acked {
        /// By whom.
        holder: Name,
        /// The number of this delivery.
        epoch: u64,
    },
    /// S4: done.
    Settled,
    /// S5: given up.
    Dead,
}

impl State {
    /// The state's word, as in the JSON of a state: see [`Mailbox`](crate::Mailbox).
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::Acked { .. } => "acked",
            Self::Settled => "settled",
            Self::Dead => "dead",
        }
    }
}

pub fn lease_lost(lease: &Lease, state: Option<&State>) -> Error {
    let now = match state {
        Some(State::Queued { .. }) => "waiting. Receive it again before you continue".to_owned(),
        Some(State::Acked { holder, epoch }) => format!("held by {holder} (epoch {epoch})"),
        Some(State::Settled) => "settled".to_owned(),
        Some(State::Dead) => "a dead letter".to_owned(),
        None => "not in the mailbox".to_owned(),
    };
    Error::LeaseLost { lease: lease.to_string(), now }
}

impl From<&MessageLocation> for State {
    fn from(location: &MessageLocation) -> Self {
        match location {
            MessageLocation::New => Self::Queued { epoch: 0, not_before: 0 },
            MessageLocation::Front(front) => {
                Self::Queued { epoch: front.epoch, not_before: front.not_before }
            }
            MessageLocation::Cur(held) => {
                Self::Acked { holder: held.holder.clone(), epoch: held.epoch }
            }
            MessageLocation::Done => Self::Settled,
            MessageLocation::Dead => Self::Dead,
        }
    }
}

/// A message that was found; [`Queue`](crate::Queue) has an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Found {
    /// Mailbox of the message.
    pub mailbox: Name,
    /// Id of the message.
    pub id: MessageId,
    /// Where it is on its way.
    pub state: State,
}

impl Found {
    /// The lease under which it is held, for [`Mailbox::resume`](crate::Mailbox::resume).
    pub fn lease(&self) -> Result<Lease> {
        match &self.state {
            State::Acked { holder, epoch } => Ok(Lease {
                mailbox: self.mailbox.clone(),
                id: self.id.clone(),
                holder: holder.clone(),
                epoch: *epoch,
            }),
            other => Err(no_message(&self.id, &format!("held: it is {}", other.word()))),
        }
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Found {
    #[must_use]
    pub fn new(mailbox: Name, id: MessageId, state: State) -> Self {
        Self { mailbox, id, state }
    }

    /// Finds a message in the only mailbox in which it has a state.
    pub(crate) fn find_in(
        mailboxes: Vec<Name>,
        id: &MessageId,
        state_in: impl Fn(&Name) -> Result<Option<State>>,
    ) -> Result<Self> {
        let mut found = Vec::new();
        let visited = visit_all_mailboxes(mailboxes, |mailbox| {
            let state = state_in(mailbox)?;
            found.extend(state.map(|state| Self::new(mailbox.clone(), id.clone(), state)));
            Ok(())
        });
        if found.is_empty() {
            visited?;
        }
        match found.len() {
            0 => Err(no_message(id, "in any mailbox")),
            1 => Ok(found.remove(0)),
            _ => Err(Error::Ambiguous {
                id: id.to_string(),
                mailboxes: found.into_iter().map(|f| f.mailbox.into()).collect(),
            }),
        }
    }
}

/// # Find and read
impl Spool {
    pub fn state(&self, mailbox: &Name, id: &MessageId) -> Result<Option<State>> {
        Ok(self.mailbox(mailbox)?.locate(id)?.map(|location| State::from(&location)))
    }

    pub fn find(&self, id: &MessageId) -> Result<Found> {
        Found::find_in(self.mailboxes()?, id, |mailbox| self.state(mailbox, id))
    }

    pub fn peek(&self, mailbox: &Name, id: &MessageId) -> Result<Envelope> {
        let mailbox = self.mailbox(mailbox)?;
        let gone = || no_message(id, &format!("in mailbox `{}`", mailbox.name));
        let location = mailbox.locate(id)?.ok_or_else(gone)?;
        let (dir, file) = mailbox.file_at(id, &location);
        let content = dir.read(&file, ENVELOPE_BYTES_MAX)?.ok_or_else(gone)?;
        Envelope::decode(&content, &dir.path().join(place::plain(id)))
    }

    /// The first `limit` messages of a mailbox that wait or are held, in the order in which they
    /// would be received.
    pub fn unfinished(&self, mailbox: &Name, limit: usize) -> Result<Vec<Found>> {
        let mailbox = self.mailbox(mailbox)?;
        let found =
            |id: MessageId, state: State| Found { mailbox: mailbox.name.clone(), id, state };
        let mut all: Vec<Found> = held(&mailbox)?
            .into_iter()
            .map(|h| found(h.id.clone(), State::Acked { holder: h.holder, epoch: h.epoch }))
            .collect();
        let is_due = |front: &FrontFile| self.is_due(&mailbox.front, front);
        let front = waiting::list_front(&mailbox.front)?.into_iter().rev();
        let (due, mut later): (Vec<_>, Vec<_>) = front.partition(is_due);
        later.sort_by_key(|front| front.not_before);
        let queued = |FrontFile { id, epoch, not_before, .. }| {
            found(id, State::Queued { epoch, not_before })
        };
        all.extend(due.into_iter().map(queued));
        let new = waiting::oldest_new(&mailbox.new, limit)?;
        all.extend(new.into_iter().map(|id| found(id, State::Queued { epoch: 0, not_before: 0 })));
        all.extend(later.into_iter().map(queued));
        all.truncate(limit);
        Ok(all)
    }
}

pub(super) fn held(mailbox: &OpenMailbox) -> Result<Vec<HeldFile>> {
    let mut held = mailbox.cur.list(HeldFile::parse)?;
    held.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    Ok(held)
}
