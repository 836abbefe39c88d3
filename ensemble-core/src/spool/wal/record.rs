//! The records of the log, and how they are read after a power cut.
//!
//! ```text
//! %wal publish <mailbox> <place> <bytes> <check>\n<the whole file>\n
//! %wal settle <mailbox> <id> 0 <check>\n\n
//! %wal gone <mailbox> <id> 0 <check>\n\n
//! ```
//!
//! `place` is where the message was stored, as `new/<file>` or `front/<file>`. `check` is a prefix
//! of a digest over the segment's salt, the words before it and the content. A sender does not know
//! the salt of the segment that will hold its message. So a fake record inside a message is never
//! read as one, even if the record around it was cut.

use crate::message::{Digest, ENVELOPE_BYTES_MAX, MessageId, Name};
use crate::spool::place::{self, Front};

/// Prefix of a record.
const MARK: &[u8] = b"%wal ";
/// Longest first line of a record, in bytes.
const LINE_BYTES_MAX: usize = 400;
/// Hexadecimal digits of a check.
const CHECK_DIGITS: usize = 16;

/// Kind of change of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// It was stored in this place with this content.
    Published { place: Place, content: Vec<u8> },
    /// Its holder has settled it.
    Settled,
    /// It was taken out of the queue for good.
    Gone,
}

/// First place of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    New,
    Front(Front),
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) mailbox: Name,
    pub(crate) id: MessageId,
    pub(crate) happened: Happened,
}

impl Place {
    fn path(&self, id: &MessageId) -> String {
        match self {
            Self::New => format!("new/{}", place::plain(id)),
            Self::Front(front) => format!("front/{}", front.file()),
        }
    }

    fn parse(path: &str) -> Option<(Self, MessageId)> {
        if let Some(file) = path.strip_prefix("new/") {
            return Some((Self::New, place::parse_plain(file)?));
        }
        let front = Front::parse(path.strip_prefix("front/")?)?;
        let id = front.id.clone();
        Some((Self::Front(front), id))
    }
}

/// The bytes of a `publish` record.
pub(crate) fn published(
    salt: &str,
    mailbox: &Name,
    id: &MessageId,
    place: &Place,
    content: &[u8],
) -> Vec<u8> {
    let words = format!("publish {mailbox} {} {}", place.path(id), content.len());
    bytes(salt, &words, content)
}

/// The bytes of a `settle` record.
pub(crate) fn settled(salt: &str, mailbox: &Name, id: &MessageId) -> Vec<u8> {
    bytes(salt, &format!("settle {mailbox} {id} 0"), &[])
}

/// The bytes of a `gone` record.
pub(crate) fn gone(salt: &str, mailbox: &Name, id: &MessageId) -> Vec<u8> {
    bytes(salt, &format!("gone {mailbox} {id} 0"), &[])
}

fn bytes(salt: &str, words: &str, content: &[u8]) -> Vec<u8> {
    let check = check(salt, words, content);
    let room = MARK.len() + words.len() + check.len() + content.len() + 3;
    let mut bytes = Vec::with_capacity(room);
    for part in [MARK, words.as_bytes(), b" ", check.as_bytes(), b"\n", content, b"\n"] {
        bytes.extend_from_slice(part);
    }
    bytes
}

fn check(salt: &str, words: &str, content: &[u8]) -> String {
    Digest::of_parts(&[salt.as_bytes(), words.as_bytes(), content]).short(CHECK_DIGITS)
}

/// All whole records in the order in which they were appended, and the number of bytes outside of
/// records.
pub(crate) fn read_all(salt: &str, mut log: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut lost) = (Vec::new(), 0);
    while !log.is_empty() {
        if let Some((record, bytes)) = read_one(salt, log) {
            records.push(record);
            log = &log[bytes..];
            continue;
        }
        // A partial record of a killed process, or the torn end after a power cut.
        let next = log[1..].windows(MARK.len()).position(|mark| mark == MARK);
        let skipped = next.map_or(log.len(), |at| at + 1);
        lost += skipped;
        log = &log[skipped..];
    }
    (records, lost)
}

