//! Where the server is, and how a client proves itself to it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::message::Name;

/// The port of a server, unless the address names another.
const PORT_DEFAULT: u16 = 5432;
/// How the schema of a team begins; the team follows.
const SCHEMA_PREFIX: &str = "ensemble_";
/// Longest name in PostgreSQL, in bytes.
const IDENTIFIER_BYTES_MAX: usize = 63;
/// Permissions of a password file that let other users read it.
const OTHERS: u32 = 0o077;

/// A PostgreSQL server that has the step queues of a team.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresOptions {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) tls: bool,
    /// The schema that has the tables.
    pub(super) schema: String,
    /// Certificates trusted in addition to the system's, as PEM.
    pub root_certificates: Option<PathBuf>,
    /// A file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// A file of passwords in the format of `.pgpass`.
    pub passwords: Option<PathBuf>,
    /// How long one statement may take.
    pub patience: Duration,
}

impl PostgresOptions {
    /// Reads an address like `postgres://user@host:5432/database?sslmode=verify-full`. The tables of
    /// each team are in a schema of their own.
    ///
    /// A connection is encrypted and the server's certificate is verified, unless the address says
    /// `sslmode=disable`. Connections to `localhost`, a loopback address or a Unix socket are not encrypted
    /// either.
    ///
    /// # Errors
    /// What is wrong with the address. The text never has a password in it.
    pub fn new(address: &str, team: &Name) -> Result<Self, String> {
        let rest = ["postgres://", "postgresql://"].iter().find_map(|it| address.strip_prefix(it));
        let rest = rest.ok_or("is not like `postgres://user@host/database`")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, place) =
            authority.rsplit_once('@').ok_or("names no user: `postgres://USER@…`")?;
        if user.contains(':') {
            let advice = "write it into a file and name that with `password_file`";
            return Err(format!("has a password in it: {advice}"));
        }
        let (host, port) = host_and_port(place)?;
        let (mut host, user) = (host.to_owned(), decoded(user)?);
        let mut mode = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("host", value)) => host = decoded(value)?,
                _ => {
                    let key = pair.split('=').next().unwrap_or_default();
                    return Err(format!(
                        "has the parameter `{key}`: `sslmode` and `host` are known"
                    ));
                }
            }
        }
        let schema = format!("{SCHEMA_PREFIX}{team}");
        if schema.len() > IDENTIFIER_BYTES_MAX {
            let max = IDENTIFIER_BYTES_MAX - SCHEMA_PREFIX.len();
            return Err(format!("is for a team with a name of more than {max} bytes"));
        }
        let tls = match mode {
            None => !is_local(&host),
            Some("disable") => false,
            Some("require" | "verify-ca" | "verify-full") => !host.starts_with('/'),
            Some(other) => {
                let known = "`disable`, `require`, `verify-ca` and `verify-full` are known";
                return Err(format!("has `sslmode={other}`: {known}"));
            }
        };
        let database = match decoded(database)? {
            none if none.is_empty() => user.clone(),
            database => database,
        };
        Ok(Self {
            host: if host.is_empty() { "localhost".to_owned() } else { host },
            port,
            user,
            database,
            tls,
            schema,
            root_certificates: None,
            password_file: None,
            passwords: None,
            patience: super::super::super::BUSY_PATIENCE,
        })
    }

    /// The server, the database and the schema, for people.
    #[must_use]
    pub fn place(&self) -> String {
        let Self { host, port, database, schema, .. } = self;
        format!("postgres://{host}:{port}/{database}#{schema}")
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
        let port = self.port.to_string();
        let mut fields = fields(line).into_iter();
        let wanted = [&self.host, &port, &self.database, &self.user];
        let is_about = wanted.into_iter().all(|wanted| {
            fields
                .next()
                .is_some_and(|(field, is_plain)| field == *wanted || is_plain && field == "*")
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
    let why = |error: std::io::Error| format!("cannot read {}: {error}", file.display());
    if fs::metadata(file).map_err(why)?.mode() & OTHERS != 0 {
        return Err(format!("other users may read {}: `chmod 600` it", file.display()));
    }
    fs::read_to_string(file).map_err(why)
}

fn host_and_port(place: &str) -> Result<(&str, u16), String> {
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().map_err(|_| format!("has `{port}` in the place of a port"))?,
        None => PORT_DEFAULT,
    };
    Ok((host, port))
}

fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("has `{text}`, which is not percent-encoded");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        bytes.push(match byte {
            b'%' => {
                let (high, low) = digit().zip(digit()).ok_or_else(wrong)?;
                u8::try_from(high * 16 + low).map_err(|_| wrong())?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn is_local(host: &str) -> bool {
    let is_loopback = host.parse::<std::net::IpAddr>().is_ok_and(|host| host.is_loopback());
    host.is_empty() || host.starts_with('/') || host == "localhost" || is_loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(address: &str) -> Result<PostgresOptions, String> {
        PostgresOptions::new(address, &Name::new("product").unwrap())
    }

    #[test]
    fn addresses_are_read_and_encrypted_unless_they_stay_on_the_host() {
        let far = options("postgres://ensemble@db.example/steps").unwrap();
        assert_eq!(far.place(), "postgres://db.example:5432/steps#ensemble_product");
        assert!(far.tls);
        for (address, tls) in [
            ("postgresql://a%40b@db:6543", true),
            ("postgres://a@127.0.0.1", false),
            ("postgres://a@[::1]:5433/x", false),
            ("postgres://a@localhost/x?sslmode=require", true),
            ("postgres://a@db/x?sslmode=disable", false),
            ("postgres://a@/x?host=%2Frun%2Fpostgresql", false),
        ] {
            assert_eq!(options(address).map(|it| it.tls), Ok(tls), "{address}");
        }
        assert_eq!(options("postgres://a%40b@db:6543").unwrap().database, "a@b");
    }

    #[test]
    fn mistakes_are_named_and_a_password_is_not_repeated() {
        for (address, part) in [
            ("mysql://a@b/c", "is not like"),
            ("postgres://db/steps", "names no user"),
            ("postgres://a@db:x/steps", "`x` in the place of a port"),
            ("postgres://a@db/s?sslmode=prefer", "`disable`, `require`"),
            ("postgres://a@db/s?password=hush", "the parameter `password`"),
            ("postgres://a:hush@db/s", "has a password in it"),
            ("postgres://%zz@db/s", "not percent-encoded"),
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
