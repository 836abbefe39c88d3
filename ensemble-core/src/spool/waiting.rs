//! What to receive next, without listing a deep backlog for every message.
//!
//! `new/` is listed once and the listing worked off; it is made anew when it is used up or when
//! most of it turns out to be taken by others, so a receive costs a constant share of a listing
//! however many messages wait. `front/` (urgent, given back, delayed) is empty in everyday life,
//! and its stamp tells whether it still is; a short one is listed every time, a long one again only
//! after an eighth of it was worked off.
//!
//! Messages come in the order in which they were made: by the time inside a UUIDv7, by the file's
//! time for other ids. A consumer that loses a race picks at random among the next few, so that
//! many consumers do not run side by side for the same message.
//!
//! Processes that receive one message each can share a listing: see [`super::backlog`].

use std::ops::ControlFlow;

use super::backlog::{Ahead, Backlog};
use super::emptiness::{self, Emptiness};
use super::listing::{Listing, Unsorted};
use super::place::{self, Front};
use crate::Result;
use crate::durable::Dir;
use crate::message::MessageId;

/// A `front/` of up to this many messages is listed for every receive.
const FRONT_LISTED_ALWAYS: usize = 32;
/// Among how many of the next messages a consumer that lost a race picks.
const RACE_WINDOW: usize = 32;
/// After so many lost races in a row a listing is out of date.
const LOSSES_MAX: u32 = 64;

/// A message that may be received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    New(MessageId),
    Front(Front),
}

/// The part of a backlog that is known.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    new: Listing,
    /// Where `new` stands in a shared listing, if it is from there.
    ahead: Option<Ahead>,
    front: Vec<Front>,
    front_emptiness: Emptiness,
    front_uses_left: usize,
    losses: u32,
    race_seed: u64,
}

impl Waiting {
    /// What to try next; `None` if nothing is due.
    pub(super) fn next(
        &mut self,
        new: &Dir,
        front: &Dir,
        shared: Option<Backlog<'_>>,
        now_millis: u64,
    ) -> Result<Option<Candidate>> {
        if let Some(due) = self.next_front(front, now_millis)? {
            return Ok(Some(Candidate::Front(due)));
        }
        if self.losses > 0
            && let Some(ahead) = &mut self.ahead
        {
            ahead.skip_taken(&mut self.new);
        }
        if self.losses > LOSSES_MAX {
            self.list(new, shared)?;
        } else if self.new.is_empty() {
            self.read_on(new, shared)?;
        }
        let window = if self.losses == 0 { 1 } else { RACE_WINDOW.min(self.new.len()).max(1) };
        let index = usize::try_from(self.next_random() % window as u64).unwrap_or(0);
        if let Some(ahead) = &mut self.ahead {
            ahead.remove(index);
        }
        Ok(self.new.remove(index).map(Candidate::New))
    }

    /// Goes on in a shared listing, or makes one. Losses go on being counted: a shared listing
    /// that is out of date from end to end must not be read for ever.
    fn read_on(&mut self, new: &Dir, shared: Option<Backlog<'_>>) -> Result<()> {
        if let Some(ahead) = self.ahead.take() {
            ahead.share_progress();
        }
        match shared.and_then(|shared| shared.read()) {
            Some((ids, ahead)) => {
                self.new = ids;
                self.ahead = Some(ahead);
                Ok(())
            }
            None => self.list(new, shared),
        }
    }

    /// Lists `new/`, for others, too, if they share it.
    fn list(&mut self, new: &Dir, shared: Option<Backlog<'_>>) -> Result<()> {
        self.losses = 0;
        self.ahead = None;
        // Whatever becomes of stamps, `front/` is listed at least as often as `new/`.
        self.front_emptiness.forget();
        self.new = list_new(new)?;
        if let Some(shared) = shared
            && shared.write(&self.new)
            && let Some((ids, ahead)) = shared.read()
        {
            self.new = ids;
            self.ahead = Some(ahead);
        }
        Ok(())
    }

    /// Whether it would have to be found out anew.
    pub(super) fn knows_something(&self) -> bool {
        !self.new.is_empty() || !self.front.is_empty()
    }

    /// Says that another consumer had the candidate first.
    pub(super) const fn lost_race(&mut self) {
        self.losses = self.losses.saturating_add(1);
    }

    /// Says that the candidate was received.
    pub(super) fn won_race(&mut self) {
        self.losses = 0;
        if let Some(ahead) = &self.ahead {
            ahead.share_progress();
        }
    }

    /// When the first delayed message is due, in milliseconds since the Unix epoch.
    pub(super) fn next_due(front: &Dir) -> Result<Option<u64>> {
        Ok(list_front(front)?.iter().map(|f| f.not_before).min())
    }

    fn next_front(&mut self, front: &Dir, now_millis: u64) -> Result<Option<Front>> {
        if self.front_uses_left == 0 {
            let stamp = front.changed_ns()?;
            if self.front_emptiness.holds(stamp) {
                return Ok(None);
            }
            let trusted = emptiness::trusted(stamp);
            self.front = list_front(front)?;
            self.front_emptiness.note(trusted, self.front.is_empty());
            let long = self.front.len() > FRONT_LISTED_ALWAYS;
            self.front_uses_left = if long { self.front.len() / 8 } else { 0 };
        } else {
            self.front_uses_left -= 1;
        }
        let Some(index) = self.front.iter().rposition(|f| f.not_before <= now_millis) else {
            return Ok(None);
        };
        Ok(Some(self.front.remove(index)))
    }

    /// A step of a small generator: only spreads consumers out, so its quality does not matter.
    fn next_random(&mut self) -> u64 {
        if self.race_seed == 0 {
            self.race_seed = u64::from(std::process::id()) | 1 << 40;
        }
        self.race_seed ^= self.race_seed << 13;
        self.race_seed ^= self.race_seed >> 7;
        self.race_seed ^= self.race_seed << 17;
        self.race_seed
    }
}

/// Lists `new/`, oldest first.
pub(super) fn list_new(new: &Dir) -> Result<Listing> {
    let mut found = Unsorted::default();
    new.for_each(|file| {
        if let Some(id) = place::parse_plain(file) {
            found.push(id);
        }
        ControlFlow::Continue(())
    })?;
    found.sorted(|id| made_at(new, id, &place::plain(id)))
}

/// Lists `front/`, most urgent and then oldest last.
pub(super) fn list_front(front: &Dir) -> Result<Vec<Front>> {
    let mut found = Vec::new();
    front.for_each(|file| {
        found.extend(Front::parse(file));
        ControlFlow::Continue(())
    })?;
    let mut aged = Vec::with_capacity(found.len());
    for entry in found {
        aged.push((
            std::cmp::Reverse(entry.priority),
            made_at(front, &entry.id, &entry.file())?,
            entry,
        ));
    }
    aged.sort_unstable_by(|a, b| (&b.0, b.1, &b.2.id).cmp(&(&a.0, a.1, &a.2.id)));
    Ok(aged.into_iter().map(|(_, _, entry)| entry).collect())
}

/// When a message was made, in milliseconds since the Unix epoch.
pub(super) fn made_at(dir: &Dir, id: &MessageId, file: &str) -> Result<u64> {
    if let Some(millis) = id.unix_millis() {
        return Ok(millis);
    }
    let modified_ns = dir.stat(file)?.map_or(0, |stat| stat.modified_ns);
    Ok(u64::try_from(modified_ns / 1_000_000).unwrap_or(0))
}
