//! Stories of messages, from publishing to the end.

use ensemble_core::Result;
use ensemble_core::dropbox::{BoxSpec, DropBox, Ledger};
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::message::{Attachment, Digest};

use crate::support::options;

use super::*;

const STATES: [&str; 5] = ["new", "front", "cur", "done", "dead"];
pub const MAILBOX: &str = "dispatch";
/// The content of a mailbox before the story begins.
const EARLIER: [&str; 3] = ["one", "two", "three"];
/// At `process`, stored messages may be lost or torn, and what was done with them undone.
pub const STORED: &[Kind] = &[Kind::Lost, Kind::Torn, Kind::HalfSeen];

pub const PUBLISH: Story = Story {
    name: "publish",
    prepare,
    act: |stage| {
        let spool = open(stage);
        for id in ["first", "urgent", "second"] {
            publish(&spool, &envelope(id));
        }
        publish(&spool, &Envelope::new(name(MAILBOX), "under a fresh id\n"));
    },
    judge: judge_mail,
    weak: [&[], STORED],
};

pub const BATCH: Story = Story {
    name: "batch",
    prepare,
    act: |stage| {
        let spool = open(stage);
        let batch: Vec<Envelope> = ["first", "urgent", "second"].map(envelope).into();
        spool.publish_batch(&batch).expect("a batch is published");
        batch.iter().for_each(|envelope| say(format_args!("published {}", envelope.id)));
        spool.publish_batch(&batch).expect("and again");
    },
    judge: judge_mail,
    weak: [&[], STORED],
};

/// A sender that was killed before it could sync, and that sends the same again.
pub const AGAIN: Story = Story {
    name: "again",
    prepare,
    act: |stage| {
        let spool = open(stage);
        let batch = ["first", "urgent"].map(envelope);
        let (unsynced, failed) = spool.publish_unsynced(&batch);
        assert!(failed.is_none());
        drop(unsynced);
        batch.iter().for_each(|envelope| publish(&spool, envelope));
    },
    judge: judge_mail,
    weak: [&[Kind::HalfSeen], STORED],
};

pub const LIFE: Story = Story {
    name: "life",
    prepare: prepare_earlier,
    act: |stage| {
        let spool = open(stage);
        let held = receive(&spool);
        spool.extend(&held.lease, Duration::from_secs(9)).expect("extended");
        spool.settle(&held.lease).expect("settled");
        say(format_args!("settled {}", held.envelope.id));
        let held = receive(&spool);
        spool.release(&held.lease, Duration::ZERO).expect("released");
        say(format_args!("released {}", held.envelope.id));
        publish(&spool, &envelope("new"));
        for _ in 0..2 {
            let held = receive(&spool);
            spool.settle(&held.lease).expect("settled");
            say(format_args!("settled {}", held.envelope.id));
        }
        receive(&spool);
    },
    judge: judge_mail,
    weak: [
        &[Kind::GivenBack],
        &[Kind::Lost, Kind::Torn, Kind::Undone, Kind::GivenBack, Kind::HalfSeen],
    ],
};

pub const SETTLE_BATCH: Story = Story {
    name: "settle-batch",
    prepare: prepare_earlier,
    act: |stage| {
        let spool = open(stage);
        let leases = receive_batch(&spool, 2);
        settle_batch(&spool, &leases);
        // One whose lease has ended keeps nothing from the others.
        let held = receive(&spool);
        let both = [leases[0].clone(), held.lease];
        let outcomes = spool.settle_batch(&both).expect("settled");
        assert!(matches!(outcomes[..], [Err(Error::LeaseLost { .. }), Ok(())]));
        say(format_args!("settled {}", both[1].id));
    },
    judge: judge_mail,
    weak: [&[Kind::GivenBack], &[Kind::Undone, Kind::GivenBack]],
};

pub const DEAD: Story = Story {
    name: "dead",
    prepare: prepare_earlier,
    act: |stage| {
        let spool = open(stage);
        let held = receive(&spool);
        spool.dead_letter(&held.lease, "a reason").expect("given up");
        say(format_args!("dead {}", held.envelope.id));
        let waiting = MessageId::new("three").expect("an id");
        spool.dead_letter_waiting(&name(MAILBOX), &waiting, "a reason").expect("given up");
        say("dead three");
        spool.redrive(&name(MAILBOX), &held.envelope.id).expect("given back");
        say(format_args!("redriven {}", held.envelope.id));
        receive(&spool);
    },
    judge: judge_mail,
    weak: [&[Kind::GivenBack], &[Kind::Undone, Kind::GivenBack, Kind::Torn]],
};

