//! Lease expiry: messages whose holders died return to their mailboxes.
//!
//! [`MailboxLeases`] is the driver of [`crate::proto::lease`] for mailboxes. It scans the held messages of
//! some mailboxes, feeds the machine, and expires the leases that the machine names. The watcher runs one
//! for all mailboxes. [`Spool::wait_for_mail`](crate::spool::Spool::wait_for_mail) runs one for the mailbox
//! it waits for, so a dead holder's message returns without a watcher.
//!
//! Each observer judges by its own clock, which also counts suspended time ([`Clock::boottime`]). Any
//! number of observers may watch the same mailboxes: one expires the lease, the others find it gone.
//!
//! *A crash* of the observer loses its observations, which lengthens leases but never shortens them.
//! [`MailboxLeases::remembered`] keeps the observations in a file, so the next process of the same boot continues.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::document::{read_json, write_json};
use crate::env::{self, Clock, Lease, Monotonic};
use crate::event_log::{Recorder, types};
use crate::mailboxes::visit_mailboxes;
use crate::message::Name;
use crate::proto::Machine as _;
use crate::proto::lease::{Effect, Event, GapDetector, LeaseRecord, LeaseSnapshot, LeaseWatch};
use crate::{Error, Result};

/// The largest file of observations that is read, in bytes: some 50,000 leases.
const SNAPSHOT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A held message as an observer of leases sees it. A change of `sequence` alone proves that its holder
/// lives; timestamps are not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    pub lease: Lease,
    pub sequence: u64,
    /// How long the lease runs after a change of `sequence`.
    pub duration: Duration,
}

impl ObservedLease {
    pub const fn new(lease: Lease, sequence: u64, duration: Duration) -> Self {
        Self { lease, sequence, duration }
    }
}

/// The held messages of a queue, as an observer of leases needs them.
pub trait LeaseTable {
    fn observe(&self, mailbox: &Name) -> Result<Vec<ObservedLease>>;

    /// Takes a message away from a holder that has fallen silent; `false` if the holder was quicker.
    fn expire(&self, observed: &ObservedLease) -> Result<bool>;
}

/// Observer of the leases of some mailboxes; see the module.
#[derive(Debug)]
pub struct MailboxLeases {
    actor: String,
    watch: LeaseWatch<Lease>,
    gaps: GapDetector,
    /// Time for which the machine has been suspended, at the last look.
    suspended: Duration,
    held: Vec<(Lease, Duration)>,
    memory: Option<PathBuf>,
    trouble: Option<Error>,
}

impl MailboxLeases {
    /// An observer without observations. `actor` is its name in the event log.
    pub fn new(actor: impl Into<String>, clock: &dyn Clock) -> Self {
        Self::with(actor.into(), clock, None)
    }

    /// An observer that continues where one with the same file stopped in this boot. The file is replaced
    /// at each scan that finds a held message. Observers of different mailboxes need different files.
    pub fn remembered(actor: impl Into<String>, clock: &dyn Clock, file: &Path) -> Self {
        Self::with(actor.into(), clock, Some(file.to_owned()))
    }

    fn with(actor: String, clock: &dyn Clock, memory: Option<PathBuf>) -> Self {
        let now = clock.boottime();
        let suspended = now.since(clock.monotonic());
        let remembered = memory
            .as_ref()
            .and_then(|file| read_json::<LeaseSnapshot<Lease>>(file, SNAPSHOT_BYTES_MAX).ok()?);
        let watch = match remembered {
            // Without a boot id, a snapshot could be one of another boot.
            Some(snapshot) if !env::boot_id().is_empty() => {
                LeaseWatch::restore(now, env::boot_id(), snapshot)
            }
            _ => LeaseWatch::new(now),
        };
        let (gaps, held) = (GapDetector::default(), Vec::new());
        Self { actor, watch, gaps, suspended, held, memory, trouble: None }
    }

