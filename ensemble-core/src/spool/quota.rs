//! How much one sender may leave unread in one mailbox. So a sender that has gone mad does not fill
//! the disk and hide the messages of others.
//!
//! It is counted on disk, so it survives a killed process: a message counts until it is received.
//! While few messages wait in a mailbox, nothing is read. Otherwise a sample is read, spread over
//! all messages: [`EXAMINED_PER_MESSAGE`] times as many as one sender may have. In a mailbox that
//! is deeper than the sample, a sender with a quarter of it is refused. No sender waits for a
//! look at all of it. An eighth of the sample, spread as well, is enough for a sender with far less
//! than that, unless it attaches something. It is back-pressure, no invariant: senders that publish
//! at once may exceed it by a few messages. A process that publishes much looks again after as
//! many messages as there was room for.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::Ordering;

use super::mailbox::OpenMailbox;
use super::{Spool, place};
use crate::Result;
use crate::durable::{Dir, stop_if};
use crate::mail::{Quota, SenderUsage, attached_bytes};
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, Name};

/// How many messages are read for each that a sender may have.
const EXAMINED_PER_MESSAGE: u64 = 4;
/// They are read in this many parts, each spread over all of them.
const PARTS: usize = 8;
/// A share cannot be estimated from fewer messages.
const SAMPLE_MIN: u64 = 256;
/// Among how many waiting messages those are chosen.
const LISTED_MAX: usize = 100_000;

impl Spool {
    pub(super) fn check_quota(&self, mailbox: &OpenMailbox, envelope: &Envelope) -> Result<()> {
        let Some(quota) = &self.options().quota else { return Ok(()) };
        if quota.exempt.contains(&envelope.from) {
            return Ok(());
        }
        let is_plain = attached_bytes(envelope) == 0;
        if is_plain && has_room(mailbox, quota)? {
            return Ok(());
        }
        let used = usage(mailbox, &envelope.from, quota, is_plain)?;
        quota.check(used, envelope, self.recorder())
    }
}

/// Whether so few messages wait that no sender can have too many.
fn has_room(mailbox: &OpenMailbox, quota: &Quota) -> Result<bool> {
    let spend = |room: u64| room.checked_sub(1);
    if mailbox.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok() {
        return Ok(true);
    }
    let room = quota.messages.saturating_sub(mailbox.count_waiting(quota.messages)?);
    mailbox.room.store(room.saturating_sub(1), Ordering::Relaxed);
    Ok(room > 0)
}

/// Counts what a sender has waiting, in a sample of the messages. `is_plain` says that only the number of messages
/// matters.
fn usage(
    mailbox: &OpenMailbox,
    sender: &Name,
    quota: &Quota,
    is_plain: bool,
) -> Result<SenderUsage> {
    let mut waiting: Vec<(&Dir, String)> = Vec::new();
    list(&mailbox.front, |file| place::FrontFile::parse(file).is_some(), &mut waiting)?;
    list(&mailbox.new, |file| place::parse_plain(file).is_some(), &mut waiting)?;
    let examined = quota.messages.saturating_mul(EXAMINED_PER_MESSAGE);
    let examined = usize::try_from(examined).unwrap_or(usize::MAX).max(1);
    // Not the first ones: many file systems list the oldest, or the newest, first.
    let stride = waiting.len().div_ceil(examined).max(1);
    let chance = RandomState::new();
    let (mut usage, mut seen) = (SenderUsage::default(), 0);
    for part in 0..PARTS {
        // The limit is a share of one in `EXAMINED_PER_MESSAGE`.
        let is_far_below = usage.messages * 2 * EXAMINED_PER_MESSAGE <= seen;
        if is_plain && seen >= SAMPLE_MIN && is_far_below {
            break;
        }
        let of_part = |entry: &&(&Dir, String)| part_of(&entry.1, &chance) == part;
        for (dir, file) in waiting.iter().step_by(stride).filter(of_part) {
            seen += 1;
            // A file that cannot be read, or was received in the meantime, counts for no sender.
            let content = dir.read(file, ENVELOPE_BYTES_MAX).ok().flatten().unwrap_or_default();
            let read = Envelope::decode(&content, &dir.path().join(file));
            usage.count_message(&content, read, sender);
            if usage.messages >= quota.messages {
                return Ok(usage);
            }
        }
    }
    Ok(usage)
}

/// The part in which a message is read. By chance: agents that send in turn are at regular places, and looking at
/// regular places could miss one of them altogether.
fn part_of(file: &str, chance: &RandomState) -> usize {
    usize::try_from(chance.hash_one(file) % PARTS as u64).unwrap_or(0)
}

