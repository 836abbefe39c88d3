//! A YAML file that people and programs share: read as a value, changed by splicing the text.
//!
//! ```text
//! text --parse--> nodes with their places --value()--> JSON value --(changed)--> update()
//!                                                                                  |
//!   new text <-- splices of exactly the differences; parsed again and compared <--+
//! ```
//!
//! A change never reprints the file. Unchanged parts keep their bytes: order, quotes, blank lines,
//! unknown fields. Comments are never removed; a comment inside a replaced value moves behind it.
//! The new text is parsed again. It is rejected unless it has exactly the new value and exactly the
//! old comments. So a layout that this code does not understand causes an error, never a mangled
//! file.
//!
//! The accepted format is a small YAML: one document, no anchors, aliases, merge keys or tags, no
//! duplicate keys, at most [`DEPTH_MAX`] levels. All other files are read by serde-saphyr, which
//! uses the same parser.

mod change;
mod render;
#[cfg(test)]
mod tests;

use std::path::Path;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};
use serde_json::{Map, Number, Value};

use ensemble_core::message::yaml::{DEPTH_MAX, in_plain_words};
use ensemble_core::{Error, Result};

pub(crate) const SCALAR_BYTES_MAX: usize = 64 * 1024;
pub(crate) const NODES_MAX: usize = 200_000;

/// Most keys of a mapping; each key is compared with all others.
const KEYS_MAX: usize = 4_096;

#[derive(Clone, Debug)]
pub(crate) struct YamlText {
    source: String,
    root: TextNode,
    /// Start and end of each comment, in order.
    comments: Vec<(usize, usize)>,
}

#[derive(Clone, Debug)]
struct TextNode {
    /// Position of its first byte; for a block sequence, of the first dash.
    start: usize,
    /// Position after its last byte; for a block, after its last significant byte.
    end: usize,
    kind: NodeKind,
}

#[derive(Clone, Debug)]
enum NodeKind {
    Scalar { value: Value, is_block: bool },
    Sequence { items: Vec<TextNode>, is_flow: bool },
    Mapping { entries: Vec<MappingEntry>, is_flow: bool },
}

#[derive(Clone, Debug)]
struct MappingEntry {
    key: String,
    start: usize,
    /// Position after the key, before the colon.
    end: usize,
    value: TextNode,
}

impl YamlText {
    pub(crate) fn parse(source: &str, path: &Path) -> Result<Self> {
        let mut source = source.to_owned();
        if !source.ends_with('\n') {
            source.push('\n');
        }
        let mut reader =
            TextReader { path, source: &source, stack: Vec::new(), root: None, nodes: 0 };
        let mut comments = Vec::new();
        for event in Parser::new_from_str(&source) {
            let (event, span) = event.map_err(|error| {
                let (at, info) = (error.marker(), error.info());
                reader.refused(at.line(), at.col() + 1, &in_plain_words(&info))
            })?;
            if let Event::Comment(..) = event {
                let range = span.byte_range().unwrap_or_default();
                comments.push((range.start, range.end));
                continue;
            }
            reader.read_event(event, span)?;
        }
        let empty = || Error::malformed(path, "file", "is empty: it must be a mapping of fields");
        let root = reader.root.take().ok_or_else(empty)?;
        comments.sort_unstable();
        Ok(Self { source, root, comments })
    }

