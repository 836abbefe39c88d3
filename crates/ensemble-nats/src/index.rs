//! A reader's copy of one mailbox's records, kept up to date by the watch, in the order of
//! receiving. It may lag behind the server; the compare-and-set that takes a message decides.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;

use super::record::{MessageRecord, MessageStage, StoredVersion};
use ensemble_core::env::Counts;
use ensemble_core::mail::{ReceiveOrder, is_in_line, receive_order};
use ensemble_core::message::MessageId;

/// Most bytes of content that one mailbox keeps in memory; the rest is fetched when needed.
const KEPT_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Clone, Debug)]
pub(super) struct IndexEntry {
    pub(super) seq: u64,
    pub(super) record: MessageRecord,
    /// The content, while the message is queued and there is room for it.
    pub(super) payload: Option<Bytes>,
    /// When this version was stored, in milliseconds since the Unix epoch.
    pub(super) at: u64,
    due: u64,
}

#[derive(Debug, Default)]
pub(super) struct MailboxIndex {
    entries: HashMap<MessageId, IndexEntry>,
    ready: BTreeSet<ReceiveOrder<MessageId>>,
    delayed: BTreeSet<(u64, MessageId)>,
    kept_bytes: usize,
    /// The last sequence in the stream that the watch has delivered.
    pub(super) seen_seq: u64,
    pub(super) heard: u64,
}

impl MailboxIndex {
    /// Applies a version of a message; one older than the known version changes nothing.
    pub(super) fn apply(
        &mut self,
        id: MessageId,
        stored: StoredVersion<()>,
        content: Option<Bytes>,
    ) {
        if !self.is_news(&id, stored.seq) {
            return;
        }
        self.forget(&id);
        let (seq, at) = (stored.seq, stored.at);
        let mut entry = IndexEntry { seq, record: stored.record, payload: None, at, due: 0 };
        if let MessageStage::Queued { due } = entry.record.place {
            entry.due = due;
            if due == 0 {
                self.ready.insert(order(&id, &entry.record, due));
            } else {
                self.delayed.insert((due, id.clone()));
            }
            entry.payload =
                content.filter(|content| self.kept_bytes + content.len() <= KEPT_BYTES_MAX);
            self.kept_bytes += entry.payload.as_ref().map_or(0, Bytes::len);
        }
        self.entries.insert(id, entry);
    }

    /// As [`MailboxIndex::apply`], for a version that this connection has written.
    pub(super) fn apply_own(&mut self, id: MessageId, stored: &StoredVersion) {
        let bare = StoredVersion {
            seq: stored.seq,
            record: stored.record.clone(),
            payload: (),
            at: stored.at,
        };
        self.apply(id, bare, Some(stored.payload.clone()));
    }

    pub(super) fn is_news(&self, id: &MessageId, seq: u64) -> bool {
        self.entries.get(id).is_none_or(|known| known.seq < seq)
    }

    pub(super) fn forget(&mut self, id: &MessageId) {
        let Some(old) = self.entries.remove(id) else { return };
        self.kept_bytes -= old.payload.as_ref().map_or(0, Bytes::len);
        self.ready.remove(&order(id, &old.record, old.due));
        self.delayed.remove(&(old.due, id.clone()));
    }

    /// As [`MailboxIndex::forget`], unless a newer version is known.
    pub(super) fn forget_version(&mut self, id: &MessageId, seq: u64) {
        if self.entries.get(id).is_some_and(|entry| entry.seq == seq) {
            self.forget(id);
        }
    }

    /// The next message to receive. It leaves `skip` others to competing consumers, and none of
    /// `passed` is returned.
    pub(super) fn next(
        &mut self,
        now_millis: u64,
        skip: usize,
        passed: &HashSet<MessageId>,
    ) -> Option<(MessageId, IndexEntry)> {
        while let Some((due, id)) = self.delayed.first().cloned() {
            if due > now_millis {
                break;
            }
            self.delayed.remove(&(due, id.clone()));
            if let Some(entry) = self.entries.get(&id) {
                self.ready.insert(order(&id, &entry.record, due));
            }
        }
        let waiting = self.ready.iter().map(|(.., id)| id).filter(|id| !passed.contains(*id));
        // The last one, if there are fewer.
        let id = waiting.take(skip + 1).last()?;
        let entry = self.entries.get(id)?;
        Some((id.clone(), entry.clone()))
    }

    /// Skips a message that another client took first, until a newer version is seen.
    pub(super) fn note_stale(&mut self, id: &MessageId, seq: u64) {
        if let Some(entry) = self.entries.get(id)
            && entry.seq == seq
        {
            let place = order(id, &entry.record, entry.due);
            self.ready.remove(&place);
        }
    }

    pub(super) fn get(&self, id: &MessageId) -> Option<&IndexEntry> {
        self.entries.get(id)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&MessageId, &IndexEntry)> {
        self.entries.iter()
    }

