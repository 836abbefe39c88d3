//! MCP over stdin and stdout, as agents start it: one JSON-RPC message a line, and nothing else.
//!
//! ```text
//! stdin ── a thread reads lines ── LineTransport ── Server (rmcp)
//! stdout ── one line at a time, written whole ─┘
//! ```
//!
//! | a line | is answered with |
//! |---|---|
//! | longer than [`LINE_BYTES_MAX`], or not JSON | -32700 and the id null |
//! | JSON that is not a message | -32600 and its id, if it has one |
//! | an unknown notification, or empty | nothing |
//!
//! While the server runs, the file descriptor of stdout leads to stderr, so that nothing that this process or one of
//! its children prints can get between the messages.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use ensemble_app::content::{read_line, take_stdin};
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::message::{describe_json_fault, read_foreign_json};
use rmcp::model::ErrorCode;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServiceExt as _};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use super::{McpServer, ToolContext};
use crate::loopback::runtime;

/// The longest line that is read, in bytes: the largest attachment that a model writes, with room for escapes.
const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(crate) fn serve(desk: ToolContext) -> Outcome {
    take_stdin();
    let output = take_stdout().map_err(|error| Failure::refused(format!("no stdout: {error}")))?;
    serve_client(desk, io::stdin(), output)
}

/// Keeps stdout for the client: what is printed from now on goes to stderr.
fn take_stdout() -> io::Result<File> {
    let own = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(own.into())
}

pub(crate) fn serve_client(
    desk: ToolContext,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Outcome {
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let transport = LineTransport::start(input, output);
        match McpServer::new(Arc::new(desk)).serve(transport).await {
            Ok(running) => running.waiting().await.map(drop).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    });
    // A thread that still reads stdin must not keep this from ending.
    runtime.shutdown_background();
    served.map_err(|error| Failure::refused(format!("the MCP client went wrong: {error}")))
}

struct LineTransport<W> {
    lines: mpsc::Receiver<Outcome<Vec<u8>>>,
    output: Arc<Mutex<Option<W>>>,
    /// The answer to the last line, if that was not a message. Reading waits for it.
    refusing: Option<JoinHandle<io::Result<()>>>,
}

impl<W: Write + Send + 'static> LineTransport<W> {
    fn start(input: impl Read + Send + 'static, output: W) -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            let mut input = BufReader::new(input);
            while let Ok(Some(line)) = read_line(&mut input, LINE_BYTES_MAX) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines, output: Arc::new(Mutex::new(Some(output))), refusing: None }
    }
}

impl<W: Write + Send + 'static> Transport<RoleServer> for LineTransport<W> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (output, line) = (Arc::clone(&self.output), serde_json::to_vec(&message));
        async move { write_line(output, line?).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusing) = &mut self.refusing {
                let _ = refusing.await;
                self.refusing = None;
            }
            let line = self.lines.recv().await?;
            let read =
                line.map_err(|failure| refusal(ErrorCode::PARSE_ERROR, None, failure.text()));
            match read.and_then(|line| read_message(&line)) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                // As a separate task: this future may be dropped at any time.
                Err(refusal) => {
                    let line = refusal.to_string().into_bytes();
                    self.refusing = Some(tokio::spawn(write_line(Arc::clone(&self.output), line)));
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.output.lock().await.take());
        Ok(())
    }
}

/// Writes a line in one piece, even if its caller does not wait for it.
async fn write_line<W: Write + Send + 'static>(
    output: Arc<Mutex<Option<W>>>,
    mut line: Vec<u8>,
) -> io::Result<()> {
    line.push(b'\n');
    let mut output = output.lock_owned().await;
    let written = tokio::task::spawn_blocking(move || match &mut *output {
        Some(output) => output.write_all(&line).and_then(|()| output.flush()),
        None => Err(io::ErrorKind::NotConnected.into()),
    });
    written.await?
}

fn read_message(line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Value> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let value: Value = read_foreign_json(line).map_err(|error| {
        refusal(
            ErrorCode::PARSE_ERROR,
            None,
            format!("this line is not JSON: {}", describe_json_fault(&error)),
        )
    })?;
    let (id, method) = (value.get("id").cloned(), value.get("method").is_some());
    match serde_json::from_value(value) {
        Ok(message) => Ok(Some(message)),
        Err(_) if id.is_none() && method => Ok(None),
        Err(_) => {
            let text = "this is not a message of JSON-RPC 2.0: one object a line".to_owned();
            Err(refusal(ErrorCode::INVALID_REQUEST, id, text))
        }
    }
}

fn refusal(code: ErrorCode, id: Option<Value>, text: String) -> Value {
    let id = id.filter(|id| id.is_string() || id.is_number());
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code.0, "message": text } })
}
