//! The names of message files: a file's name and directory are its state.
//!
//! ```text
//! S2  new/<id>.yaml                                        never delivered, everyday priority
//! S2  front/<id>@p<priority>@e<epoch>@t<not before>.yaml   urgent, given back or delayed
//! S3  cur/<id>@<holder>@<epoch>.yaml                       held
//! S4  done/<id>.yaml                                       settled
//! S5  dead/<id>.yaml, dead/<id>@reason.yaml                dead letter, and why
//! ```
//!
//! An `@` cannot occur in a checked name, so every file name reads in exactly one way. `epoch` is
//! the number of deliveries so far; `not before` is in milliseconds since the Unix epoch, 0 for
//! at once.

use crate::env::Lease;
use crate::message::{MessageId, Name, PRIORITY_MAX};

const EXTENSION: &str = ".yaml";
const REASON: &str = "@reason.yaml";

/// The name in `new/`, `done/` and `dead/`.
pub(super) fn plain(id: &MessageId) -> String {
    format!("{id}{EXTENSION}")
}

pub(super) fn parse_plain(file: &str) -> Option<MessageId> {
    MessageId::new(file.strip_suffix(EXTENSION)?).ok()
}

pub(super) fn reason(id: &MessageId) -> String {
    format!("{id}{REASON}")
}

/// The name, in `dead/`, of a copy that must not count: a second one made by hand, or one that a
/// power cut has damaged.
pub(super) fn double(id: &MessageId) -> String {
    crate::durable::temporary_name(&format!("{id}@double"))
}

/// Whether a name in `dead/` is that of such a copy.
pub(super) fn is_double(file: &str) -> bool {
    file.contains("@double.")
}

pub(super) fn parse_reason(file: &str) -> Option<MessageId> {
    MessageId::new(file.strip_suffix(REASON)?).ok()
}

pub(super) fn lease(id: &MessageId, epoch: u64) -> String {
    format!("{id}@{epoch}{EXTENSION}")
}

pub(super) fn parse_lease(file: &str) -> Option<(MessageId, u64)> {
    let (id, epoch) = file.strip_suffix(EXTENSION)?.split_once('@')?;
    Some((MessageId::new(id).ok()?, number(epoch)?))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrontFile {
    pub(super) id: MessageId,
    pub(super) priority: u8,
    pub(super) epoch: u64,
    /// Not to be received before this, in milliseconds since the Unix epoch.
    pub(super) not_before: u64,
}

impl FrontFile {
    pub(super) fn file(&self) -> String {
        format!("{}@p{}@e{}@t{}{EXTENSION}", self.id, self.priority, self.epoch, self.not_before)
    }

    pub(super) fn parse(file: &str) -> Option<Self> {
        let mut parts = file.strip_suffix(EXTENSION)?.split('@');
        let front = Self {
            id: MessageId::new(parts.next()?).ok()?,
            priority: u8::try_from(number(parts.next()?.strip_prefix('p')?)?).ok()?,
            epoch: number(parts.next()?.strip_prefix('e')?)?,
            not_before: number(parts.next()?.strip_prefix('t')?)?,
        };
        (parts.next().is_none() && front.priority <= PRIORITY_MAX).then_some(front)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldFile {
    pub(super) id: MessageId,
    pub(super) holder: Name,
    pub(super) epoch: u64,
}

impl HeldFile {
    pub(super) fn file(&self) -> String {
        format!("{}@{}@{}{EXTENSION}", self.id, self.holder, self.epoch)
    }

    pub(super) fn parse(file: &str) -> Option<Self> {
        let mut parts = file.strip_suffix(EXTENSION)?.split('@');
        let held = Self {
            id: MessageId::new(parts.next()?).ok()?,
            holder: Name::new(parts.next()?).ok()?,
            epoch: number(parts.next()?)?,
        };
        parts.next().is_none().then_some(held)
    }

    pub(super) fn lease(self, mailbox: &Name) -> Lease {
        Lease { mailbox: mailbox.clone(), id: self.id, holder: self.holder, epoch: self.epoch }
    }
}

impl From<&Lease> for HeldFile {
    fn from(lease: &Lease) -> Self {
        Self { id: lease.id.clone(), holder: lease.holder.clone(), epoch: lease.epoch }
    }
}

/// A number as it is written here: digits without a leading zero, so that one number has one name.
fn number(digits: &str) -> Option<u64> {
    let is_written =
        digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    is_written.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_read_back(id in "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", holder in "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", epoch: u64, priority in 0u8..=9, not_before: u64) {
            let id = MessageId::new(id).unwrap();
            let front = FrontFile { id: id.clone(), priority, epoch, not_before };
            prop_assert_eq!(FrontFile::parse(&front.file()), Some(front));
            let held = HeldFile { id: id.clone(), holder: Name::new(holder).unwrap(), epoch };
            prop_assert!(held.file().len() <= 255);
            prop_assert_eq!(HeldFile::parse(&held.file()), Some(held));
            prop_assert_eq!(parse_plain(&plain(&id)), Some(id.clone()));
            prop_assert_eq!(parse_reason(&reason(&id)), Some(id.clone()));
            prop_assert_eq!(parse_plain(&reason(&id)), None);
            prop_assert_eq!(parse_lease(&lease(&id, epoch)), Some((id, epoch)));
        }

        #[test]
        fn any_name_reads_in_one_way_at_most(file in "[a-z@.0-9pet]{0,30}(\\.yaml)?") {
            let ways = [parse_plain(&file).is_some(), FrontFile::parse(&file).is_some(), HeldFile::parse(&file).is_some(), parse_reason(&file).is_some()];
            prop_assert!(ways.iter().filter(|is| **is).count() <= 1);
        }
    }
}
