//! With a real watcher, a report ends its task in whichever mailbox the message is: it is neither handed out again
//! nor left waiting.

use ensemble_core::env::Delivery;

use crate::answers::settle_down;

use crate::*;

fn bed() -> Bed {
    let bed = Bed::with(&Settings::default(), "");
    for mailbox in ["worker-1", "worker-2", "coders"] {
        bed.spool().add_mailbox(&name(mailbox), &Settings::default()).unwrap();
    }
    bed
}

fn send(bed: &Bed, to: &str, task: &str) -> MessageId {
    let envelope = Envelope::new(name(to), "work\n").with_kind(name("task")).with_task(task);
    bed.spool().publish(&envelope).unwrap();
    envelope.id
}

fn take(bed: &Bed, mailbox: &str, holder: &str) -> Delivery {
    bed.spool().receive(&name(mailbox), &name(holder)).unwrap().unwrap()
}

/// As after a lease that ran out.
fn expire(bed: &Bed, mailbox: &str) {
    let observed = bed.spool().observe(&name(mailbox)).unwrap();
    assert!(bed.spool().expire(&observed[0]).unwrap());
}

fn report(bed: &Bed, task: &str, worker: &str) {
    let text = format!("task_id: {task}\nworker_id: {worker}\nstatus: success\n");
    bed.land(&format!("reports/{task}-completed.yaml"), text);
}

#[track_caller]
fn is_settled(bed: &Bed, mailbox: &str, id: &MessageId) {
    let settled = || bed.spool().state(&name(mailbox), id).unwrap() == Some(State::Settled);
    eventually_true(PATIENCE, "the report settles the message", settled);
}

#[test]
fn the_report_of_an_earlier_holder_withdraws_the_task_from_the_present_one() {
    let bed = bed();
    let watcher = Watcher::start(&bed);
    let id = send(&bed, "coders", "t-1");
    let first = take(&bed, "coders", "worker-1").lease;
    expire(&bed, "coders");
    let second = take(&bed, "coders", "worker-2").lease;
    assert_eq!((second.epoch, second.holder.as_str()), (2, "worker-2"));
    // The epoch decides for everything but the report.
    assert!(matches!(bed.spool().settle(&first), Err(Error::LeaseLost { .. })));
    report(&bed, "t-1", "worker-1");
    is_settled(&bed, "coders", &id);
    let told = eventually(PATIENCE, "the present holder is told", || {
        bed.spool().receive(&name("worker-2"), &name("worker-2")).unwrap()
    });
    assert_eq!(told.envelope.kind.as_str(), "mail.withdrawn");
    assert_eq!(told.envelope.task_id.as_deref(), Some("t-1"));
    assert!(
        told.envelope.body.contains("reported_by: \"worker-1\"")
            || told.envelope.body.contains("reported_by: worker-1"),
        "{}",
        told.envelope.body
    );
    let refused = bed.spool().extend(&second, Duration::from_secs(60));
    assert!(matches!(refused, Err(Error::LeaseLost { .. })));
    let records = eventually(PATIENCE, "it is recorded", || {
        Some(bed.records("message.withdrawn")).filter(|records| !records.is_empty())
    });
    assert_eq!(records.len(), 1);
    assert_eq!((&records[0]["from"], &records[0]["by"]), (&"worker-2".into(), &"worker-1".into()));
    watcher.stop();
    bed.assert_clean();
}

#[test]
fn a_report_leaves_the_messages_of_other_agents_tasks_and_later_attempts() {
    let bed = bed();
    let spool = bed.spool();
    // Never held by its author; another task; a notice about the task.
    let foreign = send(&bed, "coders", "t-1");
    take(&bed, "coders", "worker-2");
    let other = send(&bed, "worker-1", "t-2");
    let notice = Envelope::new(name("worker-1"), "x").with_kind(name("report.advice"));
    let notice = notice.with_task("t-1");
    spool.publish(&notice).unwrap();
    // A task that is given again before the watcher meets the report. Files are stamped by a clock that lags behind.
    report(&bed, "t-1", "worker-1");
    let reported = Timestamp::now().plus(Duration::from_millis(200));
    let later = loop {
        let later = Envelope::new(name("worker-1"), "work\n").with_kind(name("task"));
        if later.created_at > reported {
            break later.with_task("t-1");
        }
        std::thread::yield_now();
    };
    spool.publish(&later).unwrap();
    let watcher = Watcher::start(&bed);
    bed.routed_times("reports/t-1-completed.yaml", 1);
    settle_down(&bed, 1);
    for id in [&other, &notice.id, &later.id] {
        let state = spool.state(&name("worker-1"), id).unwrap();
        assert!(matches!(state, Some(State::Queued { epoch: 0, .. })), "{id}: {state:?}");
    }
    let state = spool.state(&name("coders"), &foreign).unwrap();
    assert!(matches!(state, Some(State::Acked { epoch: 1, .. })), "{state:?}");
    watcher.stop();
}

