//! The only module that reads and writes YAML.
//!
//! Every text is capped before it is parsed. The parser has a budget: depth 16, no aliases, no
//! duplicate keys, one document, YAML 1.2 booleans only. A hostile file costs milliseconds and
//! gives an error that names the field.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Budget, Options};

use crate::{Error, Result};

/// Maximum depth of a document.
pub const DEPTH_MAX: usize = 16;
/// Maximum number of nodes in a document.
const NODES_MAX: usize = 100_000;

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

/// Reads a document that came from `path`.
///
/// # Errors
///
/// [`Error::Malformed`] with line, column and the parser's message.
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T> {
    read(text).map_err(|(place, detail)| Error::malformed(path, place, detail))
}

/// As [`parse`], for documents that people write. Its code is twice that of [`parse`].
///
/// # Errors
///
/// [`Error::Malformed`] with line, column, the field and the parser's message.
pub fn parse_naming_field<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T> {
    read(text).map_err(|(place, detail)| {
        let field = field_in_error::<T>(text).map(|field| format!("{place}, in `{field}`"));
        Error::malformed(path, field.unwrap_or(place), detail)
    })
}

/// Reads a text; else the place of the error and its message.
fn read<T: DeserializeOwned>(text: &str) -> std::result::Result<T, (String, String)> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let place = error.location().map_or_else(
            || "file".to_owned(),
            |at| format!("line {}, column {}", at.line(), at.column()),
        );
        (place, one_line(&error.to_string()))
    })
}

/// The field at which a text stops being a `T`, if it is one. Only errors cost the second reading.
fn field_in_error<T: DeserializeOwned>(text: &str) -> Option<String> {
    let mut track = serde_path_to_error::Track::new();
    let read = |yaml: serde_saphyr::Deserializer<'_, '_>| {
        T::deserialize(serde_path_to_error::Deserializer::new(yaml, &mut track))
    };
    drop(serde_saphyr::with_deserializer_from_str_with_options(text, options(), read));
    Some(track.path().to_string()).filter(|path| path != ".") // the root
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
