//! Which kinds of requests there are.

use std::sync::Arc;

use crate::message::{NAME_BYTES_MAX, Name, REQUEST_SUFFIX, RESPONSE_SUFFIX};
use crate::proto::request::RequestKind;

/// The longest name of a kind, in bytes: the types of its messages are names too.
pub const KIND_BYTES_MAX: usize = NAME_BYTES_MAX - "_response".len();

/// The kinds of requests that a program knows: the built-in ones, and what is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds(Arc<[RequestKind]>);

impl Default for Kinds {
    fn default() -> Self {
        Self(RequestKind::built_in().into())
    }
}

impl Kinds {
    /// With this kind, in the place of one of the same name.
    pub fn with(self, kind: RequestKind) -> Self {
        let mut kinds: Vec<RequestKind> = self.0.iter().cloned().collect();
        match kinds.iter_mut().find(|known| known.name == kind.name) {
            Some(known) => *known = kind,
            None => kinds.push(kind),
        }
        Self(kinds.into())
    }

    pub fn find(&self, name: &str) -> Option<&RequestKind> {
        self.0.iter().find(|kind| kind.name == name)
    }

    /// The kind whose question a message of this type is. A type that ends as those of requests do is one, even
    /// if its kind is not known.
    pub fn asked_by(&self, message_type: &Name) -> Option<RequestKind> {
        let known = self.0.iter().find(|kind| kind.request_type == message_type.as_str());
        known.cloned().or_else(|| named_by(message_type, REQUEST_SUFFIX))
    }

    /// As [`Kinds::asked_by`], for the answer.
    pub fn answered_by(&self, message_type: &Name) -> Option<RequestKind> {
        let known = self.0.iter().find(|kind| kind.response_type == message_type.as_str());
        known.cloned().or_else(|| named_by(message_type, RESPONSE_SUFFIX))
    }

    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|kind| kind.name.as_ref()).collect()
    }
}

fn named_by(message_type: &Name, suffix: &str) -> Option<RequestKind> {
    let name = message_type.as_str().strip_suffix(suffix)?;
    kind_fault(name).is_none().then(|| RequestKind::new(name.to_owned()))
}

/// The fault of a kind's name, if there is one.
pub fn kind_fault(name: &str) -> Option<String> {
    match Name::new(name) {
        Err(error) => Some(error.to_string()),
        Ok(_) if name.len() > KIND_BYTES_MAX => {
            Some(format!("has {} bytes: the name of a kind has 1 to {KIND_BYTES_MAX}", name.len()))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::proto::request::AtExpiry;

    /// The row of a kind in docs/protocol/requests.md.
    fn row(kind: &RequestKind) -> String {
        let seconds = |time: std::time::Duration| match time.as_secs() {
            seconds @ ..1_000 => seconds.to_string(),
            seconds => format!("{},{:03}", seconds / 1_000, seconds % 1_000),
        };
        let silence = match kind.at_expiry {
            AtExpiry::Tell => "tell",
            AtExpiry::Escalate => "escalate",
            AtExpiry::Force => "force",
        };
        format!(
            "| `{}` | `{}`, `{}` | `{}`, `{}` | {} s, every {} s | `{silence}` |",
            kind.name,
            kind.request_type,
            kind.response_type,
            kind.content_field,
            kind.comment_field,
            seconds(kind.deadline),
            seconds(kind.remind_every),
        )
    }

    #[test]
    fn the_documentation_has_a_row_for_each_built_in_kind() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol/requests.md");
        let page = std::fs::read_to_string(page).unwrap();
        for row in RequestKind::built_in().iter().map(row) {
            assert!(page.contains(&row), "docs/protocol/requests.md lacks: {row}");
        }
    }
}
