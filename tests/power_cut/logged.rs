//! Stories of the write-ahead log: when it goes on to the next segment, and when it is replayed.

use std::fs;
use std::path::Path;

use ensemble_core::Result;
use ensemble_core::durable::Durability;
use ensemble_core::message::MessageId;
use ensemble_core::spool::Spool;

use super::mail::{self, MAILBOX, STORED, envelope, judge_mail, publish, receive, whole};
use super::story::{Kind, Story, say};
use super::support::{Bed, name, options};

/// Two messages fit into a segment.
const SEGMENT_BYTES: u64 = 1_200;
/// The promises made before a replay begins.
const PROMISED: [&str; 4] =
    ["published first", "published second", "published whole", "settled urgent"];

/// The work of the stories `publish` and `life`, through the log.
pub const LOGGED: Story = Story {
    name: "logged",
    prepare: mail::prepare_earlier,
    act: |stage| {
        let mut options = mail::of(stage.durability);
        options.wal = true;
        let spool = Spool::open(&stage.queue, options).expect("the queue");
        for id in ["first", "urgent"] {
            publish(&spool, &envelope(id));
        }
        let held = receive(&spool);
        spool.settle(&held.lease).expect("settled");
        say(format_args!("settled {}", held.envelope.id));
        let leases = mail::receive_batch(&spool, 2);
        mail::settle_batch(&spool, &leases);
        let held = receive(&spool);
        spool.release(&held.lease, std::time::Duration::ZERO).expect("released");
        say(format_args!("released {}", held.envelope.id));
        publish(&spool, &envelope("second"));
    },
    judge: judge_mail,
    weak: [
        &[Kind::GivenBack],
        &[Kind::Lost, Kind::Torn, Kind::Undone, Kind::GivenBack, Kind::HalfSeen],
    ],
};

pub const ROTATE: Story = Story {
    name: "rotate",
    prepare: mail::prepare,
    act: |stage| {
        let mut options = mail::of(stage.durability);
        options.wal = true;
        options.wal_bytes = SEGMENT_BYTES;
        let spool = Spool::open(&stage.queue, options).expect("the queue");
        publish(&spool, &envelope("dropped"));
        let held = receive(&spool);
        spool.dead_letter(&held.lease, "a reason").expect("given up");
        say("dead dropped");
        for id in ["first", "urgent", "second"] {
            publish(&spool, &envelope(id));
        }
        let held = receive(&spool);
        spool.settle(&held.lease).expect("settled");
        say(format_args!("settled {}", held.envelope.id));
        spool.drop_dead(&name(MAILBOX), &MessageId::new("dropped").expect("an id")).expect("gone");
        say("gone dropped");
        publish(&spool, &envelope("third"));
        let held = receive(&spool);
        spool.settle(&held.lease).expect("settled");
        say(format_args!("settled {}", held.envelope.id));
        spool.checkpoint().expect("all of it is on disk");
        publish(&spool, &envelope("fourth"));
    },
    judge: |bed, told, found| {
        let mut told = told.to_vec();
        if told.contains(&"gone dropped".to_owned()) {
            told.retain(|mark| !mark.ends_with(" dropped"));
            let back: Vec<_> =
                whole(bed, MAILBOX).into_iter().filter(|m| m.1.id.as_str() == "dropped").collect();
            if !back.is_empty() {
                found.note(Kind::Undone, format!("dropped, and back in {}", back[0].0));
            }
        } else {
            // An operation that was not acknowledged may be done.
            told.retain(|mark| mark != "dead dropped");
            if whole(bed, MAILBOX).iter().all(|m| m.1.id.as_str() != "dropped") {
                told.retain(|mark| !mark.ends_with(" dropped"));
            }
        }
        judge_mail(bed, &told, found)
    },
    weak: [
        &[Kind::GivenBack],
        &[Kind::Lost, Kind::Torn, Kind::Undone, Kind::GivenBack, Kind::HalfSeen],
    ],
};

/// A power cut has left a message out, one cut in half, and one that was settled where it waited.
pub const REPLAY: Story = Story {
    name: "replay",
    prepare: |home| {
        mail::prepare(home);
        let mut options = mail::of(Durability::Power);
        options.boot = Some("before".to_owned());
        options.wal = true;
        let spool = Spool::open(&home.join("queue"), options).expect("the queue");
        for id in ["first", "urgent", "second", "whole"] {
            spool.publish(&envelope(id)).expect("published");
        }
        let urgent = spool.receive(&name(MAILBOX), &name("holder")).expect("received");
        spool.settle(&urgent.expect("it waits").lease).expect("settled");
        spool.receive(&name(MAILBOX), &name("holder")).expect("received");
        let mailbox = home.join("queue/mailbox").join(MAILBOX);
        let at = |file: &str| mailbox.join(file);
        fs::remove_file(at("cur/first@holder@1.yaml")).expect("it was held");
        let text = fs::read(at("new/second.yaml")).expect("it waits");
        fs::write(at("new/second.yaml"), &text[..text.len() / 2]).expect("half of it");
        fs::rename(at("done/urgent.yaml"), at("new/urgent.yaml")).expect("it was settled");
    },
    act: |stage| {
        let mut options = mail::of(stage.durability);
        options.boot = Some("after".to_owned());
        options.wal = true;
        let spool = Spool::open(&stage.queue, options).expect("the queue is mended");
        say("replayed");
        publish(&spool, &envelope("third"));
    },
    judge: |bed, told, found| {
        replay(bed)?;
        let told: Vec<String> =
            PROMISED.iter().map(|mark| (*mark).to_owned()).chain(told.to_vec()).collect();
        judge_mail(bed, &told, found)
    },
    weak: [&[], STORED],
};

/// The next process opens the queue after a restart of the machine.
pub fn replay(bed: &Bed) -> Result<()> {
    let is_there = |name: &str| Path::exists(&bed.in_queue(name));
    if is_there("wal") && is_there("mailbox") {
        let mut options = options();
        options.boot = Some("after the power cut".to_owned());
        Spool::open(&bed.queue(), options)?;
    }
    Ok(())
}
