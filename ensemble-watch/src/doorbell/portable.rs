//! The doorbell on other systems, through `notify`.

use std::path::{Path, PathBuf};

use notify::event::{AccessKind, AccessMode, ModifyKind, RemoveKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::Ring;

/// Directories that are watched.
#[derive(Debug)]
pub(super) struct Source(RecommendedWatcher);

impl Source {
    pub(super) fn new(ring: impl Fn(Ring) + Send + 'static) -> Result<Self, String> {
        let handler = move |event: notify::Result<Event>| rings(event).into_iter().for_each(&ring);
        notify::recommended_watcher(handler).map(Self).map_err(|e| e.to_string())
    }

    pub(super) fn watch(&mut self, dir: &Path) -> Result<(), String> {
        self.0.watch(dir, RecursiveMode::NonRecursive).map_err(|e| e.to_string())
    }

    pub(super) fn unwatch(&mut self, dir: &Path) {
        // It may be gone already, and its watch with it.
        let _ = self.0.unwatch(dir);
    }
}

/// What an event of `notify` means here. Reading a directory makes events too (opened, closed
/// without writing); they must not ring, or a listener would wake itself for ever.
fn rings(event: notify::Result<Event>) -> Option<Ring> {
    let event = match event {
        Ok(event) => event,
        Err(error) => return Some(Ring::Failed { why: error.to_string() }),
    };
    if event.need_rescan() {
        return Some(Ring::Overflow);
    }
    let parts = |path: Option<&PathBuf>| {
        let path = path?;
        Some((path.parent()?.to_owned(), path.file_name()?.to_str()?.to_owned()))
    };
    let landed = |path, whole| {
        let (dir, name) = parts(path)?;
        Some(Ring::Landed { dir, name, whole })
    };
    match event.kind {
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) => landed(event.paths.first(), true),
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => landed(event.paths.get(1), true),
        EventKind::Create(_) | EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            landed(event.paths.first(), false)
        }
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
            parts(event.paths.first()).map(|(dir, name)| Ring::Left { dir, name })
        }
        EventKind::Remove(RemoveKind::Folder) => {
            event.paths.first().map(|path| Ring::Replaced { path: path.clone() })
        }
        _ => None,
    }
}
