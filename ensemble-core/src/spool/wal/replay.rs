//! Repairs files that a power cut has torn, from the log.
//!
//! | file found for a logged message | published | settled | gone |
//! |---|---|---|---|
//! | nothing | written where it was stored | written to `done/` | nothing |
//! | a whole file in `new/`, `front/`, `cur/` | nothing | moved to `done/` | nothing |
//! | a torn one there | rewritten there | written to `done/` | nothing |
//! | a whole one in `done/`, `dead/` | nothing | nothing | nothing |
//! | a torn one there | rewritten there | rewritten there | nothing |
//!
//! The last record of a message counts. A settled message whose content is not in the log is moved
//! as it is. A replay is idempotent and may be killed anywhere: the segments are removed last.

use std::collections::{BTreeMap, HashMap};

use super::record::{Happened, Place, Record, read_all};
use super::rotate::remove_strays;
use super::{UNKNOWN, boot, find_dir, segments, turn};
use crate::durable::segment::{
    Segment, SegmentHeader, SegmentState, parse_segment_name, segment_name,
};
use crate::durable::{self, Dir, Durability, Moved};
use crate::event_log::types;
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, MessageId, Name};
use crate::spool::mailbox::{Location, Mailbox};
use crate::spool::place::{self, Front, Held};
use crate::spool::{Finding, Repair, Spool};
use crate::{Error, Result};

/// Largest segment that is read, in bytes: far above the size of a full one.
const SEGMENT_BYTES_MAX: usize = 1 << 30;

/// Result of a replay of the write-ahead log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// Segments that were read and removed.
    pub segments: usize,
    /// Messages that were written again.
    pub restored: usize,
    /// Settled messages that had reappeared and were moved to `done/`.
    pub settled: usize,
    /// Bytes outside of whole records: ends that no process was told were stored.
    pub lost_bytes: usize,
}

/// Target state of a message.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    content: Option<(Place, Vec<u8>)>,
    settled: bool,
}

type Wishes = BTreeMap<Name, BTreeMap<MessageId, Wish>>;

/// The target states that follow from the records in their order.
fn wishes(records: impl IntoIterator<Item = Record>) -> Wishes {
    let mut wishes = Wishes::new();
    for Record { mailbox, id, happened } in records {
        let of_mailbox = wishes.entry(mailbox).or_default();
        match happened {
            Happened::Published { place, content } => {
                let wish = Wish { content: Some((place, content)), settled: false };
                of_mailbox.insert(id, wish);
            }
            Happened::Settled => of_mailbox.entry(id).or_default().settled = true,
            Happened::Gone => drop(of_mailbox.remove(&id)),
        }
    }
    wishes
}

/// Repair of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Nothing,
    /// Write it where it was stored.
    Store,
    /// Overwrite the file that was found.
    Mend,
    /// Move it to `done/`.
    Settle,
    /// Write it to `done/`, and remove the torn file.
    SettleAnew,
}

/// The needed repair. `found` states whether the message is in a final place, and whether its file
/// is whole.
fn deed(found: Option<(bool, bool)>, wish: &Wish) -> Deed {
    match (found, wish.settled, wish.content.is_some()) {
        (None, _, false) | (Some((true, true)), ..) | (Some((false, true)), false, _) => {
            Deed::Nothing
        }
        (None, false, true) => Deed::Store,
        (None, true, true) | (Some((false, false)), true, true) => Deed::SettleAnew,
        (Some((false, true)), true, _) | (Some((false, false)), true, false) => Deed::Settle,
        (Some((_, false)), false, true) | (Some((true, false)), true, true) => Deed::Mend,
        (Some((_, false)), false, false) | (Some((true, false)), true, false) => Deed::Nothing,
    }
}

