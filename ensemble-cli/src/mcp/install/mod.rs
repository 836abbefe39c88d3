//! `ensemble admin mcp install` and `uninstall`: the server in an agent's configuration, and out of it again.

use std::path::Path;

use ensemble_app::config_edit::{Edit, Guest};
use ensemble_app::failure::Outcome;

mod entry;
mod json;

pub(crate) use entry::{Command, Provider};

/// Notes of what was installed, below the state directory.
const NOTES: &str = "mcp";

/// A text, and where it is put in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Insertion {
    at: usize,
    text: String,
}

/// Our entry in the configuration of a program.
pub(crate) fn guest(state: &Path, provider: Provider) -> Guest {
    Guest {
        what: "the entry",
        by_hand: "take out what is called `ensemble` in it by hand",
        note: state.join(NOTES).join(format!("{}.json", provider.word())),
    }
}

/// Puts the entry into the file. Returns whether the file was changed.
pub(crate) fn install(
    state: &Path,
    provider: Provider,
    file: &Path,
    command: &Command,
) -> Outcome<bool> {
    guest(state, provider).put_in(file, |text| {
        let insertion = provider.insertion(text, command)?;
        Ok(insertion.map(|Insertion { at, text: inserted }| Edit {
            after: format!("{}{inserted}{}", &text[..at], &text[at..]),
            inserted: vec![inserted],
        }))
    })
}

#[cfg(test)]
mod tests;
