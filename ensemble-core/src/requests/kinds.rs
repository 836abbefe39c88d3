//! Which kinds of requests there are.

use std::sync::Arc;

use crate::message::{NAME_BYTES_MAX, Name};
use crate::proto::request::Kind;

/// The longest name of a kind, in bytes: the types of its messages are names too.
pub const KIND_BYTES_MAX: usize = NAME_BYTES_MAX - "_response".len();

/// The kinds of requests that a program knows: seed 004's two, and what is added.
///
/// ```
/// use ensemble_core::proto::request::Kind;
/// use ensemble_core::requests::Kinds;
/// let kinds = Kinds::default().with(Kind::new("hand_over"));
/// assert_eq!(kinds.names(), ["shutdown", "plan_approval", "hand_over"]);
/// assert_eq!(kinds.find("hand_over").unwrap().request_type, "hand_over_request");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds(Arc<[Kind]>);

impl Default for Kinds {
    fn default() -> Self {
        Self([Kind::shutdown(), Kind::plan_approval()].into())
    }
}

impl Kinds {
    /// With this kind, in the place of one of the same name.
    #[must_use]
    pub fn with(self, kind: Kind) -> Self {
        let mut kinds: Vec<Kind> = self.0.iter().cloned().collect();
        match kinds.iter_mut().find(|known| known.name == kind.name) {
            Some(known) => *known = kind,
            None => kinds.push(kind),
        }
        Self(kinds.into())
    }

    /// The kind of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Kind> {
        self.0.iter().find(|kind| kind.name == name)
    }

    /// The kind whose requests are messages of this type.
    #[must_use]
    pub fn asked_by(&self, message_type: &Name) -> Option<&Kind> {
        self.0.iter().find(|kind| kind.request_type == message_type.as_str())
    }

    /// The kind whose responses are messages of this type.
    #[must_use]
    pub fn answered_by(&self, message_type: &Name) -> Option<&Kind> {
        self.0.iter().find(|kind| kind.response_type == message_type.as_str())
    }

    /// The names of all kinds.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|kind| kind.name.as_ref()).collect()
    }
}

/// What is wrong with the name of a kind, if anything.
#[must_use]
pub fn kind_fault(name: &str) -> Option<String> {
    match Name::new(name) {
        Err(error) => Some(error.to_string()),
        Ok(_) if name.len() > KIND_BYTES_MAX => {
            Some(format!("has {} bytes: the name of a kind has 1 to {KIND_BYTES_MAX}", name.len()))
        }
        Ok(_) => None,
    }
}
