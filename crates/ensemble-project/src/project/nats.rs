//! `transport` and `nats` in `ensemble.yaml`: a team whose mailboxes are on NATS servers.

use std::path::PathBuf;

use ensemble_core::message::Name;
use ensemble_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::host_name::host_of;
use super::{CONFIG_FILE, Project};

/// The value for mailboxes in the queue's directory.
const DIRECTORY: &str = "directory";

/// `nats` in `ensemble.yaml`. Files are relative to the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NatsConfig {
    /// The team, whose mailboxes are one stream (default `team`).
    pub team: Option<Name>,
    /// This host's name in the team, as permissions name it (default the machine's name and a digest of the
    /// directory).
    pub host: Option<Name>,
    /// Beginning of the subjects to which the servers' answers come: `_INBOX`, or `_INBOX_` and a name, so that a
    /// permission keeps others from reading them (default `_INBOX`).
    pub inbox_prefix: Option<String>,
    /// A credentials file.
    pub credentials: Option<PathBuf>,
    /// Certificates trusted in addition to the system's, as PEM.
    pub root_certificates: Option<PathBuf>,
    /// This client's certificate, as PEM.
    pub certificate: Option<PathBuf>,
    /// The key of that certificate, as PEM.
    pub key: Option<PathBuf>,
    /// Number of servers of a cluster that store each message (default 1), for a new stream.
    pub replicas: Option<usize>,
    /// Time limit of a call, in seconds (default 5).
    pub patience_seconds: Option<u64>,
    /// Capacity of a mailbox in the outbox while the server is away, in messages (default 10000).
    pub outbox_capacity: Option<u64>,
    /// Whether this host has a blackboard of its own, and step queues, which other hosts do not see
    /// (default false).
    pub board_here: Option<bool>,
}

impl NatsConfig {
    pub(super) fn or(self, fallback: Self) -> Self {
        Self {
            team: self.team.or(fallback.team),
            host: self.host.or(fallback.host),
            inbox_prefix: self.inbox_prefix.or(fallback.inbox_prefix),
            credentials: self.credentials.or(fallback.credentials),
            root_certificates: self.root_certificates.or(fallback.root_certificates),
            certificate: self.certificate.or(fallback.certificate),
            key: self.key.or(fallback.key),
            replicas: self.replicas.or(fallback.replicas),
            patience_seconds: self.patience_seconds.or(fallback.patience_seconds),
            outbox_capacity: self.outbox_capacity.or(fallback.outbox_capacity),
            board_here: self.board_here.or(fallback.board_here),
        }
    }
}

impl Project {
    /// The servers that have the mailboxes; `None` if they are in the queue's directory.
    ///
    /// # Errors
    /// `transport` is neither `directory` nor an address.
    pub fn servers(&self) -> Result<Option<&str>> {
        let transport = self.config.transport.as_deref().map_or(DIRECTORY, str::trim);
        if transport == DIRECTORY {
            return Ok(None);
        }
        let is_address = |server: &str| {
            let rest = ["nats://", "tls://"].iter().find_map(|s| server.trim().strip_prefix(s));
            rest.is_some_and(|host| !host.is_empty())
        };
        if transport.split(',').all(is_address) {
            return Ok(Some(transport));
        }
        Err(Error::Malformed {
            path: self.root().join(CONFIG_FILE),
            field: "transport".to_owned(),
            detail: "is neither `directory` nor like `nats://host:4222` or `tls://host`".to_owned(),
        })
    }

    /// Without the feature `nats`, servers cannot be used.
    #[cfg(not(feature = "nats"))]
    pub fn refuse_servers(&self) -> Result<()> {
        match self.servers()? {
            None => Ok(()),
            Some(_) => Err(Error::Malformed {
                path: self.root().join(CONFIG_FILE),
                field: "transport".to_owned(),
                detail: "this program was built without the feature `nats`".to_owned(),
            }),
        }
    }

    /// This host's name in the team.
    ///
    /// # Errors
    /// None with a host name of a usual system.
    pub fn host(&self) -> Result<Name> {
        match &self.config.nats.host {
            Some(host) => Ok(host.clone()),
            None => host_of(&self.state),
        }
    }

