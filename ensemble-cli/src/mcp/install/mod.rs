//! `ensemble mcp install` and `uninstall`: the server in an agent's configuration, and out of it again.
//!
//! Nothing of what is there is rewritten: an entry is put between two bytes of the file, and what
//! was done is noted below `.ensemble/mcp/`. Uninstalling puts back the very bytes that were there
//! before. If the file has changed since, only the entry is taken out. If the entry itself has
//! changed, the file stays as it is, and the caller learns what to look for.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ensemble_core::Error;
use ensemble_core::durable::{self, Durability};
use ensemble_core::message::Digest;
use serde::{Deserialize, Serialize};

use crate::exit::{Failure, Outcome};

mod entry;
mod json;

pub(crate) use entry::{Command, Provider};

/// Notes of what was installed, below the state directory.
const NOTES: &str = "mcp";
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
    /// The inserted text.
    inserted: String,
}

/// Result of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The file was changed.
    Changed,
    /// It was as wanted already.
    Nothing,
}

/// Puts the entry into the file.
pub(crate) fn install(
    state: &Path,
    provider: Provider,
    file: &Path,
    command: &Command,
) -> Outcome<Done> {
    let file = real(file);
    let before = read(&file)?;
    let text = before.as_deref().unwrap_or_default();
    let fail = |why: String| {
        Failure::refused(format!("{}: {why}", file.display()))
            .with_hint("`--print` prints the entry for you to put in")
    };
    let Some(insertion) = provider.insertion(text, command).map_err(fail)? else {
        return Ok(Done::Nothing);
    };
    let after = insertion.apply(text);
    let note = Note {
        file: file.clone(),
        before,
        after_sha256: Digest::of(after.as_bytes()),
        inserted: insertion.text,
    };
    // First the note: without it, an entry could not be taken out as it was put in.
    let notes = state.join(NOTES);
    std::fs::create_dir_all(&notes)
        .map_err(|error| Failure::refused(format!("cannot make {}: {error}", notes.display())))?;
    let text = serde_json::to_vec_pretty(&note).unwrap_or_default();
    durable::write_document(&note_file(state, provider), &text, Durability::Power)?;
    write(&file, &after)?;
    Ok(Done::Changed)
}

/// Takes the entry out again. Returns the file, and whether anything was done.
pub(crate) fn uninstall(state: &Path, provider: Provider) -> Outcome<(PathBuf, Done)> {
    let note_file = note_file(state, provider);
    let Some(text) = read(&note_file)? else {
        let text = format!("nothing was installed for {} from here", provider.word());
        return Err(Failure::nothing(text));
    };
    let note: Note = serde_json::from_str(&text)
        .map_err(|error| Failure::refused(format!("{}: {error}", note_file.display())))?;
    let now = read(&note.file)?;
    let done = match &now {
        None => Done::Nothing,
        Some(now) if note.before.as_ref() == Some(now) => Done::Nothing,
        Some(now) if Digest::of(now.as_bytes()) == note.after_sha256 => {
            match &note.before {
                Some(before) => write(&note.file, before)?,
                None => remove(&note.file)?,
            }
            Done::Changed
        }
        Some(now) if now.matches(&note.inserted).count() == 1 => {
            write(&note.file, &now.replacen(&note.inserted, "", 1))?;
            Done::Changed
        }
        Some(_) => {
            let text = format!(
                "{} was changed, and the entry in it is not as it was put in: nothing was changed",
                note.file.display()
            );
            return Err(Failure::refused(text)
                .with_hint("take out what is called `ensemble` in it by hand"));
        }
    };
    remove(&note_file)?;
    Ok((note.file, done))
}

fn note_file(state: &Path, provider: Provider) -> PathBuf {
    state.join(NOTES).join(format!("{}.json", provider.word()))
}

/// Where a link leads to: replacing the link itself would separate it from its file.
fn real(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

fn read(file: &Path) -> Outcome<Option<String>> {
    let fail = |error| Failure::refused(format!("cannot read {}: {error}", file.display()));
    match std::fs::metadata(file) {
        Ok(found) if found.len() > CONFIG_BYTES_MAX => Err(Failure::from(Error::TooLarge {
            what: file.display().to_string(),
            bytes: found.len(),
            limit: CONFIG_BYTES_MAX,
        })),
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

#[cfg(test)]
mod tests;
