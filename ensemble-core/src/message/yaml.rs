//! The only module that reads and writes YAML.
//!
//! Every text is capped before it is parsed. The parser has a budget: depth 16, no aliases, no
//! duplicate keys, one document, YAML 1.2 booleans only. A hostile file costs milliseconds and
//! gives an error that names its line.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Budget, Options, with_deserializer_from_str_with_options};

use crate::{Error, Result};

/// Maximum depth of a document.
pub const DEPTH_MAX: usize = 16;
/// Maximum number of nodes in a document.
const NODES_MAX: usize = 100_000;
/// How the parser ends an error, with line and column.
const PLACE: &str = " at line ";
const COLUMN: &str = ", column ";

fn options() -> Options {
    serde_saphyr::options! {
        budget: budget(),
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn budget() -> Option<Budget> {
    serde_saphyr::budget! {
        max_depth: DEPTH_MAX,
        max_aliases: 0,
        max_anchors: 0,
        max_merge_keys: 0,
        max_documents: 1,
        max_nodes: NODES_MAX,
        max_events: NODES_MAX * 4,
    }
}

/// Why and where a text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line and column in characters, as YAML counts them, each starting at 1.
    pub place: Option<(u64, u64)>,
    /// The parser's message, one line, without the place.
    pub detail: String,
}

impl Fault {
    /// The error of the file at `path`; `field` is where the fault stands, if that is known.
    #[must_use]
    pub fn at(self, path: &Path, field: Option<&str>) -> Error {
        let place = self.place.map_or_else(
            || "file".to_owned(),
            |(line, column)| format!("line {line}, column {column}"),
        );
        let field = field.map(|field| format!(", in `{field}`")).unwrap_or_default();
        Error::malformed(path, place + &field, self.detail)
    }
}

/// Reads a document that came from `path`.
///
/// # Errors
///
/// [`Error::Malformed`] with line, column and the parser's message.
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T> {
    read(text).map_err(|fault| fault.at(path, None))
}

/// As [`parse`], for a caller that says more of the place.
///
/// # Errors
///
/// The text is no YAML, or no `T`.
pub fn read<T: DeserializeOwned>(text: &str) -> std::result::Result<T, Fault> {
    read_with(text, options())
}

/// As [`read`], with infinite numbers and those that are none.
///
/// # Errors
///
/// As for [`read`].
pub fn read_any<T: DeserializeOwned>(text: &str) -> std::result::Result<T, Fault> {
    let mut options = options();
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    read_with(text, options)
}

/// One copy of the parser's code serves all types: a copy for each was a twentieth of the program.
fn read_with<T: DeserializeOwned>(text: &str, options: Options) -> std::result::Result<T, Fault> {
    let read = with_deserializer_from_str_with_options(text, options, |parser| {
        let mut parser = <dyn erased_serde::Deserializer<'_>>::erase(parser);
        erased_serde::deserialize(&mut parser).map_err(serde::de::Error::custom)
    });
    read.map_err(|error| fault(&error))
}

/// An erased error is a text. Each level that it has passed has added its place, the innermost first.
fn fault(error: &serde_saphyr::Error) -> Fault {
    let text = error.to_string();
    let (mut message, mut place) = (text.as_str(), None);
    while let Some((rest, numbers)) = message.rsplit_once(PLACE)
        && let Some((line, column)) = numbers.split_once(COLUMN)
        && let (Ok(line), Ok(column)) = (line.parse::<u64>(), column.parse::<u64>())
    {
        (message, place) = (rest, Some((line, column)));
    }
    let given = error.location().map(|at| (at.line(), at.column()));
    Fault { place: place.or(given), detail: one_line(message) }
}

/// Writes a document.
pub fn render<T: Serialize>(value: &T) -> String {
    // Our own types always have a YAML form: maps with string keys, sequences and scalars.
    serde_saphyr::to_string(value).unwrap_or_default()
}

/// The first line of an error, without control characters.
fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_innermost_place_once_however_deep_it_is() {
        type Deep = std::collections::BTreeMap<String, Vec<Option<u8>>>;
        let found = |text: &str| read::<Deep>(text).unwrap_err();
        let wrong = found("a:\n  - 300\n");
        let detail = "invalid u8".to_owned();
        assert_eq!(wrong, Fault { place: Some((2, 5)), detail });
        // A place that the text itself names is none.
        let quoted = found("a:\n  - {at line 9, column 9: 1}\n");
        assert_eq!(quoted.place, Some((2, 5)), "{quoted:?}");
    }
}