    pub(crate) fn value(&self) -> Value {
        self.root.value()
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The comments, each from its `#` to the end of its line, sorted.
    pub(crate) fn comments(&self) -> Vec<&str> {
        let mut all: Vec<_> =
            self.comments.iter().map(|(start, end)| self.source[*start..*end].trim_end()).collect();
        all.sort_unstable();
        all
    }

    /// The file with `value`, everything else unchanged.
    ///
    /// # Errors
    /// [`Error::Malformed`] if this layout cannot be changed. Nothing was written then.
    pub(crate) fn update(&self, value: &Value, path: &Path) -> Result<Self> {
        let refused = |detail: String| {
            Error::malformed(path, "file", format!("cannot be changed in its layout: {detail}"))
        };
        if self.value() == *value {
            return Ok(self.clone());
        }
        let changed = change::splice(self, value);
        let new = Self::parse(&changed, path).map_err(|error| refused(error.to_string()))?;
        if new.value() != *value {
            return Err(refused("write it as plain blocks, one field a line".to_owned()));
        }
        if new.comments() != self.comments() {
            return Err(refused("a comment would be lost; put it on a separate line".to_owned()));
        }
        Ok(new)
    }
}

struct OpenCollection {
    start: usize,
    /// A key whose value is not read yet, and its place.
    pending_key: Option<(String, usize, usize)>,
    kind: NodeKind,
}

struct TextReader<'a> {
    path: &'a Path,
    source: &'a str,
    stack: Vec<OpenCollection>,
    root: Option<TextNode>,
    nodes: usize,
}