    /// When the first delayed message is due, in milliseconds since the Unix epoch.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.delayed.first().map(|(due, _)| *due)
    }

    pub(super) fn has_due(&self, now_millis: u64) -> bool {
        !self.ready.is_empty() || self.next_due().is_some_and(|due| due <= now_millis)
    }

    pub(super) fn may_have_task(&self) -> bool {
        let ready = self.ready.iter().map(|(.., id)| id);
        let mut queued = ready.chain(self.delayed.iter().map(|(_, id)| id));
        queued.any(|id| self.entries.get(id).is_some_and(|entry| entry.record.may_be_task))
    }

    pub(super) fn due(&self, now_millis: u64) -> impl Iterator<Item = (&MessageId, &IndexEntry)> {
        self.entries.iter().filter(move |(_, entry)| {
            matches!(entry.record.place, MessageStage::Queued { due } if due <= now_millis)
        })
    }

    pub(super) fn waiting(&self) -> u64 {
        self.entries
            .values()
            .filter(|entry| matches!(entry.record.place, MessageStage::Queued { .. }))
            .count() as u64
    }

    pub(super) fn counts(&self, now_millis: u64) -> Counts {
        let mut counts = Counts::default();
        for entry in self.entries.values() {
            match &entry.record.place {
                MessageStage::Queued { due } => {
                    counts.queued += 1;
                    counts.delayed += u64::from(*due > now_millis);
                }
                MessageStage::Held { .. } => counts.acked += 1,
                MessageStage::Settled => counts.settled += 1,
                MessageStage::Dead { .. } => counts.dead += 1,
            }
        }
        counts
    }

    /// Held messages, then queued ones in the order of receiving; those that are not due come last.
    pub(super) fn unfinished(&self, now_millis: u64) -> Vec<(MessageId, MessageRecord)> {
        let rank = |id: &MessageId, entry: &IndexEntry| match entry.record.place {
            MessageStage::Held { .. } => Some((0, receive_order(false, 0, 0, id.clone()))),
            MessageStage::Queued { due } => {
                let wait = if due > now_millis { due } else { 1 };
                Some((wait, order(id, &entry.record, due)))
            }
            MessageStage::Settled | MessageStage::Dead { .. } => None,
        };
        let mut found: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(id, entry)| Some((rank(id, entry)?, id, entry)))
            .collect();
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        found.into_iter().map(|(_, id, entry)| (id.clone(), entry.record.clone())).collect()
    }
}

fn order(id: &MessageId, record: &MessageRecord, due: u64) -> ReceiveOrder<MessageId> {
    let is_in_line = is_in_line(record.priority, record.epoch, due);
    let age = id.unix_millis().unwrap_or(record.since);
    receive_order(is_in_line, record.priority, age, id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(seq: u64, record: MessageRecord) -> StoredVersion<()> {
        StoredVersion::new(seq, record, (), 1000 + seq)
    }

    fn content() -> Option<Bytes> {
        Some(Bytes::from_static(b"content"))
    }

    fn id(id: &str) -> MessageId {
        MessageId::new(id).unwrap()
    }

    fn next(index: &mut MailboxIndex, now: u64) -> Option<String> {
        let (id, entry) = index.next(now, 0, &HashSet::new())?;
        index.note_stale(&id, entry.seq);
        Some(id.to_string())
    }

    #[test]
    fn order_is_urgent_then_released_then_oldest() {
        let mut index = MailboxIndex::default();
        let back = MessageRecord { epoch: 1, ..MessageRecord::fresh(0) };
        index.apply(id("first"), stored(1, MessageRecord::fresh(0)), content());
        index.apply(id("second"), stored(2, MessageRecord::fresh(0)), content());
        index.apply(id("back"), stored(3, back), content());
        index.apply(id("urgent"), stored(4, MessageRecord::fresh(9)), content());
        let later = MessageRecord::fresh(0).moved(MessageStage::Queued { due: 50 });
        index.apply(id("later"), stored(5, later), content());
        let order: Vec<_> = std::iter::from_fn(|| next(&mut index, 49)).collect();
        assert_eq!(order, ["urgent", "back", "first", "second"]);
        assert_eq!(next(&mut index, 50).as_deref(), Some("later"));
    }

    #[test]
    fn a_waiting_task_is_known_by_its_record() {
        let task = MessageRecord { may_be_task: true, ..MessageRecord::fresh(0) };
        let mut index = MailboxIndex::default();
        index.apply(id("letter"), stored(1, MessageRecord::fresh(0)), content());
        assert!(!index.may_have_task());
        let later = task.clone().moved(MessageStage::Queued { due: 50 });
        index.apply(id("later"), stored(2, later), content());
        assert!(index.may_have_task(), "a delayed one waits, too");
        index.apply(id("later"), stored(3, task.moved(MessageStage::Settled)), content());
        assert!(!index.may_have_task());
    }

    #[test]
    fn older_version_changes_nothing() {
        let mut index = MailboxIndex::default();
        let held = MessageStage::Held {
            holder: ensemble_core::message::Name::new("w").unwrap(),
            lease_seconds: 1,
        };
        index.apply(id("a"), stored(5, MessageRecord::fresh(0).moved(held)), content());
        index.apply(id("a"), stored(4, MessageRecord::fresh(0)), content());
        assert!(next(&mut index, 0).is_none());
        assert_eq!(index.counts(0).acked, 1);
    }

    #[test]
    fn content_beyond_the_limit_is_not_cached() {
        let mut index = MailboxIndex::default();
        for n in 0..200 {
            let content = Bytes::from(vec![0; 64 * 1024]);
            let stored = StoredVersion::new(n + 1, MessageRecord::fresh(0), (), 1);
            index.apply(id(&format!("m{n}")), stored, Some(content));
        }
        assert!(index.kept_bytes <= KEPT_BYTES_MAX);
        assert_eq!(index.waiting(), 200);
        for n in 0..200 {
            index.forget(&id(&format!("m{n}")));
        }
        assert_eq!((index.kept_bytes, index.waiting()), (0, 0));
    }
}
