//! One failure stays one failure: a full mailbox, an unknown one or a refused message keeps no other from
//! being carried.

use ensemble_core::broker::RETURNED_TYPE;

use super::{name, servers};

use crate::*;

fn letter(to: &str, body: &str) -> Envelope {
    Envelope::new(name(to), body).from(name("sender"))
}

/// A server with the bounded mailbox `full`, which is full, and the mailboxes `sender` and `w`.
fn crowded(server: &Server) -> NatsTransport {
    let queue = servers(server);
    queue.add_mailbox(&name("full"), &Settings::default().with_capacity(1)).unwrap();
    for mailbox in ["sender", "w"] {
        queue.add_mailbox(&name(mailbox), &Settings::default()).unwrap();
    }
    queue.publish(&letter("full", "first")).unwrap();
    queue
}

fn open(home: &tempfile::TempDir) -> Outbox {
    let options = SpoolOptions::default().with_durability(Durability::Process);
    Outbox::open(home.path(), 100, options).unwrap()
}

#[test]
fn a_full_mailbox_keeps_nothing_else_in_the_outbox() {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let (queue, outbox) = (crowded(&server), open(&home));
    for (to, body) in [("full", "second"), ("w", "one"), ("w", "two")] {
        assert!(matches!(outbox.post(None, &letter(to, body)).unwrap(), PostOutcome::Kept(_)));
    }
    let carried = outbox.drain(&queue).unwrap();
    assert_eq!(carried.carried, 2);
    assert!(matches!(carried.stuck, Some(Error::Full { .. })), "{carried:?}");
    let sent = outbox.post(Some(&queue), &letter("w", "three")).unwrap();
    assert_eq!(
        sent,
        PostOutcome::Sent(PublishOutcome::Stored),
        "it does not wait behind another mailbox"
    );
    let full = outbox.post(Some(&queue), &letter("full", "third")).unwrap_err();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    assert_eq!(settle_all(&queue, "w"), ["one", "two", "three"]);
    assert_eq!(settle_all(&queue, "full"), ["first"]);
    assert_eq!(outbox.drain(&queue).unwrap().carried, 1);
    assert_eq!(
        (settle_all(&queue, "full"), outbox.waiting().unwrap()),
        (vec!["second".to_owned()], 0)
    );
    // Nor does a mailbox of the outbox that cannot be read, which only its own messages need.
    outbox.post(None, &letter("w", "four")).unwrap();
    outbox.post(None, &letter("bad", "lost")).unwrap();
    let new = home.path().join("mailbox/bad/new");
    std::fs::remove_dir_all(&new).unwrap();
    std::fs::write(&new, "").unwrap();
    let outbox = open(&home);
    assert_eq!((outbox.waiting().unwrap(), outbox.dead().unwrap()), (1, 0));
    outbox.post(Some(&queue), &letter("w", "five")).unwrap();
    assert_eq!(settle_all(&queue, "w"), ["four", "five"]);
    outbox.post(Some(&queue), &letter("bad", "six")).unwrap_err();
}

#[test]
fn a_message_for_no_mailbox_returns_to_its_sender() {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let (queue, outbox) = (crowded(&server), open(&home));
    let lost = letter("typo", "to a typing mistake");
    outbox.post(None, &lost).unwrap();
    outbox.post(None, &letter("w", "after")).unwrap();
    let carried = outbox.drain(&queue).unwrap();
    assert_eq!((carried.carried, carried.buried), (1, 1));
    assert_eq!((outbox.waiting().unwrap(), outbox.dead().unwrap()), (0, 1));
    let letters = outbox.spool().dead_letters(&name("typo")).unwrap();
    assert!(letters[0].reason.contains("no mailbox `typo`"), "{letters:?}");
    let sender = name("sender");
    let notice = queue.receive(&sender, &sender).unwrap().expect("the sender is told").envelope;
    assert_eq!((notice.kind.as_str(), notice.from.as_str()), (RETURNED_TYPE, "outbox"));
    assert!(notice.body.contains(lost.id.as_str()), "{}", notice.body);
    assert_eq!(outbox.drain(&queue).unwrap().buried, 0, "it is told once");
}

#[test]
fn a_bridge_goes_on_behind_a_full_mailbox() {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let queue = crowded(&server);
    let spool = Spool::create(home.path(), SpoolOptions::default()).unwrap();
    for mailbox in ["full", "w"] {
        spool.add_mailbox(&name(mailbox), &Settings::default()).unwrap();
        spool.publish(&letter(mailbox, "carried")).unwrap();
    }
    let bridge = Bridge::new(&spool, &queue, name("bridge"), UnknownMailbox::Create);
    let carry = |mailbox: &str| bridge.carry(&Name::new(mailbox).unwrap()).unwrap();
    assert!(carry("full").stuck.is_some());
    assert_eq!(carry("w").carried, 1);
    assert_eq!(
        (settle_all(&queue, "w"), settle_all(&queue, "full").len()),
        (vec!["carried".to_owned()], 1)
    );
    let carried = carry("full");
    assert_eq!((carried.carried, carried.stuck.is_some()), (1, false));
}
