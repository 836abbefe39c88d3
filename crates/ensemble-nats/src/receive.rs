//! Receive: replaces the queued version of a message by a held one.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use super::gates::HolderGates;
use super::index::IndexEntry;
use super::record::MessageStage;
use super::watch::MailboxWatch;
use super::{NatsTransport, StoredVersion, lock};
use ensemble_core::Result;
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::event_log::types;
use ensemble_core::mail::{check_fit, record_held};
use ensemble_core::message::{Envelope, MessageId, Name, Timestamp};

/// Number of the first messages among which competing consumers choose.
const CHOICE: usize = 8;

enum TakeOutcome {
    Delivered(Box<Delivery>),
    Buried,
    Lost,
    /// The message's task waits for a plan of this holder.
    Gated,
}

impl NatsTransport {
    /// Takes the next due message of `mailbox` for `holder`. Taking it is the ack.
    pub fn receive(&self, mailbox: &Name, holder: &Name) -> Result<Option<Delivery>> {
        let watch = self.watch(mailbox)?;
        let lease = self.settings_of(mailbox)?.lease_duration();
        let (mut is_current, mut losses, mut haste) = (false, 0, None);
        let (mut gates, mut gated) = (self.gates_of(holder), HashSet::new());
        loop {
            // A consumer that has lost a race chooses among the first messages, so that it does not
            // lose the next one, too.
            let skip = if losses == 0 { 0 } else { (self.dice() + losses) % CHOICE };
            let next = watch.index().next(self.now_millis(), skip, &gated);
            let Some((id, entry)) = next else {
                if is_current {
                    return Ok(None);
                }
                // The index knows of no waiting message, but it may be behind the server.
                self.catch_up(mailbox, &watch)?;
                is_current = true;
                continue;
            };
            is_current = false;
            match self.take_message(&watch, (mailbox, &id), entry, &mut gates, lease)? {
                TakeOutcome::Delivered(delivery) => return Ok(Some(*delivery)),
                TakeOutcome::Buried => {}
                TakeOutcome::Lost => {
                    // Competing consumers must see each other's changes at once.
                    watch.note_rival();
                    haste.get_or_insert_with(|| self.news.haste());
                    losses += 1;
                }
                TakeOutcome::Gated => {
                    gated.insert(id);
                }
            }
        }
    }

    /// Takes one given waiting message for `holder`; `None` if it is no longer waiting.
    pub fn receive_id(
        &self,
        mailbox: &Name,
        id: &MessageId,
        holder: &Name,
    ) -> Result<Option<Delivery>> {
        self.take_waiting(mailbox, id, self.gates_of(holder))
    }

    /// As [`Self::receive_id`], to settle work that is done: one who may begin nothing may do that, too.
    pub fn receive_done(
        &self,
        mailbox: &Name,
        id: &MessageId,
        holder: &Name,
    ) -> Result<Option<Delivery>> {
        self.take_waiting(mailbox, id, self.gates_of(holder).of_done_work())
    }

    fn take_waiting(
        &self,
        mailbox: &Name,
        id: &MessageId,
        mut gates: HolderGates<'_>,
    ) -> Result<Option<Delivery>> {
        let lease = self.settings_of(mailbox)?.lease_duration();
        let mut lost = None;
        loop {
            let watch = self.current(mailbox)?;
            let entry = watch.index().get(id).cloned();
            let is_waiting =
                |entry: &IndexEntry| matches!(entry.record.place, MessageStage::Queued { .. });
            let Some(mut entry) =
                entry.filter(|entry| is_waiting(entry) && lost != Some(entry.seq))
            else {
                return Ok(None);
            };
            lost = Some(entry.seq);
            let content = match entry.payload.take() {
                Some(content) => content,
                None => match self.read(mailbox, id)? {
                    Some(stored) if stored.seq == entry.seq => stored.payload,
                    _ => continue,
                },
            };
            gates.refusal(id, &content)?.map_or(Ok(()), Err)?;
            entry.payload = Some(content);
            match self.take_message(&watch, (mailbox, id), entry, &mut gates, lease)? {
                TakeOutcome::Delivered(delivery) => return Ok(Some(*delivery)),
                TakeOutcome::Buried => return Ok(None),
                // Another client has taken or changed it.
                TakeOutcome::Lost | TakeOutcome::Gated => {}
            }
        }
    }

    fn dice(&self) -> usize {
        let now = std::time::Instant::now();
        usize::try_from(now.elapsed().subsec_nanos()).unwrap_or(0)
            ^ (std::ptr::from_ref(self) as usize >> 6)
    }

