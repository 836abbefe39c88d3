//! Counting the messages of a mailbox. A [`Glance`] costs the same however deep the mailbox is.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::Spool;
use super::mailbox::{
    OVERFLOW_FILE, SETTINGS_BYTES_MAX, SETTINGS_FILE, parse_settings, refuse_open_to_all,
};
use super::place::{self, FrontFile, HeldFile};
use super::waiting::{WaitingBacklog, made_at};
use crate::Result;
use crate::durable::{Dir, stop_if};
use crate::env::Counts;
use crate::error::allow_missing;
use crate::message::{MessageId, Name};

/// How many messages are in which state. Each number is counted up to the limit it was asked
/// with: one that equals the limit means "this many or more".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// Whether it has noted that it refused messages ([`Spool::overflow`]).
    #[serde(skip)]
    pub has_refused: bool,
    /// Those of the waiting messages that were counted whose id ends with a word about another one (`ID.WORD`).
    #[serde(skip)]
    pub notices: Vec<MessageId>,
}

/// # Count
impl Spool {
    /// Counts the messages of a mailbox. Lists its directories but opens no message.
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
            if let Some(front) = place::FrontFile::parse(f) {
                c.queued += 1;
                c.delayed += u64::from(!self.is_due(&mailbox.front, &front));
            }
        })?;
        count(&mailbox.cur, &|c, f| c.acked += u64::from(place::HeldFile::parse(f).is_some()))?;
        count(&mailbox.done, &|c, f| c.settled += u64::from(place::parse_plain(f).is_some()))?;
        count(&mailbox.dead, &|c, f| c.dead += u64::from(place::parse_plain(f).is_some()))?;
        Ok(counts)
    }

    /// How many messages wait, counted up to `limit`: cheap however deep the backlog is.
    pub fn waiting(&self, name: &Name, limit: u64) -> Result<u64> {
        self.mailbox(name)?.count_waiting(limit)
    }

    /// The ids of up to `limit` messages that could be received now, in no order: cheap however deep
    /// the backlog is.
    pub fn due_ids(&self, name: &Name, limit: usize) -> Result<Vec<MessageId>> {
        let mailbox = self.mailbox(name)?;
        let mut ids = Vec::new();
        let mut take = |id: Option<MessageId>| {
            ids.extend(id);
            stop_if(ids.len() >= limit)
        };
        let is_due = |message: &FrontFile| self.is_due(&mailbox.front, message);
        let due = |file: &str| FrontFile::parse(file).filter(is_due);
        mailbox.front.for_each(|file| take(due(file).map(|f| f.id)))?;
        mailbox.new.for_each(|file| take(place::parse_plain(file)))?;
        ids.truncate(limit);
        Ok(ids)
    }

    /// When the first delayed message is due, in milliseconds since the Unix epoch, of those that were not at
    /// `looked_at`.
    pub(crate) fn next_due_after(&self, name: &Name, looked_at: u64) -> Result<Option<u64>> {
        WaitingBacklog::next_due_after(&self.mailbox(name)?.front, looked_at)
    }

    /// Counts the messages of a mailbox up to `limit` in each state, and opens none. [`Spool::glances`] is for many
    /// mailboxes.
    pub fn glance(&self, name: &Name, limit: u64) -> Result<Glance> {
        self.glances()?.at(name, limit)
    }

    /// For looks at many mailboxes: each opens what it lists, and nothing stays open.
    pub fn glances(&self) -> Result<Glances<'_>> {
        Ok(Glances { spool: self, mailboxes: self.mailboxes_dir()?, understood: Mutex::default() })
    }
}

/// Looks at mailboxes, each by itself; threads may share it.
#[derive(Debug)]
pub struct Glances<'a> {
    spool: &'a Spool,
    mailboxes: Dir,
    /// Settings that were read without a fault. Most mailboxes have the same, and parsing takes longer than reading.
    understood: Mutex<HashSet<Vec<u8>>>,
}