    /// Scans these mailboxes and expires the leases of silent holders. Returns the mailbox of each message that was
    /// returned. Pass the same mailboxes each time: a lease that one scan does not find is forgotten.
    ///
    /// # Errors
    /// A server failed; or the only mailbox cannot be read, or a lease of it cannot be expired. Call again: the machine
    /// repeats what is due.
    pub fn scan_mailboxes(
        &mut self,
        clock: &dyn Clock,
        table: &dyn LeaseTable,
        mailboxes: &[Name],
        recorder: &dyn Recorder,
    ) -> Result<Vec<Name>> {
        let mut seen = Vec::new();
        let bad = visit_mailboxes(mailboxes.iter().cloned(), |mailbox| {
            seen.extend(table.observe(mailbox)?);
            Ok(())
        })?;
        // Read the clocks after the scan: a lease that begins while this observer is stopped must not look
        // older than it is. Expiry notices any later change.
        let (monotonic, now) = (clock.monotonic(), clock.boottime());
        self.suspended = now.since(monotonic);
        if let Some(gap) = self.gaps.compare_clocks(monotonic, now, clock.wall()) {
            self.watch.handle(now, Event::ClockGap(gap));
        }
        self.held.clear();
        for ObservedLease { lease, sequence, duration } in seen {
            self.held.push((lease.clone(), duration));
            self.watch.handle(now, Event::Seen { key: lease, sequence, duration });
        }
        self.watch.handle(now, Event::ScanDone);
        let (returned, failed) = self.perform(table, recorder);
        if !self.held.is_empty() {
            self.remember(now);
        }
        match bad.into_iter().next().map(|bad| bad.error).or(failed) {
            // No other mailbox was observed.
            Some(error) if mailboxes.len() == 1 => Err(error),
            Some(error) => {
                self.trouble = Some(error);
                Ok(returned)
            }
            None => Ok(returned),
        }
    }

    /// When a look is due, by [`Clock::monotonic`]; `None` if no message was held at the last look. A lease
    /// that begins later is found by the regular look, every
    /// [`LOOK_INTERVAL`](crate::proto::lease::LOOK_INTERVAL) or sooner.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        let due = self.watch.poll_timeout()?;
        Some(Monotonic::from_duration(due.as_duration().saturating_sub(self.suspended)))
    }

    /// Whether a look is due now, besides the regular ones. Asking counts as a try: the next is due a few
    /// seconds later, even if the look fails.
    pub fn is_due(&mut self, now: Monotonic) -> bool {
        self.watch.handle_timeout(now + self.suspended);
        let mut is_due = false;
        while let Some(effect) = self.watch.poll_effect() {
            is_due |= matches!(effect, Effect::Look);
        }
        is_due
    }

    pub fn held(&self) -> &[(Lease, Duration)] {
        &self.held
    }

    pub fn held_by(&self, holder: &Name) -> Vec<(Lease, Duration)> {
        self.held.iter().filter(|(lease, _)| lease.holder == *holder).cloned().collect()
    }

    pub fn holders(&self) -> BTreeSet<Name> {
        self.held.iter().map(|(lease, _)| lease.holder.clone()).collect()
    }

    /// Another error of the last look: a mailbox could not be read, or a lease not be expired, which happens once it
    /// can; or the file of observations could not be replaced, and only the memory across processes suffers.
    pub fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }

    /// Expires what is due. A lease that cannot be expired does not keep the others; the first failure comes with them.
    fn perform(
        &mut self,
        table: &dyn LeaseTable,
        recorder: &dyn Recorder,
    ) -> (Vec<Name>, Option<Error>) {
        let (mut returned, mut failed) = (Vec::new(), None);
        while let Some(effect) = self.watch.poll_effect() {
            match effect {
                Effect::Look => {}
                Effect::Expire { key, sequence } => {
                    let observed = ObservedLease::new(key, sequence, Duration::ZERO);
                    match table.expire(&observed) {
                        Ok(true) => returned.push(observed.lease.mailbox),
                        Ok(false) => {}
                        Err(error) => failed = failed.or(Some(error)),
                    }
                }
                Effect::Record(seen) => record_seen(recorder, &self.actor, &seen),
            }
        }
        (returned, failed)
    }

    fn remember(&mut self, now: Monotonic) {
        let Some(file) = &self.memory else { return };
        self.trouble = write_json(file, &self.watch.snapshot(now, env::boot_id())).err();
    }
}

/// Records why an observer of leases does not judge for a while.
pub fn record_seen(recorder: &dyn Recorder, actor: &str, seen: &LeaseRecord) {
    match seen {
        LeaseRecord::ClockGap(gap) => {
            recorder.record(types::LEASE_CLOCK_GAP, actor, json!({ "gap": format!("{gap:?}") }));
        }
        LeaseRecord::LateLook { seconds } => {
            recorder.record(types::LEASE_LATE_LOOK, actor, json!({ "seconds": seconds }));
        }
    }
}

#[cfg(test)]
mod tests;
