//! What happens to an agent's mail when it leaves (seed 004's neighbours lose it silently).
//!
//! What it held is returned to its mailbox, for the next consumer. What it has not read is, as configured, returned
//! to its senders, made a dead letter, or kept in case the agent comes back. *Back to its sender* is a notice in the
//! sender's mailbox, of type [`RETURNED_TYPE`], which names the message and says why. The message itself becomes a
//! dead letter and can be redriven. The notice's id follows from the message's, and it is stored first. So the sender
//! is notified once, even after a crash in between and a second attempt.

use serde::{Deserialize, Serialize};

use super::Broker;
use crate::Result;
use crate::error::{allow_gone, allow_unreadable};
use crate::message::{Digest, Envelope, MessageId, MessagePurpose, Name, yaml};
use crate::spool::State;

/// The type of the notice to a sender that its message was not read.
pub const RETURNED_TYPE: &str = "mail.returned";
/// Who is notified in the place of a sender that no mailbox of the queue reaches.
const CONDUCTOR: &str = "conductor";
/// How many unread messages are handled in one pass.
const PASS_MAX: usize = 1_000;

/// The fate of mail that an agent has not read when it leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnreadMail {
    /// Each sender is notified, and the messages become dead letters.
    #[default]
    Return,
    /// The messages become dead letters.
    DeadLetter,
    /// They stay, for the agent's return.
    Keep,
}

/// Counts of a [`Broker::hand_back`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HandedBack {
    pub released: u64,
    /// Unread messages whose sender was notified.
    pub returned: u64,
    /// Unread messages that became dead letters, the returned ones among them.
    pub dead: u64,
    /// Unread messages that stay.
    pub kept: u64,
}

pub(super) fn hand_back<B: Broker + ?Sized>(
    queue: &B,
    (agent, mailbox): (&Name, &Name),
    unread: UnreadMail,
    reason: &str,
) -> Result<HandedBack> {
    let released = queue.release_all(agent, reason)?;
    let mut done = HandedBack { released, ..HandedBack::default() };
    if unread == UnreadMail::Keep {
        done.kept = queue.scan(mailbox)?.queued;
        return Ok(done);
    }
    loop {
        let waiting: Vec<MessageId> = queue
            .unfinished(mailbox, PASS_MAX)?
            .into_iter()
            .filter(|found| matches!(found.state, State::Queued { .. }))
            .map(|found| found.id)
            .collect();
        let before = done.dead;
        for id in waiting {
            if unread == UnreadMail::Return && tell_sender(queue, agent, (mailbox, &id), reason)? {
                done.returned += 1;
            }
            // If it is gone, another consumer has received it.
            if allow_gone(queue.set_aside(mailbox, &id, reason))?.is_some() {
                done.dead += 1;
            }
        }
        if done.dead == before {
            return Ok(done);
        }
    }
}

/// Notifies the sender of a returned message. Returns whether it has a mailbox with room.
fn tell_sender<B: Broker + ?Sized>(
    queue: &B,
    agent: &Name,
    (mailbox, id): (&Name, &MessageId),
    reason: &str,
) -> Result<bool> {
    let Some(envelope) = allow_unreadable(queue.peek(mailbox, id))? else { return Ok(false) };
    // An automatic message is never answered automatically.
    let is_notice = envelope.purpose() == MessagePurpose::Notice;
    // The end of the agent has answered whether it may be ended.
    let is_shutdown = envelope.kind.as_str() == "shutdown_request";
    let notice = returned(queue, agent, &envelope, reason)?;
    if is_notice || is_shutdown || envelope.from == *agent || notice.to == *mailbox {
        return Ok(false);
    }
    match queue.publish(&notice) {
        Ok(_) => Ok(true),
        // A script has no mailbox. A sender whose mailbox is full keeps no agent from leaving.
        Err(error) if error.is_undeliverable() => Ok(false),
        Err(error) => Err(error),
    }
}

#[derive(Serialize)]
struct ReturnNotice<'a> {
    message_id: &'a MessageId,
    r#type: &'a Name,
    to: &'a Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    reason: &'a str,
}

