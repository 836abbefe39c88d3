//! Why servers cannot be asked, and what helps.

use ensemble_core::Error;
use ensemble_core::message::Timestamp;

use crate::attention::AwayServers;

/// What a fault says, in small letters, and what helps against it; the first that fits counts.
const REMEDIES: [(&[&str], &str); 7] = [
    (&["too old"], "install nats-server 2.10 or newer on each of them"),
    (
        &["no such file", "as pem"],
        "put the file there, or correct its path in `nats` of ensemble.yaml",
    ),
    (
        &["has no team"],
        "correct `nats.team` in ensemble.yaml; a team of that name begins with `ensemble up` or `mailbox add`",
    ),
    (
        &["authorization", "authentication", "permission", "credentials", "nkey", "jwt"],
        "correct the user, the password or `nats.credentials` in ensemble.yaml, or this host's permissions at the server",
    ),
    (
        &["certificate", "tls", "invalidcontenttype", "fatal alert"],
        "correct `nats.root_certificates` or the client's certificate in ensemble.yaml, or the scheme of `transport`",
    ),
    (&["jetstream"], "start the server with JetStream: `nats-server -js`"),
    (&[], "start the servers, or correct `transport` in ensemble.yaml"),
];

pub fn server_remedy(why: &str) -> &'static str {
    let said = why.to_lowercase();
    let fits = |words: &[&str]| words.is_empty() || words.iter().any(|word| said.contains(word));
    REMEDIES.iter().find(|(words, _)| fits(words)).map_or("", |(_, help)| help)
}

impl AwayServers {
    pub fn because(why: impl Into<String>) -> Self {
        let why = why.into();
        let help = server_remedy(&why).to_owned();
        Self { why, since: None, help }
    }

    pub const fn since(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }
}

impl From<&Error> for AwayServers {
    fn from(error: &Error) -> Self {
        Self::because(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_own_remedy() {
        let faults = [
            ("cannot connect at nats://h:4222: authorization violation", "password"),
            (
                "cannot work at nats://h:4222: nats-server 2.9.10 is too old, because …",
                "2.10 or newer",
            ),
            ("cannot open /p/ca.pem: No such file or directory (os error 2)", "its path"),
            ("cannot connect at tls://h: invalid peer certificate: UnknownIssuer", "certificate"),
            (
                "cannot open the stream at h: no answer in time: is JetStream on (`nats-server -js`)?",
                "-js",
            ),
            ("cannot connect at nats://h:4222: Connection refused: is it up?", "start the servers"),
            (
                "cannot find the team at nats://h:4222: the server has no team of this name (no stream ENSEMBLE_x)",
                "nats.team",
            ),
        ];
        let helps: Vec<String> =
            faults.iter().map(|(why, _)| AwayServers::because(*why).help).collect();
        for ((why, word), help) in faults.iter().zip(&helps) {
            assert!(help.contains(word), "{why}: {help}");
        }
        let distinct: std::collections::BTreeSet<&String> = helps.iter().collect();
        assert_eq!(distinct.len(), faults.len());
        // One mailbox that they refuse.
        let (server, detail) = ("h".to_owned(), "denied: Permissions Violation".to_owned());
        let denied = Error::Server { operation: "read", server, detail, unreachable: false };
        let part = crate::attention::UnreadablePart::new("mailbox bad", &denied);
        assert!(part.help.contains("permissions at the server"), "{part:?}");
    }
}
