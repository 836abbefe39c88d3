//! Messages whose holders have fallen silent go back to their mailboxes.
//!
//! What was observed is kept in `.ensemble/leases/observed.json`, so that a watcher that is
//! restarted does not give every holder a new lease. Leases are judged by a clock that counts suspended
//! time; what others hand in and get is the watcher's own, which does not.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::durable::{self, Durability};
use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::{MessageId, Name};
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::lease::{Effect, Event, GapDetector, LeaseWatch, Record, Snapshot};
use ensemble_core::spool::Observed;
use ensemble_core::{Result, env};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::status::ACTOR;

/// A lease as the observer tells it from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Key {
    mailbox: Name,
    id: MessageId,
    holder: Name,
    epoch: u64,
}

impl From<&env::Lease> for Key {
    fn from(l: &env::Lease) -> Self {
        Self {
            mailbox: l.mailbox.clone(),
            id: l.id.clone(),
            holder: l.holder.clone(),
            epoch: l.epoch,
        }
    }
}

impl From<Key> for env::Lease {
    fn from(k: Key) -> Self {
        Self { mailbox: k.mailbox, id: k.id, holder: k.holder, epoch: k.epoch }
    }
}

/// The observer of all mailboxes' leases.
pub(crate) struct Leases {
    watch: LeaseWatch<Key>,
    gaps: GapDetector,
    file: PathBuf,
    boot_id: String,
    /// How long the machine has been suspended since it started, as far as this was looked at.
    suspended: Duration,
    /// What was held at the last look.
    held: Vec<(env::Lease, Duration)>,
}

impl Leases {
    /// Goes on where an observer of this boot has stopped.
    pub(crate) fn open(now: Monotonic, state: &std::path::Path) -> Self {
        let suspended = suspended(&env::SystemClock);
        let now = now + suspended;
        let directory = state.join("leases");
        // Without it nothing is remembered across a restart, which only lengthens leases.
        let _ = std::fs::create_dir_all(&directory);
        let file = directory.join("observed.json");
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .unwrap_or_default()
            .trim()
            .to_owned();
        let remembered = std::fs::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Snapshot<Key>>(&bytes).ok());
        let watch = match remembered {
            Some(snapshot) => LeaseWatch::restore(now, &boot_id, snapshot),
            None => LeaseWatch::new(now),
        };
        Self { watch, gaps: GapDetector::default(), file, boot_id, suspended, held: Vec::new() }
    }

    /// Who held something at the last look.
    pub(crate) fn holders(&self) -> BTreeSet<Name> {
        self.held.iter().map(|(lease, _)| lease.holder.clone()).collect()
    }

    /// What was held at the last look, and for how long the leases run.
    pub(crate) fn held(&self) -> &[(env::Lease, Duration)] {
        &self.held
    }

    /// What this agent held at the last look, and for how long its leases run.
    pub(crate) fn held_by(&self, agent: &Name) -> Vec<(env::Lease, Duration)> {
        self.held.iter().filter(|(lease, _)| lease.holder == *agent).cloned().collect()
    }

    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        let due = self.watch.poll_timeout()?;
        Some(Monotonic::from_duration(due.as_duration().saturating_sub(self.suspended)))
    }

    /// Looks at all leases and takes back what is due. Returns the mailboxes that got mail back.
    pub(crate) fn look(
        &mut self,
        clock: &dyn Clock,
        broker: &dyn Broker,
        recorder: &dyn Recorder,
    ) -> Result<Vec<Name>> {
        let mut seen = Vec::new();
        for mailbox in broker.mailboxes()? {
            seen.extend(broker.observe(&mailbox)?);
        }
        // After they were read: a lease that begins while this observer stands still must not look older
        // than it is. What changes from now on is noticed before anything is taken back.
        let (monotonic, now) = (clock.monotonic(), clock.boottime());
        self.suspended = now.since(monotonic);
        if let Some(gap) = self.gaps.look(monotonic, now, clock.wall()) {
            self.watch.handle(now, Event::ClockGap(gap));
        }
        self.held.clear();
        for Observed { lease, sequence, duration } in seen {
            self.held.push((lease.clone(), duration));
            self.watch.handle(now, Event::Seen { key: Key::from(&lease), sequence, duration });
        }
        self.watch.handle(now, Event::ScanDone);
        let returned = self.perform(broker, recorder)?;
        if !self.held.is_empty() {
            self.remember(now);
        }
        Ok(returned)
    }

    /// Whether it is time for a look, besides the regular ones.
    pub(crate) fn wants_look(&mut self, now: Monotonic) -> bool {
        self.watch.handle_timeout(now + self.suspended);
        let mut wanted = false;
        while let Some(effect) = self.watch.poll_effect() {
            wanted |= matches!(effect, Effect::Look);
        }
        wanted
    }

    fn perform(&mut self, broker: &dyn Broker, recorder: &dyn Recorder) -> Result<Vec<Name>> {
        let mut returned = Vec::new();
        while let Some(effect) = self.watch.poll_effect() {
            match effect {
                Effect::Look => {}
                Effect::Expire { key, sequence } => {
                    let mailbox = key.mailbox.clone();
                    let observed =
                        Observed { lease: key.into(), sequence, duration: Duration::ZERO };
                    if broker.expire(&observed)? {
                        returned.push(mailbox);
                    }
                }
                Effect::Record(Record::ClockGap(gap)) => recorder.record(
                    types::LEASE_CLOCK_GAP,
                    ACTOR,
                    json!({ "gap": format!("{gap:?}") }),
                ),
                Effect::Record(Record::MassExpiry { late, of }) => recorder.record(
                    types::LEASE_MASS_EXPIRY,
                    ACTOR,
                    json!({ "late": late, "of": of }),
                ),
            }
        }
        Ok(returned)
    }

    fn remember(&self, now: Monotonic) {
        let snapshot = self.watch.snapshot(now, &self.boot_id);
        let bytes = serde_json::to_vec(&snapshot).unwrap_or_default();
        if let Err(error) = durable::write_document(&self.file, &bytes, Durability::Process) {
            tracing::warn!(%error, "cannot remember what was observed of leases");
        }
    }
}