/// The notice to a sender, or to the conductor if it is an agent of another project, in the name of `agent`, that a
/// message is dead, and why. The same message and reason give the same notice.
pub fn returned<B: Broker + ?Sized>(
    queue: &B,
    agent: &Name,
    envelope: &Envelope,
    reason: &str,
) -> Result<Envelope> {
    let body = yaml::render(&ReturnNotice {
        message_id: &envelope.id,
        r#type: &envelope.kind,
        to: &envelope.to,
        task_id: envelope.task_id.as_deref(),
        reason,
    });
    // The reason is part of the id, so a different reason sends a new notice.
    let digest = Digest::of(format!("{}\n{}\n{reason}", envelope.to, envelope.id).as_bytes());
    let id = MessageId::new(format!("returned-{}", &digest.to_string()[..40]))?;
    // The person is the same in all projects; an agent of this name is another one.
    let is_here = envelope.project.is_none() || envelope.from.is_operator();
    let to = if is_here { envelope.from.clone() } else { Name::new(CONDUCTOR)? };
    let mut notice = Envelope::new(queue.mailbox_of(&to), body).with_id(id);
    notice.kind = Name::new(RETURNED_TYPE)?;
    notice.from = agent.clone();
    notice.correlation_id.clone_from(&envelope.correlation_id);
    notice.causation_id = Some(envelope.id.to_string());
    notice.task_id.clone_from(&envelope.task_id);
    Ok(notice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::testing::name;
    use crate::spool::{Settings, Spool, SpoolOptions};

    struct Bed {
        _home: tempfile::TempDir,
        spool: Spool,
    }

    fn bed() -> Bed {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default()).unwrap();
        for mailbox in ["worker", "lead", "group"] {
            spool.add_mailbox(&name(mailbox), &Default::default()).unwrap();
        }
        Bed { _home: home, spool }
    }

    impl Bed {
        fn send(&self, from: &str, to: &str, id: &str) {
            let mut envelope = Envelope::new(name(to), "do it\n");
            (envelope.id, envelope.from) = (MessageId::new(id).unwrap(), name(from));
            envelope.task_id = Some(format!("task-{id}"));
            self.spool.publish(&envelope).unwrap();
        }

        fn leave(&self, unread: UnreadMail) -> HandedBack {
            self.spool.hand_back(&name("worker"), &name("worker"), unread, "it has left").unwrap()
        }

        fn state(&self, mailbox: &str, id: &str) -> &'static str {
            let id = MessageId::new(id).unwrap();
            self.spool.state(&name(mailbox), &id).unwrap().map_or("nowhere", |s| s.word())
        }
    }

    #[test]
    fn what_it_held_goes_back_and_who_wrote_is_told_once() {
        let bed = bed();
        bed.send("lead", "worker", "held");
        bed.send("lead", "group", "shared");
        bed.spool.receive(&name("worker"), &name("worker")).unwrap().unwrap();
        bed.spool.receive(&name("group"), &name("worker")).unwrap().unwrap();
        bed.send("lead", "worker", "unread");
        bed.send("no-mailbox", "worker", "anonymous");
        bed.send("worker", "worker", "to-self");
        let done = bed.leave(UnreadMail::Return);
        assert_eq!(done, HandedBack { released: 2, returned: 2, dead: 4, kept: 0 });
        assert_eq!(bed.state("group", "shared"), "queued");
        for id in ["held", "unread", "anonymous", "to-self"] {
            assert_eq!(bed.state("worker", id), "dead", "{id}");
        }
        let letters = bed.spool.dead_letters(&name("worker")).unwrap();
        assert!(letters.iter().all(|letter| letter.reason == "it has left"));
        // Once more, as after a crash: a notified sender is not notified again, wherever the notice
        // is.
        let again = || {
            bed.spool.redrive(&name("worker"), &MessageId::new("unread").unwrap()).unwrap();
            assert_eq!(bed.leave(UnreadMail::Return).dead, 1);
            let counts = bed.spool.counts(&name("lead")).unwrap();
            (counts.queued, counts.acked, counts.settled)
        };
        assert_eq!(again(), (2, 0, 0));
        for received in 1..=2 {
            let told = bed.spool.receive(&name("lead"), &name("lead")).unwrap().unwrap();
            assert_eq!(told.envelope.kind.as_str(), RETURNED_TYPE);
            assert!(told.envelope.task_id.unwrap().starts_with("task-"));
            assert!(told.envelope.body.contains("it has left"));
            assert_eq!(again(), (2 - received, 1, received - 1));
            bed.spool.settle(&told.lease).unwrap();
            assert_eq!(again(), (2 - received, 0, received));
        }
    }

    #[test]
    fn mail_can_stay_or_die() {
        let bed = bed();
        bed.send("lead", "worker", "a");
        bed.send("lead", "worker", "b");
        bed.spool.receive(&name("worker"), &name("worker")).unwrap().unwrap();
        let kept = HandedBack { released: 1, kept: 2, ..HandedBack::default() };
        assert_eq!(bed.leave(UnreadMail::Keep), kept);
        assert_eq!((bed.state("worker", "a"), bed.state("worker", "b")), ("queued", "queued"));
        let dead = HandedBack { dead: 2, ..HandedBack::default() };
        assert_eq!(bed.leave(UnreadMail::DeadLetter), dead);
        assert_eq!(bed.spool.counts(&name("lead")).unwrap().queued, 0, "no sender is notified");
        let full = Settings::default().with_capacity(1);
        bed.spool.add_mailbox(&name("full"), &full).unwrap();
        bed.send("lead", "full", "unread");
        bed.send("full", "worker", "c");
        let dead = HandedBack { dead: 1, ..HandedBack::default() };
        assert_eq!(bed.leave(UnreadMail::Return), dead, "its sender has no room");
    }

    #[test]
    fn a_returned_notice_does_not_come_back() {
        let bed = bed();
        bed.send("lead", "worker", "a");
        bed.leave(UnreadMail::Return);
        let back =
            bed.spool.hand_back(&name("lead"), &name("lead"), UnreadMail::Return, "gone too");
        assert_eq!(back.unwrap(), HandedBack { dead: 1, ..HandedBack::default() });
        assert_eq!(bed.spool.counts(&name("worker")).unwrap().queued, 0);
        let asked = Envelope::new(name("worker"), "end\n").from(name("lead"));
        bed.spool.publish(&asked.with_kind(name("shutdown_request"))).unwrap();
        let dead = HandedBack { dead: 1, ..HandedBack::default() };
        assert_eq!(bed.leave(UnreadMail::Return), dead, "its end is the answer");
    }
}
