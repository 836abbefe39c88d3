//! Finds the next message to receive, without listing a deep backlog for every message.
//!
//! `new/` is listed once and the listing worked off. It is made again when it is used up or when most of it turns out
//! to be taken by others. So a receive costs a constant share of a listing however many messages wait. `front/`
//! (urgent, returned, delayed) is empty in everyday life, and its stamp tells whether it still is. A short one is
//! listed every time, a long one again only after an eighth of it was worked off.
//!
//! Messages come in the order in which they were made: by the time inside a UUIDv7, by the file's time for other ids.
//!
//! Where several consumers work off one mailbox, each one's listing is soon full of names that others have taken. To
//! find that out costs a rename that fails. So processes that receive one message each, and consumers that have lost
//! a race, share a listing. In it each sees how far the others are: see [`super::backlog`]. While there is none, a
//! consumer that has lost picks at random among the next few.

use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use super::backlog::{Backlog, ListingPart};
use super::emptiness::{self, Emptiness};
use super::listing::{IdListing, UnsortedIds};
use super::place::{self, FrontFile};
use crate::Result;
use crate::durable::Dir;
use crate::mail::{ReceiveOrder, receive_order};
use crate::message::MessageId;

/// A `front/` of up to this many messages is listed for every receive.
const FRONT_LISTED_ALWAYS: usize = 32;
/// Among how many of the next messages a consumer that lost a race picks.
const RACE_WINDOW: usize = 32;
/// After this many lost races in a row, and twice as many and so on, a consumer looks for a listing that others share.
const LOSSES_ALONE: u32 = 4;
/// After this many lost races in a row a listing may be out of date, even a shared one.
const LOSSES_MAX: u32 = 64;
/// To lose a race takes some eight times as long as to list a message. A long listing is made again once what
/// was lost has taken as long as that would.
const LISTED_PER_LOSS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    New(MessageId),
    Front(FrontFile),
}

/// Whether the listing that others share can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListingTrust {
    /// If there is one that is not worked off, it is as good as a new one.
    Shared,
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct WaitingBacklog {
    new: IdListing,
    /// Where `new` is in a shared listing, if it is from there.
    ahead: Option<ListingPart>,
    front: Vec<FrontFile>,
    front_emptiness: Emptiness,
    front_uses_left: usize,
    /// Whether `new` has the names of files that landed, instead of a listing.
    is_landed: bool,
    listed: usize,
    /// Races that were lost in a row.
    losses: u32,
    /// Whether another consumer receives from this mailbox: a race was lost since the listing before this one.
    has_rivals: bool,
    has_lost: bool,
    race_seed: u64,
}

impl WaitingBacklog {
    /// The candidate to try next; `None` if nothing is due. `shares` says whether this consumer shares its listing in
    /// any case; otherwise it does so while it has rivals.
    pub(super) fn next(
        &mut self,
        new: &Dir,
        front: &Dir,
        backlog: Backlog<'_>,
        shares: bool,
        is_due: &dyn Fn(&FrontFile) -> bool,
    ) -> Result<Option<Candidate>> {
        if self.new.is_empty() || self.losses > self.losses_allowed() {
            // Independently of stamps, `front/` is listed at least as often as `new/` is.
            self.front_emptiness.forget();
        }
        if let Some(due) = self.next_front(front, is_due)? {
            return Ok(Some(Candidate::Front(due)));
        }
        let shared = (shares || self.has_rivals).then_some(backlog);
        if self.has_rivals
            && let Some(ahead) = &mut self.ahead
        {
            ahead.skip_taken(&mut self.new);
        }
        if self.losses > self.losses_allowed() {
            self.list(new, shared, ListingTrust::Nothing)?;
        } else if self.new.is_empty() {
            self.read_on(new, shared)?;
        } else if self.losses >= LOSSES_ALONE && self.losses.is_power_of_two() {
            self.share(shared);
        }
        let window = match &self.ahead {
            // In order, so that the others see how far this one is.
            Some(_) => 1,
            None if self.losses == 0 => 1,
            None => RACE_WINDOW.min(self.new.len()).max(1),
        };
        let index = usize::try_from(self.next_random() % window as u64).unwrap_or(0);
        if let Some(ahead) = &mut self.ahead {
            ahead.remove(index);
        }
        Ok(self.new.remove(index).map(Candidate::New))
    }

