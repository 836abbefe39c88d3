//! Documents as people and models write them, made into what YAML's parser reads.
//!
//! | written | read |
//! |---|---|
//! | text with a fenced block: ```` ```yaml ```` … ```` ``` ```` | the block |
//! | front matter, then prose | the front matter |
//! | `status：done`, or a no-break or ideographic space after the colon | `status: done` |
//! | `task_id: 007`, `task_id: 1.10` | a text, because a number would be another name |
//!
//! None of these lines can be part of a text with several lines, because its lines are indented. What cannot be
//! understood stays as it is, and the parser says what is wrong with it.

use std::borrow::Cow;

use super::fields::plain_field;
use super::yaml;

/// Begins and ends a block of code.
const FENCES: [&str; 2] = ["```", "~~~"];
/// What a block of data says that it is, if anything.
const LANGUAGES: [&str; 3] = ["yaml", "yml", "json"];
/// Separates documents, and ends front matter.
const MARK: &str = "---";

/// The document in a text. Lines keep their numbers.
pub fn document(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches('\u{feff}');
    let inner = fenced(text).or_else(|| front_matter(text).map(Cow::Borrowed));
    let inner = inner.unwrap_or(Cow::Borrowed(text));
    let mut plain: Option<String> = None;
    let mut at = 0;
    for line in inner.split_inclusive('\n') {
        if let Some(changed) = plain_line(line) {
            plain.get_or_insert_with(|| inner[..at].to_owned()).push_str(&changed);
        } else if let Some(plain) = &mut plain {
            plain.push_str(line);
        }
        at += line.len();
    }
    plain.map_or(inner, Cow::Owned)
}

/// The first fenced block of data, or the first of all, after as many empty lines as there are lines before it.
fn fenced(text: &str) -> Option<Cow<'_, str>> {
    let (mut blocks, mut open, mut at) = (Vec::new(), None, 0);
    for line in text.split_inclusive('\n') {
        let fence = FENCES.into_iter().find(|fence| line.starts_with(fence));
        if open.is_none() && fence.is_some() {
            blocks.push((line, at + line.len(), text.len()));
            open = fence;
        } else if let Some(block) = blocks.last_mut().filter(|_| fence.is_some() && fence == open) {
            block.2 = at;
            open = None;
        }
        at += line.len();
    }
    let is_data = |(line, ..): &&(&str, usize, usize)| {
        let language = line.trim().trim_start_matches(['`', '~']).to_ascii_lowercase();
        language.is_empty() || LANGUAGES.iter().any(|known| language.contains(known))
    };
    let (_, from, to) = blocks.iter().find(is_data).or_else(|| blocks.first())?;
    Some(Cow::Owned("\n".repeat(text[..*from].matches('\n').count()) + &text[*from..*to]))
}

/// Front matter with prose after it. A second document is not prose: the parser refuses it.
fn front_matter(text: &str) -> Option<&str> {
    let is_mark = |line: &str| line.trim_end() == MARK;
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| is_mark(line))?;
    let mut at = first.len();
    for line in lines {
        if is_mark(line) {
            let rest = &text[at + line.len()..];
            let is_prose = !rest.trim().is_empty()
                && !rest.lines().any(|line| is_mark(line) || field_of(line).is_some());
            return is_prose.then_some(&text[..at]);
        }
        at += line.len();
    }
    None
}

/// The name and the value of a field that begins its line.
fn field_of(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':').filter(|(name, _)| is_name(name))?;
    (value.is_empty() || value.starts_with(char::is_whitespace)).then_some((name, value))
}

fn is_name(name: &str) -> bool {
    name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ' | '.'))
}

