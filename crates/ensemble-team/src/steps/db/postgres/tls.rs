//! Encryption: the certificates that are trusted.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::PgError;
use super::options::PostgresOptions;

pub(super) fn connector(options: &PostgresOptions) -> Result<MakeRustlsConnect, PgError> {
    let roots = if options.is_encrypted() { roots(options)? } else { RootCertStore::empty() };
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

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
