//! A view of a queue for dashboards. Nothing here takes a lock, opens a message, or writes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::finish::read_extension;
use super::glance::Glances;
use super::mailbox::read_settings;
use super::place::{self, HeldFile};
use super::{Settings, Spool};
use crate::Result;
use crate::durable::Dir;
use crate::env::{Counts, Lease};
use crate::mailboxes::visit_mailboxes;
use crate::message::{Name, Timestamp};

/// A queue as it is now; made by [`Queue::observe`](crate::Queue::observe). Serializable, and fields are only ever added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueView {
    /// Time of the look.
    pub at: Timestamp,
    /// The mailboxes, by name.
    pub mailboxes: Vec<MailboxView>,
    /// Why a mailbox cannot be read, by its name.
    #[serde(default)]
    pub unreadable: BTreeMap<Name, String>,
    /// Whether the last receive that waited looks five times a second instead of being woken, because the system has no
    /// inotify instance or watch left: raise `fs.inotify.max_user_instances` or `fs.inotify.max_user_watches`.
    #[serde(default)]
    pub is_polling: bool,
}

/// One mailbox of a [`QueueView`]; [`Queue::observe`](crate::Queue::observe) has an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MailboxView {
    /// Name of the mailbox.
    pub name: Name,
    /// Number of messages in each state.
    pub counts: Counts,
    /// When the oldest waiting message was made.
    pub oldest_waiting: Option<Timestamp>,
    /// The held messages, by id.
    pub held: Vec<HeldView>,
    /// Whether the mailbox has refused messages because it was full.
    pub has_refused: bool,
}

/// One held message of a [`MailboxView`]; [`Queue::observe`](crate::Queue::observe) has an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeldView {
    /// Message, holder and delivery.
    pub lease: Lease,
    /// Time of the receive.
    pub since: Timestamp,
    /// When the lease expires unless it is extended, by this machine's wall clock: for people. Expiry itself is decided
    /// by other clocks.
    pub expires_at: Timestamp,
}

impl Spool {
    /// A view of the queue for a dashboard. Opens one mailbox after the other, and keeps none open.
    pub(crate) fn view(&self) -> Result<QueueView> {
        let (glances, at) = (self.glances()?, self.options().clock.wall());
        let mut mailboxes = Vec::new();
        let bad = visit_mailboxes(self.mailboxes()?, |name| {
            mailboxes.push(glances.view(name)?);
            Ok(())
        })?;
        let unreadable = bad.into_iter().map(|bad| (bad.name, bad.error.to_string())).collect();
        Ok(QueueView { at, mailboxes, unreadable, is_polling: self.waits.watcher.is_polling() })
    }
}

impl Glances<'_> {
    fn view(&self, name: &Name) -> Result<MailboxView> {
        let glance = self.at(name, u64::MAX)?;
        let home = self.home(name)?;
        let mut counts = Counts::default();
        (counts.queued, counts.delayed) = (glance.waiting, glance.delayed);
        (counts.acked, counts.dead) = (glance.held, glance.dead);
        counts.settled =
            self.count(&home, "done", u64::MAX, |file| place::parse_plain(file).is_some())?;
        let oldest = glance.oldest_millis.and_then(|millis| i64::try_from(millis).ok());
        Ok(MailboxView {
            name: name.clone(),
            counts,
            oldest_waiting: oldest.map(Timestamp::from_unix_millis),
            held: self.held(name, &home)?,
            has_refused: glance.has_refused,
        })
    }

    fn held(&self, name: &Name, home: &Dir) -> Result<Vec<HeldView>> {
        let Some(cur) = self.child(home, "cur")? else { return Ok(Vec::new()) };
        let mut found: Vec<HeldFile> = Vec::new();
        cur.read_once(|file| {
            found.extend(HeldFile::parse(file));
            ControlFlow::Continue(())
        })?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        found.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let usual = read_settings(home)
            .as_ref()
            .map_or_else(|_| Settings::default().lease_duration(), Settings::lease_duration);
        let leases = self.child(home, "lease")?;
        let mut held = Vec::new();
        for message in found {
            // It may have been settled since it was listed.
            let Some(stat) = cur.stat(&message.file())? else { continue };
            let since = stat.changed_at();
            let extension = match &leases {
                Some(leases) => read_extension(leases, &message)?,
                None => None,
            };
            let expires_at = match (extension, &leases) {
                (Some(extension), Some(leases)) => {
                    let file = place::lease(&message.id, message.epoch);
                    let from = leases.stat(&file)?.map_or(since, |it| it.modified_at());
                    from.plus(Duration::from_secs(extension.lease_seconds))
                }
                _ => since.plus(usual),
            };
            held.push(HeldView { lease: message.lease(name), since, expires_at });
        }
        Ok(held)
    }
}