    fn take_message(
        &self,
        watch: &MailboxWatch,
        (mailbox, id): (&Name, &MessageId),
        entry: IndexEntry,
        gates: &mut HolderGates<'_>,
        duration: Duration,
    ) -> Result<TakeOutcome> {
        let holder = gates.holder();
        let last = match entry.payload {
            Some(payload) => {
                StoredVersion { seq: entry.seq, record: entry.record, payload, at: entry.at }
            }
            None => match self.read(mailbox, id)? {
                Some(stored) if stored.seq == entry.seq => stored,
                _ => {
                    watch.index().note_stale(id, entry.seq);
                    return Ok(TakeOutcome::Lost);
                }
            },
        };
        if gates.refuse(id, &last.payload)? {
            return Ok(TakeOutcome::Gated);
        }
        if self.is_risen((mailbox, id), &last)? {
            self.replace(mailbox, id, &last, last.record.moved(MessageStage::Settled))?;
            watch.index().note_stale(id, last.seq);
            return Ok(TakeOutcome::Lost);
        }
        let place =
            MessageStage::Held { holder: holder.clone(), lease_seconds: duration.as_secs().max(1) };
        let mut record = last.record.moved(place);
        record.epoch += 1;
        let lease = Lease {
            mailbox: mailbox.clone(),
            id: id.clone(),
            holder: holder.clone(),
            epoch: record.epoch,
        };
        // Parsing takes about as long as the server's answer: do both at the same time.
        let (read, to_read) = (Arc::new(OnceLock::new()), (id.clone(), last.payload.clone()));
        let (reading, now) = (Arc::clone(&read), self.now());
        let read_it = move || {
            let (id, content) = &to_read;
            let _ = reading.set(fit(id, content, now));
        };
        let taken = self.replace_while(mailbox, id, &last, record, Some(read_it))?;
        let Some(stored) = taken else {
            watch.index().note_stale(id, entry.seq);
            return Ok(TakeOutcome::Lost);
        };
        let read = Arc::into_inner(read).and_then(OnceLock::into_inner);
        let envelope = match read.unwrap_or_else(|| fit(id, &last.payload, now)) {
            Ok(envelope) => envelope,
            Err(reason) => return self.bury(watch, &lease, &stored, &reason),
        };
        lock(&self.held).insert((mailbox.clone(), id.clone()), stored);
        record_held(&*self.recorder, types::MESSAGE_ACKED, &lease);
        Ok(TakeOutcome::Delivered(Box::new(Delivery::new(envelope, lease, duration))))
    }

    /// Moves a taken message that cannot be delivered to the dead letters. A client that dies
    /// before that leaves a lease that expires.
    fn bury(
        &self,
        watch: &MailboxWatch,
        lease: &Lease,
        taken: &StoredVersion,
        reason: &str,
    ) -> Result<TakeOutcome> {
        let record = taken.record.moved(self.dead_place(reason, Some(&lease.holder)));
        Ok(if self.replace(&lease.mailbox, &lease.id, taken, record)?.is_some() {
            self.record_lease_dead(lease, reason);
            TakeOutcome::Buried
        } else {
            watch.index().note_stale(&lease.id, taken.seq);
            TakeOutcome::Lost
        })
    }

    /// Waits until a message is due; `false` once `patience` has passed.
    pub fn wait(&self, mailbox: &Name, patience: Duration) -> Result<bool> {
        let watch = self.watch(mailbox)?;
        let due = watch.index().next_due();
        let nap = due.map_or(patience, |due| {
            patience.min(Duration::from_millis(due.saturating_sub(self.now_millis())))
        });
        let (_haste, _waiting) = (self.news.haste(), self.runtime.waiting());
        self.wire.patience.renew();
        Ok(watch.wait_until(nap, |index| index.has_due(self.now_millis())))
    }
}

impl NatsTransport {
    /// All due messages with their contents, unordered.
    pub(super) fn due(&self, mailbox: &Name) -> Result<Vec<(MessageId, Bytes)>> {
        let (watch, now) = (self.current(mailbox)?, self.now_millis());
        let content = |(id, entry): (&MessageId, &IndexEntry)| (id.clone(), entry.payload.clone());
        let known: Vec<(MessageId, Option<Bytes>)> = watch.index().due(now).map(content).collect();
        let mut all = Vec::new();
        for (id, content) in known {
            let content = match content {
                Some(content) => Some(content),
                None => self.read(mailbox, &id)?.map(|stored| stored.payload),
            };
            all.extend(content.map(|content| (id, content)));
        }
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Ids of up to `limit` due messages, from the index. The mailbox is followed from now on.
    pub fn due_ids(&self, mailbox: &Name, limit: usize) -> Result<Vec<MessageId>> {
        let watch = self.watch(mailbox)?;
        let now = self.now_millis();
        let mut ids: Vec<MessageId> = watch.index().due(now).map(|(id, _)| id.clone()).collect();
        ids.sort_unstable();
        ids.truncate(limit);
        Ok(ids)
    }

    /// Waits for a change in the followed mailboxes since this returned `seen`, at most `patience`.
    /// Start with 0.
    pub fn wait_for_news(&self, seen: u64, patience: Duration) -> u64 {
        let _waiting = self.runtime.waiting();
        self.wire.patience.renew();
        self.news.wait(seen, patience)
    }
}

fn fit(id: &MessageId, content: &[u8], now: Timestamp) -> Result<Envelope, String> {
    let path = Path::new(id.as_str());
    check_fit(Envelope::decode(content, path), id, || path.to_owned(), || now)
}
