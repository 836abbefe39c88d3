use crate::dropbox::DROP_BOXES;
use crate::spool::{Spool, SpoolOptions};
use tempfile::TempDir;

use super::*;

/// A report that is written while the clock is moved by hand.
struct Bed {
    _home: TempDir,
    path: PathBuf,
    boxes: OpenBoxes,
    ledger: Ledger,
}

fn bed() -> Bed {
    let home = tempfile::tempdir().unwrap();
    let queue = home.path().join("queue");
    drop(Spool::create(&queue, SpoolOptions::default()).unwrap());
    let boxes = OpenBoxes::open(&queue, &DROP_BOXES.map(BoxSpec::named), 1 << 20).unwrap();
    let ledger = Ledger::open(home.path()).unwrap();
    Bed { path: queue.join("reports/t-completed.yaml"), _home: home, boxes, ledger }
}

impl Bed {
    fn append(&self, text: &str) {
        use std::io::Write as _;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(&self.path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn landed(&mut self, now: Monotonic, how: Landing) -> Option<BoxFinding> {
        self.boxes.landed(now, "reports", "t-completed.yaml", how, &mut self.ledger)
    }

    fn due(&mut self, now: Monotonic) -> Vec<BoxFinding> {
        self.boxes.examine_due(now, 10, &mut self.ledger)
    }
}

#[test]
fn a_file_that_its_writer_has_open_is_not_taken_for_complete() {
    let (mut bed, begin) = (bed(), Monotonic::ZERO);
    bed.append("task_id: t\n");
    assert!(bed.landed(begin, Landing::Created).is_none());
    assert!(bed.landed(begin, Landing::Written).is_none());
    assert!(bed.due(begin + FOUND_QUIET).is_empty(), "it is still open");
    bed.append("status: success\n");
    assert!(bed.landed(begin + FOUND_QUIET, Landing::Written).is_none());
    let closed = begin + 2 * FOUND_QUIET;
    assert!(bed.landed(closed, Landing::Closed).is_none());
    let found = bed.due(closed + IN_PLACE_QUIET);
    assert!(
        matches!(found.as_slice(), [BoxFinding::Complete(file)] if file.fields["status"] == "success"),
        "{found:?}"
    );
}

#[test]
fn what_is_missing_may_come_while_the_file_is_open_and_for_a_while_after() {
    let (mut bed, begin) = (bed(), Monotonic::ZERO);
    bed.append("task_id: t\n");
    bed.landed(begin, Landing::Created);
    bed.landed(begin, Landing::Written);
    let may_grow = |found: Vec<BoxFinding>| match found.as_slice() {
        [BoxFinding::Complete(file)] => file.may_grow,
        other => panic!("{other:?}"),
    };
    let slow = begin + INCOMPLETE_PATIENCE;
    assert!(may_grow(bed.due(slow)), "its writer has it open");
    bed.landed(slow, Landing::Closed);
    let closed = slow + IN_PLACE_QUIET;
    let found = bed.due(closed);
    let [BoxFinding::Complete(file)] = found.as_slice() else { panic!("{found:?}") };
    assert!(file.may_grow, "another call may append to it");
    let stat = file.stat;
    bed.boxes.await_writer(closed, &unfit(stat));
    assert!(bed.due(closed + FOUND_QUIET).is_empty());
    assert!(!may_grow(bed.due(closed + INCOMPLETE_PATIENCE)), "nothing came");
}

#[cfg(target_os = "linux")]
#[test]
fn a_valid_file_waits_for_as_long_as_a_process_has_it_open() {
    for has_events in [true, false] {
        let (mut bed, begin) = (bed(), Monotonic::ZERO);
        bed.append("task_id: t\nstatus: success\n");
        let writer = std::fs::OpenOptions::new().append(true).open(&bed.path).unwrap();
        if has_events {
            bed.landed(begin, Landing::Created);
            bed.landed(begin, Landing::Written);
        } else {
            bed.boxes.scan(begin, &mut bed.ledger).unwrap();
            assert!(bed.boxes.examine_listed(begin, 10, &mut bed.ledger).is_empty());
        }
        let mut now = begin + INCOMPLETE_PATIENCE;
        assert!(bed.due(now).is_empty(), "it is open, with events: {has_events}");
        now = now + 2 * WRITER_PATIENCE;
        assert!(bed.due(now).is_empty(), "it is open, with events: {has_events}");
        drop(writer);
        now = now + INCOMPLETE_PATIENCE;
        assert!(matches!(bed.due(now).as_slice(), [BoxFinding::Complete(_)]));
    }
}

/// However long its writer pauses, a file is never split.
#[test]
fn a_file_that_is_written_in_steps_stays_until_it_is_whole() {
    for has_events in [true, false] {
        let (mut bed, mut now) = (bed(), Monotonic::ZERO);
        bed.append("task_id: t\nsummary: [a,\n");
        bed.landed(now, Landing::Created);
        bed.landed(now, Landing::Closed);
        now = now + INCOMPLETE_PATIENCE;
        let found = (0..3).find_map(|_| {
            now = now + INCOMPLETE_PATIENCE;
            bed.due(now).pop()
        });
        let Some(BoxFinding::Unfit(unfit)) = found else { panic!("{found:?}") };
        let rejected = bed.boxes.set_aside(now, &unfit).unwrap();
        assert_eq!(rejected.kept_as, None, "its author is notified, and it stays");
        for _ in 0..3 {
            now = now + 2 * WRITER_PATIENCE;
            bed.boxes.scan(now, &mut bed.ledger).unwrap();
            assert!(!bed.boxes.has_listed() && bed.due(now).is_empty(), "notified once");
        }
        bed.append("b]\nstatus: success\n");
        if has_events {
            bed.landed(now, Landing::Closed);
        } else {
            bed.boxes.scan(now, &mut bed.ledger).unwrap();
            assert!(bed.boxes.examine_listed(now, 10, &mut bed.ledger).is_empty());
        }
        let found = (0..6).find_map(|_| {
            now = now + INCOMPLETE_PATIENCE;
            bed.due(now).pop()
        });
        let Some(BoxFinding::Complete(file)) = found else { panic!("{found:?}") };
        assert_eq!(file.content, std::fs::read(&bed.path).unwrap(), "events: {has_events}");
    }
}

#[test]
fn a_file_that_was_renamed_into_place_is_final() {
    let mut bed = bed();
    bed.append("task_id: t\n");
    let found = bed.landed(Monotonic::ZERO, Landing::Renamed);
    assert!(matches!(found, Some(BoxFinding::Complete(file)) if !file.may_grow));
}

fn unfit(stat: FileStat) -> UnfitFile {
    let (file, error) = ("t-completed.yaml".to_owned(), String::new());
    let is_final = false;
    UnfitFile { box_name: "reports".into(), file, stat, content: Vec::new(), error, is_final }
}
