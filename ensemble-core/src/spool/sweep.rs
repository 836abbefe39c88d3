//! Cleaning up after the dead: files that a killed sender left in `tmp/`, and settled messages past
//! their time by the queue's calendar. With a [`crate::proto::lease`] observer, also messages whose holder fell silent.

use std::sync::PoisonError;
use std::time::Duration;

use super::finish::read_extension;
use super::mailbox::{MessageLocation, OpenMailbox, find};
use super::place::{self, HeldFile};
use super::{Spool, calendar, former};
use crate::Result;
use crate::durable::{Dir, stop_if};
use crate::leases::{LeaseTable, ObservedLease};
use crate::mail::{LEASE_EXPIRED, unless_lost};
use crate::mailboxes::visit_all_mailboxes;
use crate::message::Name;
use crate::proto::calendar::Calendar;

/// A file in `tmp/` that was not touched for that long belongs to a sender that was killed. Longer
/// than any write can take; removing a live one would fail its publish, not lose it.
pub const TMP_AGE_MAX: Duration = Duration::from_secs(60 * 60);
/// How many files one sweep removes from one directory at most, so that it stays short.
const REMOVALS_MAX: usize = 10_000;

/// Counts of a sweep; [`Queue`](crate::Queue) has an example.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Swept {
    /// Files removed from `tmp/`.
    pub tmp_removed: usize,
    /// Settled messages removed after their time.
    pub done_removed: usize,
    /// Side files of leases and reasons that belonged to nothing any more.
    pub orphans_removed: usize,
}

/// # Sweep and expire
impl Spool {
    /// Removes side files and old messages that no client needs any more, in all mailboxes. One that cannot be read is
    /// passed over.
    ///
    /// # Errors
    /// Nothing was removed, because a directory cannot be listed or a file cannot be removed.
    pub fn sweep(&self) -> Result<Swept> {
        let mut calendar = self.calendar();
        let swept = self.sweep_by(&mut calendar);
        self.keep_calendar(calendar);
        swept
    }

    fn sweep_by(&self, calendar: &mut Calendar) -> Result<Swept> {
        let mut swept = Swept::default();
        let queue = self.queue_dir()?;
        if let Ok(tmp) = queue.open_child("tmp") {
            let old = older(calendar, &tmp, TMP_AGE_MAX, |_| true)?;
            swept.tmp_removed = remove_all(&tmp, &old.files)?;
        }
        let visited = visit_all_mailboxes(self.mailboxes()?, |name| {
            let mailbox = self.mailbox(name)?;
            let keep =
                Duration::from_secs(mailbox.settings()?.done_days.saturating_mul(24 * 60 * 60));
            swept.done_removed += self.sweep_settled(calendar, &mailbox, keep)?;
            swept.orphans_removed += self.remove_orphans(&mailbox)?;
            Ok(())
        });
        // A mailbox that cannot be swept is found by `fsck`; what was removed is recorded.
        if swept == Swept::default() { visited.map(|()| swept) } else { Ok(swept) }
    }

