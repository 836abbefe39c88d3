//! Sends traces to a collector, by OTLP/HTTP in JSON.
//!
//! Nothing is sent anywhere but to the address that the caller names. Headers with secrets come from the environment
//! variable that OpenTelemetry has for them, since other users see command lines.

use std::sync::Arc;
use std::time::Duration;

use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::text::one_line;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The path of traces, which OTLP adds to the address of a collector.
const TRACES: &str = "/v1/traces";
/// How long a collector may take; the default of OpenTelemetry's exporters.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const SHOWN_CHARS_MAX: usize = 200;
/// Answers after which OTLP lets a client send the same again.
const LATER: [u16; 4] = [429, 502, 503, 504];
/// OpenTelemetry's variable for headers: `name=value,name=value`, with percent signs as in an address.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

#[derive(Debug)]
pub enum CollectorRefusal {
    /// The same may be taken later.
    Later(String),
    /// The same will be refused again.
    Never(String),
}

impl From<CollectorRefusal> for Failure {
    fn from(refusal: CollectorRefusal) -> Self {
        match refusal {
            CollectorRefusal::Later(text) => {
                Self::new(VerbExit::Busy, text).with_hint("export again: a span keeps its ids")
            }
            CollectorRefusal::Never(text) => Self::refused(text),
        }
    }
}

type TransportFault = Box<dyn std::error::Error + Send + Sync>;

trait CollectorStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> CollectorStream for S {}

pub struct Collector {
    url: Uri,
    host: String,
    headers: HeaderMap,
    tls: Option<TlsConnector>,
    runtime: Runtime,
}

impl Collector {
    pub fn new(endpoint: &str) -> Outcome<Self> {
        let base = endpoint.trim_end_matches('/');
        let url = format!("{}{TRACES}", base.strip_suffix(TRACES).unwrap_or(base));
        let known = url.parse().ok().and_then(|url: Uri| {
            let is_secret = url.scheme_str()? == "https";
            let host = url.host()?.trim_matches(['[', ']']).to_owned();
            (is_secret || url.scheme_str()? == "http").then_some((url, host, is_secret))
        });
        let Some((url, host, is_secret)) = known else {
            let text = format!("`{}` is not the address of a collector", one_line(endpoint));
            return Err(Failure::usage(text).with_hint("as in --endpoint http://localhost:4318"));
        };
        let headers = std::env::var(HEADERS).unwrap_or_default();
        let mut headers: HeaderMap = headers.split(',').filter_map(header).collect();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        headers.extend(HeaderValue::from_str(authority).ok().map(|host| (HOST, host)));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { url, host, headers, tls: is_secret.then(tls), runtime })
    }

    pub const fn url(&self) -> &Uri {
        &self.url
    }

    pub fn send(&self, request: &Value) -> Result<(), CollectorRefusal> {
        let exchange = self.exchange(request.to_string());
        let limited = async { tokio::time::timeout(ANSWER_LIMIT, exchange).await };
        let later = |text: String| Err(CollectorRefusal::Later(format!("{} {text}", self.url)));
        let (status, body) = match self.runtime.block_on(limited) {
            Ok(Ok(answer)) => answer,
            Ok(Err(fault)) => {
                return later(format!("does not answer: {}", one_line(&fault.to_string())));
            }
            Err(_) => return later(format!("does not answer within {} s", ANSWER_LIMIT.as_secs())),
        };
        let shown: String = one_line(&body).chars().take(SHOWN_CHARS_MAX).collect();
        match status {
            200..=299 => rejected(&body).map_or(Ok(()), |text| Err(CollectorRefusal::Never(text))),
            _ if LATER.contains(&status) => later(format!("answers {status}: {shown}")),
            _ => Err(CollectorRefusal::Never(format!("{} answers {status}: {shown}", self.url))),
        }
    }

    async fn exchange(&self, body: String) -> Result<(u16, String), TransportFault> {
        let usual = if self.tls.is_some() { 443 } else { 80 };
        let port = self.url.port_u16().unwrap_or(usual);
        let stream = TcpStream::connect((self.host.as_str(), port)).await?;
        let stream: Box<dyn CollectorStream> = match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone())?;
                Box::new(tls.connect(name, stream).await?)
            }
            None => Box::new(stream),
        };
        let mut request = Request::post(self.url.path()).body(Full::new(Bytes::from(body)))?;
        *request.headers_mut() = self.headers.clone();
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        // The status alone says whether the spans were taken.
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        driver.abort();
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
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

fn header(pair: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = pair.split_once('=')?;
    let mut value = HeaderValue::from_str(&decoded(value.trim())).ok()?;
    value.set_sensitive(true);
    Some((name.trim().parse().ok()?, value))
}

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
fn tls() -> TlsConnector {
    let mut known = RootCertStore::empty();
    known.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder().with_root_certificates(known).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_variable_with_their_percent_signs_resolved() {
        let read: HeaderMap =
            "a=b, Authorization=Basic%20eA%3D%3D,,x".split(',').filter_map(header).collect();
        assert_eq!((read.len(), &read["a"]), (2, &HeaderValue::from_static("b")));
        assert_eq!(read["authorization"], HeaderValue::from_static("Basic eA=="));
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }

    #[test]
    fn an_address_is_that_of_the_collector_or_of_its_traces() {
        for endpoint in ["http://h:1", "http://h:1/", "http://h:1/v1/traces"] {
            assert_eq!(Collector::new(endpoint).unwrap().url(), "http://h:1/v1/traces");
        }
        let secret = Collector::new("https://[::1]/otlp").unwrap();
        assert_eq!((secret.url().path(), secret.host.as_str()), ("/otlp/v1/traces", "::1"));
        assert!(["localhost:4318", "ftp://h", "h"].iter().all(|it| Collector::new(it).is_err()));
    }

    #[test]
    fn spans_that_a_collector_rejects_are_told() {
        assert_eq!(rejected(""), None);
        assert_eq!(rejected(r#"{"partialSuccess":{}}"#), None);
        let text = rejected(r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"old"}}"#);
        assert_eq!(text.as_deref(), Some("the collector has rejected 3 spans: old"));
    }
}
