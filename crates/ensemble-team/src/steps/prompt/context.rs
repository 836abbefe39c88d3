//! Files as a prompt shows them.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;

use super::skeleton;
use ensemble_core::message::{BODY_BYTES_MAX, fenced};

/// Largest text that is shown whole, in bytes.
const FILE_BYTES_MAX: usize = 16 * 1024;
/// Most bytes shown of a larger text.
const SKELETON_BYTES_MAX: usize = 4 * 1024;
/// Most bytes of all files together; further files are only named. A usual prompt fits into the body of one message.
const TOTAL_BYTES_MAX: usize = 44 * 1024;
const _: () = assert!(TOTAL_BYTES_MAX < BODY_BYTES_MAX);
/// Larger files are read only in part and have no digest.
const HASHED_BYTES_MAX: u64 = 64 * 1024 * 1024;
const DIGITS: usize = 12;

/// A file that a prompt shows, as its JSON record has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownFile {
    pub path: String,
    pub how: FileDisplay,
    /// Size in bytes, if the file exists.
    pub bytes: Option<u64>,
    /// SHA-256 in hexadecimal, if the file could be read.
    pub sha256: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileDisplay {
    Whole,
    /// Only the lines that declare something.
    Skeleton,
    /// Only its name: the prompt is full.
    Named,
    /// Only its name: the file is not text.
    Binary,
    Missing,
    /// Only its name: a directory, a device, or a link out of the project.
    NoFile,
    Unreadable,
}

struct PathContent {
    how: FileDisplay,
    bytes: Option<u64>,
    sha256: Option<String>,
    text: String,
}

impl PathContent {
    const fn nothing(how: FileDisplay) -> Self {
        Self { how, bytes: None, sha256: None, text: String::new() }
    }
}

pub(super) fn render(root: &Path, resources: &[(String, bool)]) -> (String, Vec<ShownFile>) {
    let (mut entries, mut shown) = (String::new(), Vec::with_capacity(resources.len()));
    for (path, _) in resources {
        let mut found = read_path(root, path);
        if entries.len() + found.text.len() > TOTAL_BYTES_MAX && !found.text.is_empty() {
            (found.how, found.text) = (FileDisplay::Named, String::new());
        }
        entries.push_str(&entry(path, &describe(&found), &found.text));
        let PathContent { how, bytes, sha256, .. } = found;
        shown.push(ShownFile { path: path.clone(), how, bytes, sha256 });
    }
    (entries, shown)
}

/// Renders `- name: (remark)` with its content below, if there is any.
pub(super) fn entry(name: &str, remark: &str, content: &str) -> String {
    match content.is_empty() {
        true => format!("- {name}: ({remark})\n"),
        false => format!("- {name}: ({remark})\n{}\n", fenced(content)),
    }
}

fn describe(found: &PathContent) -> String {
    let size = found.bytes.map(|bytes| format!("{bytes} bytes")).unwrap_or_default();
    let digest = match &found.sha256 {
        Some(digest) => format!(", sha256 {}", &digest[..DIGITS]),
        None => String::new(),
    };
    match found.how {
        FileDisplay::Whole => format!("{size}{digest}"),
        FileDisplay::Skeleton => {
            format!("{size}{digest}; large, so only its declarations; read it there")
        }
        FileDisplay::Named => {
            format!("{size}{digest}; not shown, the prompt is full: read it there")
        }
        FileDisplay::Binary => format!("{size}{digest}; binary, not shown"),
        FileDisplay::Missing => {
            "there is no such file: create it if that is your task, otherwise report it in `blockers`"
                .to_owned()
        }
        FileDisplay::NoFile => "not a regular file of this project, not shown".to_owned(),
        FileDisplay::Unreadable => {
            "cannot be read: report it in `blockers` if you need it".to_owned()
        }
    }
}

fn read_path(root: &Path, path: &str) -> PathContent {
    let whole = root.join(path);
    if std::fs::symlink_metadata(&whole).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return PathContent::nothing(FileDisplay::Missing);
    }
    // Follow a link as long as it stays in the project.
    let inside = match (whole.canonicalize(), root.canonicalize()) {
        (Ok(real), Ok(root)) => real.starts_with(root).then_some(real),
        _ => return PathContent::nothing(FileDisplay::Unreadable),
    };
    let Some(real) = inside.filter(|real| real.is_file()) else {
        return PathContent::nothing(FileDisplay::NoFile);
    };
    read(&real).unwrap_or_else(|_| PathContent::nothing(FileDisplay::Unreadable))
}

fn read(path: &Path) -> std::io::Result<PathContent> {
    // Open without blocking, because the file may have been replaced by a pipe.
    let flags = rustix::fs::OFlags::NONBLOCK.union(rustix::fs::OFlags::NOFOLLOW);
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > HASHED_BYTES_MAX {
        return Ok(PathContent { bytes: Some(bytes), ..PathContent::nothing(FileDisplay::Named) });
    }
    let mut content = Vec::new();
    file.by_ref().take(HASHED_BYTES_MAX).read_to_end(&mut content)?;
    let sha256 = Some(ensemble_core::message::Digest::of(&content).to_string());
    let bytes = Some(content.len() as u64);
    let found = |how, text| PathContent { how, bytes, sha256, text };
    let text = match String::from_utf8(content) {
        Ok(text) if !text.contains('\0') => text,
        _ => return Ok(found(FileDisplay::Binary, String::new())),
    };
    Ok(match text.len() <= FILE_BYTES_MAX {
        true => found(FileDisplay::Whole, text),
        false => found(FileDisplay::Skeleton, skeleton::of(&text, SKELETON_BYTES_MAX)),
    })
}
