//! Parts that cannot be read, and what helps.

use std::io::ErrorKind;

use ensemble_core::Error;

use crate::attention::UnreadablePart;

impl UnreadablePart {
    /// A part, and why it cannot be read.
    pub fn new(about: impl Into<String>, error: &Error) -> Self {
        Self { about: about.into(), why: error.to_string(), help: help(error) }
    }
}

fn help(error: &Error) -> String {
    match error {
        Error::Io { path, source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            format!("`chmod -R u+rwX {}`, if it is yours", path.display())
        }
        Error::Malformed { path, .. } => {
            format!("correct or remove {}; `ensemble admin fsck` checks the rest", path.display())
        }
        Error::TooLarge { what, .. } => format!("look into {what}, and remove it"),
        _ => "`ensemble admin fsck` says more".to_owned(),
    }
}
