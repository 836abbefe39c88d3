//! Attachments and rejected files: what is named stays, the rest is removed after its time, and no jump removes
//! anything.

use ensemble_core::history::{open_work, sweep_attachments, sweep_rejected};
use ensemble_core::message::Attachment;

use super::{DAY, DAY_MILLIS, bed, message};

use crate::*;

const KEEP: std::time::Duration = DAY;

impl QueueBed {
    fn attach(&self, id: &str) -> Attachment {
        let attachment = self.spool.attach(id.as_bytes()).unwrap();
        self.spool.publish(&message(id).with_attachment(attachment.clone())).unwrap();
        attachment
    }

    /// How many attachments and how many rejected files a sweep removes.
    fn sweep_history(&self) -> (usize, usize) {
        let mut calendar = self.spool.calendar();
        let attachments = sweep_attachments(&self.spool, &mut calendar, KEEP).unwrap();
        let rejected = sweep_rejected(&self.spool, &mut calendar, KEEP).unwrap();
        self.spool.keep_calendar(calendar);
        (attachments, rejected)
    }

    fn is_there(&self, attachment: &Attachment) -> bool {
        self.spool.attachment_path(attachment).exists()
    }
}

#[test]
fn an_attachment_that_any_message_names_stays_and_one_that_none_names_goes() {
    let bed = bed();
    let receive = || bed.receive().unwrap().lease;
    // Each is received before the next is sent: of messages stored within one tick of the kernel's clock, any may be first.
    let settled = bed.attach("settled");
    bed.spool.settle(&receive()).unwrap();
    let dead = bed.attach("dead");
    bed.spool.dead_letter(&receive(), "of no use").unwrap();
    let held = bed.attach("held");
    receive();
    let waiting = bed.attach("waiting");
    let unnamed = bed.spool.attach(b"unnamed").unwrap();
    let asked = bed.spool.attach(b"asked").unwrap();
    let question = format!("see attachment {}", asked.sha256);
    let requests = Requests::new(&bed.spool);
    bed.spool.add_mailbox(&name("worker-2"), &Default::default()).unwrap();
    requests.ask(NewRequest::new("shutdown", name("worker"), name("worker-2"), question)).unwrap();
    assert_eq!(bed.sweep_history(), (0, 0), "all are new");
    bed.clock.advance(2 * DAY);
    assert_eq!(bed.sweep_history(), (1, 0));
    assert!(!bed.is_there(&unnamed));
    for attachment in [&settled, &dead, &held, &waiting, &asked] {
        assert!(bed.is_there(attachment), "{attachment:?}");
    }
    let open = open_work(&bed.spool).unwrap();
    let has = |id: &str| open.contains(id);
    assert!(has("dead") && has("held") && has("waiting") && !has("settled"), "{open:?}");
    // The settled message is removed after seven days, and its attachment with it.
    bed.clock.advance(6 * DAY);
    assert_eq!(bed.spool.sweep().unwrap().done_removed, 1);
    assert_eq!(bed.sweep_history(), (1, 0));
    assert!(!bed.is_there(&settled) && bed.is_there(&held));
}

#[test]
fn content_that_is_attached_again_gets_its_whole_time() {
    let bed = bed();
    let old = bed.spool.attach(b"content").unwrap();
    let path = bed.spool.attachment_path(&old);
    let stamp = || path.metadata().unwrap().modified().unwrap();
    let before = stamp();
    let deadline = std::time::Instant::now() + DAY;
    while stamp() == before && std::time::Instant::now() < deadline {
        assert_eq!(bed.spool.attach(b"content").unwrap(), old);
    }
    assert!(stamp() > before);
    // As after a power cut, where nothing was synced.
    std::fs::write(&path, "").unwrap();
    bed.spool.attach(b"content").unwrap();
    assert_eq!(bed.spool.read_attachment(&old).unwrap(), b"content");
}

#[test]
fn a_jump_removes_no_attachment_and_no_rejected_file() {
    let bed = bed();
    bed.spool.attach(b"unnamed").unwrap();
    let rejected = bed.home.path().join("queue/rejected");
    std::fs::create_dir(&rejected).unwrap();
    std::fs::write(rejected.join("reports.a.yaml"), "a: [").unwrap();
    std::fs::create_dir(rejected.join("requests.a")).unwrap();
    std::fs::write(rejected.join("requests.a/request.yaml"), "x").unwrap();
    for (looked_before, jump) in [(false, 8), (true, -8), (true, 400), (true, -3_650)] {
        if looked_before {
            assert_eq!(bed.sweep_history(), (0, 0));
        }
        bed.jump(jump * DAY_MILLIS);
        assert_eq!(bed.sweep_history(), (0, 0), "by {jump} days");
        bed.jump(-jump * DAY_MILLIS);
    }
    bed.clock.advance(2 * DAY);
    assert_eq!(bed.sweep_history(), (1, 2));
    assert_eq!(std::fs::read_dir(rejected).unwrap().count(), 0);
}
