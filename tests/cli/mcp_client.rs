//! A client of the MCP server, as small as can be.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::bed::Bed;

/// `ensemble mcp` over its stdin and stdout.
pub(crate) struct Mcp {
    server: Child,
    answers: std::io::Lines<BufReader<ChildStdout>>,
}

impl Mcp {
    pub(crate) fn of(bed: &Bed, agent: &str) -> Self {
        let mut server = bed.start(&format!("--as {agent} mcp"), Stdio::piped());
        let answers = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut mcp = Self { server, answers };
        mcp.say(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        }}));
        mcp.answer();
        mcp.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        mcp
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.server.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn answer(&mut self) -> Value {
        loop {
            let line = self.answers.next().unwrap().unwrap();
            let said: Value = serde_json::from_str(&line).unwrap();
            // Not what it tells unasked.
            if said.get("id").is_some() {
                return said;
            }
        }
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
