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
    assert!(!error.is_transient(), "waiting does not help: {error}");
    assert!(error.to_string().contains("certificate"), "it names the cause: {error}");
}

#[test]
fn a_server_that_wants_a_certificate_refuses_for_good_a_host_without_one() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str| home.path().join(name);
    let at = |name: &str| file(name).display().to_string();
    openssl(
        home.path(),
        "req -x509 -newkey rsa:2048 -nodes -keyout host.key -out host.pem -days 2 -subj /CN=host -addext subjectAltName=IP:127.0.0.1",
    );
    let server = Server::at(
        home.path(),
        free_port(),
        &flags(&[
            "--tlsverify",
            "--tlscert",
            &at("host.pem"),
            "--tlskey",
            &at("host.key"),
            "--tlscacert",
            &at("host.pem"),
        ]),
    );
    let options = NatsOptions::new(format!("tls://127.0.0.1:{}", server.port), name("team"))
        .with_patience(PATIENCE)
        .with_root_certificates(file("host.pem"));
    let error = NatsTransport::connect(&options).unwrap_err();
    assert!(!error.is_transient(), "waiting does not help: {error}");
}

/// A server with the user `all`, and the user `few` with these permissions.
fn server_that_denies(home: &Path, permissions: &str) -> Server {
    let config = home.join("server.conf");
    let text = format!(
        "authorization {{ users = [\n  {{user: all, password: a}}\n  {{user: few, password: f, permissions: {permissions}}}\n] }}\n"
    );
    std::fs::write(&config, text).unwrap();
    Server::at(home, free_port(), &flags(&["-c", &config.display().to_string()]))
}

#[test]
fn what_is_denied_is_refused_at_once_and_named() {
    let home = tempfile::tempdir().unwrap();
    let publish_few = r#"{publish: {allow: [">"], deny: ["ens.team.q.secret.>", "$JS.API.STREAM.MSG.DELETE.>"]}}"#;
    let server = server_that_denies(home.path(), publish_few);
    let url = |user: &str| format!("nats://{user}@127.0.0.1:{}", server.port);
    let options = |user: &str| NatsOptions::new(url(user), name("team")).with_patience(PATIENCE);
    works(&options("all:a"));
    let all = NatsTransport::connect(&options("all:a")).unwrap();
    all.add_mailbox(&name("secret"), &Settings::default()).unwrap();
    let few = NatsTransport::connect(&options("few:f")).unwrap();
    let envelope = ensemble_core::message::Envelope::new(name("secret"), "in");
    let error = few.publish(&envelope).unwrap_err();
    assert!(!error.is_transient(), "waiting does not help: {error}");
    let said = error.to_string();
    assert!(said.contains("denied") && said.contains("ens.team.q.secret."), "{said}");
    few.publish(&message("other mail goes on")).unwrap();
}

#[test]
fn a_host_that_may_not_read_or_follow_is_told_so() {
    for (denied, place) in [
        (r#"{publish: {allow: [">"], deny: ["$JS.API.STREAM.MSG.GET.>"]}}"#, "STREAM.MSG.GET"),
        (r#"{publish: {allow: [">"], deny: ["$JS.API.CONSUMER.>"]}}"#, "CONSUMER"),
        (r#"{subscribe: {deny: ["_INBOX.>"]}}"#, "_INBOX"),
        (r#"{publish: {deny: ["ens.team.probe"]}}"#, "ens.team.probe"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let server = server_that_denies(home.path(), denied);
        let url = |user: &str| format!("nats://{user}@127.0.0.1:{}", server.port);
        let options =
            |user: &str| NatsOptions::new(url(user), name("team")).with_patience(PATIENCE);
        works(&options("all:a"));
        let few = NatsTransport::connect(&options("few:f"));
        let error = few.and_then(|few| few.receive(&name(MAILBOX), &name("r"))).unwrap_err();
        assert!(!error.is_transient(), "{place}: waiting does not help: {error}");
        let said = error.to_string();
        assert!(said.contains("denied") && said.contains(place), "{place}: {said}");
    }
}

#[track_caller]
fn openssl(home: &Path, line: &str) {
    let output = Command::new("openssl").current_dir(home).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
