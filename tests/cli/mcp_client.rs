//! A client of the MCP server, as small as can be.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout};

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, SaidText as _};

pub(crate) struct Mcp {
    server: Child,
    answers: std::io::Lines<BufReader<ChildStdout>>,
    /// The schema of each tool's structured result, without room for members that it does not name.
    outputs: BTreeMap<String, Validator>,
    hello: Value,
}

impl Mcp {
    pub(crate) fn of(bed: &Bed, agent: &str) -> Self {
        Self::at(bed.start_piped(&format!("--as {agent} mcp")))
    }

    /// A client of this server, whose input and output are pipes.
    pub(crate) fn at(mut server: Child) -> Self {
        let answers = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut mcp = Self { server, answers, outputs: BTreeMap::new(), hello: Value::Null };
        mcp.say(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        }}));
        mcp.hello = mcp.answer()["result"].take();
        mcp.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        mcp.say(&json!({ "jsonrpc": "2.0", "id": 0, "method": "tools/list" }));
        for tool in mcp.answer()["result"]["tools"].as_array().unwrap() {
            let mut schema = tool["outputSchema"].clone();
            assert_eq!(schema["type"], "object", "{tool}");
            schema["additionalProperties"] = false.into();
            let validator = jsonschema::validator_for(&schema).unwrap();
            mcp.outputs.insert(tool["name"].as_str().unwrap().to_owned(), validator);
        }
        mcp
    }

    /// What a model reads of the server: the length of its instructions, and of its tools.
    pub(crate) fn sizes(&mut self) -> (usize, usize) {
        self.say(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
        let listed = self.answer()["result"]["tools"].take();
        // Models are given no schema of results.
        let read = |tool: &Value| {
            let (name, text, schema) = (&tool["name"], &tool["description"], &tool["inputSchema"]);
            name.to_string().len() + text.to_string().len() + schema.to_string().len()
        };
        let tools = listed.as_array().unwrap().iter().map(read).sum();
        (self.hello["instructions"].as_str().unwrap().len(), tools)
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.server.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn read_to(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.answers.next().unwrap().unwrap();
            let said: Value = serde_json::from_str(&line).unwrap();
            if is_wanted(&said) {
                return said;
            }
        }
    }

    fn answer(&mut self) -> Value {
        // Skip notifications.
        self.read_to(|said| said.get("id").is_some())
    }

    fn next_progress(&mut self, token: u64) {
        self.read_to(|said| {
            said["method"] == "notifications/progress" && said["params"]["progressToken"] == token
        });
    }

    fn next_update(&mut self, uri: &str) {
        self.read_to(|said| {
            said["method"] == "notifications/resources/updated" && said["params"]["uri"] == uri
        });
    }

    /// The answer of a tool: its text, which is an object unless the tool refused.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> String {
        self.ask(tool, arguments).1
    }

    /// As [`Mcp::call`], with whether the tool refused.
    pub(crate) fn ask(&mut self, tool: &str, arguments: &Value) -> (bool, String) {
        let params = json!({ "name": tool, "arguments": arguments });
        self.say(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
        let answer = self.answer();
        if let (Some(output), true) = (self.outputs.get(tool), answer["result"]["isError"] != true)
        {
            let result = &answer["result"]["structuredContent"];
            let errors: Vec<_> =
                output.iter_errors(result).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{tool}: {errors:?}: {result}");
        }
        let text = &answer["result"]["content"][0]["text"];
        let text = text.as_str().unwrap_or_else(|| panic!("{tool}: {answer}")).to_owned();
        (answer["result"]["isError"] == true, text)
    }

    pub(crate) fn object(&mut self, tool: &str, arguments: &Value) -> Value {
        let text = self.call(tool, arguments);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{tool}: {text}"))
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_message_is_waited_for_with_progress_taken_once_given_back_and_put_aside() {
    let bed = Bed::new();
    let mut mcp = Mcp::of(&bed, "w1");
    mcp.hello["instructions"].as_str().unwrap().begins("You are w1.");
    let none = mcp.object("recv_wait", &json!({ "timeout_seconds": 0 }));
    assert_eq!(none, json!({ "received": false, "waited_seconds": 0 }));
    // The first progress says that it waits; then mail comes.
    let call = |id: u64| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "recv_wait", "arguments": { "timeout_seconds": 600 }, "_meta": { "progressToken": id },
        }})
    };
    mcp.say(&call(7));
    mcp.next_progress(7);
    let id = bed.send("round: 2\n");
    let taken = mcp.answer()["result"]["structuredContent"].take();
    taken["message"].fits(json!({ "id": id, "body": { "round": 2 }, "body_text": "round: 2\n" }));
    // A call that is cancelled takes nothing.
    mcp.say(&call(8));
    mcp.next_progress(8);
    let cancel = json!({ "requestId": 8, "reason": "enough" });
    mcp.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }));
    let released = mcp.object("release", &json!({ "id": id, "epoch": taken["message"]["epoch"] }));
    assert_eq!(released["state"], "queued");
    assert_eq!(mcp.object("recv_wait", &json!({}))["message"]["id"], id);
    let aside = mcp.object("dead_letter", &json!({ "id": id, "reason": "not for us" }));
    assert_eq!(aside["state"], "dead");
    assert_eq!(bed.object("dead list w1")["reason"], "not for us");
    let (refused, why) = mcp.ask("release", &json!({ "id": id }));
    assert!(refused && why.contains("is not held: it is a dead letter"), "{why}");
    let sent = mcp.object("send", &json!({ "to": "w1", "body": "as others name it" }));
    assert_eq!(sent["state"], "stored");
    // A call that is wrapped once more waits with progress, too.
    let wrapped = json!({ "input": { "to": "w1", "message": "?", "wait_for_reply": "10m" } });
    mcp.say(&json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {
        "name": "send", "arguments": wrapped, "_meta": { "progressToken": 9 },
    }}));
    mcp.next_progress(9);
}

