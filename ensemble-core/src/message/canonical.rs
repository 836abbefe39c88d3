//! The form in which Ensemble itself writes envelopes, and a reader for exactly that form.
//!
//! The form is plain YAML: one `key: value` a line in a fixed order. Then follow the body as a
//! literal block indented by two, and the end mark. Reading it line by line takes a tenth of a YAML
//! parser's time, which counts in a broker. The parser of [`super::yaml`] reads every file that
//! deviates by a byte. A property test checks that the two readers agree.

use std::fmt::{Display, Write as _};

use serde::Deserialize;

use super::{
    DeliveryClass, Digest, Envelope, FORMAT_VERSION, MessageId, Name, SenderProof, TraceParent,
};

/// The mark at the end of a complete file.
const END_MARK: &str = "...\n";

/// An envelope's fields before they are checked.
#[derive(Debug, Default, Deserialize, PartialEq)]
pub(super) struct EnvelopeFields {
    #[serde(default = "oldest_version")]
    pub(super) version: u32,
    pub(super) id: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) from: Option<String>,
    pub(super) proof: Option<String>,
    pub(super) project: Option<String>,
    pub(super) to: Option<String>,
    pub(super) created_at: Option<String>,
    #[serde(alias = "request_id", alias = "requestId")]
    pub(super) correlation_id: Option<String>,
    pub(super) causation_id: Option<String>,
    pub(super) replaces: Option<String>,
    pub(super) task_id: Option<String>,
    pub(super) attempt: Option<u32>,
    #[serde(default)]
    pub(super) priority: u8,
    pub(super) when: Option<String>,
    pub(super) expires_at: Option<String>,
    pub(super) source: Option<String>,
    pub(super) traceparent: Option<String>,
    pub(super) attachment_sha256: Option<String>,
    pub(super) attachment_bytes: Option<u64>,
    pub(super) body_length: Option<u64>,
    pub(super) body_sha256: Option<String>,
    pub(super) body: String,
}

const fn oldest_version() -> u32 {
    1
}

/// Whether a character may appear unescaped in a file. Excludes controls (they could steer a
/// terminal), separators that some YAML readers take for line ends, and bidirectional overrides.
pub(super) const fn is_plain(c: char) -> bool {
    !matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}'
        | '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{fffe}' | '\u{ffff}')
}

/// Whether a power cut has left this of a message that was not synced yet: nothing, or zeroes at its beginning or end.
/// Its sender does not know it as stored.
pub(crate) fn is_torn(content: &[u8]) -> bool {
    let is_hole = |byte: Option<&u8>| byte.is_none_or(|byte| *byte == 0);
    is_hole(content.first()) || is_hole(content.last())
}

pub(super) fn write(envelope: &Envelope) -> Vec<u8> {
    // Reserves room for the headers and for the indentation of usual lines.
    let mut out = String::with_capacity(envelope.body.len() + envelope.body.len() / 8 + 1024);
    line(&mut out, "version", FORMAT_VERSION);
    text(&mut out, "id", envelope.id.as_str());
    text(&mut out, "type", envelope.kind.as_str());
    text(&mut out, "from", envelope.from.as_str());
    optional_text(&mut out, "proof", envelope.proof.map(SenderProof::word));
    optional_text(&mut out, "project", envelope.project.as_ref().map(Name::as_str));
    text(&mut out, "to", envelope.to.as_str());
    text(&mut out, "created_at", &envelope.created_at.to_string());
    optional_text(&mut out, "correlation_id", envelope.correlation_id.as_deref());
    optional_text(&mut out, "causation_id", envelope.causation_id.as_deref());
    optional_text(&mut out, "replaces", envelope.replaces.as_ref().map(MessageId::as_str));
    optional_text(&mut out, "task_id", envelope.task_id.as_deref());
    if let Some(attempt) = envelope.attempt {
        line(&mut out, "attempt", attempt);
    }
    line(&mut out, "priority", envelope.priority);
    optional_text(&mut out, "when", envelope.when.map(DeliveryClass::word));
    if let Some(expires_at) = envelope.expires_at {
        text(&mut out, "expires_at", &expires_at.to_string());
    }
    optional_text(&mut out, "source", envelope.source.as_deref());
    optional_text(&mut out, "traceparent", envelope.traceparent.as_ref().map(TraceParent::as_str));
    if let Some(attachment) = &envelope.attachment {
        text(&mut out, "attachment_sha256", &attachment.sha256.to_string());
        line(&mut out, "attachment_bytes", attachment.bytes);
    }
    line(&mut out, "body_length", envelope.body.len());
    text(&mut out, "body_sha256", &Digest::of(envelope.body.as_bytes()).to_string());
    body(&mut out, &envelope.body);
    out.push_str(END_MARK);
    out.into_bytes()
}

