//! What fuzzers and their regressions reach (feature `fuzzing`): the MCP server, without a process
//! for each input.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use ensemble_app::App;
use serde_json::{Value, json};

use crate::mcp::{ToolContext, call, serve_client};

const GREETING: [&str; 2] = [
    r#"{"jsonrpc":"2.0","id":"greeting","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"f","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
];

fn desk(queue: &Path, agent: &str) -> Result<ToolContext, String> {
    let agent = agent.parse().map_err(|error| format!("{agent}: {error}"))?;
    ToolContext::open(&App::new(Some(queue.to_owned()), Some(agent), "admin mcp"), |_| None)
        .map_err(|failure| failure.text())
}

/// Calls tools one after the other, as `agent`: what each answers, or what its caller has to change.
pub fn mcp_calls(
    queue: &Path,
    agent: &str,
    calls: &[(String, Value)],
) -> Result<Vec<Result<Value, String>>, String> {
    let desk = desk(queue, agent)?;
    Ok(calls.iter().map(|(tool, arguments)| call(&desk, tool, arguments.clone())).collect())
}

/// Greets the server, sends it these bytes and a last ping, and reads until that is answered or the
/// connection ends. Returns everything it has said, line by line.
pub fn mcp_lines(queue: &Path, agent: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let desk = desk(queue, agent)?;
    let pipe = || std::io::pipe().map_err(|error| error.to_string());
    let ((input, mut to_server), (from_server, output)) = (pipe()?, pipe()?);
    let server = std::thread::spawn(move || serve_client(desk, input, output));
    let last = json!({ "jsonrpc": "2.0", "id": "the last", "method": "ping" }).to_string();
    let text =
        [GREETING.join("\n").as_bytes(), b"\n", bytes, b"\n", last.as_bytes(), b"\n"].concat();
    let writing = std::thread::spawn(move || {
        // A server that has gone away reads no more; that is seen by the reader.
        let _ = to_server.write_all(&text);
        to_server
    });
    let mut said = Vec::new();
    for line in BufReader::new(from_server).split(b'\n').map_while(Result::ok) {
        let answer: Value = serde_json::from_slice(&line).unwrap_or_default();
        said.push(line);
        if answer["id"] == "the last" {
            break;
        }
    }
    drop(writing.join());
    drop(server.join());
    Ok(said)
}
