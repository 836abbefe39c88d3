//! Ids of waiting messages in the order of receiving, in little memory: a deep mailbox has a million of them.
//! A UUID as this library writes it is kept as its sixteen bytes, which sort as its text does.

use std::collections::VecDeque;

use crate::message::MessageId;

/// How many bytes an id takes here, if it is a UUID.
const ENTRY_BYTES: usize = 24;
const _: () = assert!(size_of::<ListingEntry>() <= ENTRY_BYTES);

#[derive(Clone, Debug, PartialEq, Eq)]
enum ListingEntry {
    Uuid([u8; 16]),
    Other(MessageId),
}

impl ListingEntry {
    fn new(id: MessageId) -> Self {
        match uuid::Uuid::try_parse(id.as_str()) {
            // There are other ways to write the same one, which are other ids.
            Ok(uuid) if is_written_so(&uuid, &id) => Self::Uuid(uuid.into_bytes()),
            _ => Self::Other(id),
        }
    }

    fn id(self) -> MessageId {
        match self {
            Self::Uuid(bytes) => MessageId::from_uuid(bytes),
            Self::Other(id) => id,
        }
    }
}

fn is_written_so(uuid: &uuid::Uuid, id: &MessageId) -> bool {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    uuid.hyphenated().encode_lower(&mut text) == id.as_str()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IdListing(VecDeque<ListingEntry>);

impl IdListing {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, id: MessageId) {
        self.0.push_back(ListingEntry::new(id));
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<MessageId> {
        self.0.remove(index).map(ListingEntry::id)
    }

    pub(super) fn skip(&mut self, count: usize) {
        self.0.drain(..count.min(self.0.len()));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = MessageId> {
        self.0.iter().cloned().map(ListingEntry::id)
    }

    pub(super) fn into_ids(self) -> impl Iterator<Item = MessageId> {
        self.0.into_iter().map(ListingEntry::id)
    }
}

/// A listing that is being made: what came in any order, by age.
#[derive(Debug, Default)]
pub(super) struct UnsortedIds {
    /// UUIDv7: their time comes first in them.
    timed: Vec<[u8; 16]>,
    others: Vec<MessageId>,
}

impl UnsortedIds {
    pub(super) fn push(&mut self, id: MessageId) {
        match ListingEntry::new(id) {
            ListingEntry::Uuid(bytes) if bytes[6] >> 4 == 7 => self.timed.push(bytes),
            other => self.others.push(other.id()),
        }
    }

    /// Oldest first, and by id what is equally old. `made_at` tells when another message was made, in
    /// milliseconds since the Unix epoch.
    pub(super) fn sorted<E>(
        self,
        mut made_at: impl FnMut(&MessageId) -> Result<u64, E>,
    ) -> Result<IdListing, E> {
        let Self { mut timed, others } = self;
        timed.sort_unstable();
        if others.is_empty() {
            return Ok(IdListing(timed.into_iter().map(ListingEntry::Uuid).collect()));
        }
        let mut aged = Vec::with_capacity(others.len());
        for id in others {
            aged.push((made_at(&id)?, id));
        }
        aged.sort_unstable();
        let mut all = VecDeque::with_capacity(timed.len() + aged.len());
        let (mut timed, mut aged) = (timed.into_iter().peekable(), aged.into_iter().peekable());
        loop {
            let is_timed = match (timed.peek(), aged.peek()) {
                (Some(bytes), Some((at, id))) => {
                    (millis(bytes), &MessageId::from_uuid(*bytes)) <= (*at, id)
                }
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return Ok(IdListing(all)),
            };
            let next = match is_timed {
                true => timed.next().map(ListingEntry::Uuid),
                false => aged.next().map(|(_, id)| ListingEntry::new(id)),
            };
            all.extend(next);
        }
    }
}

fn millis(bytes: &[u8; 16]) -> u64 {
    bytes[..6].iter().fold(0, |millis, b| millis << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::new(text).unwrap()
    }

    #[test]
    fn every_id_comes_back_as_it_was_written() {
        let generated = MessageId::generate();
        let texts = [
            generated.as_str(),
            // A UUID of another version, in capitals, without dashes; and no UUIDs.
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            "0199AA10-4C5E-7B3A-A1B2-3C4D5E6F7081",
            "0199aa104c5e7b3aa1b23c4d5e6f7081",
            "r-0123456789",
            "7",
        ];
        let mut listing = IdListing::default();
        texts.iter().for_each(|text| listing.push(id(text)));
        assert_eq!(listing.iter().map(String::from).collect::<Vec<_>>(), texts);
        assert_eq!(listing.remove(1).unwrap().as_str(), texts[1]);
        listing.skip(3);
        assert_eq!(listing.len(), 2);
        assert_eq!(listing.into_ids().map(String::from).collect::<Vec<_>>(), texts[4..]);
    }

    /// Against the plain way: all ids with their times, sorted.
    #[test]
    fn the_order_is_that_of_time_and_then_of_the_id() {
        let mut ids: Vec<MessageId> = (0..200).map(|_| MessageId::generate()).collect();
        let first = ids[0].unix_millis().unwrap();
        ids.extend((0..50).map(|number| id(&format!("task-{number}"))));
        ids.extend(
            ["0199AA10-4C5E-7B3A-A1B2-3C4D5E6F7081", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"]
                .map(id),
        );
        let made_at = |id: &MessageId| {
            let spread =
                id.as_str().bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte))
                    % 9;
            id.unix_millis().unwrap_or(first + spread)
        };
        let mut aged: Vec<(u64, MessageId)> =
            ids.iter().map(|id| (made_at(id), id.clone())).collect();
        aged.sort_unstable();
        ids.reverse();
        let mut unsorted = UnsortedIds::default();
        ids.into_iter().for_each(|id| unsorted.push(id));
        let sorted = unsorted.sorted(|id| Ok::<_, ()>(made_at(id))).unwrap();
        let expected: Vec<MessageId> = aged.into_iter().map(|(_, id)| id).collect();
        assert_eq!(sorted.iter().collect::<Vec<_>>(), expected);
    }
}