fn line(out: &mut String, key: &str, value: impl Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{key}: {value}");
}

fn optional_text(out: &mut String, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        text(out, key, value);
    }
}

/// Writes a string, quoted where a YAML reader could take it for another type.
fn text(out: &mut String, key: &str, value: &str) {
    out.push_str(key);
    out.push_str(": ");
    if is_bare_word(value) {
        out.push_str(value);
    } else {
        quote(out, value);
    }
    out.push('\n');
}

/// Starts with a letter, has no character with a meaning in YAML, and is not a YAML keyword, old or
/// new.
fn is_bare_word(value: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let starts_with_letter = value.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let is_uuid = value.len() == 36 && value.as_bytes()[8] == b'-' && value.as_bytes()[13] == b'-';
    (starts_with_letter || is_uuid)
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// A double-quoted scalar, valid as YAML and as JSON.
fn quote(out: &mut String, value: &str) {
    out.push('"');
    if is_simple_ascii(value) {
        out.push_str(value);
        out.push('"');
        return;
    }
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_plain(c) => out.push(c),
            // All characters that need an escape are in the first plane.
            c => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
        }
    }
    out.push('"');
}

fn body(out: &mut String, body: &str) {
    if !fits_literal(body) {
        out.push_str("body: ");
        quote(out, body);
        out.push('\n');
        return;
    }
    let ends_line = body.ends_with('\n');
    out.push_str(if ends_line { "body: |2+\n" } else { "body: |2-\n" });
    for row in rows(body.strip_suffix('\n').unwrap_or(body)) {
        if !row.is_empty() {
            out.push_str("  ");
            out.push_str(row);
        }
        out.push('\n');
    }
}

/// As `split('\n')`, which costs more than copying the row. In a long text one search finds all line ends.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    let mut ends = is_long(text).then(|| memchr::memchr_iter(b'\n', text.as_bytes()));
    let mut left = Some(0);
    std::iter::from_fn(move || {
        let from = left?;
        let end = match &mut ends {
            Some(ends) => ends.next(),
            None => text[from..].find('\n').map(|end| from + end),
        };
        left = end.map(|end| end + 1);
        Some(&text[from..end.unwrap_or(text.len())])
    })
}

/// Whether `memchr` searches a text. It is quicker in a long one, but its first search asks the processor what it can
/// do. In a virtual machine that takes 0.1 ms, a tenth of the life of a short program.
const fn is_long(text: &str) -> bool {
    const SHORT_BYTES_MAX: usize = 4096;
    text.len() > SHORT_BYTES_MAX
}

/// Whether a literal block reproduces a text exactly. The text must not be empty or contain special
/// characters, and trailing blank lines would need the keep indicator.
fn fits_literal(body: &str) -> bool {
    is_plain_text(body)
        && body.contains(|c: char| !c.is_whitespace())
        && !body.ends_with("\n\n")
        && !(has_indented_row(body) && body.split('\n').any(is_blank_row))
}

/// Whether any row begins with a blank. The loop has no branch, so it handles many bytes at a time.
fn has_indented_row(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_blank = |b: u8| (b == b' ') | (b == b'\t');
    let after_line_end = bytes
        .iter()
        .zip(bytes.iter().skip(1))
        .fold(false, |found, (&a, &b)| found | ((a == b'\n') & is_blank(b)));
    after_line_end || bytes.first().is_some_and(|b| is_blank(*b))
}

/// Whether a text can be quoted without escapes, judged by its bytes.
fn is_simple_ascii(text: &str) -> bool {
    text.bytes()
        .fold(true, |simple, b| simple & matches!(b, b' '..=b'~') & (b != b'"') & (b != b'\\'))
}

/// Whether a row has only blanks. The first byte decides for most rows.
fn is_blank_row(row: &str) -> bool {
    row.starts_with([' ', '\t']) && row.bytes().all(|b| matches!(b, b' ' | b'\t'))
}