#[test]
fn a_client_is_told_of_changes_and_its_calls_are_read_as_it_writes_them() {
    let bed = Bed::new();
    let mut mcp = Mcp::of(&bed, "w1");
    assert_eq!(mcp.hello["capabilities"]["resources"]["subscribe"], true, "{}", mcp.hello);
    let about = |id: u64, method: &str, uri: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "uri": uri } });
    for uri in ["ensemble://inbox", "ensemble://requests"] {
        mcp.say(&about(5, "resources/subscribe", uri));
        assert!(mcp.answer()["error"].is_null(), "{uri}");
    }
    mcp.say(&about(6, "resources/subscribe", "ensemble://weather"));
    assert!(mcp.answer()["error"]["message"].as_str().unwrap().contains("weather"));
    bed.send("news");
    mcp.next_update("ensemble://inbox");
    bed.ok("request shutdown w1 --as lead --id abc");
    mcp.next_update("ensemble://requests");
    mcp.say(&about(7, "resources/read", "ensemble://requests"));
    let read = mcp.answer();
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    let requests: Value = serde_json::from_str(text).unwrap();
    assert_eq!(requests["requests"][0]["request_id"], "abc", "{text}");
    mcp.say(&about(8, "resources/unsubscribe", "ensemble://inbox"));
    assert!(mcp.answer()["error"].is_null());
    let call = json!({ "to": "w1", "message": "y", "priority": 5.0 });
    let (text, wrapped) = (json!(call.to_string()), json!({ "arguments": call }));
    let twice = json!({ "input": call.to_string() });
    for (tool, arguments) in
        [("send", text), ("send", wrapped), ("mcp__ensemble__send", twice), ("ensemble.send", call)]
    {
        let params = json!({ "name": tool, "arguments": arguments });
        mcp.say(&json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": params }));
        let said = mcp.answer();
        assert_eq!(said["result"]["structuredContent"]["state"], "stored", "{tool}: {said}");
    }
    let why = mcp.call("send", &json!({ "to": "w1", "massage": "z" }));
    why.has(["message: is missing", "mean message?"]);
    let why = mcp.call("report", &json!({ "task_id": "t", "status": "failure" }));
    why.has(["summary: is missing; reason: say what is in the way"]);
    let wrong = [
        ("tools/call", json!({ "arguments": {} }), -32602),
        ("tools/call", json!({ "name": "whoami", "arguments": "no object" }), -32602),
        ("resources/read", json!({}), -32602),
        ("tools/lists", json!({}), -32601),
    ];
    for (method, params, code) in wrong {
        mcp.say(&json!({ "jsonrpc": "2.0", "id": 5, "method": method, "params": params }));
        let said = mcp.answer();
        assert_eq!((&said["id"], &said["error"]["code"]), (&json!(5), &json!(code)), "{said}");
    }
}