pub const NEW_QUEUE: Story = Story {
    name: "new-queue",
    prepare: |_| {},
    act: |stage| {
        let spool = Spool::create(&stage.queue, of(stage.durability)).expect("a queue");
        say("made queue");
        for mailbox in [MAILBOX, "conductor"] {
            spool.add_mailbox(&name(mailbox), &settings()).expect("a mailbox");
            say(format_args!("made {mailbox}"));
        }
        publish(&spool, &envelope("first"));
    },
    judge: judge_new,
    // Stuck: a mailbox whose settings are torn waits for a person.
    weak: [&[], &[Kind::Lost, Kind::Torn, Kind::HalfSeen, Kind::Stuck]],
};

pub const ATTACH: Story = Story {
    name: "attach",
    prepare,
    act: |stage| {
        let spool = open(stage);
        for content in [LONG, b"short"] {
            let attachment = spool.attach(content).expect("attached");
            say(format_args!("attached {}", attachment.bytes));
        }
        publish(&spool, &envelope("first"));
    },
    judge: |bed, told, found| {
        let spool = bed.spool();
        for content in [LONG, b"short"] {
            let bytes = content.len() as u64;
            if !told.contains(&format!("attached {bytes}")) {
                continue;
            }
            let attachment = Attachment { sha256: Digest::of(content), bytes };
            match spool.read_attachment(&attachment) {
                Ok(read) if read == content => {}
                Ok(_) => found.note(Kind::Torn, bytes),
                Err(_) if spool.attachment_path(&attachment).exists() => {
                    found.note(Kind::Torn, bytes);
                }
                Err(error) => found.note(Kind::Lost, error),
            }
        }
        judge_mail(bed, told, found)
    },
    weak: [&[], STORED],
};

/// The watcher's handling of a file in a drop box; see `routing` in ensemble-watch.
pub const ROUTE: Story = Story {
    name: "route",
    prepare: |home| {
        prepare(home);
        fs::create_dir(home.join(".ensemble")).expect("a directory");
        Ledger::open(&home.join(".ensemble")).expect("a ledger");
        fs::write(home.join("queue/reports/t-1-completed.yaml"), "task_id: t-1\n")
            .expect("a report");
    },
    act: |stage| {
        // A watcher that was killed before it could sync, and the next one.
        let spool = open(stage);
        route(&stage.queue, &spool, false).expect("stored");
        route(&stage.queue, &spool, true).expect("routed");
    },
    judge: |bed, told, found| {
        route(&bed.queue(), &bed.spool(), true)?;
        route(&bed.queue(), &bed.spool(), true)?;
        let routed = whole(bed, MAILBOX).into_iter().filter(|(_, e)| e.source.is_some()).count();
        match routed {
            0 => found.note(Kind::Lost, "the report"),
            1 => {}
            more => found.note(Kind::Twice, more),
        }
        judge_mail(bed, told, found)
    },
    weak: [&[], STORED],
};

const LONG: &[u8] = &[b'x'; 100_000];

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.lease_seconds = 77;
    settings
}

pub fn of(durability: Durability) -> SpoolOptions {
    SpoolOptions { durability, ..SpoolOptions::default() }
}

pub fn open(stage: &Stage) -> Spool {
    Spool::open(&stage.queue, of(stage.durability)).expect("the queue")
}

pub fn prepare(home: &Path) {
    Bed::at(home);
}

pub fn prepare_earlier(home: &Path) {
    let bed = Bed::at(home);
    for id in EARLIER {
        bed.spool().publish(&envelope(id)).expect("published");
    }
}

pub fn envelope(id: &str) -> Envelope {
    let body = format!("the body of {id}\n").repeat(20);
    let envelope = Envelope::new(name(MAILBOX), body).with_id(MessageId::new(id).expect("an id"));
    envelope.with_priority(if id == "urgent" { 5 } else { 0 })
}

pub fn publish(spool: &Spool, envelope: &Envelope) {
    spool.publish(envelope).expect("published");
    say(format_args!("published {}", envelope.id));
}

