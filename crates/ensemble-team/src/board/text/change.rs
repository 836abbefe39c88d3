//! The splices that turn a text into one with another value.
//!
//! Block mappings and block sequences are compared entry by entry. Any other value that differs is
//! replaced as a whole, behind its `key:` or `-`. The splices need not be right for every layout
//! that YAML allows: [`super::YamlText::update`] parses and compares the outcome.

use std::ops::Range;

use serde_json::{Map, Value};

use super::render::{self, RenderedValue};
use super::{MappingEntry, NodeKind, TextNode, YamlText};

struct TextSplice {
    range: Range<usize>,
    text: String,
}

/// The text of `old`, changed so that its value is `new`.
pub(super) fn splice(old: &YamlText, new: &Value) -> String {
    let mut change = TextChange { old, source: &old.source, splices: Vec::new() };
    match (&old.root.kind, new) {
        (NodeKind::Mapping { entries, is_flow: false }, Value::Object(fields))
            if change.is_regular(entries) && !fields.is_empty() =>
        {
            change.mapping(entries, fields);
        }
        (_, Value::Object(fields)) => change.root(fields),
        _ => {}
    }
    change.splices.sort_by_key(|splice| (splice.range.start, splice.range.end));
    let (mut out, mut at) = (String::with_capacity(old.source.len() + 1024), 0);
    for TextSplice { range, text } in change.splices {
        out.push_str(&old.source[at.min(range.start)..range.start]);
        out.push_str(&text);
        at = range.end;
    }
    out.push_str(&old.source[at..]);
    out
}

struct TextChange<'a> {
    old: &'a YamlText,
    source: &'a str,
    splices: Vec<TextSplice>,
}

impl TextChange<'_> {
    fn put(&mut self, range: Range<usize>, text: String) {
        self.splices.push(TextSplice { range, text });
    }

    /// Changes a file that is one flow mapping.
    fn root(&mut self, fields: &Map<String, Value>) {
        let TextNode { start, end, .. } = self.old.root;
        let comments = self.comments(start..end).map(|c| format!("\n{c}")).collect::<String>();
        let text = render::document(fields);
        self.put(start..end, text.trim_end().to_owned());
        self.put(self.line_end(end)..self.line_end(end), comments);
    }

    fn mapping(&mut self, entries: &[MappingEntry], fields: &Map<String, Value>) {
        let Some(first) = entries.first() else { return };
        let indent = column(self.source, first.start);
        for entry in entries {
            match fields.get(&entry.key) {
                Some(value) => {
                    let lead = behind_colon(self.source, entry.end).unwrap_or(entry.end);
                    self.value(&entry.value, value, lead, indent, false);
                }
                None => self.remove(entry.start, entry.value.end, indent),
            }
        }
        // Insert a new field after the field that precedes it in the new value.
        let mut behind = None;
        for (key, value) in fields {
            match entries.iter().find(|entry| entry.key == *key) {
                Some(entry) => behind = Some(entry),
                None => {
                    let at = behind.or_else(|| entries.last()).map_or(first.start, |e| e.value.end);
                    self.insert(at, &render::entry_lines(key, value, indent));
                }
            }
        }
    }

    fn sequence(&mut self, items: &[TextNode], values: &[Value]) {
        let dashes: Vec<usize> = items.iter().map(|item| dash(self.source, item.start)).collect();
        let Some(indent) = dashes.first().map(|dash| column(self.source, *dash)) else { return };
        for (at, item) in items.iter().enumerate() {
            match values.get(at) {
                Some(value) => self.value(item, value, dashes[at] + 1, indent, true),
                None => self.remove(dashes[at], item.end, indent),
            }
        }
        if let Some(last) = items.last() {
            for value in values.iter().skip(items.len()) {
                self.insert(last.end, &render::item_lines(value, indent));
            }
        }
    }

    /// Changes `node` to `new`. `lead` is behind its colon or dash, which is at column `indent`.
    fn value(&mut self, node: &TextNode, new: &Value, lead: usize, indent: usize, in_list: bool) {
        match (&node.kind, new) {
            (NodeKind::Scalar { value, .. }, new) if value == new => {}
            (NodeKind::Mapping { entries, is_flow: false }, Value::Object(fields))
                if self.can_change(node, entries, fields) =>
            {
                self.mapping(entries, fields);
            }
            (NodeKind::Sequence { items, is_flow: false }, Value::Array(values))
                if !values.is_empty() && self.are_on_own_lines(items) =>
            {
                self.sequence(items, values);
            }
            (NodeKind::Sequence { .. } | NodeKind::Mapping { .. }, new) if node.value() == *new => {
            }
            _ => self.replace(node, new, lead, indent, in_list),
        }
    }

    /// Whether the entries can be changed one by one. The first entry must stay if it shares its
    /// line with a dash.
    fn can_change(
        &self,
        node: &TextNode,
        entries: &[MappingEntry],
        fields: &Map<String, Value>,
    ) -> bool {
        let begins_line = self.before_on_line(node.start).trim().is_empty();
        self.is_regular(entries)
            && entries.iter().any(|entry| fields.contains_key(&entry.key))
            && (begins_line || entries.first().is_some_and(|e| fields.contains_key(&e.key)))
    }

    /// Whether each line has one `key: value`, all at one column.
    fn is_regular(&self, entries: &[MappingEntry]) -> bool {
        let indent = entries.first().map(|entry| column(self.source, entry.start));
        entries.iter().enumerate().all(|(at, entry)| {
            Some(column(self.source, entry.start)) == indent
                && behind_colon(self.source, entry.end).is_some()
                && (at == 0 || self.before_on_line(entry.start).trim().is_empty())
        })
    }

    fn are_on_own_lines(&self, items: &[TextNode]) -> bool {
        items.iter().all(|item| {
            let dash = dash(self.source, item.start);
            self.source[dash..].starts_with('-') && self.before_on_line(dash).trim().is_empty()
        })
    }

    fn before_on_line(&self, at: usize) -> &str {
        &self.source[line_start(self.source, at)..at]
    }

    /// End of the line, before its line terminator.
    fn line_end(&self, at: usize) -> usize {
        let line = self.source[at..].split('\n').next().unwrap_or_default();
        at + line.strip_suffix('\r').unwrap_or(line).len()
    }

    fn comments(&self, range: Range<usize>) -> impl Iterator<Item = &str> {
        let inside = move |(start, _): &&(usize, usize)| range.contains(start);
        let text = |(start, end): &(usize, usize)| self.source[*start..*end].trim_end();
        self.old.comments.iter().filter(inside).map(text)
    }

    /// Inserts lines after the last line of the value at `at`.
    fn insert(&mut self, at: usize, lines: &[String]) {
        let at = self.line_end(at);
        self.put(at..at, lines.iter().map(|line| format!("\n{line}")).collect());
    }

    /// Removes whole lines; their comments stay.
    fn remove(&mut self, start: usize, end: usize, indent: usize) {
        let (start, end) = (line_start(self.source, start), self.line_end(end));
        let lead = " ".repeat(indent);
        let comments: String = self.comments(start..end).map(|c| format!("{lead}{c}\n")).collect();
        let after = &self.source[end..];
        let end = end + after.len() - after.trim_start_matches('\r').len();
        let end = if self.source[end..].starts_with('\n') { end + 1 } else { end };
        self.put(start..end, comments);
    }

    fn replace(&mut self, node: &TextNode, new: &Value, lead: usize, indent: usize, in_list: bool) {
        let rendered = render::value(new, indent, in_list);
        let is_one_line = !self.source[lead..node.end.max(lead)].contains('\n');
        if let (true, RenderedValue::Inline(text)) = (is_one_line, &rendered) {
            let blank = if node.start <= lead { " " } else { "" };
            let start = node.start.max(lead);
            return self.put(start..node.end.max(start), format!("{blank}{text}"));
        }
        let end = self.line_end(node.end.max(lead));
        let first_line = lead..self.line_end(lead);
        let mut header = self.comments(first_line.clone()).map(|c| format!(" {c}")).next();
        let others: Vec<String> = self.comments(first_line.end..end).map(str::to_owned).collect();
        let mut text = match rendered {
            RenderedValue::Inline(text) => format!(" {text}{}", header.take().unwrap_or_default()),
            RenderedValue::Lines { header: mark, lines } => {
                let blank = if mark.is_empty() { "" } else { " " };
                let comment = header.take().unwrap_or_default();
                format!("{blank}{mark}{comment}\n{}", lines.join("\n"))
            }
        };
        // Never indent a comment deeper than the following text, or it would become part of it.
        for comment in others {
            text.push_str(&format!("\n{}{comment}", " ".repeat(indent)));
        }
        self.put(lead..end, text);
    }
}