/// Whether a text has only plain characters, tabs and line ends. Most texts are ASCII, which a loop
/// without branches checks for many bytes at a time.
fn is_plain_text(text: &str) -> bool {
    let is_plain_ascii = |plain, b| plain & matches!(b, b' '..=b'~' | b'\n' | b'\t');
    text.bytes().fold(true, is_plain_ascii)
        || text.chars().all(|c| c == '\n' || c == '\t' || is_plain(c))
}

/// Reads a file that [`write`] could have written; `None` for any other, valid or not.
pub(super) fn read(file: &str) -> Option<EnvelopeFields> {
    let mut fields = EnvelopeFields { version: oldest_version(), ..EnvelopeFields::default() };
    let mut rest = file.strip_suffix(END_MARK)?;
    let mut position = 0;
    loop {
        let end = rest.find('\n')?;
        let (row, after) = (&rest[..end], &rest[end + 1..]);
        // No key contains a colon, so the first colon is the separator.
        let colon = row.bytes().position(|b| b == b':')?;
        let (key, value) = (&row[..colon], row[colon..].strip_prefix(": ")?);
        if key == "body" {
            fields.body = read_body(value, after)?;
            fields.body_length?;
            fields.body_sha256.as_ref()?;
            return Some(fields);
        }
        position = set(&mut fields, key, value, position)?;
        rest = after;
    }
}

/// Whether [`read`] and the parser agree on this file, provided that [`read`] accepts it.
#[cfg(feature = "fuzzing")]
pub(crate) fn agrees(file: &str) -> bool {
    read(file).is_none_or(|fields| {
        let by_parser =
            super::yaml::parse::<EnvelopeFields>(file, std::path::Path::new("envelope.yaml"));
        by_parser.is_ok_and(|parsed| parsed == fields)
    })
}

/// The keys in the order of writing; a file in another order is not canonical.
const KEYS: [&str; 22] = [
    "version",
    "id",
    "type",
    "from",
    "proof",
    "project",
    "to",
    "created_at",
    "correlation_id",
    "causation_id",
    "replaces",
    "task_id",
    "attempt",
    "priority",
    "when",
    "expires_at",
    "source",
    "traceparent",
    "attachment_sha256",
    "attachment_bytes",
    "body_length",
    "body_sha256",
];

fn set(fields: &mut EnvelopeFields, key: &str, value: &str, position: usize) -> Option<usize> {
    let index = position + KEYS[position..].iter().position(|k| *k == key)?;
    match key {
        "version" => fields.version = number(value)?,
        "attempt" => fields.attempt = Some(number(value)?),
        "priority" => fields.priority = number(value)?,
        "attachment_bytes" => fields.attachment_bytes = Some(number(value)?),
        "body_length" => fields.body_length = Some(number(value)?),
        "id" => fields.id = Some(string(value)?),
        "type" => fields.kind = Some(string(value)?),
        "from" => fields.from = Some(string(value)?),
        "proof" => fields.proof = Some(string(value)?),
        "project" => fields.project = Some(string(value)?),
        "to" => fields.to = Some(string(value)?),
        "created_at" => fields.created_at = Some(string(value)?),
        "correlation_id" => fields.correlation_id = Some(string(value)?),
        "causation_id" => fields.causation_id = Some(string(value)?),
        "replaces" => fields.replaces = Some(string(value)?),
        "task_id" => fields.task_id = Some(string(value)?),
        "when" => fields.when = Some(string(value)?),
        "expires_at" => fields.expires_at = Some(string(value)?),
        "source" => fields.source = Some(string(value)?),
        "traceparent" => fields.traceparent = Some(string(value)?),
        "attachment_sha256" => fields.attachment_sha256 = Some(string(value)?),
        "body_sha256" => fields.body_sha256 = Some(string(value)?),
        _ => return None,
    }
    Some(index + 1)
}

/// A number as [`write`] prints it: digits, no sign, no leading zero.
fn number<N: std::str::FromStr>(value: &str) -> Option<N> {
    let is_written =
        value.bytes().all(|b| b.is_ascii_digit()) && (value == "0" || !value.starts_with('0'));
    is_written.then(|| value.parse().ok())?
}

/// A string as [`text`] prints it, if it has no escapes.
fn string(value: &str) -> Option<String> {
    match value.strip_prefix('"') {
        None => is_bare_word(value).then(|| value.to_owned()),
        Some(quoted) => {
            let inner = quoted.strip_suffix('"')?;
            let is_simple = is_simple_ascii(inner)
                || inner.chars().all(|c| is_plain(c) && c != '"' && c != '\\');
            is_simple.then(|| inner.to_owned())
        }
    }
}

