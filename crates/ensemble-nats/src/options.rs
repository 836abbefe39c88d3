//! Options of a connection to a NATS server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::env::Clock;
use ensemble_core::event_log::{NullRecorder, Recorder};
use ensemble_core::message::Name;
use ensemble_core::spool::{AgentAddresses, Quota, Standstill};

pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(5);

/// Options of a [`super::NatsTransport`]; start from [`NatsOptions::new`] and use `with_*`.
#[derive(Clone)]
pub struct NatsOptions {
    /// Server addresses, separated by commas: `nats://host:4222,nats://other:4222`, or `tls://…`.
    pub servers: String,
    /// The team, whose mailboxes have their own stream.
    pub team: Name,
    /// A credentials file (user JWT and nkey).
    pub credentials: Option<PathBuf>,
    /// Beginning of the subjects to which answers come: `_INBOX`, or `_INBOX_…` for a client whose answers no other
    /// client may read.
    pub inbox_prefix: Option<String>,
    /// Root certificates that are trusted in addition to the system's, as PEM.
    pub root_certificates: Option<PathBuf>,
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Number of servers in a cluster that store every message: 1, 3 or 5. For a new stream only.
    pub replicas: usize,
    pub creates: bool,
    pub patience: Duration,
    /// Whether the patience is for all calls of the connection together, until one waits for news. For a
    /// command, whose caller waits for all of it.
    pub shares_patience: bool,
    /// The clock for delays, expiry and retention. Without one, the server's time counts.
    pub clock: Option<Arc<dyn Clock + Send + Sync>>,
    pub recorder: Arc<dyn Recorder>,
    /// What each sender may leave unread in each mailbox. Without it, there is no limit.
    pub quota: Option<Quota>,
    /// What keeps agents from beginning anything. Without it, nothing does.
    pub standstill: Option<Arc<dyn Standstill>>,
    /// Which mailbox an agent reads; that of its name if there is none.
    pub addresses: Option<AgentAddresses>,
}

impl NatsOptions {
    pub fn new(servers: impl Into<String>, team: Name) -> Self {
        Self {
            servers: servers.into(),
            team,
            credentials: None,
            inbox_prefix: None,
            root_certificates: None,
            client_certificate: None,
            replicas: 1,
            creates: true,
            patience: PATIENCE_DEFAULT,
            shares_patience: false,
            clock: None,
            recorder: Arc::new(NullRecorder),
            quota: None,
            standstill: None,
            addresses: None,
        }
    }

    /// Makes a team without a stream an error: a caller that only reads must not create one under a mistyped name.
    pub fn without_creating(mut self) -> Self {
        self.creates = false;
        self
    }

    /// Sets a clock to use instead of the server's time.
    pub fn with_clock(mut self, clock: Arc<dyn Clock + Send + Sync>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// User name and password in the first address that has some; a name alone is a token.
    pub(super) fn user(&self) -> Option<(&str, Option<&str>)> {
        self.servers.split(',').find_map(|server| {
            let server = server.trim();
            let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
            let (user, _) = rest.rsplit_once('@')?;
            Some(user.split_once(':').map_or((user, None), |(name, word)| (name, Some(word))))
        })
    }

    /// The servers without user names and passwords, for messages to people.
    pub fn servers_shown(&self) -> String {
        let shown = |server: &str| match (server.find("://"), server.rfind('@')) {
            (Some(scheme), Some(at)) if at > scheme => {
                format!("{}{}", &server[..scheme + 3], &server[at + 1..])
            }
            (None, Some(at)) => server[at + 1..].to_owned(),
            _ => server.to_owned(),
        };
        self.servers.split(',').map(|server| shown(server.trim())).collect::<Vec<_>>().join(",")
    }
}

ensemble_core::shared_setters!(NatsOptions: recorder, patience);

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("servers", &self.servers_shown())
            .field("team", &self.team)
            .field("replicas", &self.replicas)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_displayed() {
        let team = Name::new("t").unwrap();
        let options = NatsOptions::new("nats://me:secret@one:4222, two:4222,me:x@three", team);
        assert_eq!(options.servers_shown(), "nats://one:4222,two:4222,three");
        assert!(!format!("{options:?}").contains("secret"));
        assert_eq!(options.user(), Some(("me", Some("secret"))));
    }
}
