//! Where the server of an agent is, as it is configured: names and addresses, never a password.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::machine::HttpPlace;

/// `server` in a profile or of an agent (docs/reference/providers.md). An agent's fields go before those of
/// its profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// `http://127.0.0.1:4096`. Without it, the agent's own command line is read.
    pub address: Option<String>,
    /// The user of the password; `opencode` if not given.
    pub user: Option<String>,
    /// The environment variable that has the password.
    pub password_env: Option<String>,
    /// The file that has the password, in its first line.
    pub password_file: Option<PathBuf>,
    /// Whether `address` may be of another machine.
    pub remote: Option<bool>,
}

impl ServerConfig {
    /// These fields, and those of `fallback` where one is missing. A password that is named here replaces one that
    /// was named in either way.
    pub fn or(&self, fallback: &Self) -> Self {
        let names_password = self.password_env.is_some() || self.password_file.is_some();
        let password = if names_password { self } else { fallback };
        Self {
            address: self.address.clone().or_else(|| fallback.address.clone()),
            user: self.user.clone().or_else(|| fallback.user.clone()),
            password_env: password.password_env.clone(),
            password_file: password.password_file.clone(),
            remote: self.remote.or(fallback.remote),
        }
    }

    /// The place, without its password; `None` if there is no address.
    pub fn place(&self) -> Result<Option<HttpPlace>, String> {
        let remote = self.remote.unwrap_or(false);
        self.address.as_deref().map(|address| HttpPlace::parse(address, remote)).transpose()
    }

    /// Whether it makes sense.
    pub fn check(&self) -> Result<(), String> {
        if self.password_env.is_some() && self.password_file.is_some() {
            return Err("give one of password_env and password_file".to_owned());
        }
        if self.user.as_deref().is_some_and(|user| user.contains(':')) {
            return Err("a user has no colon".to_owned());
        }
        self.place().map(|_| ())
    }
}
