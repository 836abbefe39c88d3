//! The mailboxes' behaviour, one promise a test, on a real file system.

use std::os::unix::fs::PermissionsExt;

use crate::*;

/// Its clock is behind the machine's, whose stamps its files have.
fn bed() -> QueueBed {
    let clock = SimClock::new(Timestamp::from_unix_millis(1_700_000_000_000));
    QueueSetup::of(["dispatch"]).clock(clock).build()
}

#[test]
fn a_message_goes_its_way_as_the_state_table_says() {
    let bed = bed();
    let id = bed.publish("hello\n");
    assert!(bed.path(&format!("new/{id}.yaml")).exists());
    let delivery = bed.receive().unwrap();
    assert!(bed.path(&format!("cur/{id}@reader@1.yaml")).exists());
    bed.spool.settle(&delivery.lease).unwrap();
    assert!(bed.path(&format!("done/{id}.yaml")).exists());
    assert!(bed.receive().is_none());
    assert!(
        bed.spool
            .settle(&delivery.lease)
            .unwrap_err()
            .to_string()
            .contains("the message is settled")
    );
}

#[test]
fn files_are_private_and_tmp_is_empty_afterwards() {
    let bed = bed();
    let id = bed.publish("x");
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(bed.path(&format!("new/{id}.yaml"))), 0o600);
    assert_eq!(mode(bed.path("new")), 0o700);
    assert_eq!(std::fs::read_dir(bed.home.path().join("queue/tmp")).unwrap().count(), 0);
}

#[test]
fn an_id_that_was_written_into_the_field_is_looked_for_too() {
    let bed = bed();
    let make = || {
        let mut envelope = Envelope::new(name("dispatch"), "once");
        envelope.id = MessageId::new("task-1").unwrap();
        envelope
    };
    bed.spool.publish(&make()).unwrap();
    bed.spool.settle(&bed.receive().unwrap().lease).unwrap();
    assert_eq!(bed.spool.publish(&make()).unwrap(), PublishOutcome::AlreadyStored);
    assert_eq!(bed.counts().queued, 0);
}