/// Replays the log if the machine was restarted since it was written.
pub(in crate::spool) fn replay_if_restarted(spool: &Spool) -> Result<()> {
    let dir = match find_dir(&spool.queue_dir()?) {
        Ok(Some(dir)) => dir,
        Ok(None) => return Ok(()),
        // Another user's log: a process that may not read it cannot replay it.
        Err(error) if error.io_kind() == Some(std::io::ErrorKind::PermissionDenied) => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let now = boot(&spool.options);
    let is_old = |segment: &Segment| segment.header.boot != now || now == UNKNOWN;
    if segments(&dir)?.iter().any(is_old) {
        let _turn = turn(&dir, spool.options.lock_patience)?;
        // Another process may have replayed it meanwhile.
        let all = segments(&dir)?;
        if all.iter().any(is_old) {
            replay(spool, &dir, &all)?;
        }
    }
    Ok(())
}

/// # Replay the write-ahead log
impl Spool {
    /// Checks for segments that cannot be appended to or removed. With `repair` the log is replayed
    /// in any case: a disk may have lost power without the machine.
    pub(in crate::spool) fn check_log(&self, repair: bool) -> Result<Vec<Finding>> {
        let Some(dir) = find_dir(&self.queue_dir()?)? else { return Ok(Vec::new()) };
        let mut findings = Vec::new();
        for name in dir.names()?.iter().filter(|name| parse_segment_name(name).is_some()) {
            let segment = parse_segment_name(name).map(|number| Segment::open(&dir, number));
            let (problem, repair) = match segment.transpose()?.flatten().map(|s| s.state()) {
                Some(Some(SegmentState::Kept)) => {
                    ("the file system failed to sync its changes", Repair::Replay)
                }
                Some(Some(_)) => continue,
                Some(None) | None => ("is not a segment of a write-ahead log", Repair::None),
            };
            let path = format!("{}/{}", super::WAL, name.escape_debug());
            findings.push(Finding { path, problem: problem.to_owned(), repair, repaired: false });
        }
        let is_replayed = repair && self.replay().is_ok();
        for found in findings.iter_mut().filter(|found| found.repair == Repair::Replay) {
            found.repaired = is_replayed;
        }
        Ok(findings)
    }

    /// Compares every message in the write-ahead log with its file, repairs damage of a power cut,
    /// and empties the log. Opening a queue does this after a restart of the machine. Call it only
    /// if a disk lost power and the machine did not.
    ///
    /// # Errors
    /// The disk failed, or a process is suspended in the middle of a change: the log stays.
    pub fn replay(&self) -> Result<Replayed> {
        let Some(dir) = find_dir(&self.queue_dir()?)? else { return Ok(Replayed::default()) };
        let _turn = turn(&dir, self.options.lock_patience)?;
        replay(self, &dir, &segments(&dir)?)
    }
}

/// Replays under the lock. On a queue in use no process is inside a segment once all are shut.
fn replay(spool: &Spool, dir: &Dir, all: &[Segment]) -> Result<Replayed> {
    let mut replayed = Replayed::default();
    let is_kept = |segment: &Segment| segment.state() == Some(SegmentState::Kept);
    // After a failed sync the data is only in memory, although it reads as written: write it again.
    let anew = all.iter().any(is_kept);
    let mut records = Vec::new();
    for segment in all {
        if !is_kept(segment) {
            segment.set_state(SegmentState::Shut, dir)?;
        }
        segment.wait_until_left(dir, spool.options.lock_patience)?;
        let content = dir.read(&segment_name(segment.number), SEGMENT_BYTES_MAX)?;
        let content = content.unwrap_or_default();
        let begin = SegmentHeader::parse(&content).map_or(content.len(), |(_, begin)| begin);
        let (read, lost) = read_all(&segment.header.salt, &content[begin..]);
        records.extend(read);
        replayed.lost_bytes += lost;
        replayed.segments += 1;
    }
    for (mailbox, wishes) in wishes(records) {
        match spool.mailbox(&mailbox) {
            Ok(mailbox) => grant(spool, &mailbox, wishes, anew, &mut replayed)?,
            // The mailbox was removed, with all its messages.
            Err(Error::NoMailbox { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    dir.sync_file_system()?;
    all.iter().try_for_each(|segment| segment.remove(dir))?;
    remove_strays(dir)?;
    if replayed.restored + replayed.settled > 0 {
        let Replayed { segments, restored, settled, .. } = replayed;
        let data =
            serde_json::json!({ "segments": segments, "restored": restored, "settled": settled });
        spool.options.recorder.record(types::QUEUE_REPLAYED, "queue", data);
    }
    Ok(replayed)
}

/// Places of a mailbox's messages; for one in several places, the last in its life cycle.
fn locations(mailbox: &Mailbox) -> Result<HashMap<MessageId, Location>> {
    let mut found = HashMap::new();
    for file in mailbox.new.names()? {
        found.extend(place::parse_plain(&file).map(|id| (id, Location::New)));
    }
    for file in mailbox.front.names()? {
        found.extend(Front::parse(&file).map(|front| (front.id.clone(), Location::Front(front))));
    }
    for file in mailbox.cur.names()? {
        found.extend(Held::parse(&file).map(|held| (held.id.clone(), Location::Cur(held))));
    }
    for (dir, location) in [(&mailbox.dead, Location::Dead), (&mailbox.done, Location::Done)] {
        for file in dir.names()? {
            found.extend(place::parse_plain(&file).map(|id| (id, location.clone())));
        }
    }
    Ok(found)
}

fn is_whole(mailbox: &Mailbox, id: &MessageId, location: &Location) -> Result<bool> {
    let (dir, file) = mailbox.file_at(id, location);
    match dir.read(&file, ENVELOPE_BYTES_MAX) {
        Ok(content) => Ok(content
            .is_some_and(|content| Envelope::decode(&content, &dir.path().join(file)).is_ok())),
        Err(Error::Malformed { .. } | Error::TooLarge { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Carries out a repair. It holds the mailbox's lock, so that no process stores the same id and no
/// message moves backwards.
fn grant(
    spool: &Spool,
    mailbox: &Mailbox,
    wishes: BTreeMap<MessageId, Wish>,
    anew: bool,
    replayed: &mut Replayed,
) -> Result<()> {
    let _gate = mailbox.close_gate(spool.options.lock_patience)?;
    let locations = locations(mailbox)?;
    for (id, wish) in wishes {
        let location = locations.get(&id);
        let whole = location.map(|at| is_whole(mailbox, &id, at)).transpose()?;
        let is_over = matches!(location, Some(Location::Done | Location::Dead));
        let mut deed = deed(whole.map(|whole| (is_over, whole)), &wish);
        if anew && deed == Deed::Nothing && location.is_some() && wish.content.is_some() {
            deed = Deed::Mend;
        }
        let at = location.map(|location| mailbox.file_at(&id, location));
        let done = place::plain(&id);
        let content = wish.content.as_ref().map_or(&[][..], |(_, content)| content);
        match (deed, at) {
            (Deed::Nothing, _) | (Deed::Mend | Deed::Settle, None) => continue,
            (Deed::Store, _) => {
                let (dir, file) = stored_at(mailbox, &id, wish.content.as_ref().map(|c| &c.0));
                write_new(spool, mailbox, dir, &file, content)?;
            }
            (Deed::Mend, Some((dir, file))) => {
                let modes = spool.options.modes;
                dir.replace(&file, content, &mailbox.tmp, modes, Durability::Process)?;
            }
            (Deed::Settle, Some((dir, file))) => {
                dir.move_new(&file, &mailbox.done, &done)?;
            }
            (Deed::SettleAnew, at) => {
                write_new(spool, mailbox, &mailbox.done, &done, content)?;
                if let Some((dir, file)) = at {
                    dir.remove(&file)?;
                }
            }
        }
        match deed {
            Deed::Settle => replayed.settled += 1,
            _ => replayed.restored += 1,
        }
    }
    Ok(())
}

fn stored_at<'a>(mailbox: &'a Mailbox, id: &MessageId, at: Option<&Place>) -> (&'a Dir, String) {
    match at {
        Some(Place::Front(front)) => (&mailbox.front, front.file()),
        Some(Place::New) | None => (&mailbox.new, place::plain(id)),
    }
}

fn write_new(
    spool: &Spool,
    mailbox: &Mailbox,
    dir: &Dir,
    file: &str,
    content: &[u8],
) -> Result<()> {
    let tmp = durable::temporary_name("replayed");
    mailbox.tmp.write_new(&tmp, content, spool.options.modes, Durability::Process)?;
    let moved = mailbox.tmp.move_new(&tmp, dir, file);
    if !matches!(moved, Ok(Moved::Done)) {
        let _ = mailbox.tmp.remove(&tmp);
    }
    moved.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, happened: Happened) -> Record {
        let id = MessageId::new(id).unwrap();
        Record { mailbox: Name::new("work").unwrap(), id, happened }
    }

    fn stored(content: &[u8]) -> Happened {
        Happened::Published { place: Place::New, content: content.to_vec() }
    }

    fn wish(content: Option<&[u8]>, settled: bool) -> Wish {
        Wish { content: content.map(|content| (Place::New, content.to_vec())), settled }
    }

    #[test]
    fn last_record_of_a_message_counts() {
        let records = [
            record("settled", stored(b"1")),
            record("again", stored(b"1")),
            record("gone", stored(b"1")),
            record("settled", Happened::Settled),
            record("again", Happened::Settled),
            record("gone", Happened::Gone),
            record("again", stored(b"2")),
            record("older", Happened::Settled),
        ];
        let wishes = wishes(records).remove(&Name::new("work").unwrap()).unwrap();
        let told: Vec<_> = wishes.into_iter().map(|(id, wish)| (id.to_string(), wish)).collect();
        let expected = [
            ("again", wish(Some(b"2"), false)),
            ("older", wish(None, true)),
            ("settled", wish(Some(b"1"), true)),
        ];
        assert_eq!(told, expected.map(|(id, wish)| (id.to_owned(), wish)));
    }

    #[test]
    fn every_row_of_the_table() {
        let (published, settled, no_text) =
            (wish(Some(b"x"), false), wish(Some(b"x"), true), wish(None, true));
        let (waits_whole, waits_torn) = (Some((false, true)), Some((false, false)));
        let (over_whole, over_torn) = (Some((true, true)), Some((true, false)));
        let rows = [
            (None, [Deed::Store, Deed::SettleAnew, Deed::Nothing]),
            (waits_whole, [Deed::Nothing, Deed::Settle, Deed::Settle]),
            (waits_torn, [Deed::Mend, Deed::SettleAnew, Deed::Settle]),
            (over_whole, [Deed::Nothing; 3]),
            (over_torn, [Deed::Mend, Deed::Mend, Deed::Nothing]),
        ];
        for (found, expected) in rows {
            assert_eq!([&published, &settled, &no_text].map(|wish| deed(found, wish)), expected);
        }
    }
}
