//! Messages: the outcome of each delivery.
//!
//! An epoch is one delivery, so the highest one decides, in any order of records. Within it,
//! settled is final. A message is dead if it has more dead letters than redrives. It waits again if
//! it was released or redriven. Otherwise the last holder holds it.

use std::collections::BTreeMap;

use super::{
    DifferenceKind, DiskMailbox, DiskMessage, DiskState, MessagePlace, RecordPlace,
    ReplayDifference, difference, number,
};
use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;

const DAY_SECONDS: u64 = 24 * 60 * 60;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MessageTrail {
    is_stored: bool,
    is_dropped: bool,
    /// A copy could not be read and was moved aside, so nothing about the message is certain.
    is_damaged: bool,
    deliveries: BTreeMap<u64, LoggedDelivery>,
    settled_at: Option<Timestamp>,
    last: RecordPlace,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LoggedDelivery {
    holder: Option<String>,
    is_settled: bool,
    released: u32,
    redriven: u32,
    dead: u32,
    /// Seconds the lease was last extended to, and the number of extensions.
    extended: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpectedPlace {
    Nothing,
    At(MessagePlace),
    Dropped,
}

impl MessageTrail {
    pub(super) fn apply_record(&mut self, record: &Record) {
        self.last = RecordPlace::of(record);
        match record.kind.as_str() {
            types::MESSAGE_STORED => {
                // An id may recur once its message was dropped or swept.
                let is_over = self.is_dropped || self.settled_at.is_some();
                if self.is_stored && is_over {
                    *self = Self { last: std::mem::take(&mut self.last), ..Self::default() };
                }
                self.is_stored = true;
                return;
            }
            types::MESSAGE_DROPPED => {
                self.is_dropped = true;
                return;
            }
            types::MESSAGE_DAMAGED => {
                self.is_damaged = true;
                return;
            }
            _ => {}
        }
        let Some(epoch) = number(record, "epoch") else { return };
        let delivery = self.deliveries.entry(epoch).or_default();
        match record.kind.as_str() {
            types::MESSAGE_ACKED => delivery.holder = Some(record.actor.clone()),
            types::MESSAGE_SETTLED => {
                delivery.is_settled = true;
                self.settled_at = Some(record.timestamp);
            }
            types::MESSAGE_RELEASED => delivery.released += 1,
            types::MESSAGE_REDRIVEN => delivery.redriven += 1,
            types::MESSAGE_DEAD => delivery.dead += 1,
            types::MESSAGE_EXTENDED => {
                let seconds = number(record, "lease_seconds").unwrap_or_default();
                let count = delivery.extended.map_or(0, |(_, count)| count) + 1;
                delivery.extended = Some((seconds, count));
            }
            _ => {}
        }
    }

    fn expected_place(&self) -> ExpectedPlace {
        if self.is_dropped {
            return ExpectedPlace::Dropped;
        }
        let queued = |epoch| ExpectedPlace::At(MessagePlace::Queued { epoch });
        let Some((&epoch, last)) = self.deliveries.last_key_value() else {
            return if self.is_stored { queued(0) } else { ExpectedPlace::Nothing };
        };
        match last {
            LoggedDelivery { is_settled: true, .. } => ExpectedPlace::At(MessagePlace::Settled),
            LoggedDelivery { dead, redriven, .. } if dead > redriven => {
                ExpectedPlace::At(MessagePlace::Dead)
            }
            LoggedDelivery { released, redriven, .. } if released + redriven > 0 => queued(epoch),
            LoggedDelivery { holder: Some(holder), .. } => {
                ExpectedPlace::At(MessagePlace::Held { holder: holder.clone(), epoch })
            }
            _ => ExpectedPlace::Nothing,
        }
    }

    fn epoch(&self) -> u64 {
        self.deliveries.last_key_value().map_or(0, |(epoch, _)| *epoch)
    }
}

/// Whether moves that PROTOCOL.md allows lead from the recorded state to the one on disk; `None` if
/// they are equal.
fn explained(told: &ExpectedPlace, epoch: u64, disk: &MessagePlace) -> Option<DifferenceKind> {
    use DifferenceKind::{Contradiction, Unrecorded};
    let kind = match (told, disk) {
        (ExpectedPlace::At(told), disk) if told == disk => return None,
        // No consumer may receive a settled message again; it disappears when it is swept.
        (ExpectedPlace::At(MessagePlace::Settled), _) => Contradiction,
        // A script may publish a message, and may publish a dropped one again.
        (ExpectedPlace::Nothing | ExpectedPlace::Dropped, _) => Unrecorded,
        (_, MessagePlace::Queued { epoch: now }) if *now >= epoch => Unrecorded,
        (_, MessagePlace::Held { epoch: now, .. }) if *now > epoch => Unrecorded,
        // Another holder in the same epoch, or an epoch that went back.
        (_, MessagePlace::Queued { .. } | MessagePlace::Held { .. }) => Contradiction,
        (_, MessagePlace::Settled | MessagePlace::Dead) => Unrecorded,
    };
    Some(kind)
}

pub(super) fn compare(
    trails: &BTreeMap<(String, String), MessageTrail>,
    disk: &DiskState,
    now: Timestamp,
    found: &mut Vec<ReplayDifference>,
) {
    for ((mailbox, id), trail) in trails.iter().filter(|(_, trail)| !trail.is_damaged) {
        let box_on_disk = disk.mailboxes.get(mailbox);
        let files = box_on_disk.and_then(|mailbox| mailbox.messages.get(id));
        match files.map(Vec::as_slice) {
            None | Some([]) => found.extend(gone((mailbox, id), trail, box_on_disk, now)),
            Some([file]) => found.extend(one((mailbox, id), trail, file)),
            Some([first, rest @ ..]) => {
                let places: Vec<&str> = rest.iter().map(|file| file.path.as_str()).collect();
                let disk = format!("also at {}", places.join(", "));
                let log = words(&trail.expected_place());
                let kind = DifferenceKind::Contradiction;
                let path = first.path.clone();
                found.push(difference(kind, "message", id, path, (log, disk), &trail.last));
            }
        }
    }
    let nowhere = RecordPlace::default();
    for (mailbox, on_disk) in &disk.mailboxes {
        for (id, files) in &on_disk.messages {
            let is_told = trails.contains_key(&(mailbox.clone(), id.clone()));
            for file in files.iter().filter(|_| !is_told) {
                let sides = ("nothing", file.place.words());
                let (kind, path) = (DifferenceKind::Unrecorded, file.path.clone());
                found.push(difference(kind, "message", id, path, sides, &nowhere));
            }
        }
    }
}

fn one(
    (_, id): (&str, &str),
    trail: &MessageTrail,
    file: &DiskMessage,
) -> Option<ReplayDifference> {
    let told = trail.expected_place();
    let path = file.path.clone();
    if let Some(kind) = explained(&told, trail.epoch(), &file.place) {
        let sides = (words(&told), file.place.words());
        return Some(difference(kind, "message", id, path, sides, &trail.last));
    }
    // The states match; compare the length of the lease.
    let MessagePlace::Held { epoch, .. } = &file.place else { return None };
    let logged = trail.deliveries.get(epoch).and_then(|delivery| delivery.extended);
    let kind = match (logged, file.extended) {
        (logged, now) if logged == now => return None,
        (Some((_, count)), Some((_, sequence))) if sequence > count => DifferenceKind::Unrecorded,
        (Some(_), _) => DifferenceKind::Contradiction,
        (None, _) => DifferenceKind::Unrecorded,
    };
    let lease = |extended: Option<(u64, u64)>, how: &str| {
        extended.map_or_else(
            || "a lease without extension".to_owned(),
            |(seconds, count)| format!("a lease of {seconds} s, {how} {count}"),
        )
    };
    let sides = (lease(logged, "extension"), lease(file.extended, "sequence"));
    Some(difference(kind, "message", id, path, sides, &trail.last))
}

/// The disk has no file of the message.
fn gone(
    (mailbox, id): (&str, &str),
    trail: &MessageTrail,
    on_disk: Option<&DiskMailbox>,
    now: Timestamp,
) -> Option<ReplayDifference> {
    let told = trail.expected_place();
    let (kind, place) = match &told {
        ExpectedPlace::Nothing | ExpectedPlace::Dropped => return None,
        ExpectedPlace::At(MessagePlace::Settled) => {
            let kept = on_disk.map_or(0, |mailbox| mailbox.done_days) * DAY_SECONDS;
            let age = trail.settled_at.map_or(u64::MAX, |at| now.since(at).as_secs());
            if age >= kept {
                return None;
            }
            (DifferenceKind::Contradiction, "done")
        }
        // Any process may drop a dead letter.
        ExpectedPlace::At(MessagePlace::Dead) => (DifferenceKind::Unrecorded, "dead"),
        ExpectedPlace::At(MessagePlace::Held { .. }) => (DifferenceKind::Contradiction, "cur"),
        ExpectedPlace::At(MessagePlace::Queued { epoch: 0 }) => {
            (DifferenceKind::Contradiction, "new")
        }
        ExpectedPlace::At(MessagePlace::Queued { .. }) => (DifferenceKind::Contradiction, "front"),
    };
    let path = format!("queue/mailbox/{mailbox}/{place}");
    Some(difference(kind, "message", id, path, (words(&told), "not there"), &trail.last))
}

fn words(told: &ExpectedPlace) -> String {
    match told {
        ExpectedPlace::Nothing => "nothing".to_owned(),
        ExpectedPlace::Dropped => "dropped".to_owned(),
        ExpectedPlace::At(place) => place.words(),
    }
}