fn read_body(value: &str, block: &str) -> Option<String> {
    let ends_line = match value {
        "|2+" => true,
        "|2-" => false,
        quoted => return if block.is_empty() { string(quoted) } else { None },
    };
    let mut body = String::with_capacity(block.len());
    for row in rows(block.strip_suffix('\n')?) {
        if !row.is_empty() {
            body.push_str(row.strip_prefix("  ")?);
        }
        body.push('\n');
    }
    if !ends_line {
        body.pop();
    }
    // `-` strips every final line end, `+` keeps them: only these two forms are exact.
    (fits_literal(&body) && body.ends_with('\n') == ends_line).then_some(body)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::yaml;
    use super::*;
    use crate::message::{MessageId, Name};

    fn envelope(body: &str, task: Option<String>) -> Envelope {
        let mut envelope = Envelope::new(Name::new("no").unwrap(), body)
            .with_id(MessageId::new("1e5").unwrap())
            .from(Name::new("0123").unwrap());
        envelope.task_id = task;
        envelope
    }

    #[test]
    fn a_quoted_field_reads_back_exactly() {
        let mut example = envelope("first\n  second\n", Some("task-1".to_owned()));
        example.created_at = crate::message::Timestamp::from_unix_millis(0);
        let file = String::from_utf8(write(&example)).unwrap();
        let digest = Digest::of(b"first\n  second\n");
        let expected = format!(
            "version: 1\nid: \"1e5\"\ntype: message\nfrom: \"0123\"\nto: \"no\"\n\
             created_at: \"1970-01-01T00:00:00.000Z\"\ntask_id: task-1\npriority: 0\nbody_length: 15\n\
             body_sha256: \"{digest}\"\nbody: |2+\n  first\n    second\n...\n"
        );
        // A digest that begins with a letter is a bare word.
        let bare = expected.replace(&format!("\"{digest}\""), &digest.to_string());
        assert!(file == expected || file == bare, "{file}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// For any body, both readers read the file back to the same bytes.
        #[test]
        fn both_readers_agree_on_every_written_envelope(body in "(\\PC|[ \\t\\n\\r:#|\"\\\\\u{85}\u{2028}\u{202e}\\x00-\\x1f]){0,60}", task in proptest::option::of("[ -~]{1,20}")) {
            let original = envelope(&body, task);
            let file = String::from_utf8(write(&original)).unwrap();
            let by_parser: EnvelopeFields = yaml::parse(&file, Path::new("x")).unwrap();
            prop_assert_eq!(&by_parser.body, &body);
            if let Some(by_lines) = read(&file) {
                prop_assert_eq!(by_lines, by_parser);
            }
            prop_assert_eq!(Envelope::decode(file.as_bytes(), Path::new("x")).unwrap(), original);
        }

        /// For any alteration of a file, both readers agree or only the parser accepts it.
        #[test]
        fn altered_files_are_never_read_differently(at in 0usize..400, with in any::<char>()) {
            let file = String::from_utf8(write(&envelope("one\n two\nthree", None))).unwrap();
            let at = file.char_indices().map(|(i, _)| i).chain([file.len()]).nth(at % file.len()).unwrap_or(0);
            let mut altered = file.clone();
            altered.replace_range(at..=at, &with.to_string());
            if let Some(by_lines) = read(&altered) {
                prop_assert_eq!(yaml::parse::<EnvelopeFields>(&altered, Path::new("x")).unwrap(), by_lines);
            }
        }
    }

    #[test]
    fn a_text_of_any_length_has_the_rows_of_a_split() {
        for text in ["", "\n", "a", "a\n", "\na", "\n\n"] {
            for long in [String::new(), "row\n".repeat(2_000)] {
                let text = long + text;
                assert!(rows(&text).eq(text.split('\n')), "{} bytes", text.len());
            }
        }
    }

    #[test]
    fn a_cut_file_is_not_an_envelope() {
        let file = write(&envelope("status: success\n", None));
        for length in 0..file.len() {
            assert!(
                Envelope::decode(&file[..length], Path::new("x")).is_err()
                    || length + "\n...\n".len() >= file.len(),
                "cut at {length}"
            );
        }
    }
}
