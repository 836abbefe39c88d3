//! `transport` and `nats` in `ensemble.yaml`: a team whose mailboxes are on NATS servers.

use std::path::PathBuf;

use ensemble_core::message::{ConfigDuration, Name};
use ensemble_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::host_name::host_of;
use super::{CONFIG_FILE, Project};

const DIRECTORY: &str = "directory";

const TEAM_DEFAULT: &str = "team";

/// `nats` in `ensemble.yaml`. Files are relative to the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
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
    #[serde(deserialize_with = "super::paths::read")]
    pub credentials: Option<PathBuf>,
    /// Certificates trusted in addition to the system's, as PEM.
    #[serde(deserialize_with = "super::paths::read")]
    pub root_certificates: Option<PathBuf>,
    /// This client's certificate, as PEM.
    #[serde(deserialize_with = "super::paths::read")]
    pub certificate: Option<PathBuf>,
    /// The key of that certificate, as PEM.
    #[serde(deserialize_with = "super::paths::read")]
    pub key: Option<PathBuf>,
    /// Number of servers of a cluster that store each message (default 1), for a new stream.
    pub replicas: Option<usize>,
    /// Time limit of a call (default 5s).
    pub patience: Option<ConfigDuration>,
    /// Capacity of a mailbox in the outbox while the server is away, in messages (default 10000).
    pub outbox_capacity: Option<u64>,
}

super::sections::fill_absent!(NatsConfig: team, host, inbox_prefix, credentials, root_certificates, certificate, key, replicas, patience, outbox_capacity);

impl Project {
    /// The servers that have the mailboxes; `None` if they are in the queue's directory.
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
        let detail = format!(
            "`{transport}` is neither `directory` nor like `nats://host:4222` or `tls://host`"
        );
        Err(Error::malformed(self.root().join(CONFIG_FILE), "transport", detail))
    }

    /// Whether the team may be on several hosts: its mailboxes are on servers.
    pub fn is_shared(&self) -> Result<bool> {
        self.servers().map(|servers| servers.is_some())
    }

    pub fn host(&self) -> Result<Name> {
        match &self.config.nats.host {
            Some(host) => Ok(host.clone()),
            None => host_of(&self.state),
        }
    }

    pub fn team_name(&self) -> Result<Name> {
        self.config
            .nats
            .team
            .clone()
            .map_or_else(|| Name::new(TEAM_DEFAULT), Ok)
            .map_err(Error::from)
    }

    /// Directory of messages that wait while the server is away.
    pub fn outbox(&self) -> PathBuf {
        self.state.join("outbox")
    }
}