    /// Removes settled messages past their time. All of them are checked only if the oldest that was kept at the last
    /// look is due: there may be a million.
    fn sweep_settled(
        &self,
        calendar: &mut Calendar,
        mailbox: &OpenMailbox,
        keep: Duration,
    ) -> Result<usize> {
        let known = || self.oldest_settled.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, last) = (mailbox.done.id()?, known().get(&mailbox.name).copied());
        if last.is_some_and(|(seen, identity, oldest)| {
            (seen, identity) == (done, calendar.identity()) && oldest >= oldest_kept(calendar, keep)
        }) {
            return Ok(0);
        }
        let is_message = |file: &str| place::parse_plain(file).is_some();
        let old = older(calendar, &mailbox.done, keep, is_message)?;
        let removed = remove_all(&mailbox.done, &old.files)?;
        match old.oldest_left {
            Some(oldest) => {
                known().insert(mailbox.name.clone(), (done, calendar.identity(), oldest))
            }
            None => known().remove(&mailbox.name),
        };
        Ok(removed)
    }

    /// The held messages of a mailbox, for an observer of leases.
    pub fn observe(&self, mailbox: &Name) -> Result<Vec<ObservedLease>> {
        if self.holds_nothing(mailbox) {
            return Ok(Vec::new());
        }
        let mailbox = self.mailbox(mailbox)?;
        let usual = mailbox.settings()?.lease_duration();
        let mut observed = Vec::new();
        for held in super::find::held(&mailbox)? {
            let extension = read_extension(&mailbox.lease, &held)?;
            let sequence = extension.as_ref().map_or(0, |e| e.sequence);
            let duration = extension.map_or(usual, |e| Duration::from_secs(e.lease_seconds));
            observed.push(ObservedLease::new(held.lease(&mailbox.name), sequence, duration));
        }
        Ok(observed)
    }

    /// Whether a mailbox can be seen to have no held message without opening it. Observers look at
    /// all mailboxes again and again, and most of them are idle.
    fn holds_nothing(&self, mailbox: &Name) -> bool {
        let cur = self
            .mailboxes_dir()
            .and_then(|mailboxes| mailboxes.open_child(mailbox.as_str()))
            .and_then(|home| home.open_child("cur"));
        matches!(cur.and_then(|cur| find(&cur, |_| Some(()))), Ok(None))
    }

    /// Takes a message away from a holder that has fallen silent. It can be received again. All
    /// that the holder does with its lease from now on is refused. `false` if the holder was
    /// quicker.
    pub fn expire(&self, observed: &ObservedLease) -> Result<bool> {
        let mailbox = self.mailbox(&observed.lease.mailbox)?;
        let held = HeldFile::from(&observed.lease);
        let sequence = read_extension(&mailbox.lease, &held)?.map_or(0, |e| e.sequence);
        if sequence != observed.sequence {
            return Ok(false);
        }
        unless_lost(self.give_back(&mailbox, &held, self.hand_back(Duration::ZERO, LEASE_EXPIRED)))
    }

    /// Removes the side files of ended leases that are not needed for a former holder, and the
    /// reasons of dead letters that were redriven and settled.
    fn remove_orphans(&self, mailbox: &OpenMailbox) -> Result<usize> {
        let mut removed = 0;
        for (id, epoch) in former::side_files(mailbox)? {
            if !former::is_needed(mailbox, &id, epoch)? {
                mailbox.lease.remove(&place::lease(&id, epoch))?;
                removed += 1;
            }
        }
        for id in mailbox.dead.list(place::parse_reason)? {
            // A message that moves backwards in the meantime could be missed, and its reason lost.
            let _gate = mailbox.close_gate(self.options.lock_patience)?;
            if matches!(mailbox.locate(&id)?, None | Some(MessageLocation::Done)) {
                mailbox.dead.remove(&place::reason(&id))?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

impl LeaseTable for Spool {
    crate::forward_calls! {
        observe(mailbox: &Name) -> Vec<ObservedLease>;
        expire(observed: &ObservedLease) -> bool;
    }
}

struct OldFiles {
    files: Vec<String>,
    /// Since when the oldest of the others has not changed, in steady time, if all were checked.
    oldest_left: Option<i64>,
}

/// The steady time before which everything is older than `age`.
fn oldest_kept(calendar: &Calendar, age: Duration) -> i64 {
    calendar.steady().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}

fn older(
    calendar: &mut Calendar,
    dir: &Dir,
    age: Duration,
    is_candidate: impl Fn(&str) -> bool,
) -> Result<OldFiles> {
    let oldest_kept = oldest_kept(calendar, age);
    // Messages that arrive during this look are not older than it.
    let mut oldest_left = calendar.steady();
    let mut files = Vec::new();
    dir.try_for_each(|file| {
        let stat = dir.stat(file)?;
        if let Some(stat) = stat.filter(|stat| stat.is_file && is_candidate(file)) {
            let made = calendar::made(calendar, &stat);
            if made < oldest_kept {
                files.push(file.to_owned());
            } else {
                oldest_left = oldest_left.min(made);
            }
        }
        Ok(stop_if(files.len() >= REMOVALS_MAX))
    })?;
    let is_whole = files.len() < REMOVALS_MAX;
    Ok(OldFiles { files, oldest_left: is_whole.then_some(oldest_left) })
}

fn remove_all(dir: &Dir, files: &[String]) -> Result<usize> {
    files.iter().try_for_each(|file| dir.remove(file))?;
    Ok(files.len())
}