pub fn receive(spool: &Spool) -> Delivery {
    let delivery = spool.receive(&name(MAILBOX), &name("holder")).expect("received");
    let delivery = delivery.expect("something waits");
    say(format_args!("received {}", delivery.envelope.id));
    delivery
}

pub fn receive_batch(spool: &Spool, count: usize) -> Vec<Lease> {
    let taken = spool.receive_batch(&name(MAILBOX), &name("holder"), count).expect("received");
    assert_eq!(taken.len(), count);
    taken.iter().for_each(|delivery| say(format_args!("received {}", delivery.envelope.id)));
    taken.into_iter().map(|delivery| delivery.lease).collect()
}

pub fn settle_batch(spool: &Spool, leases: &[Lease]) {
    let outcomes = spool.settle_batch(leases).expect("settled");
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    leases.iter().for_each(|lease| say(format_args!("settled {}", lease.id)));
}

fn route(queue: &Path, spool: &Spool, to_the_end: bool) -> Result<()> {
    const PATH: &str = "reports/t-1-completed.yaml";
    let state = queue.with_file_name(".ensemble");
    let mut ledger = Ledger::open(&state)?;
    let reports = DropBox::open(queue, &BoxSpec::named("reports"))?;
    let (stat, content) = reports.read("t-1-completed.yaml", 1 << 20)?.expect("the report");
    let Some(entry) = ledger.next_version(PATH, &stat, &content) else { return Ok(()) };
    let id = entry.message_id(&name(MAILBOX));
    let body = String::from_utf8(content).expect("a report in UTF-8");
    let mut envelope = Envelope::new(name(MAILBOX), body).with_id(id);
    envelope.source = Some(PATH.to_owned());
    let (unsynced, failed) = spool.publish_unsynced(&[envelope]);
    failed.map_or(Ok(()), Err)?;
    if !to_the_end {
        return Ok(());
    }
    unsynced.sync()?;
    ledger.append(vec![entry])
}

/// The files of a mailbox, each with the state it is in and, if it can be read, its message.
fn stored(bed: &Bed, mailbox: &str) -> Vec<(&'static str, PathBuf, Option<Envelope>)> {
    let mut all = Vec::new();
    for state in STATES {
        for path in files(&bed.in_queue(&format!("mailbox/{mailbox}/{state}"))) {
            let envelope = fs::read(&path).ok().and_then(|c| Envelope::decode(&c, &path).ok());
            all.push((state, path, envelope));
        }
    }
    all
}

/// The messages of a mailbox that can be read, with the state each is in.
pub fn whole(bed: &Bed, mailbox: &str) -> Vec<(&'static str, Envelope)> {
    let stored = stored(bed, mailbox).into_iter();
    stored.filter_map(|(state, _, envelope)| Some((state, envelope?))).collect()
}

/// The files of messages that cannot be read.
fn torn(bed: &Bed) -> Vec<String> {
    let stored = stored(bed, MAILBOX).into_iter().filter(|(_, _, envelope)| envelope.is_none());
    let files = stored.map(|(_, path, _)| path.file_name().unwrap().to_string_lossy().into_owned());
    files.filter(|file| !file.contains("@reason") && !file.contains("@double")).collect()
}

/// The last thing that was said of each message.
fn last_said(told: &[String]) -> Vec<(String, String)> {
    let mut last: Vec<(String, String)> = Vec::new();
    for (verb, id) in told.iter().filter_map(|mark| mark.split_once(' ')) {
        if ["made", "attached"].contains(&verb) {
            continue;
        }
        last.retain(|(known, _)| known != id);
        last.push((id.to_owned(), verb.to_owned()));
    }
    last
}