/// The position behind the colon of a key that ends at `end`, if it is on the same line.
pub(super) fn behind_colon(source: &str, end: usize) -> Option<usize> {
    let rest = &source[end..];
    let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    rest[blanks..].starts_with(':').then_some(end + blanks + 1)
}

/// The position behind the dash on the line of `at`, if only a comment follows the dash.
pub(super) fn behind_dash(source: &str, at: usize) -> Option<usize> {
    let start = line_start(source, at);
    let before = source[start..at].split(" #").next().unwrap_or_default().trim_end();
    before.ends_with('-').then_some(start + before.len())
}

fn line_start(source: &str, at: usize) -> usize {
    source[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// Number of bytes before `at` on its line. Before a key or a dash they are blanks and dashes.
fn column(source: &str, at: usize) -> usize {
    let line = &source[line_start(source, at)..at];
    line.strip_prefix('\u{feff}').unwrap_or(line).len()
}

/// The dash of an item that begins at `start`: on its line or, past comments, further up.
pub(super) fn dash(source: &str, start: usize) -> usize {
    let mut line = line_start(source, start);
    let before = source[line..start].trim_end_matches(' ');
    if before.ends_with('-') {
        return line + before.len() - 1;
    }
    while line > 0 {
        let above = line_start(source, line - 1);
        let text = source[above..line].trim_end();
        let content = text.split(" #").next().unwrap_or_default().trim_end();
        if content.ends_with('-') {
            return above + content.len() - 1;
        }
        if !content.trim().is_empty() && !content.trim_start().starts_with('#') {
            break;
        }
        line = above;
    }
    start
}

/// End of a block scalar: after its last character, without the last line terminator.
pub(super) fn end_of_block(source: &str, range: &Range<usize>) -> usize {
    let text = source[range.clone()].trim_end_matches([' ', '\t']);
    let header = source[..range.start].rfind(['|', '>']).map_or("", |at| &source[at..range.start]);
    let keeps = header.lines().next().unwrap_or_default().chars().take(3).any(|c| c == '+');
    let text = if keeps { text.strip_suffix('\n').unwrap_or(text) } else { text.trim_end() };
    range.start + text.len()
}
