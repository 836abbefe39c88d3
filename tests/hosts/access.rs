//! Access to servers: passwords, TLS, and the texts of their errors.

use ensemble_core::transfer::BridgeReport;

use crate::nats_support::openssl;

use crate::*;

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

/// With `USER:PASSWORD@`.
fn as_user(server: &Server, user: &str) -> NatsOptions {
    let url = format!("nats://{user}127.0.0.1:{}", server.port);
    NatsOptions::new(url, name("team")).with_patience(PATIENCE)
}

const ALL: &str = "all:a@";
const FEW: &str = "few:f@";

#[test]
fn a_wrong_password_is_refused_and_never_shown() {
    let home = tempfile::tempdir().unwrap();
    let server =
        Server::at(home.path(), free_port(), &flags(&["--user", "team", "--pass", "hidden-word"]));
    works(&as_user(&server, "team:hidden-word@"));
    for wrong in ["team:other-word@", ""] {
        let error = NatsTransport::connect(&as_user(&server, wrong)).unwrap_err();
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
    let known = Some(file("ca.pem"));
    works(&NatsOptions { root_certificates: known, ..options.clone() });
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
    let url = format!("tls://127.0.0.1:{}", server.port);
    let mut options = NatsOptions::new(url, name("team")).with_patience(PATIENCE);
    options.root_certificates = Some(file("host.pem"));
    let error = NatsTransport::connect(&options).unwrap_err();
    assert!(!error.is_transient(), "waiting does not help: {error}");
}

/// A server with the user `all`, and the user `few` with these permissions.
fn server_that_denies(home: &Path, permissions: &str) -> Server {
    let config = home.join("server.conf");
    let other = r#"{publish: {allow: [">"], deny: ["ens.team.q.>"]}}"#;
    let text = format!(
        "authorization {{ users = [\n  {{user: all, password: a}}\n  {{user: other, password: o, permissions: {other}}}\n  {{user: few, password: f, permissions: {permissions}}}\n] }}\n"
    );
    std::fs::write(&config, text).unwrap();
    Server::at(home, free_port(), &flags(&["-c", &config.display().to_string()]))
}

#[test]
fn what_is_denied_is_refused_at_once_and_named() {
    let home = tempfile::tempdir().unwrap();
    let publish_few = r#"{publish: {allow: [">"], deny: ["ens.team.q.secret.>", "ens.team.in.>", "enslog.team.b"]}}"#;
    let server = server_that_denies(home.path(), publish_few);
    works(&as_user(&server, ALL));
    let all = NatsTransport::connect(&as_user(&server, ALL)).unwrap();
    all.add_mailbox(&name("secret"), &Settings::default()).unwrap();
    let few = NatsTransport::connect(&as_user(&server, FEW)).unwrap();
    let envelope = Envelope::new(name("secret"), "in");
    let error = few.publish(&envelope).unwrap_err();
    assert!(!error.is_transient(), "waiting does not help: {error}");
    let said = error.to_string();
    assert!(said.contains("denied") && said.contains("ens.team.in."), "{said}");
    let error = few.ship_log(&name("b"), &["{}".to_owned()]).unwrap_err();
    let said = error.to_string();
    assert!(!error.is_transient() && said.contains("enslog.team.b"), "{said}");
    few.publish(&message("other mail goes on")).unwrap();
}

#[test]
fn a_mailbox_that_the_servers_deny_keeps_no_other_from_being_swept() {
    let home = tempfile::tempdir().unwrap();
    let deny_bad = r#"{publish: {allow: [">"], deny: ["$JS.API.CONSUMER.CREATE.ENSEMBLE_team.*.ens.team.q.bad.>"]}}"#;
    let server = server_that_denies(home.path(), deny_bad);
    let connect = |user: &str, ahead: Duration| {
        let options = as_user(&server, user);
        NatsTransport::connect(&options.with_clock(Arc::new(AheadClock::by(ahead)))).unwrap()
    };
    let all = connect(ALL, Duration::ZERO);
    let id = MessageId::new("old").unwrap();
    for mailbox in ["bad", MAILBOX] {
        all.add_mailbox(&name(mailbox), &Settings::default()).unwrap();
        all.publish(&Envelope::new(name(mailbox), "done").with_id(id.clone())).unwrap();
        let delivery = all.receive(&name(mailbox), &name("w")).unwrap().unwrap();
        all.settle(&delivery.lease).unwrap();
    }
    let few = connect(FEW, Duration::from_secs(8 * 24 * 60 * 60));
    let said = few.sweep().unwrap_err().to_string();
    assert!(said.contains("denied") && said.contains("bad"), "{said}");
    let state = |mailbox: &str| few.state(&name(mailbox), &id).unwrap();
    assert_eq!((state("bad"), state(MAILBOX)), (Some(State::Settled), None));
}

#[test]
fn a_host_that_may_not_read_or_follow_is_told_so() {
    for (denied, place) in [
        (
            r#"{publish: {allow: [">"], deny: ["$JS.API.STREAM.MSG.GET.>", "$JS.API.CONSUMER.CREATE.>"]}}"#,
            "CONSUMER.CREATE",
        ),
        (r#"{publish: {allow: [">"], deny: ["$JS.API.CONSUMER.>"]}}"#, "CONSUMER"),
        (r#"{subscribe: {deny: ["_INBOX.>"]}}"#, "_INBOX"),
        (r#"{publish: {deny: ["ens.team.probe"]}}"#, "ens.team.probe"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let server = server_that_denies(home.path(), denied);
        works(&as_user(&server, ALL));
        let few = NatsTransport::connect(&as_user(&server, FEW));
        let error = few.and_then(|few| few.receive(&name(MAILBOX), &name("r"))).unwrap_err();
        assert!(!error.is_transient(), "{place}: waiting does not help: {error}");
        let said = error.to_string();
        assert!(said.contains("denied") && said.contains(place), "{place}: {said}");
    }
}

/// What `few` may: use the mailbox `few`, hand in as `few`, and know which mailboxes there are.
const LIMITED: &str = r#"{
    publish: ["ens.team.probe", "$KV.ENSEMBLE_REQUESTS_team.probe", "ens.team.q.few.*", "ens.team.in.few.>",
        "$JS.API.CONSUMER.CREATE.ENSEMBLE_team.*.ens.team.q.few.>",
        "$JS.API.CONSUMER.CREATE.ENSEMBLE_team.*.ens.team.s.few.>",
        "$JS.API.CONSUMER.CREATE.ENSEMBLE_team.*.ens.team.in.few.>",
        "$JS.API.CONSUMER.CREATE.ENSEMBLE_team.*.ens.team.b.>",
        "$JS.API.CONSUMER.CREATE.ENSEMBLE_team.*.ens.team.clock",
        "$JS.API.CONSUMER.CREATE.KV_ENSEMBLE_REQUESTS_team.>",
        "$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.API.STREAM.INFO.*"]
    subscribe: ["_INBOX_few.>"] }"#;

/// A server, a client that may do all, and one that may do little. Both have a mailbox.
fn with_limits() -> (tempfile::TempDir, Server, NatsTransport, NatsTransport) {
    let home = tempfile::tempdir().unwrap();
    let server = server_that_denies(home.path(), LIMITED);
    let all = NatsTransport::connect(&as_user(&server, ALL)).unwrap();
    all.add_mailbox(&name("few"), &Settings::default()).unwrap();
    all.add_mailbox(&name("lead"), &Settings::default().with_capacity(2)).unwrap();
    let mut limited = as_user(&server, FEW);
    limited.inbox_prefix = Some("_INBOX_few".to_owned());
    let few = NatsTransport::connect(&limited).unwrap();
    all.follow_handed_in();
    (home, server, all, few)
}

fn report(id: &str, body: &str) -> Envelope {
    let mut envelope = Envelope::new(name("lead"), body).with_id(MessageId::new(id).unwrap());
    envelope.from = name("few");
    envelope
}

/// Stores what was handed in, once it is heard of.
fn carry(all: &NatsTransport) -> BridgeReport {
    let mut seen = 0;
    while all.handed_in_mailboxes().is_empty() {
        seen = all.wait_for_news(seen, PATIENCE);
    }
    all.carry_handed_in(&name("lead")).unwrap()
}

#[test]
fn limited_credentials_have_their_own_mailbox_and_nothing_of_another() {
    let (_home, _server, all, few) = with_limits();
    all.publish(&Envelope::new(name("few"), "for few")).unwrap();
    all.publish(&report("r1", "for the lead")).unwrap();
    let delivery = few.receive(&name("few"), &name("few")).unwrap().expect("its mail");
    assert_eq!(delivery.envelope.body, "for few");
    few.settle(&delivery.lease).unwrap();
    assert!(few.receive(&name("few"), &name("few")).unwrap().is_none());
    let lead = name("lead");
    let tries: [&dyn Fn() -> Option<Error>; 4] = [
        &|| few.receive(&lead, &name("few")).err(),
        &|| few.unfinished(&lead, 10).err(),
        &|| few.peek(&lead, &MessageId::new("r1").unwrap()).err(),
        &|| few.set_aside(&lead, &MessageId::new("r1").unwrap(), "mine").err(),
    ];
    for (at, attempt) in tries.iter().enumerate() {
        let said = attempt().expect("it is denied").to_string();
        assert!(said.contains("denied") && said.contains("lead"), "{at}: {said}");
    }
    few.follow_team().unwrap();
    assert_eq!(few.mailboxes().unwrap(), [name("few")], "it follows what it may follow");
    assert_eq!(settle_all(&all, "lead"), ["for the lead"]);
}

#[test]
fn a_message_that_was_handed_in_is_stored_once_and_changes_nothing_else() {
    let (_home, _server, all, few) = with_limits();
    assert_eq!(few.publish(&report("r1", "done")).unwrap(), PublishOutcome::Stored);
    assert_eq!(few.publish(&report("r1", "done")).unwrap(), PublishOutcome::AlreadyStored);
    assert!(matches!(few.publish(&report("r1", "other")), Err(Error::Conflict { .. })));
    // As if a watcher had died before it removed what it had stored.
    all.publish(&report("r1", "done")).unwrap();
    assert_eq!(carry(&all).carried, 1);
    assert_eq!(settle_all(&all, "lead"), ["done"]);
    // Nothing waits there any more, so the servers take the id again; the mailbox does not.
    few.publish(&report("r1", "done")).unwrap();
    assert_eq!((carry(&all).carried, settle_all(&all, "lead").len()), (1, 0));
    all.publish(&report("r.2", "done")).unwrap();
    for id in ["r1", "r.2"] {
        few.publish(&report(id, "all tests pass")).unwrap();
        assert_eq!(carry(&all).buried, 1, "{id}");
        let dead = all.dead_letters(&name("lead")).unwrap();
        let its = |letter: &&DeadLetter| letter.id.as_str().starts_with(&format!("{id}."));
        assert!(dead.iter().find(its).expect(id).reason.contains("not carried"), "{dead:?}");
    }
    assert!(settle_all(&all, "few")[0].contains("not carried"), "its sender is told");
}

#[test]
fn a_full_mailbox_takes_what_was_handed_in_once_there_is_room() {
    let (_home, _server, all, few) = with_limits();
    for at in 0..3 {
        few.publish(&report(&format!("r{at}"), &at.to_string())).unwrap();
    }
    let first = carry(&all);
    assert_eq!((first.carried, first.stuck.is_some()), (2, true));
    assert_eq!(all.handed_in_mailboxes(), [name("lead")], "it is not forgotten");
    assert_eq!(settle_all(&all, "lead"), ["0", "1"]);
    assert_eq!(carry(&all).carried, 1);
    assert!(all.handed_in_mailboxes().is_empty());
    assert_eq!(settle_all(&all, "lead"), ["2"]);
}

#[test]
fn no_client_hands_in_under_another_name() {
    let (_home, server, all, few) = with_limits();
    let mut forged = report("r1", "all is well");
    forged.from = name("conductor");
    let said = few.publish(&forged).unwrap_err().to_string();
    assert!(said.contains("denied") && said.contains("ens.team.in.conductor."), "{said}");
    // Past the library, as `few`, with another sender in the message than in its subject.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let raw = async_nats::ConnectOptions::with_user_and_password("few".into(), "f".into());
        let url = format!("nats://127.0.0.1:{}", server.port);
        let raw = raw.custom_inbox_prefix("_INBOX_few").connect(url).await.unwrap();
        let payload = forged.encode().unwrap();
        for (id, content) in
            [("r1", payload), ("r2", "no message".into()), ("what%is+this", "no id".into())]
        {
            raw.publish(format!("ens.team.in.few.lead.{id}"), content.into()).await.unwrap();
        }
        raw.flush().await.unwrap();
    });
    let mut buried = 0;
    while buried < 3 {
        buried += carry(&all).buried;
    }
    assert!(settle_all(&all, "lead").is_empty());
    let dead = all.dead_letters(&name("lead")).unwrap();
    let reasons: Vec<&str> = dead.iter().map(|letter| letter.reason.as_str()).collect();
    assert!(reasons.iter().any(|why| why.contains("handed in by `few`")), "{reasons:?}");
    // None of them is in the way of what comes later.
    few.publish(&report("r4", "done")).unwrap();
    assert_eq!((carry(&all).carried, settle_all(&all, "lead")), (1, vec!["done".to_owned()]));
}

#[test]
fn a_sender_beyond_its_quota_holds_up_no_other() {
    let (_home, server, unlimited, few) = with_limits();
    let quota = Quota { messages: 1, ..Quota::default() };
    let url = format!("nats://all:a@127.0.0.1:{}", server.port);
    let mut options = NatsOptions::new(url, name("team")).with_patience(PATIENCE);
    options.quota = Some(quota);
    let all = NatsTransport::connect(&options).unwrap();
    all.follow_handed_in();
    drop(unlimited);
    // More than are read at a time.
    for at in 0..300 {
        few.publish(&report(&format!("r{at}"), "again")).unwrap();
    }
    let mut other = report("other", "of another");
    other.from = name("other");
    let other_way =
        NatsOptions::new(format!("nats://other:o@127.0.0.1:{}", server.port), name("team"));
    let other_way = NatsTransport::connect(&other_way.with_patience(PATIENCE)).unwrap();
    other_way.publish(&other).unwrap();
    let carried = carry(&all);
    assert_eq!((carried.carried, carried.stuck.is_some()), (2, true));
}
