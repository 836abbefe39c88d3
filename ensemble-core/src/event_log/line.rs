//! From a record's content to the bytes of its line, within [`LINE_BYTES_MAX`].

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use serde_json::{Map, Value, json};

use super::record::{RecordType, TYPE_BYTES_MAX};
use crate::message::{Digest, Timestamp, is_deceiving};

/// The longest line, in bytes, with its newline. A kill inside a write can tear it only at a page
/// boundary, so a short line is nearly always whole.
pub const LINE_BYTES_MAX: usize = 4096;
pub const ACTOR_BYTES_MAX: usize = 128;

/// Bytes of a line other than type, actor and data. These are member names, a stamp, a session, a
/// number of 20 digits, the unordered mark, and the newline.
const FRAME_BYTES_MAX: usize = 192;
/// Each byte of an actor may become an escape of six bytes.
const ACTOR_ENCODED_BYTES_MAX: usize = 6 * ACTOR_BYTES_MAX + 2;
const DATA_BYTES_MAX: usize =
    LINE_BYTES_MAX - FRAME_BYTES_MAX - ACTOR_ENCODED_BYTES_MAX - TYPE_BYTES_MAX;
/// Number of keys kept from data that was too large.
const KEYS_KEPT_MAX: usize = 10;
/// Bytes kept of such a key or of a short value, as encoded.
const SCALAR_BYTES_MAX: usize = 80;

// The summary of data that was too large always fits: each key twice, and its value.
const _: () = assert!(KEYS_KEPT_MAX * 3 * (SCALAR_BYTES_MAX + 2) + 256 < DATA_BYTES_MAX);

/// The part of a line that is independent of its position in the log. The writer builds it before
/// it takes the lock.
#[derive(Clone, Debug)]
pub(super) struct RecordBody {
    kind: RecordType,
    actor: String,
    data: String,
}

impl RecordBody {
    pub(super) fn new(kind: RecordType, actor: &str, data: Value) -> Self {
        let data = match data {
            Value::Object(members) => members,
            Value::Null => Map::new(),
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        let mut encoded = render(&data);
        if encoded.len() > DATA_BYTES_MAX {
            encoded = render(&summary(&data, &encoded));
        }
        Self { kind, actor: render(&cut(actor, ACTOR_BYTES_MAX)), data: encoded }
    }

    pub(super) fn write(&self, out: &mut String, place: &LinePlace<'_>) {
        let start = out.len();
        let LinePlace { timestamp, session, seq, ordered } = place;
        let Self { kind, actor, data } = self;
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            r#"{{"timestamp":"{timestamp}","session_id":"session-{session}","seq":{seq},"type":"{kind}","actor":{actor},"data":{data}"#
        );
        out.push_str(if *ordered { "}\n" } else { ",\"unordered\":true}\n" });
        debug_assert!(out.len() - start <= LINE_BYTES_MAX);
    }
}

#[derive(Debug)]
pub(super) struct LinePlace<'a> {
    pub(super) timestamp: Timestamp,
    pub(super) session: &'a str,
    pub(super) seq: u64,
    pub(super) ordered: bool,
}

/// The replacement for data that does not fit: enough to recognise it, and its short members, among
/// which are the ids.
fn summary(data: &Map<String, Value>, encoded: &str) -> Value {
    let is_short = |value: &Value| {
        !value.is_object() && !value.is_array() && render(value).len() <= SCALAR_BYTES_MAX
    };
    let short_keys = || data.iter().filter(|(key, _)| render(key).len() <= SCALAR_BYTES_MAX);
    let keys: Vec<&String> = short_keys().map(|(key, _)| key).take(KEYS_KEPT_MAX).collect();
    let kept: Map<String, Value> = short_keys()
        .take(KEYS_KEPT_MAX)
        .filter(|(_, value)| is_short(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    json!({
        "truncated": true,
        "bytes": encoded.len(),
        "sha256": Digest::of(encoded.as_bytes()),
        "keys": keys,
        "kept": kept,
    })
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// JSON without a newline and without characters that a terminal acts on.
pub(super) fn render(value: &impl Serialize) -> String {
    let mut out = Vec::with_capacity(256);
    // Our values have string keys and no failing parts, so writing them to memory cannot fail.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut out, PrintableFormatter));
    String::from_utf8(out).unwrap_or_default()
}

/// Escapes, beyond JSON's rules, every invisible character that could deceive a reader of the log
/// in a terminal. These are DEL, the C1 controls, line separators and direction marks.
struct PrintableFormatter;

impl Formatter for PrintableFormatter {
    fn write_string_fragment<W>(&mut self, out: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        if fragment.bytes().all(|b| b.is_ascii() && b != 0x7f) {
            return CompactFormatter.write_string_fragment(out, fragment);
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(is_deceiving) {
            out.write_all(&rest.as_bytes()[..at])?;
            let character = rest[at..].chars().next().unwrap_or_default();
            write!(out, "\\u{:04x}", u32::from(character))?;
            rest = &rest[at + character.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Record, SEQ_MAX};
    use super::*;

    fn line_of(body: &RecordBody, ordered: bool) -> String {
        let mut out = String::new();
        let timestamp = Timestamp::from_unix_millis(1_763_765_401_120);
        let place = LinePlace { timestamp, session: "20261121-225001", seq: SEQ_MAX, ordered };
        body.write(&mut out, &place);
        out
    }

    #[test]
    fn every_line_is_short_whole_and_printable() {
        let hostile = "\u{1b}]0;\u{7}\n\r\0\u{9b}\u{202e}\u{2028}\u{7f}\"\\";
        for size in [0, 1, 100, 2_000, 4_000, 20_000] {
            let text = hostile.repeat(size);
            let many: Map<String, Value> =
                (0..size.min(500)).map(|n| (format!("{n}{}", "k".repeat(70)), json!(n))).collect();
            for data in [json!({ "text": text }), json!({ &text: 1 }), json!(text), json!(many)] {
                let kind = RecordType::new("a.".repeat(31) + "b").unwrap();
                let line = line_of(&RecordBody::new(kind, &text, data), false);
                assert!(line.len() <= LINE_BYTES_MAX, "{} bytes", line.len());
                let (newline, rest) = line.as_bytes().split_last().unwrap();
                assert_eq!(*newline, b'\n');
                assert!(line.trim_end().chars().all(|c| !c.is_control() && !is_deceiving(c)));
                let record = Record::parse(rest).unwrap();
                assert!(record.unordered && record.seq == SEQ_MAX);
                assert_eq!(record.to_line().as_bytes(), rest);
            }
        }
    }

    #[test]
    fn data_that_is_too_large_keeps_its_ids() {
        let data = json!({ "task_id": "task-001", "text": "x".repeat(5_000) });
        let line =
            line_of(&RecordBody::new(RecordType::TASK_START, "worker-1", data.clone()), true);
        let record = Record::parse(line.trim_end().as_bytes()).unwrap();
        assert_eq!(record.data["truncated"], true);
        assert_eq!(record.data["kept"]["task_id"], "task-001");
        assert_eq!(record.data["keys"], json!(["task_id", "text"]));
        assert_eq!(record.data["bytes"], data.to_string().len());
        assert_eq!(record.data["sha256"], Digest::of(data.to_string().as_bytes()).to_string());
    }
}
