//! Where the server is, and how a client proves itself to it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::durable::{open_chosen_file, read_whole};
use ensemble_core::message::Name;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::error::chain;

const PORT_DEFAULT: u16 = 5432;
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
/// Modes of libpq in which the certificate is verified.
const VERIFIED: [&str; 2] = ["sslmode=verify-full", "sslmode=verify-ca"];
/// How the schema of a team begins; the team follows.
const SCHEMA_PREFIX: &str = "ensemble_";
/// Longest name in PostgreSQL, in bytes.
const IDENTIFIER_BYTES_MAX: usize = 63;
/// Permissions of a password file that let other users read it.
const OTHERS: u32 = 0o077;
const PASSWORDS_BYTES_MAX: usize = 1024 * 1024;

/// A PostgreSQL server that has the step queues of a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    config: Config,
    pub(super) schema: String,
    /// Certificates trusted in addition to the system's, as PEM.
    pub root_certificates: Option<PathBuf>,
    /// A file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// A file of passwords in the format of `.pgpass`.
    pub passwords: Option<PathBuf>,
    pub patience: Duration,
}

impl PostgresOptions {
    /// Reads an address like `postgres://user@host:5432/database?sslmode=verify-full`. The tables of
    /// each team are in their own schema.
    ///
    /// A connection is encrypted and the server's certificate is verified, unless the address says
    /// `sslmode=disable`. Connections to `localhost`, a loopback address or a Unix socket are not encrypted
    /// either, unless the address asks for it.
    pub fn new(address: &str, team: &Name) -> Result<Self, String> {
        if !SCHEMES.iter().any(|scheme| address.starts_with(scheme)) {
            return Err("is not like `postgres://user@host/database`".to_owned());
        }
        // A certificate is always verified in full, so the modes that ask for less and for more are one.
        let address = VERIFIED
            .iter()
            .fold(address.to_owned(), |it, mode| it.replace(mode, "sslmode=require"));
        let mut config: Config = address.parse().map_err(|error| chain(&error))?;
        if config.get_password().is_some() {
            let advice = "write it into a file and name that with `password_file`";
            return Err(format!("has a password in it: {advice}"));
        }
        let user = config.get_user().ok_or("names no user: `postgres://USER@…`")?.to_owned();
        if config.get_dbname().is_none() {
            config.dbname(user);
        }
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        if config.get_ssl_mode() == SslMode::Prefer {
            let is_local = config.get_hosts().iter().all(is_local);
            config.ssl_mode(if is_local { SslMode::Disable } else { SslMode::Require });
        }
        let schema = format!("{SCHEMA_PREFIX}{team}");
        if schema.len() > IDENTIFIER_BYTES_MAX {
            let max = IDENTIFIER_BYTES_MAX - SCHEMA_PREFIX.len();
            return Err(format!("is for a team with a name of more than {max} bytes"));
        }
        Ok(Self {
            config,
            schema,
            root_certificates: None,
            password_file: None,
            passwords: None,
            patience: super::super::super::BUSY_PATIENCE,
        })
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.config.get_ssl_mode() == SslMode::Require
    }

    /// The options of a new connection, except the password. The server ends what a host that has vanished has left
    /// open.
    pub(super) fn for_connection(&self) -> Config {
        let Self { schema, patience, .. } = self;
        let limit = patience.as_millis().max(1);
        let idle = limit * 4;
        let given = self.config.get_options().unwrap_or_default();
        let mut config = self.config.clone();
        config
            .application_name("ensemble")
            .connect_timeout(*patience)
            .tcp_user_timeout(*patience)
            .options(format!(
                "{given} -c search_path=\"{schema}\" -c statement_timeout={limit} -c lock_timeout={limit} \
                 -c idle_in_transaction_session_timeout={idle}"
            ));
        config
    }

    /// The server, the database and the schema, for people.
    pub fn place(&self) -> String {
        let (host, port) = self.first();
        format!("postgres://{host}:{port}/{}#{}", self.database(), self.schema)
    }

    fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_default()
    }

    /// The host, or the directory of the socket, that is tried first.
    fn first(&self) -> (String, u16) {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(directory)) => directory.display().to_string(),
            None => String::new(),
        };
        (host, self.config.get_ports().first().copied().unwrap_or(PORT_DEFAULT))
    }

    /// The password for this server, with its file.
    pub(super) fn password(&self) -> Result<String, String> {
        if let Some(file) = &self.password_file {
            let text = private_text(file)?;
            return Ok(text.lines().next().unwrap_or_default().to_owned());
        }
        let none = "the server asks for a password, and none is configured";
        let file = self.passwords.as_ref().filter(|file| file.exists()).ok_or(none)?;
        let text = private_text(file)?;
        let found = text.lines().find_map(|line| self.password_in(line));
        found.ok_or_else(|| format!("{} has no password for {}", file.display(), self.place()))
    }

    /// The password of a line of `.pgpass`, if the line is about this server.
    fn password_in(&self, line: &str) -> Option<String> {
        let (host, port) = self.first();
        let port = port.to_string();
        let mut fields = fields(line).into_iter();
        let user = self.config.get_user().unwrap_or_default();
        let wanted = [&host, &port, self.database(), user];
        let is_about = wanted.into_iter().all(|wanted| {
            fields
                .next()
                .is_some_and(|(field, is_plain)| field == wanted || is_plain && field == "*")
        });
        fields.next().filter(|_| is_about && !line.starts_with('#')).map(|(password, _)| password)
    }
}

/// Fields of a line of `.pgpass`, each with whether it has no escapes. The fifth is the rest.
fn fields(line: &str) -> Vec<(String, bool)> {
    let mut fields = vec![(String::new(), true)];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let is_last = fields.len() == 5;
        let Some((field, is_plain)) = fields.last_mut() else { break };
        match character {
            ':' if !is_last => fields.push((String::new(), true)),
            '\\' => {
                *is_plain = false;
                field.extend(characters.next());
            }
            other => field.push(other),
        }
    }
    fields
}

fn private_text(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let (opened, stat) = open_chosen_file(file)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| format!("cannot read {shown}: it does not exist"))?;
    if stat.mode & OTHERS != 0 {
        return Err(format!("other users may read {shown}: `chmod 600` it"));
    }
    let content = read_whole(&opened, file, PASSWORDS_BYTES_MAX).map_err(|e| e.to_string())?;
    String::from_utf8(content).map_err(|error| format!("cannot read {shown}: {error}"))
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(host) => {
            let address = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost" || address.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn options(address: &str) -> Result<PostgresOptions, String> {
        PostgresOptions::new(address, &Name::new("product").unwrap())
    }

    #[test]
    fn addresses_are_read_and_encrypted_unless_they_stay_on_the_host() {
        let far = options("postgres://ensemble@db.example/steps").unwrap();
        assert_eq!(far.place(), "postgres://db.example:5432/steps#ensemble_product");
        assert!(far.is_encrypted());
        for (address, tls) in [
            ("postgresql://a%40b@db:6543", true),
            ("postgres://a@127.0.0.1", false),
            ("postgres://a@[::1]:5433/x", false),
            ("postgres://a@localhost/x?sslmode=require", true),
            ("postgres://a@db/x?sslmode=disable", false),
            ("postgres://a@db/x?sslmode=verify-full", true),
            ("postgres://a@/x?host=%2Frun%2Fpostgresql", false),
        ] {
            assert_eq!(options(address).map(|it| it.is_encrypted()), Ok(tls), "{address}");
        }
        assert_eq!(options("postgres://a%40b@db:6543").unwrap().database(), "a@b");
    }

    #[test]
    fn mistakes_are_named_and_a_password_is_not_repeated() {
        for (address, part) in [
            ("mysql://a@b/c", "is not like"),
            ("postgres://db/steps", "names no user"),
            ("postgres://a@db:x/steps", "`port`"),
            ("postgres://a@db/s?sslmode=maybe", "`sslmode`"),
            ("postgres://a@db/s?sslmodus=require", "`sslmodus`"),
            ("postgres://a@db/s?password=hush", "has a password in it"),
            ("postgres://a:hush@db/s", "has a password in it"),
        ] {
            let error = options(address).unwrap_err();
            assert!(error.contains(part) && !error.contains("hush"), "{address}: {error}");
        }
        let long = Name::new("t".repeat(60)).unwrap();
        assert!(PostgresOptions::new("postgres://a@b/c", &long).is_err());
    }

    #[test]
    fn passwords_come_from_private_files_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().unwrap();
        let mut options = options("postgres://me@db/steps").unwrap();
        assert!(options.password().is_err());
        let file = home.path().join("pgpass");
        fs::write(&file, "#db:*:*:me:no\nother:*:*:me:no\ndb:5432:steps:me:a\\:b:c\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        options.passwords = Some(file.clone());
        assert!(options.password().unwrap_err().contains("chmod 600"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(options.password().unwrap(), "a:b:c");
        fs::write(&file, "hush\nrest").unwrap();
        options.password_file = Some(file);
        assert_eq!(options.password().unwrap(), "hush");
    }
}
