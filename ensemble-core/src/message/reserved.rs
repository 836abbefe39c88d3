//! Reserved names: what each means, and that no agent takes it.

use super::Name;
use crate::error::AreaError;

/// The person who runs the team: the name of a person who gives none, and the mailbox that people read.
pub const OPERATOR: &str = "operator";

/// Names that no agent may take: the person, and the senders and actors that Ensemble writes itself. The second column
/// is what the name means in an error.
const MEANINGS: [(&str, &str); 6] = [
    (OPERATOR, "the person who runs the team"),
    ("ensemble", "what Ensemble itself writes"),
    ("watcher", "what the watcher writes"),
    ("steps", "what step queues write"),
    ("outside", "a caller that was refused, in the event log"),
    ("unknown", "a sender that a message does not name"),
];

/// The reserved names, without what they mean.
pub const RESERVED_NAMES: [&str; 6] = {
    let mut names = [""; 6];
    let mut at = 0;
    while at < names.len() {
        names[at] = MEANINGS[at].0;
        at += 1;
    }
    names
};

/// The name means something else. Callers find it by [`Error::area`](crate::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is a reserved name ({meaning}): use another, such as `{name}-1`")]
pub struct ReservedName {
    pub name: Name,
    pub meaning: &'static str,
}

impl AreaError for ReservedName {}

impl ReservedName {
    /// Refuses a name that no agent may take.
    ///
    /// # Errors
    /// The error says what the name means.
    pub fn refuse_agent(name: &Name) -> Result<(), Self> {
        match name.meaning() {
            Some(meaning) => Err(Self { name: name.clone(), meaning }),
            None => Ok(()),
        }
    }

    /// Refuses a name of a mailbox that would have no reader: every reserved name but the person's.
    ///
    /// # Errors
    /// The error says what the name means.
    pub fn refuse_mailbox(name: &Name) -> Result<(), Self> {
        if name.is_operator() { Ok(()) } else { Self::refuse_agent(name) }
    }
}

impl Name {
    fn meaning(&self) -> Option<&'static str> {
        let is_it = |name: &str| name.eq_ignore_ascii_case(self.as_str());
        MEANINGS.iter().find(|(name, _)| is_it(name)).map(|(_, meaning)| *meaning)
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Name {
    #[must_use]
    pub fn operator() -> Self {
        Self::new(OPERATOR).unwrap_or_else(|_| unreachable!("`{OPERATOR}` is a name"))
    }

    /// Whether this is the person who runs the team.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.as_str() == OPERATOR
    }

    /// Whether the name, in any case, is one of [`RESERVED_NAMES`].
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.meaning().is_some()
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

    #[test]
    fn a_refused_name_says_what_it_means_and_what_to_use() {
        let refused = |name: &str| {
            ReservedName::refuse_agent(&Name::new(name).unwrap()).unwrap_err().to_string()
        };
        assert_eq!(
            refused("operator"),
            "`operator` is a reserved name (the person who runs the team): use another, such as `operator-1`"
        );
        for name in RESERVED_NAMES {
            let instead = Name::new(format!("{name}-1")).unwrap();
            assert_eq!(ReservedName::refuse_agent(&instead), Ok(()));
            let is_mailbox = ReservedName::refuse_mailbox(&Name::new(name).unwrap()).is_ok();
            assert_eq!(is_mailbox, name == OPERATOR, "{name}");
        }
    }
}
