//! Counting the messages of a mailbox. A [`Glance`] costs the same however deep the mailbox is.

use std::ops::ControlFlow;

use serde::Serialize;

use super::mailbox::Mailbox;
use super::place::{self, Front, Held};
use super::waiting::Waiting;
use super::{Spool, waiting};
use crate::Result;
use crate::durable::Dir;
use crate::env::Counts;
use crate::message::{MessageId, Name};

/// How many messages are in which state. Each number is counted up to the limit it was asked
/// with: one that equals the limit means "so many or more".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Glance {
    /// S2: waiting, whether due or delayed.
    pub waiting: u64,
    /// Of those, the ones not due yet.
    pub delayed: u64,
    /// S3: held.
    pub held: u64,
    /// S5: dead letters.
    pub dead: u64,
    /// When the oldest of the waiting messages that were counted was made, in milliseconds since
    /// the Unix epoch. Where the limit was reached an older one may have been passed over.
    pub oldest_millis: Option<u64>,
}

/// # Count
impl Spool {
    /// Counts the messages of a mailbox. Lists its directories but opens no message.
    ///
    /// # Errors
    /// The mailbox is unknown or cannot be listed.
    pub fn counts(&self, name: &Name) -> Result<Counts> {
        let mailbox = self.mailbox(name)?;
        let mut counts = Counts::default();
        let mut count = |dir: &crate::durable::Dir, add: &dyn Fn(&mut Counts, &str)| {
            dir.for_each(|file| {
                add(&mut counts, file);
                ControlFlow::Continue(())
            })
        };
        count(&mailbox.new, &|c, f| c.queued += u64::from(place::parse_plain(f).is_some()))?;
        count(&mailbox.front, &|c, f| {
            if let Some(front) = place::Front::parse(f) {
                c.queued += 1;
                c.delayed += u64::from(!self.is_due(&mailbox.front, &front));
            }
        })?;
        count(&mailbox.cur, &|c, f| c.acked += u64::from(place::Held::parse(f).is_some()))?;
        count(&mailbox.done, &|c, f| c.settled += u64::from(place::parse_plain(f).is_some()))?;
        count(&mailbox.dead, &|c, f| c.dead += u64::from(place::parse_plain(f).is_some()))?;
        Ok(counts)
    }

    /// How many messages wait, counted up to `limit`: cheap however deep the backlog is.
    ///
    /// # Errors
    /// The mailbox is unknown or cannot be listed.
    pub fn waiting(&self, name: &Name, limit: u64) -> Result<u64> {
        self.mailbox(name)?.count_waiting(limit)
    }

    /// The ids of up to `limit` messages that could be received now, in no order: cheap however deep
    /// the backlog is.
    ///
    /// # Errors
    /// The mailbox is unknown or cannot be listed.
    pub fn due_ids(&self, name: &Name, limit: usize) -> Result<Vec<MessageId>> {
        let mailbox = self.mailbox(name)?;
        let mut ids = Vec::new();
        let mut take = |id: Option<MessageId>| {
            ids.extend(id);
            if ids.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let is_due = |message: &Front| self.is_due(&mailbox.front, message);
        let due = |file: &str| Front::parse(file).filter(is_due);
        mailbox.front.for_each(|file| take(due(file).map(|f| f.id)))?;
        mailbox.new.for_each(|file| take(place::parse_plain(file)))?;
        ids.truncate(limit);
        Ok(ids)
    }

    /// When the first message of `front/` is due (milliseconds since the Unix epoch, 0 for now).
    ///
    /// # Errors
    /// The mailbox is unknown or cannot be listed.
    pub fn next_due(&self, name: &Name) -> Result<Option<u64>> {
        Waiting::next_due(&self.mailbox(name)?.front)
    }

    /// Counts the messages of a mailbox up to `limit` in each state, and opens none.
    ///
    /// # Errors
    /// The mailbox is unknown or cannot be listed.
    pub fn glance(&self, name: &Name, limit: u64) -> Result<Glance> {
        let mailbox = self.mailbox(name)?;
        let mut glance = Glance::default();
        self.glance_at_waiting(&mailbox, limit, &mut glance)?;
        glance.held = count(&mailbox.cur, limit, |file| Held::parse(file).is_some())?;
        glance.dead = count(&mailbox.dead, limit, |file| place::parse_plain(file).is_some())?;
        Ok(glance)
    }

    fn glance_at_waiting(&self, mailbox: &Mailbox, limit: u64, glance: &mut Glance) -> Result<()> {
        let mut ids = Vec::new();
        let mut see = |id, is_delayed: bool| {
            glance.delayed += u64::from(is_delayed);
            ids.push(id);
            if ids.len() as u64 >= limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        mailbox.front.for_each(|file| match Front::parse(file) {
            Some(message) => {
                let is_delayed = !self.is_due(&mailbox.front, &message);
                see((message.id, file.to_owned(), true), is_delayed)
            }
            None => ControlFlow::Continue(()),
        })?;
        mailbox.new.for_each(|file| match place::parse_plain(file) {
            Some(id) => see((id, file.to_owned(), false), false),
            None => ControlFlow::Continue(()),
        })?;
        ids.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        glance.waiting = ids.len() as u64;
        for (id, file, is_in_front) in ids {
            let dir = if is_in_front { &mailbox.front } else { &mailbox.new };
            let made_at = waiting::made_at(dir, &id, &file)?;
            // 0 is that of a file which was received meanwhile.
            if made_at > 0 {
                glance.oldest_millis = Some(glance.oldest_millis.unwrap_or(made_at).min(made_at));
            }
        }
        Ok(())
    }
}

fn count(dir: &Dir, limit: u64, is_message: impl Fn(&str) -> bool) -> Result<u64> {
    let mut count = 0;
    dir.for_each(|file| {
        count += u64::from(is_message(file));
        if count >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(count)
}
