//! Access to servers: passwords, TLS, and the texts of their errors.

#[path = "conformance/mod.rs"]
mod conformance;
#[path = "nats_support/mod.rs"]
mod nats_support;

use std::path::Path;
use std::process::Command;

use conformance::bed::{MAILBOX, message, name};
use ensemble_core::Error;
use ensemble_core::spool::Settings;
use ensemble_nats::{NatsOptions, NatsTransport};
use nats_support::{PATIENCE, Server, free_port};

fn flags(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

fn works(options: &NatsOptions) {
    let queue = NatsTransport::connect(options).unwrap();
    queue.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    queue.publish(&message("in")).unwrap();
    let delivery = queue.receive(&name(MAILBOX), &name("reader")).unwrap().unwrap();
    queue.settle(&delivery.lease).unwrap();
}

#[test]
fn a_wrong_password_is_refused_and_never_shown() {
    let home = tempfile::tempdir().unwrap();
    let server =
        Server::at(home.path(), free_port(), &flags(&["--user", "team", "--pass", "hidden-word"]));
    let with = |userinfo: &str| {
        let url = format!("nats://{userinfo}127.0.0.1:{}", server.port);
        NatsOptions::new(url, name("team")).with_patience(PATIENCE)
    };
    works(&with("team:hidden-word@"));
    for wrong in ["team:other-word@", ""] {
        let error = NatsTransport::connect(&with(wrong)).unwrap_err();
        assert!(!error.is_transient(), "waiting does not help: {error}");
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
        assert!(!error.to_string().contains("-word"), "{error}");
    }
}

#[test]
fn a_server_with_a_certificate_of_our_own_authority_is_trusted_and_no_other() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str| home.path().join(name);
    let at = |name: &str| file(name).display().to_string();
    std::fs::write(file("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl(
        home.path(),
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
    );
    openssl(
        home.path(),
        "req -newkey rsa:2048 -nodes -keyout host.key -out host.csr -subj /CN=host",
    );
    openssl(
        home.path(),
        "x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out host.pem -days 2 -extfile names",
    );
    let server = Server::at(
        home.path(),
        free_port(),
        &flags(&["--tls", "--tlscert", &at("host.pem"), "--tlskey", &at("host.key")]),
    );
    let options = NatsOptions::new(format!("tls://127.0.0.1:{}", server.port), name("team"))
        .with_patience(PATIENCE);
    works(&options.clone().with_root_certificates(file("ca.pem")));
    let error = NatsTransport::connect(&options).unwrap_err();
    assert!(matches!(error, Error::Server { .. }), "{error}");
}

#[track_caller]
fn openssl(home: &Path, line: &str) {
    let output = Command::new("openssl").current_dir(home).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