    /// Directory of messages that wait while the server is away.
    #[must_use]
    pub fn outbox(&self) -> PathBuf {
        self.state.join("outbox")
    }
}

/// The team whose name is not configured.
#[cfg(any(feature = "nats", feature = "postgres"))]
pub(super) const TEAM_DEFAULT: &str = "team";

#[cfg(feature = "nats")]
mod options {
    use std::sync::Arc;
    use std::time::Duration;

    use ensemble_core::message::Name;
    use ensemble_core::spool::Options;
    use ensemble_core::{Error, Result};
    use ensemble_nats::{NatsOptions, OUTBOX_CAPACITY_DEFAULT, Outbox};

    use ensemble_team::admission::MailAdmission;

    use super::{CONFIG_FILE, Project, TEAM_DEFAULT};

    impl Project {
        /// Access to the servers; `None` if the mailboxes are in the queue's directory. A team that they do not know is
        /// an error: who begins one sets [`NatsOptions::creates`].
        ///
        /// # Errors
        /// `transport` is neither `directory` nor an address.
        pub fn nats_options(&self) -> Result<Option<NatsOptions>> {
            let Some(servers) = self.servers()? else { return Ok(None) };
            Ok(Some(self.nats_options_for(servers)?.without_creating()))
        }

        /// The beginning of the answers' subjects, which is `_INBOX` or begins so.
        fn inbox(&self, prefix: String) -> Result<String> {
            let rest = prefix.strip_prefix("_INBOX");
            let is_fit = |rest: &str| {
                rest.is_empty() || (rest.starts_with('_') && Name::new(&rest[1..]).is_ok())
            };
            if rest.is_some_and(is_fit) && !prefix.contains('.') {
                return Ok(prefix);
            }
            let detail = "is neither `_INBOX` nor like `_INBOX_worker-1`";
            Err(Error::malformed(self.root().join(CONFIG_FILE), "nats.inbox_prefix", detail))
        }

        fn incomplete(&self, given: &str, absent: &str) -> Error {
            let detail =
                format!("a client proves itself by both: set `nats: {{{absent}: FILE}}`, too");
            Error::malformed(self.root().join(CONFIG_FILE), format!("nats.{given}"), detail)
        }

        /// Access to these servers, with all other settings as configured.
        ///
        /// # Errors
        /// A certificate without its key, or the reverse.
        pub fn nats_options_for(&self, servers: &str) -> Result<NatsOptions> {
            let config = &self.config.nats;
            let team = config.team.clone().map_or_else(|| Name::new(TEAM_DEFAULT), Ok)?;
            let mut options = NatsOptions::new(servers, team);
            let file = |path: &std::path::PathBuf| self.root().join(path);
            options.inbox_prefix =
                config.inbox_prefix.clone().map(|p| self.inbox(p)).transpose()?;
            options.credentials = config.credentials.as_ref().map(file);
            options.root_certificates = config.root_certificates.as_ref().map(file);
            options.client_certificate = match (&config.certificate, &config.key) {
                (Some(certificate), Some(key)) => Some((file(certificate), file(key))),
                (None, None) => None,
                (Some(_), None) => return Err(self.incomplete("certificate", "key")),
                (None, Some(_)) => return Err(self.incomplete("key", "certificate")),
            };
            options.replicas = config.replicas.unwrap_or(options.replicas);
            if let Some(seconds) = config.patience_seconds {
                options.patience = Duration::from_secs(seconds.max(1));
            }
            options.standstill = Some(Arc::new(MailAdmission::new(self.admissions())));
            Ok(options)
        }

        /// Opens the outbox of this host.
        ///
        /// # Errors
        ///
        /// The outbox cannot be made or used.
        pub fn open_outbox(&self) -> Result<Outbox> {
            self.ensure_state()?;
            let capacity = self.config.nats.outbox_capacity.unwrap_or(OUTBOX_CAPACITY_DEFAULT);
            let mut options = Options::default();
            options.durability = self.config.durability.unwrap_or_default();
            Outbox::open(&self.outbox(), capacity.max(1), options)
        }
    }
}
