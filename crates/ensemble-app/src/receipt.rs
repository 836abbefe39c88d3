//! How far a message got, and waiting until it got there.
//!
//! `acked` and `settled` are read from the mailbox's directories, the others from the event log. A later receipt
//! includes the earlier ones.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use ensemble_core::env::Delivery;
use ensemble_core::event_log::{Follower, types};
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::State;
use ensemble_core::watch::Waiter;
use serde::Serialize;

use crate::App;
use crate::failure::{Failure, Outcome};
use crate::interrupt::end_if_cancelled;
use crate::queue::ProjectQueue;

/// How often the log is read while waiting for a record: appending to an open file raises no event.
pub const LOG_POLL: Duration = Duration::from_millis(100);
const SERVERS_POLL: Duration = Duration::from_millis(250);
/// How often a message that was not found is looked for again: one that moves backwards can be
/// missed by a look.
const LOOKS_MAX: u32 = 5;

/// How far a message got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Receipt {
    /// It is in the mailbox
    Stored,
    /// The watcher saw it, and knows an agent to notify
    Notified,
    /// A hint or the message was handed to the agent
    Submitted,
    /// It was received
    Acked,
    /// The reader's transcript shows the turn that read it
    Confirmed,
    /// The work is done
    Settled,
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |word| f.write_str(word.get_name()))
    }
}

impl Receipt {
    /// Whether only the event log says so.
    pub const fn is_logged(self) -> bool {
        matches!(self, Self::Notified | Self::Submitted | Self::Confirmed)
    }
}

/// Notes that an agent reads a message by its own command: the record of its program can confirm it. An agent without
/// hooks has no session.
pub fn note_read(app: &App, delivery: &Delivery) -> Outcome {
    let Delivery { lease, .. } = delivery;
    let sessions = app.project()?.sessions();
    if sessions.get(&lease.holder)?.is_some_and(|session| session.lives()) {
        sessions.change(&lease.holder, |session| session.unconfirmed.extend([lease.id.clone()]))?;
    }
    Ok(())
}

pub struct ReceiptTracker<'a> {
    queue: &'a ProjectQueue,
    mailbox: Name,
    id: MessageId,
    /// Only where the watcher's records matter.
    log: Option<Follower>,
    logged: Receipt,
}

impl<'a> ReceiptTracker<'a> {
    /// Follows a message; `log` must begin before the message was stored.
    pub fn new(
        queue: &'a ProjectQueue,
        mailbox: Name,
        id: MessageId,
        log: Option<Follower>,
    ) -> Self {
        Self { queue, mailbox, id, log, logged: Receipt::Stored }
    }

    /// Waits until the message got as far as `wanted`, or `deadline`. Returns how far it got.
    pub fn wait(&mut self, wanted: Receipt, deadline: Option<Instant>) -> Outcome<Receipt> {
        let reached = self.observe_receipt()?;
        if reached >= wanted {
            return Ok(reached);
        }
        let longest = match (&self.log, self.queue.directory()) {
            (Some(_), _) => LOG_POLL,
            (None, Some(_)) => Duration::MAX,
            (None, None) => SERVERS_POLL,
        };
        let waiter = Waiter::new(&self.directories());
        loop {
            let reached = self.observe_receipt()?;
            let left =
                deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if reached >= wanted || left.is_zero() {
                return Ok(reached);
            }
            waiter.wait(left.min(longest));
            end_if_cancelled()?;
        }
    }

    fn observe_receipt(&mut self) -> Outcome<Receipt> {
        if let Some(log) = &mut self.log {
            for record in log.poll()? {
                let names = |key: &str, value: &str| {
                    record.data.get(key).is_some_and(|member| match member {
                        serde_json::Value::Array(all) => all.iter().any(|one| one == value),
                        one => one == value,
                    })
                };
                if names("mailbox", self.mailbox.as_str()) && names("ids", self.id.as_str()) {
                    let receipt = match record.kind.as_str() {
                        types::RECEIPT_SUBMITTED => Receipt::Submitted,
                        types::RECEIPT_CONFIRMED => Receipt::Confirmed,
                        _ => Receipt::Notified,
                    };
                    self.logged = self.logged.max(receipt);
                }
            }
        }
        Ok(self.logged.max(self.stored_receipt()?))
    }

    fn stored_receipt(&self) -> Outcome<Receipt> {
        for _ in 0..LOOKS_MAX {
            match self.queue.state(&self.mailbox, &self.id)? {
                None => {}
                Some(State::Queued { epoch: 0, .. }) => return Ok(Receipt::Stored),
                // It was received and returned.
                Some(State::Queued { .. } | State::Acked { .. }) => return Ok(Receipt::Acked),
                Some(State::Settled) => return Ok(Receipt::Settled),
                Some(_) => return Err(self.dead()),
            }
        }
        let text = format!("message `{}` is no longer in mailbox `{}`", self.id, self.mailbox);
        Err(Failure::refused(text))
    }

    fn dead(&self) -> Failure {
        let letters = self.queue.dead_letters(&self.mailbox).unwrap_or_default();
        let letter = letters.into_iter().find(|letter| letter.id == self.id);
        let reason = letter.map(|letter| letter.reason).filter(|reason| !reason.is_empty());
        let reason = reason.unwrap_or_else(|| "no reason is known".to_owned());
        Failure::refused(format!("message `{}` is a dead letter: {reason}", self.id))
            .with_hint(format!("`ensemble dead retry {}` returns it to its mailbox", self.id))
    }

    fn directories(&self) -> Vec<PathBuf> {
        let Some(spool) = self.queue.directory() else { return Vec::new() };
        let home = spool.root().join("mailbox").join(self.mailbox.as_str());
        ["new", "front", "cur", "done", "dead"].map(|state| home.join(state)).to_vec()
    }
}