    /// Takes the names of files that landed after nothing was found, which spares a listing.
    pub(super) fn expect_landed(&mut self, new: &Dir, landed: &[String]) -> Result<()> {
        // Rivals would all run after the same message.
        if self.new.is_empty() && self.ahead.is_none() && !self.has_rivals {
            let mut found = UnsortedIds::default();
            landed.iter().filter_map(|file| place::parse_plain(file)).for_each(|id| found.push(id));
            self.new = found.sorted(|id| made_at(new, id, &place::plain(id)))?;
            (self.listed, self.is_landed) = (self.new.len(), true);
        }
        Ok(())
    }

    /// The rivals keep receiving while this process lists, so the first part of a new listing is
    /// stale already.
    fn losses_allowed(&self) -> u32 {
        u32::try_from(self.listed / LISTED_PER_LOSS).unwrap_or(u32::MAX).max(LOSSES_MAX)
    }

    /// Continues with a shared listing, or makes one. The count of losses is not reset, because a
    /// shared listing that is entirely out of date must not be read forever.
    fn read_on(&mut self, new: &Dir, shared: Option<Backlog<'_>>) -> Result<()> {
        if let Some(ahead) = self.ahead.take() {
            ahead.share_progress();
        }
        if self.join(shared) { Ok(()) } else { self.list(new, shared, ListingTrust::Shared) }
    }

    /// Joins the listing that others share now, or shares this one.
    fn share(&mut self, shared: Option<Backlog<'_>>) {
        if !self.join(shared) && shared.is_some_and(|shared| shared.write(&self.new)) {
            self.join(shared);
        }
    }

    /// Joins the listing that others share now. Returns whether there is one.
    fn join(&mut self, shared: Option<Backlog<'_>>) -> bool {
        let Some((ids, ahead)) = shared.and_then(|shared| shared.read()) else { return false };
        // As for names that are listed.
        self.front_emptiness.forget();
        self.listed = ahead.count_left();
        (self.new, self.is_landed) = (ids, false);
        self.ahead = Some(ahead);
        true
    }

    /// Lists `new/`, for others, too, if they share it.
    fn list(&mut self, new: &Dir, shared: Option<Backlog<'_>>, trust: ListingTrust) -> Result<()> {
        self.losses = 0;
        self.has_rivals = std::mem::take(&mut self.has_lost);
        (self.ahead, self.is_landed) = (None, false);
        self.new = list_new(new)?;
        self.listed = self.new.len();
        // While this one was listing, another one may have come first. Two that each share their own would
        // take turns in running after each other's messages.
        match (trust, shared) {
            (ListingTrust::Shared, _) => self.share(shared),
            (ListingTrust::Nothing, Some(backlog)) if backlog.write(&self.new) => {
                self.join(shared);
            }
            (ListingTrust::Nothing, _) => {}
        }
        Ok(())
    }

    /// Whether it would have to be found out again.
    pub(super) fn knows_something(&self) -> bool {
        !self.new.is_empty() || !self.front.is_empty()
    }

    pub(super) fn lost_race(&mut self) {
        if self.is_landed {
            // It may have been taken long before its event was read.
            return;
        }
        self.losses = self.losses.saturating_add(1);
        self.has_lost = true;
        self.has_rivals = true;
        if self.losses.is_multiple_of(LOSSES_ALONE)
            && let Some(ahead) = &self.ahead
        {
            ahead.share_progress();
        }
    }

    pub(super) fn won_race(&mut self) {
        self.losses = 0;
        if let Some(ahead) = &self.ahead {
            ahead.share_progress();
        }
    }

    /// When the first delayed message is due, of those that were not at `looked_at`.
    pub(super) fn next_due_after(front: &Dir, looked_at: u64) -> Result<Option<u64>> {
        let due = list_front(front)?.into_iter().map(|f| f.not_before);
        Ok(due.filter(|due| *due > looked_at).min())
    }

