//! The checker must be able to refute: it finds each tampered history.

use super::checker::{Disk, violations};
use super::journal::{Operation, Outcome};

fn done(verb: &str, key: &str, (start, end): (u64, u64), word: &str, epoch: u64) -> Operation {
    let outcome = Some(Outcome { word: word.to_owned(), epoch });
    let (who, verb, key) = ("a".to_owned(), verb.to_owned(), key.to_owned());
    Operation { who, verb, key, start, end, outcome }
}

/// A message that was received twice and settled by the second holder, and a request; all is well.
fn sound() -> (Vec<Operation>, Disk) {
    let history = vec![
        done("publish", "p-1", (1, 2), "ok", 0),
        done("receive", "p-1", (3, 4), "ok", 1),
        done("receive", "p-1", (10, 11), "ok", 2),
        done("settle", "p-1", (12, 13), "refused", 1),
        done("settle", "p-1", (14, 15), "ok", 2),
        done("ask", "q-1", (1, 2), "ok", 0),
        done("respond", "q-1", (3, 6), "approved", 0),
        done("respond", "q-1", (4, 7), "refused", 0),
        done("add", "t-1", (1, 2), "ok", 0),
        done("take", "s-1", (1, 2), "ok", 1),
        done("submit", "s-1", (3, 4), "ok", 1),
    ];
    let mut disk = Disk { tasks: vec!["t-1".to_owned()], revision: 1, ..Disk::default() };
    disk.messages.insert("p-1".to_owned(), vec!["done"]);
    disk.decisions.insert("q-1".to_owned(), "approved".to_owned());
    disk.steps.insert("s-1".to_owned(), ("COMPLETED".to_owned(), 1));
    disk.revisions.insert(1);
    let told = [
        ("message.stored", "p-1"),
        ("message.settled", "p-1"),
        ("request.opened", "q-1"),
        ("request.decided", "q-1"),
    ];
    disk.log.extend(told.map(|(kind, key)| (kind.to_owned(), key.to_owned())));
    (history, disk)
}

#[track_caller]
fn is_found(what: &str, tamper: impl FnOnce(&mut Vec<Operation>, &mut Disk)) {
    let (mut history, mut disk) = sound();
    tamper(&mut history, &mut disk);
    let wrong = violations(&history, &disk);
    assert!(wrong.iter().any(|wrong| wrong.contains(what)), "{what:?} is not in {wrong:?}");
}

#[test]
fn a_sound_history_is_believed() {
    let (history, disk) = sound();
    assert_eq!(violations(&history, &disk), [""; 0]);
}

#[test]
fn a_history_that_was_tampered_with_is_refuted() {
    is_found("is lost", |_, disk| disk.messages.clear());
    is_found("is in [", |_, disk| disk.messages.get_mut("p-1").unwrap().push("dead"));
    is_found("from nowhere", |_, disk| drop(disk.messages.insert("p-2".into(), vec!["new"])));
    is_found("is not done", |_, disk| disk.messages.get_mut("p-1").unwrap()[0] = "cur");
    is_found("handed out twice", |history, _| history[2].outcome.as_mut().unwrap().epoch = 1);
    is_found("fell to", |history, _| history[1].outcome.as_mut().unwrap().epoch = 3);
    is_found("after 2 began", |history, _| history[3].outcome.as_mut().unwrap().word = "ok".into());
    is_found("done 2 times", |history, _| history[3].outcome.as_mut().unwrap().word = "ok".into());
    is_found("after it was done", |history, _| {
        history.push(done("receive", "p-1", (20, 21), "ok", 3));
    });
    is_found("two ends", |history, _| history.push(done("release", "p-1", (12, 13), "ok", 2)));
    is_found("lease that was over", |history, _| {
        history[3].outcome.as_mut().unwrap().word = "late".into();
    });
    is_found("decided 2 times", |history, _| {
        history[7].outcome.as_mut().unwrap().word = "rejected".into();
    });
    is_found("stands", |_, disk| drop(disk.decisions.insert("q-1".into(), "rejected".into())));
    is_found("was asked", |_, disk| disk.decisions.clear());
    is_found("added to the board", |_, disk| disk.tasks[0] = "t-2".into());
    is_found("revisions", |_, disk| disk.revision = 0);
    is_found("revision 2", |_, disk| disk.revision = 2);
    is_found("was submitted", |_, disk| disk.steps.clear());
    is_found("s-1 was handed out to a after", |history, _| {
        history.push(done("take", "s-1", (5, 6), "ok", 2));
    });
    is_found("message.settled of p-1", |_, disk| {
        disk.log.retain(|(kind, _)| kind != "message.settled")
    });
    is_found("revision 1", |_, disk| disk.revisions.clear());
    is_found("decision of q-1", |_, disk| disk.log.retain(|(kind, _)| kind != "request.decided"));
}