fn list<'a>(
    dir: &'a Dir,
    is_message: fn(&str) -> bool,
    waiting: &mut Vec<(&'a Dir, String)>,
) -> Result<()> {
    dir.for_each(|file| {
        if is_message(file) {
            waiting.push((dir, file.to_owned()));
        }
        stop_if(waiting.len() >= LISTED_MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::proto::testing::name;
    use crate::spool::SpoolOptions;

    struct Bed {
        home: tempfile::TempDir,
        spool: Spool,
    }

    fn open(home: &std::path::Path) -> Spool {
        let quota = Quota { messages: 10, bytes: 1_000_000, ..Quota::default() };
        let quota = Some(quota.exempting([name("operator")]));
        Spool::create(&home.join("queue"), SpoolOptions { quota, ..SpoolOptions::default() })
            .unwrap()
    }

    fn bed() -> Bed {
        let home = tempfile::tempdir().unwrap();
        let spool = open(home.path());
        spool.add_mailbox(&name("w"), &Default::default()).unwrap();
        Bed { home, spool }
    }

    impl Bed {
        fn message(&self, from: &str) -> Envelope {
            Envelope::new(name("w"), "x").from(name(from))
        }

        fn send(&self, from: &str) -> Result<()> {
            self.spool.publish(&self.message(from)).map(drop)
        }

        fn stored(&self, from: &str, offered: usize) -> usize {
            (0..offered).filter(|_| self.send(from).is_ok()).count()
        }
    }

    #[test]
    fn a_sender_has_its_share_and_others_have_theirs() {
        let bed = bed();
        assert_eq!(bed.stored("mad", 30), 10);
        let refused = bed.send("mad").unwrap_err();
        assert!(refused.is_transient(), "{refused}");
        let text = refused.to_string();
        assert!(
            text.starts_with("`mad` has 10 unread messages (") && text.contains("`w`"),
            "{text}"
        );
        assert_eq!((bed.stored("calm", 5), bed.stored("operator", 20)), (5, 20));
        // A message that already exists is not sent again, and so not refused.
        let kept = bed.message("mad").with_id("kept".parse().unwrap());
        assert!(matches!(bed.spool.publish(&kept), Err(Error::Quota { messages: 10, .. })));
        let first = bed.spool.receive(&name("w"), &name("w")).unwrap().unwrap();
        assert_eq!(first.envelope.from, name("mad"));
        bed.spool.publish(&kept).unwrap();
        assert_eq!(bed.spool.publish(&kept).unwrap(), crate::env::PublishOutcome::AlreadyStored);
        // What is returned to `front/` is counted as well, even by another process.
        bed.spool.release(&first.lease, std::time::Duration::ZERO).unwrap();
        let other = open(bed.home.path());
        assert!(matches!(
            other.publish(&bed.message("mad")),
            Err(Error::Quota { messages: 10, .. })
        ));
    }

    #[test]
    fn attachments_count_and_a_single_one_may_be_large() {
        let bed = bed();
        let attached = |bytes: usize| {
            let attachment = bed.spool.attach(&vec![7; bytes]).unwrap();
            bed.spool.publish(&bed.message("mad").with_attachment(attachment))
        };
        attached(2_000_000).unwrap();
        assert!(matches!(attached(1), Err(Error::Quota { messages: 1, .. })));
        bed.send("mad").unwrap();
        bed.spool.receive(&name("w"), &name("w")).unwrap().unwrap();
        for _ in 0..3 {
            attached(300_000).unwrap();
        }
        assert!(attached(300_000).is_err());
    }

    #[test]
    fn each_part_has_something_of_all_who_send_in_turn() {
        let (chance, mut seen) = (RandomState::new(), [[0; 4]; PARTS]);
        for number in 0..8_000 {
            seen[part_of(&format!("message-{number}.yaml"), &chance)][number % 4] += 1;
        }
        // 250 of each are to be expected.
        assert!(seen.iter().flatten().all(|count| *count > 100), "{seen:?}");
    }

    #[test]
    fn a_look_at_a_part_refuses_a_sender_with_its_share_wherever_it_lies() {
        let home = tempfile::tempdir().unwrap();
        let open = |quota| {
            let options = SpoolOptions { quota, ..SpoolOptions::default() };
            let options = options.with_durability(crate::durable::Durability::Process);
            Spool::create(&home.path().join("queue"), options).unwrap()
        };
        let (free, spool) = (open(None), open(Some(Quota { messages: 500, ..Quota::default() })));
        free.add_mailbox(&name("w"), &Default::default()).unwrap();
        let send = |spool: &Spool, from: &str| {
            spool.publish(&Envelope::new(name("w"), "x").from(name(from))).map(drop)
        };
        // Its messages are contiguous, with those of others before and after.
        for (from, count) in [("others", 700), ("mad", 499), ("others", 700)] {
            (0..count).for_each(|_| send(&free, from).unwrap());
        }
        let mailbox = spool.mailbox(&name("w")).unwrap();
        let quota = spool.options().quota.clone().unwrap();
        let used = |from, is_plain| usage(&mailbox, &name(from), &quota, is_plain).unwrap();
        assert_eq!((used("calm", true).messages, used("calm", false).messages), (0, 0));
        // It has a quarter of the messages, so they are all counted.
        assert_eq!((used("mad", true).messages, used("mad", false).messages), (499, 499));
        send(&spool, "mad").unwrap();
        assert!(matches!(send(&spool, "mad"), Err(Error::Quota { messages: 500, .. })));
        send(&spool, "calm").unwrap();
    }

    #[test]
    fn in_a_deep_mailbox_only_a_sender_with_much_of_it_is_refused() {
        let bed = bed();
        assert_eq!(bed.stored("operator", 200), 200);
        assert_eq!((bed.stored("a", 1), bed.stored("b", 1)), (1, 1));
        let mut sent = 0;
        while bed.send("mad").is_ok() {
            sent += 1;
            assert!(sent < 400, "more than half of what waits, and not refused");
        }
        assert_eq!((bed.stored("a", 1), bed.stored("b", 1)), (1, 1));
    }
}
