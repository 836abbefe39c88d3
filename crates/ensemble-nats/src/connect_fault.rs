//! Why no connection could be made, in the words of the person who configured it.
//!
//! | the libraries say | it means | repeating it |
//! |---|---|---|
//! | `InvalidContentType` | the server does not speak TLS | cannot help |
//! | `invalid peer certificate: …` | the server's certificate is not accepted here, and why | cannot help |
//! | `received fatal alert` | the server does not accept this client's certificate, or its lack | cannot help |
//! | `could not add certificate or key` | our files do not belong together | cannot help |
//! | `authorization violation` | a wrong user or password | cannot help |
//! | `invalid server operation` | another program listens there | may help |
//! | anything else | the server is down, or there is no way to it | may help |

use async_nats::{ConnectError, ConnectErrorKind};

use super::options::NatsOptions;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectFault {
    pub(super) detail: String,
    pub(super) may_pass: bool,
}

const MEANINGS: [(&str, &str); 9] = [
    (
        "InvalidContentType",
        "the server does not speak TLS there: write `nats://` in `transport`, and no certificates",
    ),
    (
        "UnknownIssuer",
        "the server's certificate is not signed by an authority that is trusted here: name it as `nats.root_certificates`",
    ),
    (
        "CaUsedAsEndEntity",
        "the server's certificate is one of an authority, which no client accepts: sign one for the server with it",
    ),
    ("not valid for name", "the server's certificate is for another name than that in `transport`"),
    ("NotValidForName", "the server's certificate is for another name than that in `transport`"),
    (
        "certificate expired",
        "the server's certificate has expired, or the clock of this host is wrong",
    ),
    (
        "certificate not valid yet",
        "the server's certificate is not valid yet, or the clock of this host is wrong",
    ),
    (
        "received fatal alert",
        "the server does not accept the certificate of this client, or demands one: `nats.certificate`, `nats.key`",
    ),
    ("invalid server operation", "another program than a NATS server answers there"),
];
/// Of these, the ones that trying again may change.
const PASSING: [&str; 2] = ["invalid server operation", "certificate not valid yet"];

impl ConnectFault {
    pub(super) fn new(error: &ConnectError, options: &NatsOptions) -> Self {
        let is_refused = matches!(
            error.kind(),
            ConnectErrorKind::Authentication
                | ConnectErrorKind::AuthorizationViolation
                | ConnectErrorKind::ServerParse
                | ConnectErrorKind::Tls
        );
        let mut fault = Self::of_words(&with_causes(error), is_refused);
        if let Some((certificate, key)) = options.client_certificate.as_ref()
            && error.kind() == ConnectErrorKind::Tls
        {
            let (certificate, key) = (certificate.display(), key.display());
            fault.detail = format!(
                "{}: {certificate} is not a certificate that {key} belongs to",
                fault.detail
            );
        }
        fault
    }

    fn of_words(said: &str, is_refused: bool) -> Self {
        let known = MEANINGS.iter().find(|(words, _)| said.contains(words));
        let is_certificate = said.contains("invalid peer certificate");
        let may_pass = match known {
            Some((words, _)) => PASSING.contains(words),
            None => !is_refused && !is_certificate,
        };
        let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let detail = match known {
            Some((_, meaning)) => format!("{meaning} ({})", said.trim_end()),
            None if may_pass => format!("{}: is it up?", said.trim_end()),
            None => said.trim_end().to_owned(),
        };
        Self { detail, may_pass }
    }
}

fn with_causes(error: &ConnectError) -> String {
    let (mut text, mut cause) = (error.to_string(), std::error::Error::source(error));
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    plain(&text)
}

/// Each cause once, and without the words that say only which library speaks.
fn plain(said: &str) -> String {
    let mut causes = Vec::new();
    for cause in said.split(": ").filter(|cause| !["nats", "IO error"].contains(cause)) {
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    causes.join(": ").replace("Other(OtherError(CaUsedAsEndEntity))", "CaUsedAsEndEntity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        for (said, plainly) in [
            (
                "authorization violation: nats: authorization violation: nats: authorization violation",
                "authorization violation",
            ),
            ("IO error: Connection refused (os error 111)", "Connection refused (os error 111)"),
            (
                "TLS error: invalid peer certificate: UnknownIssuer: invalid peer certificate",
                "TLS error: invalid peer certificate: UnknownIssuer",
            ),
        ] {
            assert_eq!(plain(said), plainly);
        }
    }

    #[test]
    fn each_fault_says_what_to_change_and_whether_trying_again_helps() {
        for (said, is_refused, words, may_pass) in [
            ("received corrupt message of type InvalidContentType", false, "`nats://`", false),
            ("invalid peer certificate: CaUsedAsEndEntity", false, "sign one", false),
            ("received fatal alert: CertificateRequired", false, "nats.key", false),
            ("invalid server operation: 'HTTP/1.1 400 \u{d}\n'", false, "another program", true),
            ("Connection refused (os error 111)", false, "is it up?", true),
        ] {
            let fault = ConnectFault::of_words(said, is_refused);
            assert!(fault.detail.contains(words), "{said}: {fault:?}");
            assert!(!fault.detail.contains(char::is_control), "{fault:?}");
            assert_eq!(fault.may_pass, may_pass, "{fault:?}");
        }
    }
}
