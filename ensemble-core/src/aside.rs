//! What belongs to no message is not removed: it goes to `rejected/`, with its place and the reason beside it.

use std::ffi::OsStr;

use serde::Serialize;

use crate::Result;
use crate::durable::{self, Dir, Durability, FileModes};
use crate::env::{Clock as _, SystemClock};
use crate::message::{Timestamp, yaml};

/// Where files go that cannot be routed, each with its reason beside it.
pub const REJECTED: &str = "rejected";
/// The longest beginning of a new name that comes from the old one, in bytes.
const STEM_BYTES_MAX: usize = 110;

/// The file that is set aside: its path below the queue, and how its new name begins.
#[derive(Debug)]
pub(crate) struct AsideFile {
    pub(crate) path: String,
    pub(crate) stem: String,
}

impl AsideFile {
    /// The file with this path, whose new name begins with all of it.
    pub(crate) fn at(path: String) -> Self {
        Self { stem: path.replace('/', "."), path }
    }
}

#[derive(Debug, Serialize)]
struct RejectionNote<'a> {
    file: &'a str,
    error: &'a str,
    at: Timestamp,
}

/// Moves a file, or a directory that is not empty, to `rejected/` and writes the reason beside it,
/// first. Returns its new path below the queue.
pub(crate) fn put_aside(
    queue: &Dir,
    dir: &Dir,
    file: impl AsRef<OsStr>,
    aside: &AsideFile,
    error: &str,
) -> Result<String> {
    let rejected = queue.ensure_child(REJECTED, FileModes::default())?;
    let harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let kept: String = aside
        .stem
        .chars()
        .map(|c| if harmless(c) { c } else { '_' })
        .take(STEM_BYTES_MAX)
        .collect();
    let kept = durable::temporary_name(&kept);
    let reason = RejectionNote { file: &aside.path, error, at: SystemClock.wall() };
    rejected.replace(
        &format!("{kept}@reason.yaml"),
        yaml::render(&reason).as_bytes(),
        &rejected,
        FileModes::default(),
        Durability::Process,
    )?;
    let file = file.as_ref();
    match file.to_str() {
        Some(tree) if dir.stat(tree)?.is_some_and(|stat| stat.is_directory) => {
            dir.move_tree_new(tree, &rejected, &kept)?;
        }
        _ => drop(dir.move_named(file, &rejected, &kept)?),
    }
    Ok(format!("{REJECTED}/{kept}"))
}