    fn next_front(
        &mut self,
        front: &Dir,
        is_due: &dyn Fn(&FrontFile) -> bool,
    ) -> Result<Option<FrontFile>> {
        if self.front_uses_left == 0 {
            let stamp = front.changed_ns()?;
            if self.front_emptiness.holds(stamp) {
                return Ok(None);
            }
            let trusted = emptiness::trusted(stamp);
            self.front = list_front(front)?;
            self.front_emptiness.record_listing(trusted, self.front.is_empty());
            let long = self.front.len() > FRONT_LISTED_ALWAYS;
            self.front_uses_left = if long { self.front.len() / 8 } else { 0 };
        } else {
            self.front_uses_left -= 1;
        }
        let Some(index) = self.front.iter().rposition(is_due) else {
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
pub(super) fn list_new(new: &Dir) -> Result<IdListing> {
    let mut found = UnsortedIds::default();
    new.for_each(|file| {
        if let Some(id) = place::parse_plain(file) {
            found.push(id);
        }
        ControlFlow::Continue(())
    })?;
    found.sorted(|id| made_at(new, id, &place::plain(id)))
}

/// The oldest messages of `new/`, at most `limit`, in as little memory as those take.
pub(super) fn oldest_new(new: &Dir, limit: usize) -> Result<Vec<MessageId>> {
    let mut oldest: BinaryHeap<(u64, MessageId)> = BinaryHeap::new();
    new.try_for_each(|file| {
        if let Some(id) = place::parse_plain(file) {
            oldest.push((made_at(new, &id, file)?, id));
            if oldest.len() > limit {
                oldest.pop();
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(oldest.into_sorted_vec().into_iter().map(|(_, id)| id).collect())
}

/// Lists `front/`, most urgent and then oldest last.
pub(super) fn list_front(front: &Dir) -> Result<Vec<FrontFile>> {
    let found = front.list(FrontFile::parse)?;
    let mut aged = Vec::with_capacity(found.len());
    for entry in found {
        aged.push((made_at(front, &entry.id, &entry.file())?, entry));
    }
    aged.sort_unstable_by(|a, b| order_aged(b).cmp(&order_aged(a)));
    Ok(aged.into_iter().map(|(_, entry)| entry).collect())
}

fn order_aged((made_at, front): &(u64, FrontFile)) -> ReceiveOrder<&MessageId> {
    receive_order(false, front.priority, *made_at, &front.id)
}

/// When a message was made, in milliseconds since the Unix epoch.
pub(super) fn made_at(dir: &Dir, id: &MessageId, file: &str) -> Result<u64> {
    if let Some(millis) = id.unix_millis() {
        return Ok(millis);
    }
    let modified_ns = dir.stat(file)?.map_or(0, |stat| stat.modified_ns);
    Ok(u64::try_from(modified_ns / 1_000_000).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::FileModes;

    struct Place {
        _root: tempfile::TempDir,
        home: Dir,
        tmp: Dir,
        new: Dir,
        front: Dir,
    }

    fn place(messages: usize) -> Place {
        let root = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Dir::open(&path).unwrap()
        };
        let (home, tmp, new, front) = (open("."), open("tmp"), open("new"), open("front"));
        for _ in 0..messages {
            let file = place::plain(&MessageId::generate());
            std::fs::write(new.path().join(file), "").unwrap();
        }
        Place { _root: root, home, tmp, new, front }
    }

    #[test]
    fn the_oldest_are_those_that_a_whole_listing_begins_with() {
        let place = place(40);
        for id in ["r-1", "7", "r-0", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"] {
            std::fs::write(place.new.path().join(format!("{id}.yaml")), "").unwrap();
        }
        let all: Vec<MessageId> = list_new(&place.new).unwrap().into_ids().collect();
        for limit in [0, 1, 7, 43, 44, usize::MAX] {
            let oldest = oldest_new(&place.new, limit).unwrap();
            assert_eq!(oldest, all[..limit.min(all.len())], "{limit}");
        }
    }

    /// A process that receives, and how many races it has lost.
    #[derive(Default)]
    struct Consumer {
        waiting: WaitingBacklog,
        lost: usize,
    }

    impl Consumer {
        fn receive(&mut self, place: &Place) -> Option<MessageId> {
            let backlog =
                Backlog { home: &place.home, tmp: &place.tmp, modes: FileModes::default() };
            loop {
                let next = self
                    .waiting
                    .next(&place.new, &place.front, backlog, false, &|_| true)
                    .unwrap()?;
                let Candidate::New(id) = next else { panic!("nothing is urgent") };
                if std::fs::remove_file(place.new.path().join(place::plain(&id))).is_ok() {
                    self.waiting.won_race();
                    return Some(id);
                }
                self.waiting.lost_race();
                self.lost += 1;
            }
        }

        fn receive_many(&mut self, place: &Place, count: usize) -> Vec<MessageId> {
            (0..count).map_while(|_| self.receive(place)).collect()
        }
    }

    #[test]
    fn rivals_do_not_run_after_what_is_gone() {
        let place = place(6_000);
        let (mut a, mut b) = (Consumer::default(), Consumer::default());
        // Each knows of the other once it has run after it, and they share a listing from then on.
        let mut received = a.receive_many(&place, 500);
        received.extend(b.receive_many(&place, 500));
        received.extend(a.receive_many(&place, 500));
        received.extend(b.receive_many(&place, 500));
        let lost_before = a.lost + b.lost;
        for _ in 0..4 {
            received.extend(a.receive_many(&place, 400));
            received.extend(b.receive_many(&place, 400));
        }
        assert!(a.lost + b.lost <= lost_before + 2, "{} and {}: {lost_before}", a.lost, b.lost);
        assert!(received.iter().rev().take(3_200).rev().is_sorted(), "one has overtaken another");
        received.extend(b.receive_many(&place, 800));
        let count = received.len();
        received.sort_unstable();
        received.dedup();
        assert_eq!((count, received.len()), (6_000, 6_000));
        assert_eq!((a.receive(&place), b.receive(&place)), (None, None));
    }

    #[test]
    fn what_landed_is_tried_without_a_listing_and_a_miss_is_no_rival() {
        let place = place(0);
        let ids: Vec<MessageId> = (0..2).map(|_| MessageId::generate()).collect();
        let landed = [place::plain(&ids[1]), "stray".to_owned(), place::plain(&ids[0])];
        let mut consumer = Consumer::default();
        consumer.waiting.expect_landed(&place.new, &landed).unwrap();
        assert_eq!(consumer.waiting.new.iter().collect::<Vec<_>>(), ids, "oldest first");
        assert_eq!(consumer.receive(&place), None, "neither is there any more");
        assert_eq!((consumer.lost, consumer.waiting.has_rivals), (2, false));
    }

    /// It takes a while to list many, and others continue in the meantime.
    #[test]
    fn a_listing_of_which_the_first_part_is_gone_is_not_made_anew() {
        let place = place(4_000);
        let (mut a, mut b) = (Consumer::default(), Consumer::default());
        a.receive_many(&place, 1);
        b.receive_many(&place, 300);
        let oldest = MessageId::new("01900000-0000-7000-8000-000000000000").unwrap();
        std::fs::write(place.new.path().join(place::plain(&oldest)), "").unwrap();
        assert_ne!(a.receive(&place).unwrap(), oldest, "a listing shows it first");
        assert!(a.lost > LOSSES_MAX as usize);
    }

    #[test]
    fn what_was_looked_at_by_a_rival_that_ended_is_received_all_the_same() {
        let place = place(3_000);
        let (mut a, mut b) = (Consumer::default(), Consumer::default());
        for _ in 0..2 {
            a.receive_many(&place, 100);
            b.receive_many(&place, 100);
        }
        a.receive(&place).unwrap();
        let backlog = Backlog { home: &place.home, tmp: &place.tmp, modes: FileModes::default() };
        let left = b.waiting.next(&place.new, &place.front, backlog, false, &|_| true).unwrap();
        let Some(Candidate::New(left)) = left else { panic!("{left:?}") };
        drop(b);
        assert_eq!(a.receive(&place), Some(left));
    }
}