#[test]
fn only_messages_are_on_stdout_and_each_call_is_answered() {
    let bed = Bed::new();
    let mut mcp = Mcp::of(&bed, "w1");
    // What a refused verb prints would fill the buffer of stdout, and be written into the middle of an answer.
    for id in 1..=100 {
        let params = json!({ "name": "shutdown_request", "arguments": { "agent": "w1" } });
        mcp.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }
    let mut answered: Vec<u64> = (1..=100).map(|_| mcp.answer()["id"].as_u64().unwrap()).collect();
    answered.sort_unstable();
    assert_eq!(answered, (1..=100).collect::<Vec<u64>>());
    drop(mcp.server.stdin.take());
    assert!(mcp.answers.next().is_none(), "a line after the last answer");
}

#[test]
fn tools_of_boards_cost_tokens_only_where_there_is_one_and_a_line_that_is_no_message_is_answered() {
    let bed = Bed::new();
    let mut mcp = Mcp::of(&bed, "w1");
    mcp.say(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    assert!(mcp.answer().to_string().contains("submit_step_completion"));
    let before = mcp.sizes().1;
    bed.ok("board init");
    mcp.say(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "whoami" } }));
    // The notice and the answer, whichever is first.
    let mut awaited = vec!["notifications/tools/list_changed", "known_by"];
    while !awaited.is_empty() {
        let line = mcp.answers.next().unwrap().unwrap();
        awaited.retain(|word| !line.contains(word));
    }
    assert!(mcp.sizes().1 > before, "no tools came");
    let long =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"x\":\"{}\"}}", "x".repeat(17 * 1024 * 1024));
    let cut = r#"{"jsonrpc":"2.0","id":3,"method":"ping","params":{"x":"\ud83d"}}"#;
    let lines = [
        ("{\"jsonrpc\":", -32700, Value::Null),
        ("hello", -32700, Value::Null),
        (long.as_str(), -32700, Value::Null),
        ("{\"id\":7}", -32600, json!(7)),
        ("[]", -32600, Value::Null),
    ];
    for (line, code, id) in lines {
        writeln!(mcp.server.stdin.as_mut().unwrap(), "{line}").unwrap();
        let said = mcp.answer();
        let shown: String = line.chars().take(60).collect();
        assert_eq!((&said["error"]["code"], &said["id"]), (&json!(code), &id), "{shown}: {said}");
    }
    writeln!(mcp.server.stdin.as_mut().unwrap(), "{cut}").unwrap();
    let said = mcp.answer();
    assert!(said["id"] == 3 && said["error"].is_null(), "half an emoji costs no call: {said}");
    mcp.say(&json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" }));
    assert_eq!(mcp.answer()["id"], 9, "the client goes on");
    let mut stdin = mcp.server.stdin.take().unwrap();
    stdin.write_all(br#"{"jsonrpc":"2.0","id":10,"method":"ping"}"#).unwrap();
    drop(stdin);
    assert_eq!(mcp.answer()["id"], 10, "the last line needs no end");
}

/// Without a watcher, as a shell's `recv --wait` does.
#[test]
fn a_wait_gets_what_a_dead_holder_had() {
    let bed = Bed::new();
    bed.ok("mailbox add shared --lease 1s");
    bed.ok("send --to shared --id t-1 -m left");
    bed.ok("recv --as gone --mailbox shared");
    let mut mcp = Mcp::of(&bed, "shared");
    let got = mcp.object("recv_wait", &json!({ "timeout_seconds": 600 }));
    got["message"].fits(json!({ "id": "t-1", "epoch": 2 }));
}