impl Glances<'_> {
    /// Counts the messages of a mailbox up to `limit` in each state, and opens none.
    pub fn at(&self, name: &Name, limit: u64) -> Result<Glance> {
        let home = self.home(name)?;
        let mut glance =
            Glance { has_refused: home.stat(OVERFLOW_FILE)?.is_some(), ..Glance::default() };
        let mut tally = WaitingTally { limit, glance: &mut glance };
        if let Some(front) = self.child(&home, "front")? {
            tally.count_directory(&front, |file| {
                let message = FrontFile::parse(file)?;
                let is_delayed = !self.spool.is_due(&front, &message);
                Some((message.id, is_delayed))
            })?;
        }
        if let Some(new) = self.child(&home, "new")? {
            tally.count_directory(&new, |file| Some((place::parse_plain(file)?, false)))?;
        }
        glance.held = self.count(&home, "cur", limit, |file| HeldFile::parse(file).is_some())?;
        glance.dead =
            self.count(&home, "dead", limit, |file| place::parse_plain(file).is_some())?;
        Ok(glance)
    }

    /// Whether the settings of a mailbox can be read.
    pub fn check_settings(&self, name: &Name) -> Result<()> {
        let home = self.home(name)?;
        let Some(text) = home.read(SETTINGS_FILE, SETTINGS_BYTES_MAX)? else { return Ok(()) };
        let understood = || self.understood.lock().unwrap_or_else(PoisonError::into_inner);
        if !understood().contains(&text) {
            parse_settings(&home, &text)?;
            understood().insert(text);
        }
        Ok(())
    }

    pub(super) fn home(&self, name: &Name) -> Result<Dir> {
        match allow_missing(self.mailboxes.open_child(name.as_str()))? {
            Some(home) => self.guarded(home),
            None => Err(self.spool.no_mailbox(name)),
        }
    }

    fn guarded(&self, dir: Dir) -> Result<Dir> {
        refuse_open_to_all(dir.path(), dir.own_stat()?.mode, self.spool.options.modes)?;
        Ok(dir)
    }

    /// A directory of a mailbox; a mailbox that was made by hand may lack it.
    pub(super) fn child(&self, home: &Dir, state: &str) -> Result<Option<Dir>> {
        allow_missing(home.open_child(state))?.map(|dir| self.guarded(dir)).transpose()
    }

    pub(super) fn count(
        &self,
        home: &Dir,
        state: &str,
        limit: u64,
        is_message: impl Fn(&str) -> bool,
    ) -> Result<u64> {
        let mut count = 0;
        if let Some(dir) = self.child(home, state)? {
            dir.read_once(|file| {
                count += u64::from(is_message(file));
                stop_if(count >= limit)
            })?;
        }
        Ok(count)
    }
}

struct WaitingTally<'a> {
    limit: u64,
    glance: &'a mut Glance,
}

impl WaitingTally<'_> {
    /// Counts what `parse` takes for a message; it says whether the message is delayed.
    fn count_directory(
        &mut self,
        dir: &Dir,
        parse: impl Fn(&str) -> Option<(MessageId, bool)>,
    ) -> Result<()> {
        let mut found = Vec::new();
        let left = usize::try_from(self.limit - self.glance.waiting).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(());
        }
        dir.read_once(|file| {
            if let Some((id, is_delayed)) = parse(file) {
                self.glance.delayed += u64::from(is_delayed);
                found.push((id, file.to_owned()));
            }
            stop_if(found.len() >= left)
        })?;
        self.glance.waiting += found.len() as u64;
        for (id, file) in found {
            if id.as_str().contains('.') {
                self.glance.notices.push(id.clone());
            }
            let made_at = made_at(dir, &id, &file)?;
            // 0 is that of a file which was received in the meantime.
            if made_at > 0 {
                let oldest = self.glance.oldest_millis.unwrap_or(made_at);
                self.glance.oldest_millis = Some(oldest.min(made_at));
            }
        }
        Ok(())
    }
}
