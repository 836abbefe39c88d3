//! Inserts our texts into another program's configuration, and removes them again.
//!
//! | the file | insert | remove |
//! |---|---|---|
//! | does not exist | creates it | deletes it |
//! | exists | inserts our texts between two bytes | restores it byte for byte |
//! | has our texts already | changes nothing | - |
//! | has those of another version, as inserted | replaces them | - |
//! | was changed since | - | removes our texts, if each is still exactly as inserted |
//! | was changed, and our texts as well | - | refuses, and changes nothing |
//!
//! *Owner.* The note, a file below the state directory, records what was done. It is written before the
//! configuration. *A crash* in between leaves a note with the former state of the file, so removal finds that nothing
//! was changed.

mod json;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ensemble_core::durable::{self, Durability};
use ensemble_core::message::{Digest, yaml};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use json::inside;

use crate::failure::{Failure, Outcome};

const CONFIG_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEdit {
    pub after: String,
    pub inserted: Vec<String>,
}

/// A text to insert into a configuration, with its name in errors, and its note.
#[derive(Clone, Debug)]
pub struct ConfigInsert {
    /// The kind of text: `the hooks`, `the entry`.
    pub what: &'static str,
    /// How a person finds it in the file.
    pub by_hand: &'static str,
    pub note: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct EditNote {
    /// Below the project: relative to it, so that a copy of the project means its own file.
    file: PathBuf,
    /// The former content; absent if there was none.
    before: Option<String>,
    after_sha256: Digest,
    inserted: Vec<String>,
}

impl ConfigInsert {
    /// Edits the file, unless `edit` finds nothing to do. Returns whether the file was changed.
    pub fn put_in(
        &self,
        file: &Path,
        edit: impl Fn(&str) -> Result<Option<ConfigEdit>, String>,
    ) -> Outcome<bool> {
        let file = resolved(file);
        let found = read_settings(&file)?;
        if matches!(edit(found.as_deref().unwrap_or_default()), Ok(None)) {
            return Ok(false);
        }
        // The new note replaces that of another version, whose texts nothing would take out any more.
        let is_of_file = |note: &EditNote| resolved(&self.root().join(&note.file)) == file;
        let earlier = self.read_note().ok().flatten().filter(is_of_file);
        let undone = earlier.zip(found.as_deref()).and_then(|(note, now)| note.undone(now));
        let before = undone.unwrap_or(found);
        let edited = edit(before.as_deref().unwrap_or_default()).map_err(|why| {
            let hint = format!("`--print` prints {} for you to put in", self.what);
            Failure::refused(format!("{}: {why}", file.display())).with_hint(hint)
        })?;
        let Some(ConfigEdit { after, inserted }) = edited else { return Ok(false) };
        let after_sha256 = Digest::of(after.as_bytes());
        let below = |root: &Path| file.strip_prefix(root).map(Path::to_owned).ok();
        let root = self.root();
        let place = below(root).or_else(|| below(&root.canonicalize().ok()?));
        let place = place.unwrap_or_else(|| file.clone());
        let note = EditNote { file: place, before, after_sha256, inserted };
        make_parent(&self.note)?;
        let text = serde_json::to_vec_pretty(&note).unwrap_or_default();
        durable::write_document(&self.note, &text, Durability::Power)?;
        write(&file, &after)?;
        Ok(true)
    }

    /// Takes our texts out again. Returns the file, and whether it was changed.
    pub fn take_out(&self) -> Outcome<(PathBuf, bool)> {
        let Some(note) = self.read_note()? else {
            let text = format!("nothing was installed here: there is no {}", self.note.display());
            return Err(Failure::nothing(text));
        };
        let file = self.root().join(&note.file);
        let now = read_settings(&file)?;
        let is_changed = match &now {
            None => false,
            Some(now) if note.before.as_ref() == Some(now) => false,
            Some(now) => {
                let rest = note.undone(now).ok_or_else(|| {
                    let (file, what) = (file.display(), self.what);
                    let text = format!(
                        "{file} was changed, and {what} in it as well: nothing was changed"
                    );
                    Failure::refused(text).with_hint(self.by_hand)
                })?;
                match rest {
                    Some(rest) => write(&file, &rest)?,
                    None => remove(&file)?,
                }
                true
            }
        };
        remove(&self.note)?;
        Ok((file, is_changed))
    }

