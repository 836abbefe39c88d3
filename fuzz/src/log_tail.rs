//! The end of a segment of the event log, as a writer and readers handle it.

use ensemble_core::event_log::{EventLog, LINE_BYTES_MAX, Record, read_all};
use serde_json::json;

const SEGMENT: &str = "session-20260115-093000.ndjson";

/// For any content: the next record is written and read once, as the last one. Every record
/// readable before stays readable.
pub fn check(data: &[u8]) {
    let home = super::scratch();
    std::fs::write(home.path().join(SEGMENT), data).expect("the segment");
    let records = || -> Vec<Record> {
        let mut all = read_all(home.path()).expect("a log");
        let records = all.by_ref().collect();
        assert!(all.failure().is_none());
        for bad in all.bad_lines().iter() {
            super::check_error(&bad.to_string());
        }
        records
    };
    let before = records();
    let log = EventLog::open(home.path()).expect("it is opened");
    let data = json!({ "id": "\u{7}\u{202e}last", "mailbox": "worker-1", "epoch": 1 });
    let place = log.try_record("message.acked", "worker\n-1", data.clone()).expect("it is written");
    assert!(place.ordered);
    let after = records();
    assert!(after.len() > before.len());
    assert_eq!(after[..before.len()], before[..], "a record was lost");
    let ours: Vec<&Record> =
        after.iter().filter(|r| r.seq == place.seq && Some(&r.data) == data.as_object()).collect();
    assert_eq!(ours.len(), 1, "{after:#?}");
    assert_eq!(after.last(), ours.first().copied());
    let written = ours[0].to_line();
    assert!(written.len() < LINE_BYTES_MAX);
    assert!(!written.chars().any(char::is_control), "{written:?}");
}