/// The line as the parser reads it, if it is another one.
fn plain_line(line: &str) -> Option<String> {
    // With a colon of YAML behind it, an unknown word belongs to the name.
    let is_field = |(name, value): &(&str, &str)| {
        let is_known = plain_field(name).is_ascii() || !value.contains(": ");
        is_name(name) && is_known && !value.trim_end().ends_with(':')
    };
    let wide = line.split_once('：').filter(is_field);
    let (name, value) = wide.or_else(|| field_of(line))?;
    let is_wide = wide.is_some() || value.trim_start_matches(' ').starts_with(is_wide_blank);
    let value = value.trim_start_matches(is_blank);
    let written = value.split(" #").next().unwrap_or_default().trim_end();
    // Without quotes it would be a field in a text.
    let is_text = is_wide && written.contains(": ") && !written.starts_with(['"', '\'', '[', '{']);
    if is_text || is_other_number(written) {
        let quoted = serde_json::Value::from(written);
        return Some(format!("{name}: {quoted}{}", &value[written.len()..]));
    }
    is_wide.then(|| format!("{name}: {value}"))
}

/// A blank that YAML takes for a letter.
const fn is_wide_blank(c: char) -> bool {
    matches!(c, '\u{a0}' | '\u{3000}')
}

const fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t') || is_wide_blank(c)
}

/// Whether a number is written in another way than its value is: with a zero before or after it, say.
fn is_other_number(text: &str) -> bool {
    let is_like_one = text
        .starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte));
    is_like_one
        && yaml::read::<serde_json::Value>(text)
            .is_ok_and(|value| value.as_number().is_some_and(|number| number.to_string() != text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Value {
        yaml::read(&document(text)).unwrap_or(Value::Null)
    }

    #[test]
    fn a_document_is_found_in_what_models_write_around_it() {
        let fields = "task_id: T\nstatus: done\n";
        let wanted = json!({ "task_id": "T", "status": "done" });
        for text in [
            fields.to_owned(),
            format!("```yaml\n{fields}```\n"),
            format!("I ran\n```bash\na: 1\n```\nReport:\n``` YAML\n{fields}```\n"),
            format!("Here it is:\n\n~~~yml\n{fields}~~~\n\nLet me know: is it fine?\n"),
            format!("---\n{fields}---\n\n# Report\n- [x] a: b\n"),
            format!("\u{feff}---\r\n{}---\r\nAll done.\r\n", fields.replace('\n', "\r\n")),
            format!("\u{feff}```\n{fields}```\n"),
            format!("\u{feff}{}", fields.replace(": ", "：")),
            fields.replace(": ", "："),
            fields.replace(": ", ":\u{a0}"),
            fields.replace(": ", "： \u{3000}"),
        ] {
            assert_eq!(read(&text), wanted, "{text:?}");
        }
        // Two reports are not one, and a block in a text belongs to it.
        assert_eq!(read(&format!("---\n{fields}---\n{fields}")), Value::Null);
        let inner = "summary: |\n  ```\n  x：1\n  ```\n";
        assert_eq!(read(inner)["summary"], "```\nx：1\n```\n");
        assert_eq!(read("注：これ: 1\n"), json!({ "注：これ": 1 }));
        for (text, summary) in [
            ("summary：a: b # c: d\r\nn: 1\r\n", json!("a: b")),
            ("概要：a: \"b\"\nn: 1\n", json!("a: \"b\"")),
            ("summary：\"a: b\"\nn: 1", json!("a: b")),
            ("summary：{a: b}\nn: 1", json!({ "a": "b" })),
        ] {
            let fields = read(text);
            let found = fields.get("summary").or_else(|| fields.get("概要"));
            assert_eq!((found, &fields["n"]), (Some(&summary), &json!(1)), "{text:?}");
        }
    }

    #[test]
    fn a_number_that_is_a_name_stays_as_it_is_written() {
        for name in ["007", "1.10", "+5", "1e3", "0x1F", "0o17", "1_000", "00"] {
            assert_eq!(read(&format!("task_id: {name} # the first\n"))["task_id"], name);
            assert_eq!(read(&format!("task_id：{name}"))["task_id"], name);
        }
        for (text, value) in [("7", json!(7)), ("-1", json!(-1)), ("0.5", json!(0.5))] {
            assert_eq!(read(&format!("task_id: {text}\r\n"))["task_id"], value);
        }
        assert_eq!(read("task_id: 2026-11-30\n")["task_id"], "2026-11-30");
        assert_eq!(read("summary: |\n  id: 007\n")["summary"], "id: 007\n");
    }
}
