//! Credentials and certificates as `ensemble.yaml` names them, with real servers that ask for them.

use std::fmt::Write as _;
use std::path::Path;

use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::bed::{Bed, SaidText as _, words};
use crate::nats_server::{Server, free_port, openssl};

const LIMITS: &str = "subs data payload imports exports conn leaf mem_storage disk_storage streams \
    consumer";

/// A signed claim, as servers with an operator want it.
fn claim(issuer: &KeyPair, subject: &KeyPair, nats: &Value) -> String {
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let header = part(&json!({ "typ": "JWT", "alg": "ed25519-nkey" }));
    let claims = part(&json!({
        "jti": "1", "iat": 1_700_000_000, "iss": issuer.public_key(), "name": "test",
        "sub": subject.public_key(), "nats": nats,
    }));
    let signed = format!("{header}.{claims}");
    let signature = BASE64URL_NOPAD.encode(&issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

/// A server whose accounts an operator has signed. `team.creds` has the credentials of a user of
/// the team's account, `other.creds` those of a user that the account did not sign.
fn server_with_an_operator(home: &Path) -> Server {
    let (operator, system, account) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let mut limits: serde_json::Map<String, Value> =
        words(LIMITS).into_iter().map(|limit| (limit.to_owned(), json!(-1))).collect();
    limits.insert("wildcards".to_owned(), json!(true));
    let plain = json!({ "type": "account", "version": 2, "limits": { "conn": -1, "subs": -1 } });
    let whole = json!({ "type": "account", "version": 2, "limits": limits });
    let of_operator = claim(&operator, &operator, &json!({ "type": "operator", "version": 2 }));
    let mut config = format!("operator: {of_operator}\nresolver: MEMORY\n");
    let _ = writeln!(config, "system_account: {}\nresolver_preload: {{", system.public_key());
    for (key, nats) in [(&system, plain), (&account, whole)] {
        let _ = writeln!(config, "  {}: {}", key.public_key(), claim(&operator, key, &nats));
    }
    std::fs::write(home.join("server.conf"), config + "}\n").unwrap();
    for (file, issuer) in [("team.creds", &account), ("other.creds", &KeyPair::new_account())] {
        let user = KeyPair::new_user();
        let nats = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            claim(issuer, &user, &nats),
            user.seed().unwrap()
        );
        std::fs::write(home.join(file), text).unwrap();
    }
    let config = home.join("server.conf").display().to_string();
    Server::at(home, free_port(), &["-c".to_owned(), config])
}

fn configure(bed: &Bed, url: &str, nats: &str) {
    configure_with(bed, url, nats, 120);
}

fn configure_with(bed: &Bed, url: &str, nats: &str, patience: u64) {
    let config =
        format!("transport: {url}\nnats:\n  team: guarded\n  patience: {patience}\n{nats}");
    bed.configure(&config);
}

#[track_caller]
fn works(bed: &Bed) {
    bed.ok("init");
    bed.ok("mailbox add w1");
    bed.send("through");
    assert_eq!(bed.ok("recv --as w1 --body"), "through");
}

#[test]
fn a_credentials_file_opens_the_server_and_no_other_does() {
    let bed = Bed::empty();
    let secrets = bed.project().join("secrets");
    std::fs::create_dir(&secrets).unwrap();
    let server = server_with_an_operator(&secrets);
    configure(&bed, &server.url(), "  credentials: secrets/team.creds\n");
    works(&bed);
    let seeds = ["team.creds", "other.creds"].map(|file| {
        let text = std::fs::read_to_string(secrets.join(file)).unwrap();
        text.lines().find(|line| line.starts_with("SU")).expect("a seed").to_owned()
    });
    for (nats, said) in [
        ("  credentials: secrets/other.creds\n", "uthorization"),
        ("", "uthorization"),
        ("  credentials: secrets/absent.creds\n", "secrets/absent.creds"),
        ("  root_certificates: secrets/absent.pem\n", "secrets/absent.pem"),
    ] {
        configure(&bed, &server.url(), nats);
        let why = bed.fails(1, "recv --as w1");
        assert!(why.contains(said), "{nats}: {why}");
        assert!(seeds.iter().all(|seed| !why.contains(seed)), "no seed is shown: {why}");
    }
}

#[test]
fn a_mailbox_that_the_servers_deny_keeps_no_dead_letter_of_another() {
    let bed = Bed::empty();
    let home = bed.project().join("secrets");
    std::fs::create_dir(&home).unwrap();
    let few = r#"{publish: {allow: [">"], deny: ["ens.guarded.q.bad.>", "ens.guarded.in.>"]}}"#;
    let users = format!(
        "authorization {{ users = [\n  {{user: all, password: a}}\n  {{user: few, password: f, permissions: {few}}}\n] }}\n"
    );
    std::fs::write(home.join("server.conf"), users).unwrap();
    let config = home.join("server.conf").display().to_string();
    let server = Server::at(&home, free_port(), &["-c".to_owned(), config]);
    let connect_as =
        |user: &str| configure(&bed, &format!("nats://{user}@127.0.0.1:{}", server.port), "");
    connect_as("all:a");
    bed.ok("init");
    for mailbox in ["bad", "w1"] {
        bed.ok(&format!("mailbox add {mailbox}"));
        bed.ok(&format!("send --to {mailbox} --id in-{mailbox} --expires 0 -m x"));
        bed.fails(3, &format!("recv --as {mailbox}"));
    }
    connect_as("few:f");
    let ran = bed.run("dead retry --all");
    ran.ends(1);
    ran.stdout.begins("returned in-w1 to w1");
    ran.says(["in-bad in bad", "denied"]);
    assert_eq!(bed.object("dead list")["id"], "in-bad");
}

#[test]
fn a_server_that_asks_for_certificates_gets_the_hosts() {
    let bed = Bed::empty();
    let home = bed.project().join("secrets");
    std::fs::create_dir(&home).unwrap();
    let at = |name: &str| home.join(name).display().to_string();
    std::fs::write(home.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl(
        &home,
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
    );
    for host in ["server", "host"] {
        openssl(
            &home,
            &format!(
                "req -newkey rsa:2048 -nodes -keyout {host}.key -out {host}.csr -subj /CN={host}"
            ),
        );
        openssl(
            &home,
            &format!(
                "x509 -req -in {host}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {host}.pem -days 2 -extfile names"
            ),
        );
    }
    let flags = [
        "--tlsverify",
        "--tlscert",
        &at("server.pem"),
        "--tlskey",
        &at("server.key"),
        "--tlscacert",
        &at("ca.pem"),
    ]
    .map(str::to_owned);
    let server = Server::at(&home, free_port(), &flags);
    let url = format!("tls://127.0.0.1:{}", server.port);
    let (root, own) = (
        "  root_certificates: secrets/ca.pem\n",
        "  certificate: secrets/host.pem\n  key: secrets/host.key\n",
    );
    configure(&bed, &url, &format!("{root}{own}"));
    works(&bed);
    for nats in [root, own] {
        // It may take the whole patience until that is sure.
        configure_with(&bed, &url, nats, 3);
        let refused = bed.run("recv --as w1");
        assert!([1, 75].contains(&refused.code), "{nats}: {refused:?}");
        refused.says(["127.0.0.1"]);
        let shown = bed.run("status").stdout;
        assert!(shown.lines().next().unwrap().contains("SERVERS AWAY"), "{shown}");
        // Without its own certificate, a host may learn only that it was cut off.
        assert!(nats == root || shown.contains("`nats.root_certificates`"), "{shown}");
        assert!(bed.run("doctor").stdout.starts_with("fail  servers "));
    }
}