pub fn judge_mail(bed: &Bed, told: &[String], found: &mut Findings) -> Result<()> {
    let (spool, mailbox) = (bed.spool(), name(MAILBOX));
    let torn = torn(bed);
    let whole = whole(bed, MAILBOX);
    let said = last_said(told);
    for file in torn.iter().filter(|file| !said.iter().any(|(id, _)| file.contains(id.as_str()))) {
        found.note(Kind::HalfSeen, file);
    }
    for (id, verb) in &said {
        let places: Vec<&str> =
            whole.iter().filter(|(_, e)| e.id.as_str() == id).map(|(state, _)| *state).collect();
        match (verb.as_str(), places.as_slice()) {
            (_, []) if torn.iter().any(|file| file.contains(id.as_str())) => {
                found.note(Kind::Torn, id);
            }
            (_, []) => found.note(Kind::Lost, id),
            (_, [_, _, ..]) => found.note(Kind::Twice, format!("{id}: {places:?}")),
            ("published", ["new" | "front" | "cur" | "done"])
            | ("received", ["cur" | "front" | "done" | "dead"])
            | ("settled", ["done"])
            | ("released", ["front" | "cur" | "done"])
            | ("dead", ["dead" | "front"])
            | ("redriven", ["front" | "cur"]) => {}
            ("received", _) | ("released", ["new"]) => found.note(Kind::GivenBack, id),
            (verb, _) => found.note(Kind::Undone, format!("{verb} {id}: {places:?}")),
        }
        if verb == "dead" && places == ["dead"] {
            let letters = spool.dead_letters(&mailbox)?;
            let reason = letters.iter().find(|letter| letter.id.as_str() == id).map(|l| &l.reason);
            if reason.is_none_or(|reason| reason != "a reason") {
                found.note(Kind::Torn, format!("the reason of {id}: {reason:?}"));
            }
        }
    }
    mend(&spool, found)?;
    work_off(bed, &spool, told, found)
}

/// Everything else that is left must be repairable; torn messages that were settled or dead stay where they are.
fn mend(spool: &Spool, found: &mut Findings) -> Result<()> {
    spool.fsck(true)?;
    let history = |path: &str| path.contains("/done/") || path.contains("/dead/");
    for finding in spool.fsck(false)?.iter().filter(|finding| !history(&finding.path)) {
        found.note(Kind::Stuck, format!("{finding:?}"));
    }
    Ok(())
}

/// Every sender without an acknowledgement sends again; then everything is received and settled,
/// once.
fn work_off(bed: &Bed, spool: &Spool, told: &[String], found: &mut Findings) -> Result<()> {
    let mailbox = name(MAILBOX);
    for id in ["first", "urgent", "second"] {
        if !told.contains(&format!("published {id}")) {
            spool.publish(&envelope(id))?;
        }
    }
    for held in spool.observe(&mailbox)? {
        spool.settle(&held.lease)?;
    }
    for letter in spool.dead_letters(&mailbox)? {
        match spool.redrive(&mailbox, &letter.id) {
            Ok(()) | Err(Error::NoMessage { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let mut settled: Vec<String> = Vec::new();
    while let Some(delivery) = spool.receive(&mailbox, &name("after"))? {
        let id = delivery.envelope.id.to_string();
        spool.settle(&delivery.lease)?;
        if settled.contains(&id) {
            found.note(Kind::Twice, format!("{id} was received again after it was settled"));
        }
        settled.push(id);
    }
    for (state, envelope) in whole(bed, MAILBOX) {
        if !matches!(spool.state(&mailbox, &envelope.id)?, Some(State::Settled)) {
            found.note(Kind::Stuck, format!("{} ends in {state}", envelope.id));
        }
    }
    Ok(())
}

fn judge_new(bed: &Bed, told: &[String], found: &mut Findings) -> Result<()> {
    if !told.contains(&"made queue".to_owned()) {
        Spool::create(&bed.queue(), options())?;
    }
    if !bed.in_queue("mailbox").exists() {
        found.note(Kind::Lost, "the queue");
        return Ok(());
    }
    let spool = Spool::create(&bed.queue(), options())?;
    for mailbox in [MAILBOX, "conductor"] {
        let is_there = spool.mailboxes()?.contains(&name(mailbox));
        if !told.contains(&format!("made {mailbox}")) {
            match spool.add_mailbox(&name(mailbox), &settings()) {
                Ok(()) | Err(Error::MailboxExists { .. }) => {}
                Err(error) => return Err(error),
            }
        } else if !is_there {
            found.note(Kind::Lost, mailbox);
            spool.add_mailbox(&name(mailbox), &settings())?;
        } else if spool.settings(&name(mailbox)).ok() != Some(settings()) {
            found.note(Kind::Torn, format!("the settings of {mailbox}"));
            spool.configure_mailbox(&name(mailbox), &settings())?;
        }
    }
    if told.is_empty() {
        return Ok(());
    }
    judge_mail(bed, told, found)
}
