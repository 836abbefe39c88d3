//! JSON as other programs write it.

use serde::de::DeserializeOwned;

use super::yaml::in_plain_words;

/// Reads JSON of another program. Bytes that are not UTF-8, and half of a surrogate pair, which JavaScript leaves where
/// it cuts a text inside an emoji, are read as U+FFFD: no call or event is lost for one character.
///
/// # Errors
/// It is not JSON, or does not fit the type.
pub fn read_foreign_json<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}');
    serde_json::from_str(text).or_else(|error| match replace_half_pairs(text) {
        Some(whole) => serde_json::from_str(&whole),
        None => Err(error),
    })
}

/// What the parser says of a text that is not JSON, by its distinct words, and what the author of the text reads.
const FAULTS: [(&str, &str); 13] = [
    ("EOF while", "ends inside a text, a list or an object"),
    ("trailing comma", "has a comma after the last item"),
    ("trailing characters", "continues after the last bracket: write one object"),
    ("key must be a string", "has a name that is not in double quotes"),
    ("expected `,` or", "lacks a comma between two items"),
    ("expected `:`", "lacks a colon after a name"),
    ("expected value", NO_VALUE),
    ("expected ident", NO_VALUE),
    ("control character", "has a line break in a text: write `\\n`"),
    ("invalid escape", "has a `\\` that means nothing: write `\\\\`"),
    ("surrogate", "has half of a character, such as `\\ud800`"),
    ("number", "has a number that cannot be read"),
    ("recursion limit", "is nested too deep"),
];
const NO_VALUE: &str =
    "has something that is not a value: put texts into double quotes, and leave out code fences";

/// What is wrong with JSON, and where, for its author, who does not know the parser.
#[must_use]
pub fn describe_json_fault(error: &serde_json::Error) -> String {
    let (line, column, text) = (error.line(), error.column(), error.to_string());
    let message = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    let known = FAULTS.iter().find(|(words, _)| !error.is_data() && message.contains(words));
    let plain = known.map_or_else(|| in_plain_words(message), |(_, plain)| (*plain).to_owned());
    if line == 0 { plain } else { format!("line {line}, column {}: {plain}", column.max(1)) }
}

/// The text with each half of a surrogate pair replaced; `None` if it has none.
fn replace_half_pairs(text: &str) -> Option<String> {
    let (mut whole, mut kept, mut at) = (String::new(), 0, 0);
    while let Some(next) = text[at..].find('\\').map(|found| at + found) {
        at = match (unit_at(text, next), unit_at(text, next + UNIT_BYTES)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => next + 2 * UNIT_BYTES,
            (Some(0xd800..=0xdfff), _) => {
                whole.push_str(&text[kept..next]);
                whole.push_str("\\ufffd");
                kept = next + UNIT_BYTES;
                kept
            }
            (Some(_), _) => next + UNIT_BYTES,
            // An escape of one character.
            (None, _) => next + 1 + text[next + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    (kept > 0).then(|| whole + &text[kept..])
}

/// The length of `\u0000`.
const UNIT_BYTES: usize = 6;

/// The UTF-16 unit that is escaped at this place.
fn unit_at(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + UNIT_BYTES)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{describe_json_fault, read_foreign_json};

    #[test]
    fn a_character_that_was_cut_costs_no_more_than_itself() {
        let cases: [(&[u8], &str); 8] = [
            (br#""a\ud83d""#, "a\u{fffd}"),
            (br#""a\ude00 b""#, "a\u{fffd} b"),
            (br#""\ud83d\ude00\ud83d""#, "\u{1f600}\u{fffd}"),
            (br#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (br#""\\ud83d \ud83dx""#, "\\ud83d \u{fffd}x"),
            (b"\xef\xbb\xbf\"x\"", "x"),
            (b"\"caf\xe9\"", "caf\u{fffd}"),
            (b"\"a\xf0\x9f\x98\"", "a\u{fffd}"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read_foreign_json::<String>(bytes).unwrap(), expected);
        }
        for bytes in [&br#""\ud83""#[..], b"\"\\", b"\"\\u", "\"\\ud83d\\\u{fffd}".as_bytes(), b"{"]
        {
            assert!(read_foreign_json::<serde_json::Value>(bytes).is_err());
        }
    }

    #[test]
    fn a_fault_has_no_word_of_the_parser_for_programmers() {
        for text in [
            "{",
            "[1",
            "\"a",
            "tru",
            "{\"a\":1,}",
            "[1,]",
            "{'a':1}",
            "{a:1}",
            "```json\n{}\n```",
            "nan",
            "{\"a\":\"b\" \"c\"}",
            "{\"a\" 1}",
            "{}{}",
            "\"a\nb\"",
            "\"\\q\"",
            "\"\\ud8\"",
            "01",
            "1e999",
            "-",
        ] {
            let error = read_foreign_json::<serde_json::Value>(text.as_bytes()).unwrap_err();
            let said = describe_json_fault(&error);
            let words = "EOF|ident|expected|trailing|surrogate|control|escape|column 0|key must";
            let found = words.split('|').find(|word| said.contains(word));
            assert_eq!(found, None, "{text:?}: {said}");
            assert!(said.starts_with("line "), "{text:?}: {said}");
        }
        let error = serde_json::from_str::<u8>("\"x\"").unwrap_err();
        let said = "line 1, column 3: expected a whole number from 0 to 255";
        assert_eq!(describe_json_fault(&error), said);
    }
}
