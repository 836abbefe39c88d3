//! Names that have a meaning of their own, so that no agent may take one.

use super::Name;

/// The person who runs the team: the name of a person who gives none, and the mailbox that people read.
pub const OPERATOR: &str = "operator";

/// Names that no agent may take: the person, and the senders and actors that Ensemble writes itself.
///
/// | name | means |
/// |---|---|
/// | `operator` | the person who runs the team |
/// | `ensemble`, `watcher`, `steps` | messages and records of Ensemble itself |
/// | `outside` | a caller that was refused, in the event log |
/// | `unknown` | a sender that a message does not name |
pub const RESERVED_NAMES: [&str; 6] =
    [OPERATOR, "ensemble", "watcher", "steps", "outside", "unknown"];

impl Name {
    /// The name of the person who runs the team.
    #[must_use]
    pub fn operator() -> Self {
        Self::new(OPERATOR).unwrap_or_else(|_| unreachable!("`{OPERATOR}` is a name"))
    }

    /// Whether this is the person who runs the team.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.as_str() == OPERATOR
    }

    /// Whether the name, in whatever case, is one of [`RESERVED_NAMES`].
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        RESERVED_NAMES.iter().any(|name| name.eq_ignore_ascii_case(self.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_names_in_any_case() {
        for name in RESERVED_NAMES {
            assert!(Name::new(name).unwrap().is_reserved(), "{name}");
            assert!(Name::new(name.to_uppercase()).unwrap().is_reserved(), "{name}");
        }
        for free in ["worker-1", "conductor", "dispatch", "operator-2", "watchers"] {
            assert!(!Name::new(free).unwrap().is_reserved(), "{free}");
        }
        assert!(Name::operator().is_operator());
    }
}
