//! Where a server of an agent is, and how to be let in.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const USER: &str = "opencode";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The address of an agent's HTTP server, with the password it asks for. Printed without it.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpPlace {
    pub(super) address: SocketAddr,
    pub(super) authorization: Option<String>,
}

impl HttpPlace {
    /// Reads `http://127.0.0.1:4096`. The host is an address or `localhost`: nothing is looked up.
    /// Other machines than this one only if `remote` says so, since what is sent to them can be
    /// read on the way.
    pub fn parse(text: &str, remote: bool) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not an address like http://127.0.0.1:4096 (http, an IP address or localhost, a port)"
            )
        };
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let address = match rest.strip_prefix("localhost:") {
            Some(port) => {
                (IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().map_err(|_| wrong())?).into()
            }
            None => rest.parse::<SocketAddr>().map_err(|_| wrong())?,
        };
        if address.port() == 0 {
            return Err(wrong());
        }
        if !remote && !address.ip().is_loopback() {
            return Err(format!(
                "{address} is another machine: set `remote: true` to ask it anyway"
            ));
        }
        Ok(Self::at(address))
    }

    pub(super) const fn at(address: SocketAddr) -> Self {
        Self { address, authorization: None }
    }

    /// With a user (`opencode` unless given) and a password, sent as HTTP basic authentication.
    pub fn with_password(mut self, user: Option<&str>, password: &str) -> Self {
        self.authorization = Some(basic(user, password));
        self
    }
}

pub(super) fn basic(user: Option<&str>, password: &str) -> String {
    format!("Basic {}", base64(format!("{}:{password}", user.unwrap_or(USER)).as_bytes()))
}

impl fmt::Debug for HttpPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpPlace").field("address", &self.address).finish_non_exhaustive()
    }
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let sextet = (bits >> (18 - 6 * index) & 0x3f) as usize;
            text.push(if index <= chunk.len() { char::from(ALPHABET[sextet]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_encoded_and_not_printed() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        let place = HttpPlace::parse("http://localhost:4096/", false).unwrap();
        let place = place.with_password(None, "s3cret");
        assert_eq!(place.authorization.as_deref(), Some("Basic b3BlbmNvZGU6czNjcmV0"));
        assert!(!format!("{place:?}").contains("Basic"), "{place:?}");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "127.0.0.1:4096",
            "https://127.0.0.1:4096",
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "http://example.org:4096",
            "http://127.0.0.1:4096/path",
            "http://user:word@127.0.0.1:4096",
            "http://127.0.0.1:4096\r\nX: y",
        ] {
            assert!(HttpPlace::parse(text, true).is_err(), "{text:?}");
        }
        assert!(HttpPlace::parse("http://192.0.2.1:4096", false).unwrap_err().contains("remote"));
        assert!(HttpPlace::parse("http://192.0.2.1:4096", true).is_ok());
        assert!(HttpPlace::parse("http://[::1]:4096", false).is_ok());
    }
}