    fn read_note(&self) -> Outcome<Option<EditNote>> {
        let fail = |error| Failure::refused(format!("{}: {error}", self.note.display()));
        read_settings(&self.note)?.map(|text| serde_json::from_str(&text).map_err(fail)).transpose()
    }

    /// The project: its state directory has a directory of notes.
    fn root(&self) -> &Path {
        self.note.ancestors().nth(3).unwrap_or_else(|| Path::new("/"))
    }
}

impl EditNote {
    /// The file's content without our texts. `None` if they are not all as they were inserted.
    fn undone(&self, now: &str) -> Option<Option<String>> {
        match Digest::of(now.as_bytes()) == self.after_sha256 {
            true => Some(self.before.clone()),
            false => without(now, &self.inserted).map(Some),
        }
    }
}

/// The text without what was inserted. `None` if a text is not there any more, or more often than it
/// was put in, or if JSON would be none without it.
fn without(text: &str, inserted: &[String]) -> Option<String> {
    let mut rest = text.to_owned();
    for entry in inserted {
        let count = inserted.iter().filter(|other| *other == entry).count();
        if text.matches(entry.as_str()).count() != count {
            return None;
        }
        rest = rest.replacen(entry.as_str(), "", 1);
    }
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    (is_json(&rest) || rest.trim().is_empty() || !is_json(text)).then_some(rest)
}

/// The file behind a link, which would be separated from it if it were replaced.
fn resolved(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

/// The text of a file that a person has chosen; `None` if there is none.
pub fn read_settings(file: &Path) -> Outcome<Option<String>> {
    let content = durable::read_chosen_file(file, CONFIG_BYTES_MAX)?;
    let text = content.map(|content| yaml::decode_text(&content, file).map(str::to_owned));
    text.transpose().map_err(Failure::input)
}

/// Replaces the file as a whole, with the permissions that it had.
fn write(file: &Path, text: &str) -> Outcome {
    let file = &resolved(file);
    make_parent(file)?;
    let mode = std::fs::metadata(file).map(|found| found.permissions().mode());
    durable::write_document(file, text.as_bytes(), Durability::Power)?;
    if let Ok(mode) = mode {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file, permissions).map_err(|error| {
            Failure::refused(format!("cannot write {}: {error}", file.display()))
        })?;
    }
    Ok(())
}

fn make_parent(file: &Path) -> Outcome {
    let Some(parent) = file.parent() else { return Ok(()) };
    std::fs::create_dir_all(parent)
        .map_err(|error| Failure::refused(format!("cannot make {}: {error}", parent.display())))
}

fn remove(file: &Path) -> Outcome {
    std::fs::remove_file(file)
        .map_err(|error| Failure::refused(format!("cannot remove {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_as_it_was_put_in_is_taken_out() {
        let put_in = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            without("{\"a\":1,\"b\":2}", &put_in(&["\"a\":1,"])).as_deref(),
            Some("{\"b\":2}")
        );
        assert_eq!(without("{\"b\":2}", &put_in(&["\"a\":1,"])), None, "it is gone");
        assert_eq!(without("a a", &put_in(&["a"])), None, "it is there twice");
        assert_eq!(without("{\"a\":1}", &put_in(&["{\"a\""])), None, "the rest is no JSON");
        assert_eq!(without("x = 1\n[t]\n", &put_in(&["[t]\n"])).as_deref(), Some("x = 1\n"));
    }
}
