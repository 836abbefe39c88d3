//! How a message's sender is known.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Envelope, Name};

/// How the program that stored a message knew who its sender was. It is a field of the file, so it is worth what the
/// file is worth: another program of the same user can write any proof, as it can write any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SenderProof {
    Pass,
    /// An agent, by the pane that it runs in.
    Pane,
    /// The person who runs the team: the command ran outside of every agent, without another name or typed at a shell.
    Person,
}

impl SenderProof {
    const ALL: [Self; 3] = [Self::Pass, Self::Pane, Self::Person];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Pane => "pane",
            Self::Person => "person",
        }
    }
}

impl fmt::Display for SenderProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for SenderProof {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|proof| proof.word() == word).ok_or(())
    }
}

/// Who writes messages, and how the program that stores them knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSender {
    pub name: Name,
    /// How it is known; `None` if nothing but the name says who it is.
    pub proof: Option<SenderProof>,
}

impl KnownSender {
    /// Puts the sender into a message, and how it is known.
    pub fn sign(&self, envelope: Envelope) -> Envelope {
        envelope.from(self.name.clone()).with_proof(self.proof)
    }
}

impl From<Name> for KnownSender {
    fn from(name: Name) -> Self {
        Self { name, proof: None }
    }
}

#[cfg(test)]
mod tests {
    use crate::message::{Envelope, Name, SenderProof};

    #[test]
    fn a_proof_survives_its_file_and_an_unknown_one_is_dropped() {
        for proof in SenderProof::ALL {
            let envelope = Envelope::new(Name::operator(), "42").with_proof(Some(proof));
            let file = String::from_utf8(envelope.encode().unwrap()).unwrap();
            let read = |file: &str| Envelope::decode(file.as_bytes(), "x".as_ref()).unwrap();
            assert_eq!(read(&file).proof, Some(proof));
            let other = file.replace(&format!("proof: {proof}"), "proof: seal");
            assert_ne!(other, file);
            assert_eq!(read(&other).proof, None);
        }
    }
}