#[test]
fn the_former_holder_is_remembered_until_the_message_is_finished() {
    let bed = bed();
    let spool = bed.spool();
    let id = send(&bed, "coders", "t-1");
    take(&bed, "coders", "worker-1");
    expire(&bed, "coders");
    spool.sweep().unwrap();
    let former = spool.former_holders(&name("coders")).unwrap();
    assert_eq!((former.len(), former[0].holder.as_str(), former[0].epoch), (1, "worker-1", 1));
    let lease: Lease = take(&bed, "coders", "worker-2").lease;
    spool.extend(&lease, Duration::from_secs(60)).unwrap();
    spool.sweep().unwrap();
    assert_eq!(spool.former_holders(&name("coders")).unwrap().len(), 1);
    bed.assert_clean();
    spool.settle(&lease).unwrap();
    assert_eq!(spool.former_holders(&name("coders")).unwrap(), []);
    bed.assert_clean();
    assert_eq!(spool.sweep().unwrap().orphans_removed, 0, "the note of {id} went with it");
}

/// A worker in shell buries a message by `mv`, and the message of another one dies in the library.
#[test]
fn the_sender_of_a_task_that_died_is_told_once() {
    let bed = Bed::with(&Settings::default(), "poll_interval: 1\n");
    let spool = bed.spool();
    for mailbox in ["worker-1", "lead"] {
        spool.add_mailbox(&name(mailbox), &Settings::default()).unwrap();
    }
    let send = |kind: &str, task: &str, from: &str| {
        let envelope = Envelope::new(name("worker-1"), "work\n").with_task(task);
        let envelope = envelope.with_kind(name(kind)).from(name(from));
        spool.publish(&envelope).unwrap();
        envelope.id
    };
    let moved = send("task", "moved", "lead");
    let file = |place: &str| bed.in_queue(&format!("mailbox/worker-1/{place}"));
    let reason = "reason: \"malformed: cut\"\nat: \"2026-11-25T00:00:00.000Z\"\nepoch: 0\n";
    std::fs::write(file(&format!("dead/{moved}@reason.yaml")), reason).unwrap();
    let (new, dead) = (file(&format!("new/{moved}.yaml")), file(&format!("dead/{moved}.yaml")));
    std::fs::rename(new, dead).unwrap();
    let bury = |id: &MessageId, why: &str| {
        spool.dead_letter_waiting(&name("worker-1"), id, why).unwrap();
    };
    // A sender without room keeps no other from its notice.
    spool.add_mailbox(&name("full"), &Settings::default().with_capacity(1)).unwrap();
    spool.publish(&Envelope::new(name("full"), "unread\n")).unwrap();
    bury(&send("task", "refused", "full"), "no worker");
    bury(&send("task", "orphan", "a-person-without-a-mailbox"), "no worker");
    bury(&send("task", "again", "lead"), "superseded by t-2");
    bury(&send("report.completed", "talk", "lead"), "expired");

    let told = |mailbox: &str| {
        let mail = support::messages(&bed.queue(), mailbox).into_iter().map(|(_, mail)| mail);
        let told = mail.filter(|mail| mail.kind.as_str() == "mail.returned");
        told.map(|mail| (mail.task_id.unwrap_or_default(), mail.body)).collect::<Vec<_>>()
    };
    let (conductor, away) = (bed.in_queue("mailbox/conductor"), bed.in_queue("conductor"));
    std::fs::rename(&conductor, &away).unwrap();
    let watcher = Watcher::start(&bed);
    eventually_true(PATIENCE, "its sender is told", || !told("lead").is_empty());
    // Once this sender is notified, too, the look at the first mailbox has ended.
    spool.add_mailbox(&name("worker-2"), &Settings::default()).unwrap();
    let other = Envelope::new(name("worker-2"), "work\n").with_task("other");
    let other = other.with_kind(name("task")).from(name("lead"));
    spool.publish(&other).unwrap();
    spool.dead_letter_waiting(&name("worker-2"), &other.id, "no worker").unwrap();
    eventually_true(PATIENCE, "the other sender is told", || told("lead").len() == 2);
    std::fs::rename(&away, &conductor).unwrap();
    eventually_true(PATIENCE, "the conductor is told", || told("conductor").len() == 2);
    watcher.stop();
    // The notice may be gone when the next watcher looks.
    for (path, _) in support::messages(&bed.queue(), "lead") {
        std::fs::remove_file(path).unwrap();
    }
    let late = send("task", "late", "lead");
    bury(&late, "no worker");
    let again = Watcher::start(&bed);
    eventually_true(PATIENCE, "the next one is told", || !told("lead").is_empty());
    again.stop();
    let (lead, conductor) = (told("lead"), told("conductor"));
    assert_eq!((lead.len(), conductor.len()), (1, 2), "{lead:?} {conductor:?}");
    assert!(lead[0].0 == "late" && lead[0].1.contains("no worker"), "{lead:?}");
    for task in ["orphan", "refused"] {
        assert!(conductor.iter().any(|told| told.0 == task), "{conductor:?}");
    }
}
