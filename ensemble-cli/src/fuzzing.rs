//! What fuzzers and their regressions reach (feature `fuzzing`): the MCP server, without a process
//! for each input.

use std::path::Path;
use std::sync::Arc;

use rmcp::ServiceExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::args::Globals;
use crate::context::Context;
use crate::mcp::{Desk, Server, call};

/// How much either side may send before the other has read it, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
/// The lines with which a client begins.
const GREETING: [&str; 2] = [
    r#"{"jsonrpc":"2.0","id":"greeting","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"f","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
];

fn desk(queue: &Path, agent: &str) -> Result<Desk, String> {
    let agent = agent.parse().map_err(|error| format!("{agent}: {error}"))?;
    let globals = Globals { queue: Some(queue.to_owned()), agent: Some(agent), json: true };
    Desk::open(&Context::new(globals, "admin mcp")).map_err(|failure| failure.text())
}

/// Calls tools one after the other, as `agent`: what each answers, or what its caller has to change.
///
/// # Errors
/// There is no such queue.
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
///
/// # Errors
/// There is no such queue, or a runtime cannot be made.
pub fn mcp_lines(queue: &Path, agent: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let desk = desk(queue, agent)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let said = runtime.block_on(async {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (input, output) = tokio::io::split(theirs);
        let server = tokio::spawn(async move {
            if let Ok(running) = Server::new(Arc::new(desk)).serve((input, output)).await {
                let _ = running.waiting().await;
            }
        });
        let (from_server, mut to_server) = tokio::io::split(ours);
        let last = json!({ "jsonrpc": "2.0", "id": "the last", "method": "ping" }).to_string();
        let mut text = GREETING.join("\n").into_bytes();
        text.push(b'\n');
        text.extend_from_slice(bytes);
        text.extend_from_slice(format!("\n{last}\n").as_bytes());
        let writing = tokio::spawn(async move {
            // A server that has gone away reads no more; that is seen by the reader.
            let _ = to_server.write_all(&text).await;
            to_server
        });
        let mut lines = BufReader::new(from_server).split(b'\n');
        let mut said = Vec::new();
        while let Ok(Some(line)) = lines.next_segment().await {
            let answer: Value = serde_json::from_slice(&line).unwrap_or_default();
            said.push(line);
            if answer["id"] == "the last" {
                break;
            }
        }
        drop(writing.await);
        drop(lines);
        let _ = server.await;
        said
    });
    Ok(said)
}
