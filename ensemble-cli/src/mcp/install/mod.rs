//! `ensemble admin mcp install` and `uninstall`: the server in an agent's configuration, and out of it again.

use std::path::Path;

use ensemble_app::config_edit::{ConfigEdit, ConfigInsert};
use ensemble_app::failure::Outcome;

mod entry;
mod json;

pub(crate) use entry::{ConfiguredProgram, ServerCommand};

const NOTES: &str = "mcp";

#[derive(Clone, Debug, PartialEq, Eq)]
struct TextInsertion {
    at: usize,
    text: String,
}

pub(crate) fn guest(state: &Path, provider: ConfiguredProgram) -> ConfigInsert {
    ConfigInsert {
        what: "the entry",
        by_hand: "take out what is called `ensemble` in it by hand",
        note: state.join(NOTES).join(format!("{}.json", provider.word())),
    }
}

/// Puts the entry into the file. Returns whether the file was changed.
pub(crate) fn install(
    state: &Path,
    provider: ConfiguredProgram,
    file: &Path,
    command: &ServerCommand,
) -> Outcome<bool> {
    guest(state, provider).put_in(file, |text| {
        let insertion = provider.insertion(text, command)?;
        Ok(insertion.map(|TextInsertion { at, text: inserted }| ConfigEdit {
            after: format!("{}{inserted}{}", &text[..at], &text[at..]),
            inserted: vec![inserted],
        }))
    })
}

#[cfg(test)]
mod tests;
