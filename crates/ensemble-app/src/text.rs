//! Texts for people: characters that a terminal could act upon, ages, tables.

use std::borrow::Cow;
use std::time::Duration;

use ensemble_core::message::{Timestamp, is_deceiving};
use ensemble_tmux::provider::cells;
use serde::Serialize;
use serde_json::Value;

pub const CELL_WIDTH_MAX: usize = 64;

/// A text in which nothing moves the cursor, changes colours or reverses the reading direction.
/// Newlines and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |c| c.escape_unicode().to_string())
}

/// The same for JSON: what a terminal could act upon becomes an escape in its string.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escape(json, |c| format!("\\u{:04x}", u32::from(c)))
}

/// An object with the members of another one behind those that it has, for programs.
pub fn with_members(mut object: Value, more: &impl Serialize) -> Value {
    if let (Value::Object(all), Ok(Value::Object(more))) = (&mut object, serde_json::to_value(more))
    {
        all.extend(more);
    }
    object
}

fn escape(text: &str, escaped: impl Fn(char) -> String) -> Cow<'_, str> {
    let is_odd = |c: char| is_deceiving(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    let one = |c| if is_odd(c) { escaped(c) } else { c.to_string() };
    Cow::Owned(text.chars().map(one).collect())
}

/// As [`printable`], in one line.
pub fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// The time since something: as [`age`], in whole seconds.
pub fn elapsed(since: Duration) -> String {
    match since.as_secs() {
        0 => "0s".to_owned(),
        seconds => age(Duration::from_secs(seconds)),
    }
}

/// The same in a sentence: `just now`, `42s ago`.
pub fn ago(since: Duration) -> String {
    match since.as_secs() {
        0 => "just now".to_owned(),
        _ => format!("{} ago", elapsed(since)),
    }
}

/// A duration in its two largest units: `42s`, `5m`, `1h 30m`, `3d 4h`.
pub fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (large, small) = match seconds {
        0 => return format!("{}ms", duration.as_millis()),
        1..60 => return format!("{seconds}s"),
        60..3600 => ((seconds / 60, "m"), (seconds % 60, "s")),
        3600..86_400 => ((seconds / 3600, "h"), (seconds % 3600 / 60, "m")),
        _ => ((seconds / 86_400, "d"), (seconds % 86_400 / 3600, "h")),
    };
    match small.0 {
        0 => format!("{}{}", large.0, large.1),
        _ => format!("{}{} {}{}", large.0, large.1, small.0, small.1),
    }
}

/// The time of day here: `12:03`.
pub fn clock(at: Timestamp) -> String {
    here(at).strftime("%H:%M").to_string()
}

/// The same with seconds, and with the day if that is not today: `12:03:04`, `Nov 28 12:03:04`.
pub fn moment(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (here(at), here(now));
    let form = if at.date() == now.date() { "%H:%M:%S" } else { "%b %d %H:%M:%S" };
    at.strftime(form).to_string()
}

fn here(at: Timestamp) -> jiff::Zoned {
    let time = jiff::Timestamp::from_millisecond(at.unix_millis()).unwrap_or_default();
    time.to_zoned(jiff::tz::TimeZone::system())
}

/// `1 message`, `2 messages`, `2 mailboxes`, `2 entries`.
pub fn plural(count: u64, noun: &str) -> String {
    match (count, noun.strip_suffix('y')) {
        (1, _) => format!("{count} {noun}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) if noun.ends_with('x') => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

/// Rows with aligned columns, without trailing blanks. Cells are cut to `cell_max` columns.
pub fn table(rows: &[Vec<String>], cell_max: usize) -> Vec<String> {
    let cut = |cell: &String| -> String {
        let cell = one_line(cell);
        let kept = cells::clipped(&cell, cell_max).len();
        if kept < cell.len() { format!("{}…", &cell[..kept]) } else { cell }
    };
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cut).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|c| cells::width(c)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| {
            let blank = " ".repeat(width - cells::width(cell));
            format!("{cell}{blank}")
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A text that begins with a small letter.
pub fn uncapitalized(text: &str) -> String {
    let (first, rest) = text.split_at(text.len().min(1));
    format!("{}{rest}", first.to_ascii_lowercase())
}

/// A value in one line: `mailbox=worker-1 reason=copy_mode`.
pub fn inline(value: &Value) -> String {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| format!("{}={}", one_line(key), scalar(value)))
            .collect::<Vec<_>>()
            .join(" "),
        Value::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(", "),
        other => scalar(other),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        Value::Null => "-".to_owned(),
        other => one_line(&other.to_string()),
    }
}

/// A line in pieces that fit, the later ones indented.
pub fn wrapped(line: &str, width: usize, indent: usize) -> Vec<String> {
    let (width, mut lines, mut taken) = (width.max(indent + 20), vec![String::new()], 0);
    for word in line.split_inclusive(' ') {
        let mut is_new = taken > indent && taken + cells::width(word.trim_end()) > width;
        for letter in word.chars() {
            let cell = cells::char_width(letter);
            if is_new || taken + cell > width {
                lines.push(" ".repeat(indent));
                (taken, is_new) = (indent, false);
            }
            lines.last_mut().expect("there is a line").push(letter);
            taken += cell;
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_deceived() {
        assert_eq!(printable("a\tb\nc ü"), "a\tb\nc ü");
        assert_eq!(printable("\u{1b}[2J\r"), "\\u{1b}[2J\\u{d}");
        assert_eq!(printable("\u{9b}31m\u{202e}"), "\\u{9b}31m\\u{202e}");
        assert_eq!(one_line("a\nb"), "a b");
        assert_eq!(printable_json("\"\u{9b}31m\u{202e}ü\""), "\"\\u009b31m\\u202eü\"");
    }

    #[test]
    fn ages() {
        let seconds = [(0, "0ms"), (42, "42s"), (300, "5m"), (5400, "1h 30m"), (273_600, "3d 4h")];
        for (seconds, text) in seconds {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
        let short = Duration::from_millis(13);
        assert_eq!([age(short), elapsed(short), ago(short)], ["13ms", "0s", "just now"]);
        assert_eq!(ago(Duration::from_millis(1_950)), "1s ago");
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["long".to_owned(), String::new()]];
        assert_eq!(table(&rows, CELL_WIDTH_MAX), ["a     b", "long"]);
        assert_eq!(table(&rows, 3), ["a     b", "lon…"]);
        let rows = [["日本", "b"], ["long", "b"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows, CELL_WIDTH_MAX), ["日本  b", "long  b"]);
        assert_eq!(table(&rows, 3), ["日…   b", "lon…  b"]);
        assert_eq!(wrapped(&"日".repeat(11), 20, 0), ["日".repeat(10), "日".to_owned()]);
    }
}