impl TextReader<'_> {
    fn refused(&self, line: usize, column: usize, detail: &str) -> Error {
        let detail: String = detail.chars().filter(|c| !c.is_control()).take(200).collect();
        Error::malformed(self.path, format!("line {line}, column {column}"), detail)
    }

    fn refuse(&self, span: Span, detail: &str) -> Error {
        self.refused(span.start.line(), span.start.col() + 1, detail)
    }

    fn read_event(&mut self, event: Event<'_>, span: Span) -> Result<()> {
        let range = span.byte_range().unwrap_or_default();
        let properties = match &event {
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(_, anchor, tag)
            | Event::MappingStart(_, anchor, tag) => (*anchor != 0, tag.is_some()),
            _ => (false, false),
        };
        match properties {
            (true, _) => return Err(self.refuse(span, "anchors are not allowed here")),
            (_, true) => return Err(self.refuse(span, "tags are not allowed here")),
            (false, false) => {}
        }
        match event {
            Event::Scalar(text, style, _, _) => self.scalar(&text, style, span),
            Event::SequenceStart(style, _, _) => {
                let is_flow = style == StructureStyle::Flow;
                self.open(span, NodeKind::Sequence { items: Vec::new(), is_flow })
            }
            Event::MappingStart(style, _, _) => {
                let is_flow = style == StructureStyle::Flow;
                self.open(span, NodeKind::Mapping { entries: Vec::new(), is_flow })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span, range.end),
            Event::Alias(_) => Err(self.refuse(span, "aliases are not allowed here")),
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(self.refuse(span, "a second document is not allowed here"))
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, span: Span, kind: NodeKind) -> Result<()> {
        if self.stack.len() >= DEPTH_MAX {
            return Err(self.refuse(span, &format!("is nested deeper than {DEPTH_MAX}")));
        }
        if let Some(OpenCollection { kind: NodeKind::Mapping { .. }, pending_key: None, .. }) =
            self.stack.last()
        {
            return Err(self.refuse(span, "a key must be plain text"));
        }
        let start = span.byte_range().unwrap_or_default().start;
        self.stack.push(OpenCollection { start, pending_key: None, kind });
        Ok(())
    }

    fn close(&mut self, span: Span, flow_end: usize) -> Result<()> {
        let Some(OpenCollection { start, kind, .. }) = self.stack.pop() else { return Ok(()) };
        let (start, end) = match &kind {
            NodeKind::Sequence { is_flow: false, items } => {
                let first =
                    items.first().map_or(start, |item| change::dash(self.source, item.start));
                (first, items.last().map_or(start, |item| item.end))
            }
            NodeKind::Mapping { is_flow: false, entries } => {
                (start, entries.last().map_or(start, |entry| entry.value.end))
            }
            NodeKind::Scalar { .. } | NodeKind::Sequence { .. } | NodeKind::Mapping { .. } => {
                (start, flow_end)
            }
        };
        self.node(TextNode { start, end, kind }, span)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, span: Span) -> Result<()> {
        let range = span.byte_range().unwrap_or_default();
        if text.len() > SCALAR_BYTES_MAX {
            let detail = format!("has {} bytes, the limit is {SCALAR_BYTES_MAX}", text.len());
            return Err(self.refuse(span, &detail));
        }
        if let Some(OpenCollection {
            kind: NodeKind::Mapping { entries, .. },
            pending_key: key @ None,
            ..
        }) = self.stack.last_mut()
        {
            if entries.iter().any(|entry| entry.key == text) {
                let detail = format!("the key `{}` appears twice", text.escape_debug());
                return Err(self.refuse(span, &detail));
            }
            if entries.len() >= KEYS_MAX {
                return Err(self.refuse(span, &format!("has more than {KEYS_MAX} keys")));
            }
            if text == "<<" && style == ScalarStyle::Plain {
                return Err(self.refuse(span, "merge keys are not allowed here"));
            }
            *key = Some((text.to_owned(), range.start, range.end));
            return Ok(());
        }
        let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let value = match style {
            ScalarStyle::Plain if range.is_empty() => Value::Null,
            ScalarStyle::Plain => resolve(text),
            _ => Value::String(text.to_owned()),
        };
        let end = if is_block { change::end_of_block(self.source, &range) } else { range.end };
        let start = range.start.min(end);
        self.node(TextNode { start, end, kind: NodeKind::Scalar { value, is_block } }, span)
    }

    fn node(&mut self, node: TextNode, span: Span) -> Result<()> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(self.refuse(span, &format!("has more than {NODES_MAX} values")));
        }
        match self.stack.last_mut() {
            None => {
                if !matches!(node.kind, NodeKind::Mapping { .. }) {
                    return Err(self.refuse(span, "must be a mapping of fields"));
                }
                self.root = Some(node);
            }
            Some(OpenCollection { kind: NodeKind::Sequence { items, is_flow }, .. }) => {
                let is_missing = !*is_flow && node.is_missing();
                let place = is_missing.then(|| change::behind_dash(self.source, node.start));
                items.push(node.placed(place.flatten()));
            }
            Some(OpenCollection {
                kind: NodeKind::Mapping { entries, .. }, pending_key, ..
            }) => {
                if let Some((key, start, end)) = pending_key.take() {
                    let is_missing = node.is_missing();
                    let place = is_missing.then(|| change::behind_colon(self.source, end));
                    let value = node.placed(place.flatten());
                    entries.push(MappingEntry { key, start, end, value });
                }
            }
            Some(OpenCollection { kind: NodeKind::Scalar { .. }, .. }) => {}
        }
        Ok(())
    }
}

impl TextNode {
    /// Whether the node is a null that is not written in the text.
    fn is_missing(&self) -> bool {
        self.start == self.end && matches!(self.kind, NodeKind::Scalar { is_block: false, .. })
    }

    fn placed(self, place: Option<usize>) -> Self {
        match place {
            Some(at) => Self { start: at, end: at, ..self },
            None => self,
        }
    }

    fn value(&self) -> Value {
        match &self.kind {
            NodeKind::Scalar { value, .. } => value.clone(),
            NodeKind::Sequence { items, .. } => items.iter().map(Self::value).collect(),
            NodeKind::Mapping { entries, .. } => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.value.value()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }
}

/// The value of an unquoted scalar (YAML 1.2). A number counts as one only if it is written as this
/// code would write it. `0012345`, `12e4567` and `1.10` may be commits and versions, so they stay
/// text.
fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let number = text
        .parse::<i64>()
        .map(Number::from)
        .or_else(|_| text.parse::<u64>().map(Number::from))
        .ok()
        .or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64));
    match number {
        Some(number) if number.to_string() == text => Value::Number(number),
        _ => Value::String(text.to_owned()),
    }
}
