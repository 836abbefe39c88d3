//! `ensemble hooks install` and `uninstall`: our hooks in an agent's configuration, and out of it again.
//!
//! | the file | install | uninstall |
//! |---|---|---|
//! | is not there | makes it | removes it |
//! | has no hooks, or none for an event | puts ours between two bytes of it | restores it byte for byte |
//! | has hooks of others for an event | puts ours before them | restores it byte for byte |
//! | was changed since | - | takes out our texts, if each is there as it was put in |
//! | was changed, and our texts as well | - | refuses, and changes nothing |
//!
//! *Owner.* `.ensemble/hooks/PROVIDER-PLACE.json` notes what was done, and is written before the file. *A crash* in
//! between leaves a note that says what the file was: uninstalling finds it unchanged.

mod place;

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ensemble_core::durable::{self, Durability};
use ensemble_core::message::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::exit::{Failure, Outcome};

/// Notes of what was installed, below the state directory.
const NOTES: &str = "hooks";
/// The largest configuration, in bytes.
const CONFIG_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What was done to a file.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// The changed configuration file.
    file: PathBuf,
    /// What was in it; absent if there was none.
    before: Option<String>,
    /// The digest of what was in it afterwards.
    after_sha256: Digest,
    /// The inserted texts.
    inserted: Vec<String>,
}

/// Puts the hooks of these events into the file. Returns whether it was changed.
pub(crate) fn install(
    state: &Path,
    name: &str,
    file: &Path,
    events: &Map<String, Value>,
) -> Outcome<bool> {
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let before = read(&file)?;
    let text = before.as_deref().unwrap_or_default();
    let changed = place::with_hooks(text, events).map_err(|why| {
        Failure::refused(format!("{}: {why}", file.display()))
            .with_hint("`--print` prints the hooks for you to put in")
    })?;
    let Some((after, inserted)) = changed else { return Ok(false) };
    let after_sha256 = Digest::of(after.as_bytes());
    let note = Note { file: file.clone(), before, after_sha256, inserted };
    let notes = state.join(NOTES);
    std::fs::create_dir_all(&notes)
        .map_err(|error| Failure::refused(format!("cannot make {}: {error}", notes.display())))?;
    let note = serde_json::to_vec_pretty(&note).unwrap_or_default();
    durable::write_document(&notes.join(format!("{name}.json")), &note, Durability::Power)?;
    write(&file, &after)?;
    Ok(true)
}

/// Takes the hooks out again. Returns the file, and whether it was changed.
pub(crate) fn uninstall(state: &Path, name: &str) -> Outcome<(PathBuf, bool)> {
    let note_file = state.join(NOTES).join(format!("{name}.json"));
    let Some(text) = read(&note_file)? else {
        let text = format!("no hooks were installed from here: there is no {name}");
        return Err(Failure::nothing(text));
    };
    let note: Note = serde_json::from_str(&text)
        .map_err(|error| Failure::refused(format!("{}: {error}", note_file.display())))?;
    let now = read(&note.file)?;
    let is_changed = match &now {
        None => false,
        Some(now) if note.before.as_ref() == Some(now) => false,
        Some(now) if Digest::of(now.as_bytes()) == note.after_sha256 => {
            match &note.before {
                Some(before) => write(&note.file, before)?,
                None => remove(&note.file)?,
            }
            true
        }
        Some(now) => {
            let rest = place::without(now, &note.inserted).ok_or_else(|| {
                let file = note.file.display();
                Failure::refused(format!(
                    "{file} was changed, and our hooks in it as well: nothing was changed"
                ))
                .with_hint("take out the hooks that run `ensemble hook` by hand")
            })?;
            write(&note.file, &rest)?;
            true
        }
    };
    remove(&note_file)?;
    Ok((note.file, is_changed))
}

fn read(file: &Path) -> Outcome<Option<String>> {
    let fail = |error| Failure::refused(format!("cannot read {}: {error}", file.display()));
    match std::fs::metadata(file) {
        Ok(found) if found.len() > CONFIG_BYTES_MAX => {
            Err(Failure::refused(format!("{} is too large", file.display())))
        }
        Ok(_) => std::fs::read_to_string(file).map(Some).map_err(fail),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fail(error)),
    }
}

/// Replaces the file as a whole, with the permissions that it had.
fn write(file: &Path, text: &str) -> Outcome {
    let fail = |error| Failure::refused(format!("cannot write {}: {error}", file.display()));
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent).map_err(fail)?;
    }
    let mode = std::fs::metadata(file).map(|found| found.permissions().mode());
    durable::write_document(file, text.as_bytes(), Durability::Power)?;
    if let Ok(mode) = mode {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file, permissions).map_err(fail)?;
    }
    Ok(())
}

fn remove(file: &Path) -> Outcome {
    std::fs::remove_file(file)
        .map_err(|error| Failure::refused(format!("cannot remove {}: {error}", file.display())))
}
