//! SCRAM-SHA-256 (RFC 5802, RFC 7677): both sides prove that they know the password, and neither sends it.
//!
//! Without channel binding: over TLS the certificate is verified. A password beyond ASCII is used as it is
//! written, without a normalization.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SecureRandom as _;
use ring::{digest, hmac, pbkdf2, rand};

/// Name of the mechanism.
pub(super) const MECHANISM: &str = "SCRAM-SHA-256";
/// Start of the first message: no channel binding, no other identity.
const HEADER: &str = "n,,";
const NONCE_BYTES: usize = 18;
/// Most rounds that a server may demand.
const ROUNDS_MAX: u32 = 1_000_000;

/// An exchange that has begun.
pub(super) struct Exchange {
    nonce: String,
    /// The server's last word, once it is known.
    expected: Option<hmac::Tag>,
}

impl Exchange {
    pub(super) fn begin() -> Result<Self, String> {
        let mut bytes = [0; NONCE_BYTES];
        rand::SystemRandom::new().fill(&mut bytes).map_err(|_| "no random numbers".to_owned())?;
        Ok(Self { nonce: STANDARD.encode(bytes), expected: None })
    }

    fn bare(&self) -> String {
        // The server knows the user by the connection.
        format!("n=,r={}", self.nonce)
    }

    /// The first message of the client.
    pub(super) fn first(&self) -> String {
        format!("{HEADER}{}", self.bare())
    }

    /// The answer to the server's first message.
    pub(super) fn answer(&mut self, challenge: &str, password: &str) -> Result<String, String> {
        let wrong = || "the server's part of SCRAM is wrong".to_owned();
        let mut parts = challenge.split(',');
        let mut part = |key| parts.next().and_then(|part| part.strip_prefix(key)).ok_or_else(wrong);
        let (nonce, salt, rounds) = (part("r=")?, part("s=")?, part("i=")?);
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(wrong());
        }
        let salt = STANDARD.decode(salt).map_err(|_| wrong())?;
        let rounds: NonZeroU32 = rounds.parse().map_err(|_| wrong())?;
        if rounds.get() > ROUNDS_MAX {
            return Err(format!("the server demands {rounds} rounds of SCRAM"));
        }
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, rounds, &salt, password.as_bytes(), &mut salted);
        let last = format!("c={},r={nonce}", STANDARD.encode(HEADER));
        let signed = format!("{},{challenge},{last}", self.bare());
        let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let salted = key(&salted);
        let client = hmac::sign(&salted, b"Client Key");
        let stored = digest::digest(&digest::SHA256, client.as_ref());
        let signature = hmac::sign(&key(stored.as_ref()), signed.as_bytes());
        let proof: Vec<u8> = client
            .as_ref()
            .iter()
            .zip(signature.as_ref())
            .map(|(one, other)| one ^ other)
            .collect();
        let server = hmac::sign(&salted, b"Server Key");
        self.expected = Some(hmac::sign(&key(server.as_ref()), signed.as_bytes()));
        Ok(format!("{last},p={}", STANDARD.encode(proof)))
    }

    /// Checks that the server knows the password, too.
    pub(super) fn check(&self, last: &str) -> Result<(), String> {
        let signature = last.strip_prefix("v=").and_then(|it| STANDARD.decode(it).ok());
        let expected = self.expected.as_ref().map(AsRef::as_ref);
        match signature.is_some() && signature.as_deref() == expected {
            true => Ok(()),
            false => Err("the server does not know the password: it may be another one".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, whose client names its user.
    #[test]
    fn exchange_is_that_of_the_standard() {
        let mut exchange = Exchange { nonce: "rOprNGfwEbeRWgbNEkqO".to_owned(), expected: None };
        let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let answer = exchange.answer(challenge, "pencil").unwrap();
        // The same as in the standard but for the user's name in what is signed.
        assert!(
            answer.starts_with("c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=")
        );
        assert!(exchange.check("v=AAAA").is_err());
        assert!(exchange.check("e=other").is_err());
        for wrong in [
            "",
            "r=other,s=W22Z,i=1",
            "r=rOprNGfwEbeRWgbNEkqO1,s=W22Z,i=0",
            challenge.trim_end_matches(",i=4096"),
        ] {
            assert!(exchange.answer(wrong, "pencil").is_err(), "{wrong}");
        }
        assert!(Exchange::begin().unwrap().check("v=").is_err(), "nothing was asked yet");
    }
}
