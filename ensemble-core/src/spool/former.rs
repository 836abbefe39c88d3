//! Former holders: agents whose delivery of an unfinished message has ended.
//!
//! ```text
//! a delivery ends by   its mailbox                lease/<id>@<E>.yaml afterwards
//! release, expire      the holder's own           is removed: the mailbox's name is that of the holder
//! release, expire      another, such as a group   has `holder`, until the message is settled or dead
//! a plain `mv`, or     any                        is swept, or missing: the holder is not known
//! on a full disk
//! ```
//!
//! The side file is written before the rename that ends the delivery. A crash in between leaves a held message
//! whose side file says the same as before, and its holder.

use std::sync::PoisonError;

use super::finish::{LeaseExtension, read_extension};
use super::mailbox::{MessageLocation, OpenMailbox};
use super::place::{self, HeldFile};
use super::{Spool, State};
use crate::Result;
use crate::durable::Durability;
use crate::message::{MessageId, Name};

/// An unfinished message that an agent has held before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerHolding {
    pub id: MessageId,
    pub state: State,
    pub holder: Name,
    pub epoch: u64,
}

impl FormerHolding {
    pub const fn new(id: MessageId, state: State, holder: Name, epoch: u64) -> Self {
        Self { id, state, holder, epoch }
    }
}

/// # Former holders
impl Spool {
    /// Unfinished messages of a mailbox whose delivery to another agent than the mailbox's own has ended.
    pub fn former_holders(&self, mailbox: &Name) -> Result<Vec<FormerHolding>> {
        let mailbox = self.mailbox(mailbox)?;
        if has_no_side_file(&mailbox) {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for (id, epoch) in side_files(&mailbox)? {
            let Some(holder) = holder_of(&mailbox, &id, epoch)? else { continue };
            let state = match mailbox.locate(&id)? {
                Some(location @ MessageLocation::Front(_)) => State::from(&location),
                Some(MessageLocation::Cur(held)) if held.epoch != epoch => {
                    State::Acked { holder: held.holder, epoch: held.epoch }
                }
                _ => continue,
            };
            found.push(FormerHolding { id, state, holder, epoch });
        }
        Ok(found)
    }

    /// Before a delivery ends without a settle: stores its holder, unless that is the mailbox's own agent.
    pub(super) fn remember_holder(&self, mailbox: &OpenMailbox, held: &HeldFile) -> Result<()> {
        if held.holder == mailbox.name {
            return Ok(());
        }
        let usual = || mailbox.settings().map(|settings| settings.lease_seconds);
        let mut extension = match read_extension(&mailbox.lease, held)? {
            Some(extension) => extension,
            None => LeaseExtension { sequence: 0, lease_seconds: usual()?, holder: None },
        };
        extension.holder = Some(held.holder.clone());
        let file = place::lease(&held.id, held.epoch);
        mailbox.write_page(&mailbox.lease, &file, &extension, Durability::Process)
    }
}

/// Whether the side file of a delivery is needed: its lease runs, or it names a former holder of an unfinished
/// message.
pub(super) fn is_needed(mailbox: &OpenMailbox, id: &MessageId, epoch: u64) -> Result<bool> {
    Ok(match mailbox.locate(id)? {
        Some(MessageLocation::Cur(held)) if held.epoch == epoch => true,
        Some(MessageLocation::Cur(_) | MessageLocation::Front(_)) => {
            holder_of(mailbox, id, epoch)?.is_some()
        }
        Some(MessageLocation::New | MessageLocation::Done | MessageLocation::Dead) | None => false,
    })
}

pub(super) fn side_files(mailbox: &OpenMailbox) -> Result<Vec<(MessageId, u64)>> {
    mailbox.lease.list(place::parse_lease)
}

fn holder_of(mailbox: &OpenMailbox, id: &MessageId, epoch: u64) -> Result<Option<Name>> {
    // The holder's name does not matter: the side file is found by id and epoch.
    let held = HeldFile { id: id.clone(), holder: mailbox.name.clone(), epoch };
    Ok(read_extension(&mailbox.lease, &held)?.and_then(|extension| extension.holder))
}

/// Whether there are no side files. The directory is listed only if its time stamp has changed.
fn has_no_side_file(mailbox: &OpenMailbox) -> bool {
    let Ok(stamp) = mailbox.lease.changed_ns() else { return false };
    let mut known = mailbox.extensions.lock().unwrap_or_else(PoisonError::into_inner);
    known.holds(stamp) || (known.learn(&mailbox.lease, stamp).is_ok() && known.holds(stamp))
}
