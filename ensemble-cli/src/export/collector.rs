//! The collector to which traces go, by OTLP/HTTP in JSON.
//!
//! Nothing is sent anywhere but to the address that the caller names. Headers with secrets come from the environment
//! variable that OpenTelemetry has for them, since other users see command lines.

use std::time::Duration;

use serde_json::Value;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::exit::{Failure, Outcome};
use crate::text::one_line;

/// The path of traces, which OTLP adds to the address of a collector.
const TRACES: &str = "/v1/traces";
/// How long a collector may take; the default of OpenTelemetry's exporters.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The most that is read of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// The most that is shown of it, in characters.
const SHOWN_CHARS_MAX: usize = 200;
/// Answers after which OTLP lets a client send the same again.
const LATER: [u16; 4] = [429, 502, 503, 504];
/// OpenTelemetry's variable for headers: `name=value,name=value`, with percent signs as in an address.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Why a collector does not have what was sent.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The same may be taken later.
    Later(String),
    /// The same will be refused again.
    Never(String),
}

/// A collector at its address.
pub(crate) struct Collector {
    agent: ureq::Agent,
    url: String,
    headers: Vec<(String, String)>,
}

impl Collector {
    /// Nothing is sent yet.
    pub(crate) fn new(endpoint: &str) -> Outcome<Self> {
        let is_secret = endpoint.starts_with("https://");
        if !is_secret && !endpoint.starts_with("http://") {
            let text = format!("`{}` is no address of a collector", one_line(endpoint));
            return Err(Failure::usage(text).with_hint("as in --endpoint http://localhost:4318"));
        }
        let base = endpoint.trim_end_matches('/');
        let base = base.strip_suffix(TRACES).unwrap_or(base);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_LIMIT));
        let config = if is_secret { config.tls_config(tls()) } else { config };
        let headers = std::env::var(HEADERS).unwrap_or_default();
        Ok(Self {
            agent: config.build().new_agent(),
            url: format!("{base}{TRACES}"),
            headers: headers.split(',').filter_map(header).collect(),
        })
    }

    /// The address to which traces are sent.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request. Once this returns, the collector has all of it.
    pub(crate) fn send(&self, request: &Value) -> Result<(), Refusal> {
        let post = self.agent.post(&self.url).header("content-type", "application/json");
        let post = self.headers.iter().fold(post, |post, (name, value)| post.header(name, value));
        let mut answer = match post.send(request.to_string()) {
            Ok(answer) => answer,
            Err(
                error @ (ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::HostNotFound),
            ) => {
                return Err(Refusal::Later(format!("{} does not answer: {error}", self.url)));
            }
            Err(error) => return Err(Refusal::Never(format!("{}: {error}", self.url))),
        };
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let body = body.unwrap_or_default();
        let shown: String = one_line(&body).chars().take(SHOWN_CHARS_MAX).collect();
        match status {
            200..=299 => rejected(&body).map_or(Ok(()), |text| Err(Refusal::Never(text))),
            status if LATER.contains(&status) => {
                Err(Refusal::Later(format!("{} answers {status}: {shown}", self.url)))
            }
            status => Err(Refusal::Never(format!("{} answers {status}: {shown}", self.url))),
        }
    }
}

/// What a collector says of spans that it took and did not keep.
fn rejected(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let partial = &answer["partialSuccess"];
    let count = &partial["rejectedSpans"];
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0);
    let why = one_line(partial["errorMessage"].as_str().unwrap_or_default());
    (count > 0).then(|| format!("the collector has rejected {count} spans: {why}"))
}

fn header(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once('=')?;
    Some((name.trim().to_owned(), decoded(value.trim())))
}

/// A value with its percent signs resolved.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|_| first == b'%') {
            Some(byte) => (bytes.push(byte), rest = &after[2..]),
            None => (bytes.push(first), rest = after),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// TLS with the authorities that this machine trusts.
fn tls() -> TlsConfig {
    let known = rustls_native_certs::load_native_certs().certs;
    let known: Vec<Certificate<'static>> =
        known.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    TlsConfig::builder()
        .unversioned_rustls_crypto_provider(rustls::crypto::ring::default_provider().into())
        .root_certs(RootCerts::from(known.into_iter()))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_variable_with_their_percent_signs_resolved() {
        let read: Vec<_> =
            "a=b, Authorization=Basic%20eA%3D%3D,,x".split(',').filter_map(header).collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read, [pair("a", "b"), pair("Authorization", "Basic eA==")]);
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }

    #[test]
    fn an_address_is_that_of_the_collector_or_of_its_traces() {
        for endpoint in ["http://h:1", "http://h:1/", "http://h:1/v1/traces"] {
            assert_eq!(Collector::new(endpoint).unwrap().url(), "http://h:1/v1/traces");
        }
        assert_eq!(Collector::new("https://h/otlp").unwrap().url(), "https://h/otlp/v1/traces");
        assert!(Collector::new("localhost:4318").is_err());
    }

    #[test]
    fn spans_that_a_collector_rejects_are_told() {
        assert_eq!(rejected(""), None);
        assert_eq!(rejected(r#"{"partialSuccess":{}}"#), None);
        let text = rejected(r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"old"}}"#);
        assert_eq!(text.as_deref(), Some("the collector has rejected 3 spans: old"));
    }
}
