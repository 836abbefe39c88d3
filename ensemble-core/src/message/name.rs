//! Names of mailboxes, holders and messages, validated before they become part of a path.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::Timestamp;
use super::fields::strip_quotes;
use crate::sys;

/// The longest name, in bytes. Two of them, an epoch and an extension stay below the 255 bytes of
/// a file name.
pub const NAME_BYTES_MAX: usize = 64;

/// Reason why a text is not a valid [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Empty or longer than [`NAME_BYTES_MAX`].
    #[error("`{name}` has {bytes} bytes: a name has 1 to {NAME_BYTES_MAX}")]
    Length {
        /// The start of the name, made printable.
        name: String,
        /// Length of the name, in bytes.
        bytes: usize,
    },
    /// A character outside `A-Z a-z 0-9 . _ -`.
    #[error("`{name}` has {character:?}: a name has only A-Z, a-z, 0-9 and . _ -")]
    Character {
        /// The name, made printable.
        name: String,
        /// The first wrong character.
        character: char,
    },
    /// A leading dot (a hidden file, `.` or `..`) or dash (an option).
    #[error("`{name}` begins with {character:?}: a name begins with a letter, a digit or _")]
    Start {
        /// The name.
        name: String,
        /// The first character.
        character: char,
    },
}

const NAME_BYTES: [bool; 256] = {
    let (mut allowed, mut byte) = ([false; 256], 0);
    while byte < allowed.len() {
        let character = byte as u8;
        allowed[byte] =
            character.is_ascii_alphanumeric() || matches!(character, b'.' | b'_' | b'-');
        byte += 1;
    }
    allowed
};

fn check(name: &str) -> Result<(), NameError> {
    let printable = || name.chars().take(NAME_BYTES_MAX).flat_map(char::escape_debug).collect();
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(NameError::Length { name: printable(), bytes: name.len() });
    }
    // Listings check every name, so this loop has no branch. Every non-ASCII byte is invalid.
    if !name.bytes().fold(true, |fine, byte| fine & NAME_BYTES[usize::from(byte)]) {
        let is_wrong = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        let character = name.chars().find(is_wrong).unwrap_or_default();
        return Err(NameError::Character { name: printable(), character });
    }
    match name.chars().next() {
        Some(character @ ('.' | '-')) => Err(NameError::Start { name: printable(), character }),
        _ => Ok(()),
    }
}

macro_rules! checked_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks a name.
            ///
            /// # Errors
            /// See [`NameError`].
            pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
                let name = name.into();
                check(&name)?;
                Ok(Self(name))
            }

            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            /// A name as people write it: blanks and quotes around it, and an `@` or `#` before it, do not count.
            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(strip_quotes(name).trim_start_matches(['@', '#']))
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

checked_name! {
    /// The name of a mailbox, an agent or a consumer: 1 to 64 of `A-Z a-z 0-9 . _ -`, not
    /// beginning with a dot or a dash.
    ///
    /// ```
    /// use ensemble_core::message::Name;
    /// assert!(Name::new("worker-1").is_ok());
    /// assert!(Name::new("../etc").is_err());
    /// ```
    Name
}

checked_name! {
    /// The id of a message: a UUIDv7 if Ensemble makes it, or any valid name that a sender chooses.
    ///
    /// ```
    /// use ensemble_core::message::MessageId;
    /// assert!(MessageId::generate() < MessageId::generate());
    /// assert!(MessageId::new("task-7-attempt-2").is_ok());
    /// ```
    MessageId
}

impl MessageId {
    /// A new id (UUIDv7), globally unique; the ids of one process sort by creation.
    #[must_use]
    pub fn generate() -> Self {
        static LATEST: Mutex<u128> = Mutex::new(0);
        let now = version_7(Timestamp::now(), [sys::random_bits(), sys::random_bits()]).as_u128();
        let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
        // Within a millisecond, and while the clock is behind, each follows the last one by a random distance.
        *latest = now.max(*latest + 1 + u128::from(sys::random_bits() >> 32));
        Self(uuid::Uuid::from_u128(*latest).hyphenated().to_string())
    }

    /// The id written as this UUID.
    pub(crate) fn from_uuid(bytes: [u8; 16]) -> Self {
        Self(uuid::Uuid::from_bytes(bytes).hyphenated().to_string())
    }
}

/// A UUIDv7. The random half begins with a zero, so that counting on from it never reaches the bits of the version.
fn version_7(now: Timestamp, random: [u64; 2]) -> uuid::Uuid {
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&random[0].to_be_bytes()[..2]);
    bytes[2..].copy_from_slice(&(random[1] & (u64::MAX >> 3)).to_be_bytes());
    let millis = u64::try_from(now.unix_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl MessageId {
    /// The milliseconds since the Unix epoch that a UUIDv7 carries; `None` for other ids.
    #[must_use]
    pub fn unix_millis(&self) -> Option<u64> {
        let id = uuid::Uuid::try_parse(&self.0).ok()?;
        if id.get_version_num() != 7 {
            return None;
        }
        let bytes = id.as_bytes();
        Some(bytes[..6].iter().fold(0, |millis, b| millis << 8 | u64::from(*b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "-rf",
            ".x",
            "a b",
            "a\0b",
            "a\nb",
            "ä",
            "a@b",
            "a\u{202e}b",
            "a:b",
        ] {
            assert!(Name::new(name).is_err(), "{name:?}");
        }
        assert!(Name::new("x".repeat(65)).is_err());
        for name in ["a", "A.b_c-9", "_x", "0", &"x".repeat(64)] {
            assert!(Name::new(name).is_ok(), "{name:?}");
            for written in [
                format!("@{name}"),
                format!("\"#{name}\""),
                format!(" '{name}'\r\n"),
                format!("“{name}”"),
            ] {
                assert_eq!(written.parse::<Name>(), Name::new(name), "{written:?}");
                assert!(Name::new(written).is_err());
            }
        }
    }

    #[test]
    fn generated_ids_carry_their_time_and_sort() {
        let make = || (0..10_000).map(|_| MessageId::generate()).collect::<Vec<_>>();
        let (mine, other) = std::thread::scope(|scope| {
            let other = scope.spawn(make);
            (make(), other.join().unwrap())
        });
        assert!(mine.is_sorted_by(|a, b| a < b) && other.is_sorted_by(|a, b| a < b));
        let all: std::collections::HashSet<_> = mine.iter().chain(&other).collect();
        assert_eq!(all.len(), 20_000);
        for id in mine {
            let uuid = uuid::Uuid::try_parse(id.as_str()).unwrap();
            assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
            assert!(id.unix_millis().is_some_and(|ms| ms > 1_700_000_000_000));
        }
        assert_eq!(MessageId::new("task-1").unwrap().unix_millis(), None);
    }
}