/// How long the machine has been suspended since it started.
fn suspended(clock: &dyn Clock) -> Duration {
    let monotonic = clock.monotonic();
    clock.boottime().since(monotonic)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use ensemble_core::event_log::NullRecorder;
    use ensemble_core::message::{Envelope, Timestamp};
    use ensemble_core::spool::{Options, Settings, Spool};

    use super::*;

    /// Moved by hand; after its next reading something else happens, as when its reader stands still.
    #[derive(Default)]
    struct Slow<'a> {
        seconds: Cell<u64>,
        meanwhile: RefCell<Option<Box<dyn FnOnce() + 'a>>>,
    }

    impl Clock for Slow<'_> {
        fn monotonic(&self) -> Monotonic {
            Monotonic::from_duration(Duration::from_secs(self.seconds.get()))
        }
        /// The last that is read.
        fn wall(&self) -> Timestamp {
            let millis = i64::try_from(self.seconds.get() * 1_000).unwrap();
            if let Some(happens) = self.meanwhile.take() {
                happens();
                self.seconds.set(self.seconds.get() + 30);
            }
            Timestamp::from_unix_millis(millis)
        }
    }

    #[test]
    fn what_is_received_while_an_observer_stands_still_has_its_whole_lease() {
        let home = tempfile::tempdir().unwrap();
        let options = Options::default().with_durability(Durability::Process);
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        let worker = Name::new("worker-1").unwrap();
        spool.add_mailbox(&worker, &Settings::default().with_lease_seconds(40)).unwrap();
        for body in ["one", "two"] {
            spool.publish(&Envelope::new(worker.clone(), body)).unwrap();
        }
        let first = spool.receive(&worker, &worker).unwrap().unwrap().lease;
        let mut leases = Leases {
            watch: LeaseWatch::new(Monotonic::ZERO),
            gaps: GapDetector::default(),
            file: home.path().join("observed.json"),
            boot_id: String::new(),
            suspended: Duration::ZERO,
            held: Vec::new(),
        };
        let clock = Slow::default();
        let receives = || drop(spool.receive(&worker, &worker).unwrap().unwrap());
        *clock.meanwhile.borrow_mut() = Some(Box::new(receives));
        assert_eq!(leases.look(&clock, &spool, &NullRecorder).unwrap(), []);
        spool.extend(&first, Duration::from_secs(40)).unwrap();
        clock.seconds.set(45);
        let returned = leases.look(&clock, &spool, &NullRecorder).unwrap();
        assert_eq!(returned, [], "the second was held for 15 s of 40");
        clock.seconds.set(86);
        let returned = leases.look(&clock, &spool, &NullRecorder).unwrap();
        assert_eq!(returned.len(), 2, "they end");
    }
}
