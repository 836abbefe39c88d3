//! `admin api`: the real program as a child process, one client.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::bed::{Bed, SaidText as _};

fn schema() -> &'static jsonschema::Validator {
    static SCHEMA: std::sync::OnceLock<jsonschema::Validator> = std::sync::OnceLock::new();
    SCHEMA.get_or_init(|| {
        let printed = Bed::empty().ok("admin schema api");
        jsonschema::validator_for(&serde_json::from_str(&printed).unwrap()).unwrap()
    })
}

pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    pub(crate) fn new(bed: &Bed) -> Self {
        let mut command = bed.command(&["--as", "w1", "admin", "api"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { child, stdin, stdout };
        let hello = client.line().unwrap();
        assert_eq!(hello["hello"]["protocol"], 1, "{hello}");
        client
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub(crate) fn send(&mut self, id: u64, method: &str, params: &Value) {
        let line = json!({ "id": id, "method": method, "params": params });
        self.write(format!("{line}\n").as_bytes());
    }

    /// The next line, which must fit the schema; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            return None;
        }
        let line: Value = serde_json::from_str(&line).unwrap();
        assert!(schema().is_valid(&line), "{line}");
        Some(line)
    }

    /// The answer to a call, whose other lines are skipped.
    pub(crate) fn call(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.send(id, method, params);
        self.answer(id)
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = self.line().expect("an answer");
            if line["id"] == id {
                return line;
            }
        }
    }

    fn news(&mut self, subscription: u64) -> Value {
        loop {
            let line = self.line().expect("news");
            if line["subscription"] == subscription {
                return line["news"].clone();
            }
        }
    }

    /// Closes stdin; what is written until the end. It must end well.
    pub(crate) fn end(mut self) -> Vec<Value> {
        self.stdin = None;
        let lines = std::iter::from_fn(|| self.line()).collect();
        assert!(self.child.wait().unwrap().success());
        lines
    }
}

#[test]
fn a_thousand_calls_in_one_process_are_each_answered_once() {
    const CALLS: u64 = 1000;
    let bed = Bed::new();
    let mut client = Client::new(&bed);
    for id in 0..CALLS {
        let sent =
            client.call(id, "send", &json!({ "to": ["w1"], "text": format!("number {id}") }));
        assert_eq!(sent["result"][0]["state"], "stored", "{sent}");
    }
    // Sixteen at once: answers come in any order, each once.
    let mut ids = std::collections::BTreeSet::new();
    (0..16).for_each(|id| client.send(CALLS + id, "recv", &json!({})));
    for _ in 0..16 {
        let line = client.line().unwrap();
        assert!(ids.insert(line["result"][0]["id"].as_str().unwrap().to_owned()), "{line}");
    }
    assert_eq!(ids.len(), 16);
    ids.iter().for_each(|id| client.send(9000, "settle", &json!({ "id": id })));
    let rest = client.end();
    let is_settled = |line: &&Value| line["id"] == 9000 && line.get("error").is_none();
    assert_eq!(rest.iter().filter(is_settled).count(), 16);
    assert_eq!(bed.mailbox("w1/done").read_dir().unwrap().count(), 16);
    assert_eq!(bed.ok("admin fsck"), "clean\n");
}

#[test]
fn a_call_answers_and_fails_as_its_command_does() {
    let bed = Bed::new();
    let mut client = Client::new(&bed);
    let parameters =
        json!({ "to": ["w1"], "text": "--x:1", "task": "t-1", "priority": 9, "type": "task" });
    let sent = client.call(1, "send", &parameters);
    let listed = client.call(2, "inbox", &json!({ "name": "w1" }));
    assert_eq!(listed["result"], json!(bed.json("inbox w1")), "{listed}");
    assert_eq!(listed["result"][0]["id"], sent["result"][0]["id"]);
    let received = client.call(3, "recv", &json!({ "as": "w1", "lease": "30m" }));
    assert_eq!(received["result"][0]["body_text"], "--x:1", "{received}");
    for (method, params, line) in [
        (
            "settle",
            json!({ "id": "nothing-of-this-name" }),
            "settle nothing-of-this-name --as w1 --json",
        ),
        ("recv", json!({ "mailbox": "w9" }), "recv --mailbox w9 --as w1 --json"),
        ("dead show", json!({ "id": "x" }), "dead show x --json"),
    ] {
        let error = client.call(4, method, &params)["error"].clone();
        let ran = bed.run(line);
        let told: Value = serde_json::from_str(&ran.stderr).unwrap();
        // Their hints differ: a command here, a call there.
        for member in ["code", "message", "exit"] {
            assert_eq!(error[member], told["error"][member], "{method}");
        }
        let hint = error["hint"].as_str().unwrap_or_default();
        assert!(!hint.contains("`ensemble"), "{method}: {hint}");
    }
    for (method, params, says) in [
        ("nonsense", json!({}), "no method"),
        ("dead", json!({}), "`dead` lacks its command"),
        ("top", json!({}), "cannot be called"),
        ("admin api", json!({}), "cannot be called"),
        ("log", json!({ "follow": true }), "subscribe"),
        ("send", json!({ "too": "w1" }), "no parameter `too`"),
        ("send", json!({ "to": { "a": 1 } }), "object"),
        ("send", json!({ "to": "w1" }), "stdin carries the calls"),
        ("recv", json!({ "wait": "soon" }), "for `wait`"),
        ("task add", json!({ "id": "t1" }), "required and missing: `description`, `spec`"),
        ("wait", json!({ "to": "mail" }), "timeout_seconds"),
        ("wait", json!({ "to": "Mail", "timeout_seconds": "1s" }), "no news within 1 s"),
        (
            "subscribe",
            json!({ "to": "mail", "mailbox": "a/b", "types": 5, "when": 1 }),
            "types: is not a list of texts; when: is not",
        ),
        ("inbox", json!({ "limit": -1 }), "it is not a whole number"),
        ("inbox", json!({ "limit": true }), "true is not a value"),
        ("subscribe", json!({ "to": "weather" }), "to: is not mail, states"),
    ] {
        let error = client.call(5, method, &params)["error"].clone();
        assert!(error["message"].as_str().unwrap().contains(says), "{method}: {error}");
    }
    assert_eq!(client.end(), Vec::<Value>::new());
}