#[test]
fn a_batch_is_stored_in_order() {
    let bed = bed();
    let batch: Vec<_> = (0..100).map(|n| Envelope::new(name("dispatch"), format!("{n}"))).collect();
    assert_eq!(bed.spool.publish_batch(&batch).unwrap().len(), 100);
    assert_eq!(bed.bodies(), (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_full_mailbox_refuses_and_its_reader_can_see_it() {
    let mut settings = Settings::default();
    settings.capacity = Some(2);
    let bed = QueueSetup::of(["dispatch"]).settings(settings).build();
    bed.publish("1");
    bed.publish("2");
    let third = Envelope::new(name("dispatch"), "3").from(name("worker-1"));
    std::fs::write(bed.spool.root().join("mailbox/dispatch/overflow.yaml"), "refused: [").unwrap();
    assert!(matches!(bed.spool.publish(&third), Err(Error::Full { capacity: 2, .. })));
    let overflow = bed.spool.overflow(&name("dispatch")).unwrap().unwrap();
    assert_eq!((overflow.refused, overflow.last_from.as_str()), (1, "worker-1"));
    bed.receive().unwrap();
    assert_eq!(bed.spool.publish(&third).unwrap(), PublishOutcome::Stored);
}

#[test]
fn an_extension_is_a_sign_of_life_that_observers_see() {
    let bed = bed();
    bed.publish("x");
    let delivery = bed.receive().unwrap();
    let silent = bed.spool.observe(&name("dispatch")).unwrap().remove(0);
    assert_eq!((silent.sequence, silent.duration), (0, Duration::from_secs(300)));
    bed.spool.extend(&delivery.lease, Duration::from_secs(900)).unwrap();
    let extended = bed.spool.observe(&name("dispatch")).unwrap().remove(0);
    assert_eq!((extended.sequence, extended.duration), (1, Duration::from_secs(900)));
    assert!(!bed.spool.expire(&silent).unwrap(), "judged on an observation that is out of date");
    assert!(bed.spool.expire(&extended).unwrap());
    assert!(matches!(bed.spool.settle(&delivery.lease), Err(Error::LeaseLost { .. })));
    assert_eq!(bed.receive().unwrap().lease.epoch, 2);
}

#[test]
fn hostile_files_are_dead_lettered_and_nothing_else_stops() {
    let bed = bed();
    let place =
        |file: &str, content: &[u8]| std::fs::write(bed.path("new").join(file), content).unwrap();
    place("a-strange.yaml", b"\n");
    place("b-binary.yaml", &[0xff, 0xfe, 0, 1]);
    place("c-bomb.yaml", b"a: &a [x,x]\nb: &b [*a,*a]\nbody: *b\n");
    place("d-double.yaml", b"body: a\nbody: b\n");
    place("e-deep.yaml", format!("body: {}\n", "[".repeat(1000)).as_bytes());
    place("f-name.yaml", b"from: ../../etc\nbody: x\n");
    place("g-newer.yaml", b"version: 99\nbody: x\n");
    place("h-cut.yaml", b"body_length: 100\nbody: x\n");
    place("i-large.yaml", &vec![b'x'; 70_000]);
    place("j-quadratic.yaml", format!("{{a: {}", "`".repeat(16_000)).as_bytes());
    place("k-other-id.yaml", b"id: someone-else\nbody: x\n");
    place("l-escape.yaml", b"task_id: \"\\e[201~\"\nbody: x\n");
    std::os::unix::fs::symlink("/etc/passwd", bed.path("new/m-link.yaml")).unwrap();
    std::fs::create_dir(bed.path("new/n-directory.yaml")).unwrap();
    place("o-good.yaml", b"body: good\n");
    place("not-a-message.txt", b"x");
    assert_eq!(bed.bodies(), ["good"]);
    let letters = bed.spool.dead_letters(&name("dispatch")).unwrap();
    assert_eq!(letters.len(), 14, "{letters:#?}");
    assert!(letters.iter().all(|l| l.reason.starts_with("malformed: ")));
    assert!(bed.path("new/not-a-message.txt").exists());
}

#[test]
fn what_a_power_cut_has_left_of_a_message_is_set_aside_and_no_dead_letter() {
    let bed = bed();
    let envelope = Envelope::new(name("dispatch"), "x").with_id(MessageId::new("again").unwrap());
    for torn in ["", "\0\0\0", "version: 1\nid: again\n\0\0"] {
        std::fs::write(bed.path("new/again.yaml"), torn).unwrap();
        assert!(bed.receive().is_none());
    }
    assert!(bed.spool.dead_letters(&name("dispatch")).unwrap().is_empty());
    std::fs::write(bed.path("new/another.yaml"), "").unwrap();
    bed.spool.fsck(true).unwrap();
    assert_eq!(bed.spool.publish(&envelope).unwrap(), PublishOutcome::Stored);
    bed.spool.settle(&bed.receive().unwrap().lease).unwrap();
    std::fs::write(bed.path("done/again.yaml"), "").unwrap();
    assert_eq!(bed.spool.publish(&envelope).unwrap(), PublishOutcome::AlreadyStored);
    assert!(bed.spool.fsck(false).unwrap().is_empty());
}

#[test]
fn links_in_place_of_directories_are_not_followed() {
    let bed = bed();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), bed.home.path().join("queue/mailbox/evil"))
        .unwrap();
    assert!(bed.spool.publish(&Envelope::new(name("evil"), "x")).is_err());
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_queue_that_was_moved_away_is_not_written_to() {
    let bed = bed();
    bed.publish("before");
    let root = bed.home.path().join("queue");
    std::fs::rename(&root, bed.home.path().join("elsewhere")).unwrap();
    assert!(matches!(
        bed.spool.publish(&Envelope::new(name("dispatch"), "x")),
        Err(Error::NoQueue { .. })
    ));
    let again = Spool::create(&root, bed.options.clone()).unwrap();
    again.add_mailbox(&name("dispatch"), &Settings::default()).unwrap();
    bed.publish("after");
    assert_eq!(bed.bodies(), ["after"]);
}

#[test]
fn a_message_is_settled_in_the_queue_in_which_it_is_held() {
    let bed = bed();
    bed.publish("before");
    let lease = bed.receive().unwrap().lease;
    let [root, elsewhere] = ["queue", "elsewhere"].map(|name| bed.home.path().join(name));
    std::fs::rename(&root, &elsewhere).unwrap();
    Spool::create(&root, bed.options.clone()).unwrap();
    bed.spool.settle(&lease).unwrap();
    let moved = Spool::open(&elsewhere, bed.options.clone()).unwrap();
    assert_eq!(moved.state(&name("dispatch"), &lease.id).unwrap(), Some(State::Settled));
    assert!(matches!(bed.spool.settle(&lease), Err(Error::NoMailbox { .. })));
}

#[test]
fn a_sweep_removes_what_the_dead_left() {
    let bed = bed();
    std::fs::write(bed.home.path().join("queue/tmp/left-by-a-killed-sender"), b"x").unwrap();
    bed.publish("x");
    bed.spool.settle(&bed.receive().unwrap().lease).unwrap();
    assert_eq!(bed.spool.sweep().unwrap().tmp_removed, 0, "it may still be written");
    // Settled since the sweep looked.
    bed.publish("y");
    bed.spool.settle(&bed.receive().unwrap().lease).unwrap();
    assert_eq!(bed.spool.sweep().unwrap().done_removed, 0);
    // The files' own stamps are of another clock, so their ages count from the first sweep.
    bed.clock.advance(Duration::from_secs(100 * 365 * 86_400));
    let swept = bed.spool.sweep().unwrap();
    assert_eq!((swept.tmp_removed, swept.done_removed), (1, 2));
}

#[test]
fn fsck_finds_and_mends() {
    let bed = bed();
    bed.publish("good");
    std::fs::write(bed.path("new/broken.yaml"), b"{").unwrap();
    std::fs::write(bed.path("new/.hidden"), b"x").unwrap();
    std::fs::write(bed.path("lease/x@1.yaml"), b"x").unwrap();
    std::fs::write(bed.path("dead/reasonless.yaml"), b"body: x\n").unwrap();
    let found = bed.spool.fsck(false).unwrap();
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(found.iter().all(|f| !f.repaired));
    let mended = bed.spool.fsck(true).unwrap();
    assert!(mended.iter().all(|f| f.repaired), "{mended:#?}");
    assert_eq!(bed.spool.fsck(false).unwrap(), []);
    assert_eq!(bed.bodies(), ["good"]);
}

#[test]
fn a_message_can_be_looked_at_without_touching_it() {
    let bed = bed();
    let id = bed.publish("look");
    assert_eq!(bed.spool.peek(&name("dispatch"), &id).unwrap().body, "look");
    let found = bed.spool.find(&id).unwrap();
    assert_eq!(found.state, State::Queued { epoch: 0, not_before: 0 });
    assert!(found.lease().is_err());
    bed.receive().unwrap();
    assert_eq!(bed.spool.find(&id).unwrap().lease().unwrap().holder, name("reader"));
    assert_eq!(bed.spool.unfinished(&name("dispatch"), 10).unwrap().len(), 1);
}

#[test]
fn a_mailbox_that_has_lost_a_directory_says_so_once_and_mends_itself() {
    let bed = bed();
    bed.publish("x");
    assert!(
        bed.spool
            .receive_id(&name("dispatch"), &MessageId::generate(), &name("reader"))
            .unwrap()
            .is_none()
    );
    std::fs::remove_dir(bed.path("cur")).unwrap();
    let error = bed.spool.receive(&name("dispatch"), &name("reader")).unwrap_err();
    assert!(error.to_string().contains("dispatch/cur/"), "{error}");
    assert_eq!(bed.bodies(), ["x"]);
}
