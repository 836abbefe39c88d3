//! Small JSON files that one process keeps for its successor.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable::{Durability, read_file, write_document};
use crate::message::describe_json_fault;
use crate::{Error, Result};

/// Reads a file of JSON; `None` if there is none.
///
/// # Errors
/// It cannot be read, has more than `bytes_max` bytes, or is not such JSON.
pub fn read_json<T: DeserializeOwned>(path: &Path, bytes_max: usize) -> Result<Option<T>> {
    let Some(content) = read_file(path, bytes_max)? else { return Ok(None) };
    let malformed = |error| Error::malformed(path, "file", describe_json_fault(&error));
    serde_json::from_slice(&content).map(Some).map_err(malformed)
}

/// Replaces a file of JSON in an existing directory. A kill leaves the old or the new one; after a power cut it may be
/// missing.
///
/// # Errors
/// The disk failed; the old file is unchanged.
pub fn write_json(path: &Path, content: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(content).unwrap_or_default();
    write_document(path, &text, Durability::Process)
}