#[test]
fn lines_that_are_no_calls_are_answered_and_the_next_one_runs() {
    let bed = Bed::new();
    let mut client = Client::new(&bed);
    let long = vec![b'x'; 1024 * 1024 + 7];
    for (line, code) in [
        (&b"no JSON"[..], "usage"),
        (b"{\"id\":{},\"method\":\"status\"}", "usage"),
        (b"\xff\xfe", "usage"),
        (b"", "usage"),
        (&long, "too_large"),
    ] {
        client.write(line);
        client.write(b"\n");
        let answer = client.line().unwrap();
        assert!(answer["id"].is_null() && answer["error"]["code"] == code, "{answer}");
    }
    // A caller that waits for an id is answered under it, with all that is wrong and without the words of a library.
    client.write(b"{\"id\":3,\"params\":[],\"x\":1}\n");
    let told = client.answer(3);
    let says = "method: is missing; params: [] is not an object; x: is not a member of a call \
                (there are id, method, params)";
    assert_eq!(told["error"]["message"], says);
    client.write(
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\" mailbox  list\",\"params\":null}\n"
            .as_bytes(),
    );
    assert_eq!(client.answer(4)["error"], Value::Null);
    client.call(5, "cancel", &json!({}))["error"]["message"].to_string().has(["id: is missing"]);
    assert_eq!(client.call(2, "mailbox list", &json!({}))["error"], Value::Null);
    client.write(br#"{"id":6,"method":"mailbox list","params":{}}"#);
    assert_eq!(client.end()[0]["id"], 6, "the last line needs no end");
}

#[test]
fn two_subscriptions_and_a_wait_tell_what_happens_without_being_asked() {
    let bed = Bed::new();
    let mut client = Client::new(&bed);
    let first = bed.send("before");
    let begun = client.call(1, "subscribe", &json!({ "to": "mail" }));
    assert_eq!(begun, json!({ "id": 1, "result": [{ "subscription": 1 }] }));
    assert_eq!(client.news(1)["id"], first, "what is there comes first");
    let events = json!({ "to": "events", "types": "message.settled, task.done" });
    assert_eq!(client.call(2, "subscribe", &events)["error"], Value::Null);
    let again = client.call(2, "subscribe", &events);
    assert_eq!(again["error"]["code"], "conflict", "{again}");
    let second = bed.send("after");
    assert_eq!(client.news(1)["id"], second);
    bed.ok("recv --as w1");
    bed.ok(&format!("settle {first} --as w1"));
    assert_eq!(client.news(2)["data"]["id"], first);
    // A request is answered by another process, and the wait ends.
    let asked =
        client.call(3, "request shutdown", &json!({ "name": "w1", "as": "lead", "id": "abc" }));
    assert_eq!(asked["result"][0]["request_id"], "abc", "{asked}");
    let wanted = json!({ "request_id": "abc", "state": "approved" });
    client.send(4, "wait", &json!({ "to": "requests", "where": wanted, "timeout_seconds": 600 }));
    bed.ok("request answer abc --approve --as w1");
    assert_eq!(client.answer(4)["result"][0]["decided_by"], "w1");
    let none = client.call(5, "wait", &json!({ "to": "events", "timeout": "0s" }));
    assert_eq!(none["error"]["code"], "nothing", "{none}");
    let unknown = client.call(6, "unsubscribe", &json!({ "subscription": 9 }));
    assert_eq!(unknown["error"]["hint"], "there are 1, 2", "{unknown}");
    // An id is the same as text.
    let ended = client.call(6, "unsubscribe", &json!({ "subscription": "1" }));
    assert_eq!(ended["error"], Value::Null);
    let third = bed.send("unheard");
    let held = bed.object("recv --as w1")["id"].as_str().unwrap().to_owned();
    bed.ok(&format!("settle {held} --as w1"));
    assert_eq!(client.news(2)["data"]["id"], held);
    let rest = client.end();
    assert!(!rest.iter().any(|line| line["subscription"] == 1), "{third}: {rest:?}");
}

#[test]
fn a_waiting_call_is_answered_when_mail_comes_or_is_cancelled_by_its_id_and_takes_nothing() {
    let bed = Bed::new();
    let mut client = Client::new(&bed);
    client.send(1, "recv", &json!({ "wait": "10m" }));
    client.send(
        2,
        "wait",
        &json!({ "to": "mail", "mailbox": "conductor", "timeout_seconds": 600 }),
    );
    let id = bed.send("now");
    assert_eq!(client.answer(1)["result"][0]["id"], id);
    bed.ok("send --to conductor hello");
    assert_eq!(client.answer(2)["result"][0]["from"], "operator");
    let calls = [
        ("recv", json!({ "wait": "10m" })),
        ("wait", json!({ "to": "mail", "timeout_seconds": 600 })),
        ("send", json!({ "to": "w1", "text": "?", "as": "lead", "wait_for_reply": "10m" })),
        ("request shutdown", json!({ "name": "w1", "as": "lead", "wait": "10m" })),
    ];
    for (id, (method, params)) in (1..).zip(&calls[..2]) {
        client.send(id, method, params);
        client.send(100 + id, "cancel", &json!({ "id": id.to_string() }));
        let mut answers = [client.line().unwrap(), client.line().unwrap()];
        answers.sort_by_key(|answer| answer["id"].as_u64());
        assert_eq!(answers[0]["error"]["code"], "cancelled", "{method}: {answers:?}");
        assert_eq!(answers[1]["error"], Value::Null, "{method}: {answers:?}");
    }
    let id = bed.send("not for a cancelled call");
    assert_eq!(client.call(9, "recv", &json!({}))["result"][0]["id"], id);
    assert_eq!(client.call(9, "cancel", &json!({ "id": 1 }))["error"]["code"], "nothing");
    for (id, (method, params)) in (3..).zip(&calls[2..]) {
        client.send(id, method, params);
        client.send(100 + id, "cancel", &json!({ "id": id }));
        let mut codes = [client.line().unwrap(), client.line().unwrap()]
            .map(|mut it| it["error"]["code"].take());
        codes.sort_by_key(Value::to_string);
        assert_eq!(codes, [json!("cancelled"), Value::Null], "{method}");
    }
    client.end();
}

#[test]
fn at_the_end_of_stdin_leases_stay_and_nothing_is_half_done() {
    let bed = Bed::new();
    let held = bed.send("held");
    let mut client = Client::new(&bed);
    assert_eq!(client.call(1, "recv", &json!({}))["result"][0]["id"], held);
    // One that sleeps, one that works, and one that the end cuts short.
    client.send(2, "recv", &json!({ "wait": "10m" }));
    client.send(3, "send", &json!({ "to": "conductor", "text": "last" }));
    client
        .write(b"{\"id\":4,\"method\":\"send\",\"params\":{\"to\":\"conductor\",\"text\":\"cut\"}");
    let rest = client.end();
    let done = rest.iter().filter(|line| line["error"].is_null());
    assert_eq!(done.map(|line| &line["id"]).collect::<Vec<_>>(), [&json!(3)], "{rest:?}");
    assert_eq!(bed.mailbox("conductor/new").read_dir().unwrap().count(), 1);
    let later = bed.send("later");
    assert_eq!(bed.object("recv --as w1")["id"], later, "the one that slept took nothing");
    assert_eq!(bed.json("inbox w1").iter().filter(|it| it["state"] == "acked").count(), 2);
}

#[test]
fn a_kill_leaves_what_it_leaves_of_a_command() {
    let bed = Bed::new();
    let mut client = Client::new(&bed);
    client.call(1, "subscribe", &json!({ "to": "mail" }));
    (2..40).for_each(|id| client.send(id, "send", &json!({ "to": "w1", "text": "x" })));
    client.answer(2);
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    assert_eq!(bed.ok("admin fsck"), "clean\n");
    assert_eq!(bed.object("recv --as w1")["body_text"], "x");
}

#[test]
fn one_call_more_than_the_limit_is_refused_as_busy() {
    let bed = Bed::new();
    let mut client = Client::new(&bed);
    (0..33).for_each(|id| client.send(id, "recv", &json!({ "wait": "10m", "mailbox": "w1" })));
    let refused = client.line().unwrap();
    assert_eq!(refused["error"]["code"], "busy", "{refused}");
    (100..117).for_each(|id| client.send(id, "subscribe", &json!({ "to": "events" })));
    let refused = client.answer(116);
    assert_eq!(refused["error"]["exit"], 75, "{refused}");
    client.end();
}