/// The record at the beginning of `log`, and its length.
fn read_one(salt: &str, log: &[u8]) -> Option<(Record, usize)> {
    let line = log.strip_prefix(MARK)?;
    let end = line.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n')?;
    let (words, told) = std::str::from_utf8(&line[..end]).ok()?.rsplit_once(' ')?;
    let mut parts = words.split(' ');
    let (kind, mailbox, what) = (parts.next()?, parts.next()?, parts.next()?);
    let length: usize = parts.next()?.parse().ok()?;
    if parts.next().is_some() || length > ENVELOPE_BYTES_MAX {
        return None;
    }
    let rest = &line[end + 1..];
    let content = rest.get(..length)?;
    if rest.get(length) != Some(&b'\n') || check(salt, words, content) != told {
        return None;
    }
    let mailbox = Name::new(mailbox).ok()?;
    let plain = || MessageId::new(what).ok();
    let (id, happened) = match kind {
        "publish" => {
            let (place, id) = Place::parse(what)?;
            (id, Happened::Published { place, content: content.to_vec() })
        }
        "settle" => (plain()?, Happened::Settled),
        "gone" => (plain()?, Happened::Gone),
        _ => return None,
    };
    Some((Record { mailbox, id, happened }, MARK.len() + end + 1 + length + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SALT: &str = "0123456789abcdef";

    fn names() -> (Name, MessageId) {
        (Name::new("work").unwrap(), MessageId::new("m-1").unwrap())
    }

    fn stored(content: &[u8]) -> (Vec<u8>, Record) {
        let (mailbox, id) = names();
        let front = Front { id: id.clone(), priority: 3, epoch: 0, not_before: 0 };
        let place = Place::Front(front);
        let bytes = published(SALT, &mailbox, &id, &place, content);
        let happened = Happened::Published { place, content: content.to_vec() };
        (bytes, Record { mailbox, id, happened })
    }

    #[test]
    fn records_round_trip_in_order() {
        let (mailbox, id) = names();
        let new = published(SALT, &mailbox, &id, &Place::New, b"the text");
        let log = [new, settled(SALT, &mailbox, &id), gone(SALT, &mailbox, &id)].concat();
        let (records, lost) = read_all(SALT, &log);
        let kinds: Vec<_> = records.into_iter().map(|record| record.happened).collect();
        let content = b"the text".to_vec();
        let stored = Happened::Published { place: Place::New, content };
        assert_eq!((kinds, lost), (vec![stored, Happened::Settled, Happened::Gone], 0));
        assert_eq!(read_all("another salt", &log).0, []);
    }

    #[test]
    fn forged_record_in_a_message_is_not_read() {
        let (mailbox, id) = names();
        let forged = settled("a guess", &mailbox, &id);
        let (bytes, record) = stored(&forged);
        assert_eq!(read_all(SALT, &bytes).0, [record]);
        // The outer record is cut right before the inner one.
        let at = bytes.len() - forged.len() - 1;
        assert_eq!(read_all(SALT, &bytes[at..]), (vec![], bytes.len() - at));
    }

    proptest! {
        #[test]
        fn whole_records_are_found_after_torn_ones(
            content in proptest::collection::vec(any::<u8>(), 0..300),
            cut in 0usize..300,
            noise in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let (bytes, record) = stored(&content);
            let cut = cut.min(bytes.len() - 1);
            let log = [&bytes[..cut], &bytes, &noise, &bytes].concat();
            let (records, lost) = read_all(SALT, &log);
            prop_assert_eq!(records, vec![record.clone(), record]);
            prop_assert_eq!(lost, cut + noise.len());
        }

        #[test]
        fn changed_records_are_rejected(at in 0usize..60, to: u8) {
            let (bytes, record) = stored(b"the text of it");
            let mut changed = bytes.clone();
            let at = at.min(bytes.len() - 2);
            changed[at] = to;
            let expected = if changed == bytes { vec![record] } else { vec![] };
            prop_assert_eq!(read_all(SALT, &changed).0, expected);
        }
    }
}
