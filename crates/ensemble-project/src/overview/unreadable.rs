//! Parts that cannot be read, and what helps.

use std::io::ErrorKind;

use ensemble_core::Error;
use ensemble_core::message::shell_word;
use ensemble_team::steps::StepError;

use super::server_remedy;
use crate::attention::{UnreadCause, UnreadablePart};

impl UnreadablePart {
    pub fn new(about: impl Into<String>, error: &Error) -> Self {
        let (why, help, cause) = (error.to_string(), help(error), cause(error));
        Self { about: about.into(), why, help, cause }
    }
}

fn cause(error: &Error) -> UnreadCause {
    match error.area::<StepError>() {
        _ if error.is_out_of_descriptors() => UnreadCause::NoDescriptor,
        Some(StepError::Unopened { .. }) => UnreadCause::PartOrNoDescriptor,
        _ => UnreadCause::Part,
    }
}

fn help(error: &Error) -> String {
    match error {
        Error::Io { path, source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            let place = shell_word(&path.to_string_lossy());
            format!("`chmod -R u+rwX {place}`, if it is yours")
        }
        Error::Malformed { path, .. } => {
            format!("correct or remove {}; `ensemble admin fsck` checks the rest", path.display())
        }
        Error::TooLarge { what, .. } => format!("look into {what}, and remove it"),
        Error::Server { detail, .. } => server_remedy(detail).to_owned(),
        _ => "`ensemble admin fsck` says more".to_owned(),
    }
}
