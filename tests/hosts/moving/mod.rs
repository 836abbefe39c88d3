//! Nothing is lost by moving. A migration that dies at any call is run again. Then every message is in one queue
//! with its state, or is kept as a dead letter that says why.

#![allow(unreachable_pub, reason = "modules of one test program")]

mod contained;
mod dying;

use std::collections::BTreeMap;

use dying::{Death, Dying};
use ensemble_team::migration::{MigrationReport, migrate};

use crate::queue::name;

use crate::*;

const HOUR: Duration = Duration::from_secs(3600);

fn mailbox() -> Name {
    name("w1")
}

fn id(id: &str) -> MessageId {
    MessageId::new(id).unwrap()
}

fn message(word: &str, body: &str) -> Envelope {
    Envelope::new(mailbox(), body).with_id(id(word))
}

fn spool(home: &tempfile::TempDir) -> Spool {
    let options = SpoolOptions::default().with_durability(Durability::Process);
    Spool::create(home.path(), options).unwrap()
}

fn servers(server: &Server) -> NatsTransport {
    NatsTransport::connect(&server.options(&fresh_team()).with_patience(PATIENCE)).unwrap()
}

/// Ids with other content in the new queue, by their state there.
const TAKEN: [&str; 4] = ["taken-waiting", "taken-held", "taken-settled", "taken-dead"];

/// The old queue: each kind of message once.
fn fill_old(from: &dyn Broker) {
    from.add_mailbox(&mailbox(), &Settings::default()).unwrap();
    let publish = |envelope: Envelope| from.publish(&envelope).unwrap();
    let take = |word: &str| from.receive_id(&mailbox(), &id(word), &name("w")).unwrap().unwrap();
    publish(message("plain", "plain"));
    publish(message("urgent", "urgent").with_priority(3));
    publish(message("same", "the same content"));
    let mut expired = message("expired", "expired");
    expired.expires_at = Some(SystemClock.wall().plus(Duration::from_millis(1)));
    publish(expired);
    publish(message("delayed", "delayed"));
    from.release(&take("delayed").lease, HOUR).unwrap();
    publish(message("dead", "dead"));
    from.dead_letter(&take("dead").lease, "wrong team").unwrap();
    for word in TAKEN {
        publish(message(word, "second content"));
    }
    publish(message("late", "second content"));
    from.release(&take("late").lease, HOUR).unwrap();
    publish(message("buried", "second content"));
    from.dead_letter(&take("buried").lease, "wrong team").unwrap();
    publish(message("held", "second content"));
    take("held");
}

/// The new queue: other content under some ids, in every state.
fn fill_new(to: &dyn Broker) {
    to.add_mailbox(&mailbox(), &Settings::default()).unwrap();
    let take = |word: &str| to.receive_id(&mailbox(), &id(word), &name("v")).unwrap().unwrap();
    for word in TAKEN.into_iter().chain(["late", "buried", "held"]) {
        to.publish(&message(word, "first content")).unwrap();
    }
    to.publish(&message("same", "the same content")).unwrap();
    take("taken-held");
    for word in ["taken-settled", "late", "buried", "held", "same"] {
        to.settle(&take(word).lease).unwrap();
    }
    to.dead_letter(&take("taken-dead").lease, "first").unwrap();
}

/// A word for the state of a message, and its content.
fn standing(queue: &dyn Broker, word: &str) -> Option<(&'static str, String)> {
    let state = match queue.state(&mailbox(), &id(word)) {
        Err(Error::NoMailbox { .. }) | Ok(None) => return None,
        state => state.unwrap().unwrap(),
    };
    let state = match state {
        State::Queued { not_before: 0, .. } => "queued",
        State::Queued { .. } => "delayed",
        State::Acked { .. } => "held",
        State::Settled => "settled",
        State::Dead => "dead",
    };
    Some((state, queue.peek(&mailbox(), &id(word)).unwrap().body))
}

fn reasons(queue: &dyn Broker) -> BTreeMap<String, String> {
    let letters = queue.dead_letters(&mailbox()).unwrap();
    letters.into_iter().map(|letter| (letter.id.to_string(), letter.reason)).collect()
}

/// Every message is where it belongs after a whole migration.
#[track_caller]
fn assert_moved(from: &dyn Broker, to: &dyn Broker, context: &str) {
    let content = |state, body: &str| Some((state, body.to_owned()));
    for (word, state) in [
        ("plain", "queued"),
        ("urgent", "queued"),
        ("expired", "queued"),
        ("delayed", "delayed"),
        ("dead", "dead"),
    ] {
        assert_eq!(standing(to, word), content(state, word), "{word}, {context}");
        assert_eq!(standing(from, word), None, "{word} is in one queue, {context}");
    }
    assert_eq!(standing(to, "same"), content("settled", "the same content"), "{context}");
    assert_eq!(standing(from, "same"), None, "{context}");
    for (word, state) in TAKEN.into_iter().zip(["queued", "held", "settled", "dead"]) {
        assert_eq!(standing(to, word), content(state, "first content"), "{word}, {context}");
        assert_eq!(standing(from, word), content("dead", "second content"), "{word}, {context}");
    }
    for word in ["late", "buried"] {
        assert_eq!(standing(to, word), content("settled", "first content"), "{word}, {context}");
        assert_eq!(standing(from, word), content("dead", "second content"), "{word}, {context}");
    }
    assert_eq!(standing(from, "held"), content("held", "second content"), "{context}");
    let (here, there) = (reasons(from), reasons(to));
    for word in TAKEN.into_iter().chain(["late"]) {
        assert!(here[word].starts_with("not moved: "), "{here:?}, {context}");
        assert!(here[word].contains("different content"), "{here:?}, {context}");
    }
    assert_eq!(here["buried"], "wrong team", "it keeps its own reason, {context}");
    assert_eq!((&*there["dead"], &*there["taken-dead"]), ("wrong team", "first"), "{context}");
}

