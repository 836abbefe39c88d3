//! The connection to a server: over TCP, over TLS, or over a Unix socket.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::error::PgError;
use super::options::PostgresOptions;

/// A client asks with this whether the server speaks TLS.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

pub(super) enum Stream {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn connect(options: &PostgresOptions) -> Result<Self, PgError> {
        let PostgresOptions { host, port, patience, .. } = options;
        if host.starts_with('/') {
            let path = format!("{host}/.s.PGSQL.{port}");
            return UnixStream::connect(path).map(Self::Unix).map_err(PgError::away);
        }
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host.as_str(), *port).to_socket_addrs().map_err(PgError::away)? {
            match TcpStream::connect_timeout(&address, *patience) {
                Ok(tcp) => {
                    tcp.set_nodelay(true).map_err(PgError::away)?;
                    return match options.tls {
                        true => encrypted(tcp, options),
                        false => Ok(Self::Tcp(tcp)),
                    };
                }
                Err(error) => failure = error,
            }
        }
        Err(PgError::away(failure))
    }

    /// Whether what is sent cannot be read on the way.
    pub(super) fn is_private(&self) -> bool {
        match self {
            Self::Tls(_) | Self::Unix(_) => true,
            Self::Tcp(tcp) => tcp.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()),
        }
    }

    /// Limits the time of each following read and write.
    pub(super) fn limit(&self, time: Duration) -> io::Result<()> {
        let time = Some(time.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time))
            }
            Self::Tls(stream) => stream
                .sock
                .set_read_timeout(time)
                .and_then(|()| stream.sock.set_write_timeout(time)),
            Self::Unix(stream) => {
                stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time))
            }
        }
    }
}

/// No byte after the server's answer is read before the handshake: none can be smuggled in.
fn encrypted(mut tcp: TcpStream, options: &PostgresOptions) -> Result<Stream, PgError> {
    tcp.set_read_timeout(Some(options.patience)).map_err(PgError::away)?;
    let mut answer = [0];
    tcp.write_all(&TLS_REQUEST).map_err(PgError::away)?;
    tcp.read_exact(&mut answer).map_err(PgError::away)?;
    if answer != *b"S" {
        let advice = "switch `ssl` on there, or set `sslmode=disable` in the address";
        return Err(PgError::Unusable(format!("the server does not speak TLS: {advice}")));
    }
    let unusable = |error: &dyn std::fmt::Display| PgError::Unusable(error.to_string());
    let name = ServerName::try_from(options.host.clone()).map_err(|error| unusable(&error))?;
    let config = ClientConfig::builder().with_root_certificates(roots(options)?);
    let config = Arc::new(config.with_no_client_auth());
    let client = ClientConnection::new(config, name).map_err(|error| unusable(&error))?;
    let mut stream = StreamOwned::new(client, tcp);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => unusable(&error),
            _ => PgError::away(error),
        })?;
    }
    Ok(Stream::Tls(Box::new(stream)))
}

/// The certificates that are trusted: those of the system, and the configured ones.
fn roots(options: &PostgresOptions) -> Result<RootCertStore, PgError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = &options.root_certificates {
        let wrong = |error: &dyn std::fmt::Display| {
            PgError::Unusable(format!("cannot use {}: {error}", file.display()))
        };
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
    }
    Ok(roots)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
        }
    }
}