#[track_caller]
fn assert_told(moved: &MigrationReport, context: &str) {
    let mut kept: Vec<_> = moved.kept.iter().map(|kept| kept.id.to_string()).collect();
    kept.sort_unstable();
    let mut expected = [&TAKEN[..], &["late", "buried"]].concat();
    expected.sort_unstable();
    assert_eq!((kept.iter().map(String::as_str).collect(), moved.held), (expected, 1), "{context}");
}

/// Runs a migration that dies at each of its calls in turn, before and after the call's work.
fn dies_at_every_call(queues: impl Fn() -> (Box<dyn Broker>, Box<dyn Broker>)) {
    for death in [Death::Before, Death::After] {
        let mut calls = 0;
        loop {
            calls += 1;
            let context = format!("{death:?} call {calls}");
            let (from, to) = queues();
            fill_old(&*from);
            fill_new(&*to);
            let life = dying::Life::of(calls, death);
            let first = migrate(&Dying::new(&*from, &life), &Dying::new(&*to, &life));
            if let Ok(moved) = &first {
                assert_told(moved, &context);
            }
            assert_told(&migrate(&*from, &*to).unwrap(), &context);
            assert_moved(&*from, &*to, &context);
            if first.is_ok() {
                assert!(calls > 30, "it makes more calls than this");
                break;
            }
        }
    }
}

#[test]
fn a_move_in_either_direction_that_dies_anywhere_loses_nothing() {
    let server = Server::start();
    for is_to_servers in [true, false] {
        let homes = std::cell::RefCell::new(Vec::new());
        dies_at_every_call(|| {
            let home = tempfile::tempdir().unwrap();
            let (here, there) = (Box::new(spool(&home)), Box::new(servers(&server)));
            homes.borrow_mut().push(home);
            if is_to_servers { (here, there) } else { (there, here) }
        });
    }
}

#[test]
fn attached_content_moves_with_its_message_and_back() {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let (from, to) = (spool(&home), servers(&server));
    from.add_mailbox(&mailbox(), &Settings::default()).unwrap();
    let content = vec![7; 1_000_000];
    let attachment = from.attach(&content).unwrap();
    from.publish(&message("a", "see there").with_attachment(attachment.clone())).unwrap();
    assert_eq!(migrate(&from, &to).unwrap().moved, 1);
    assert_eq!(standing(&to, "a"), Some(("queued", "see there".to_owned())));
    assert_eq!(to.attached(&attachment).unwrap(), content);
    std::fs::remove_file(from.attachment_path(&attachment)).unwrap();
    assert_eq!(migrate(&to, &from).unwrap().moved, 1);
    assert_eq!(from.attached(&attachment).unwrap(), content);
    // Content that is lost is reported, and its message stays.
    std::fs::remove_file(from.attachment_path(&attachment)).unwrap();
    let moved = migrate(&from, &to).unwrap();
    assert!(moved.kept[0].reason.contains("attachment"), "{moved:?}");
    assert_eq!(standing(&from, "a"), Some(("dead", "see there".to_owned())));
}

#[test]
fn a_full_mailbox_keeps_no_other_message_from_moving() {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let (from, to) = (servers(&server), spool(&home));
    let full = name("full");
    let bounded = Settings::default().with_capacity(1);
    for queue in [&from as &dyn Broker, &to] {
        queue.add_mailbox(&full, &bounded).unwrap();
    }
    from.add_mailbox(&mailbox(), &Settings::default()).unwrap();
    from.publish(&message("a", "a")).unwrap();
    from.publish(&Envelope::new(full.clone(), "here").with_id(id("here"))).unwrap();
    to.publish(&Envelope::new(full.clone(), "there")).unwrap();
    let moved = migrate(&from, &to).unwrap();
    assert_eq!((moved.moved, moved.crowded), (1, 1), "{moved:?}");
    let there = to.receive(&full, &full).unwrap().unwrap();
    to.settle(&there.lease).unwrap();
    let moved = migrate(&from, &to).unwrap();
    assert_eq!((moved.moved, moved.crowded), (1, 0), "{moved:?}");
    assert_eq!(to.receive(&full, &full).unwrap().unwrap().envelope.body, "here");
}
