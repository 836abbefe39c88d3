//! Panes of herdr, through its socket: one line of JSON each way.
//!
//! herdr shows the text of a screen without its cursor. So a line is typed only where the profile finds the composer by
//! its text; a shell's line, whose draft begins at the cursor, is left alone.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ensemble_core::agent::AgentState;
use ensemble_core::message::Name;
use ensemble_core::pane::Deferral;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    CURSOR_UNKNOWN, HostedPane, HostedScreen, LineSubmission, MailCount, TerminalSnapshot,
    VariableLookup,
};
use crate::terminal::wire;

const SOURCE: &str = "ensemble";
/// How long a report of mail is shown if the watcher that repeats it has ended.
const REPORT_MILLIS: u64 = 15 * 60 * 1000;
/// What marks an agent that herdr knows from us alone: its state there is no news for us.
const REPORTED_SUFFIX: &str = "@ensemble";
/// The states whose label is the count of mail as well.
const LABELS: [&str; 5] = ["idle", "working", "blocked", "done", "unknown"];

#[derive(Debug)]
pub(super) struct HerdrPane {
    pub(super) socket: PathBuf,
    pub(super) pane: String,
}

/// The part of herdr's description of a pane that is needed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PaneDescription {
    focused: bool,
    /// The agent that herdr recognizes in it.
    agent: Option<String>,
    agent_status: String,
    terminal_title: Option<String>,
    scroll: Option<ScrollState>,
}

#[derive(Debug, Deserialize)]
struct ScrollState {
    offset_from_bottom: u64,
}

impl PaneDescription {
    fn refusal(&self) -> Option<Deferral> {
        let is_blocked = self.agent_status == "blocked" && !self.is_reported();
        is_blocked.then(|| Deferral::Dialog { name: "blocked".to_owned() })
    }

    /// Whether herdr knows the agent from our report alone.
    fn is_reported(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.ends_with(REPORTED_SUFFIX))
    }
}

impl HerdrPane {
    fn ask(&self, method: &str, mut params: Value) -> io::Result<Option<Value>> {
        params["pane_id"] = json!(self.pane);
        ask_server(&self.socket, method, &params)
    }

    fn describe(&self) -> io::Result<Option<PaneDescription>> {
        let answer = self.ask("pane.get", json!({}))?;
        let pane = answer.map(|mut answer| serde_json::from_value(answer["pane"].take()));
        Ok(pane.transpose()?)
    }
}

impl HostedPane for HerdrPane {
    fn observe_screen(&self) -> io::Result<Option<HostedScreen>> {
        let Some(read) = self.ask("pane.read", json!({ "source": "visible" }))? else {
            return Ok(None);
        };
        let Some(pane) = self.describe()? else { return Ok(None) };
        let text = read["read"]["text"].as_str().unwrap_or_default();
        let refusal = pane.refusal();
        let shown = TerminalSnapshot {
            screen: text.lines().map(|line| line.trim_end().to_owned()).collect(),
            cursor: CURSOR_UNKNOWN,
            in_mode: pane.scroll.is_some_and(|scroll| scroll.offset_from_bottom > 0),
            title: pane.terminal_title.unwrap_or_default(),
            ..TerminalSnapshot::default()
        };
        Ok(Some(HostedScreen { shown, refusal }))
    }

    fn write_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes);
        self.ask("pane.send_text", json!({ "text": text })).map(drop)
    }

    /// `agent.prompt` types a line and presses Enter without another look at the composer. So it is used only while no
    /// person can be typing: the pane does not have the focus. Otherwise the line is typed, and Enter follows once it is shown.
    fn submit_line(&self, text: &str) -> io::Result<LineSubmission> {
        let Some(pane) = self.describe()? else {
            return Ok(LineSubmission::Refused(Deferral::PaneGone));
        };
        if let Some(refusal) = pane.refusal() {
            return Ok(LineSubmission::Refused(refusal));
        }
        if pane.focused || pane.agent.is_none() || pane.is_reported() {
            return Ok(LineSubmission::Unsupported);
        }
        let prompt = json!({ "target": self.pane, "text": text });
        match ask_server(&self.socket, "agent.prompt", &prompt) {
            Ok(Some(_)) => Ok(LineSubmission::Submitted),
            Ok(None) => Ok(LineSubmission::Refused(Deferral::PaneGone)),
            Err(error) => answer_to(error),
        }
    }

    fn close_pane(&self) -> io::Result<()> {
        self.ask("pane.close", json!({})).map(drop)
    }

    /// Reports only an agent that herdr does not recognize by itself.
    fn report_state(&self, agent: &Name, state: AgentState) -> io::Result<()> {
        let Some(pane) = self.describe()? else { return Ok(()) };
        if pane.agent.is_some() && !pane.is_reported() {
            return Ok(());
        }
        let agent = format!("{agent}{REPORTED_SUFFIX}");
        let report = json!({ "source": SOURCE, "agent": agent, "state": state_word(state) });
        self.ask("pane.report_agent", report).map(drop)
    }

    fn show_mail(&self, mail: MailCount) -> io::Result<()> {
        self.ask("pane.report_metadata", mail_report(mail)).map(drop)
    }
}

/// The report that shows mail in the sidebar: as the tokens `$unread` and `$held`, and beside the agent's state.
fn mail_report(mail: MailCount) -> Value {
    let MailCount { unread, held } = mail;
    let token = |count: u64| (count > 0).then(|| count.to_string());
    let mut report = json!({
        "source": SOURCE, "ttl_ms": REPORT_MILLIS,
        "tokens": { "unread": token(unread), "held": token(held) },
    });
    match mail == MailCount::default() {
        true => report["clear_state_labels"] = json!(true),
        false => {
            let label = |state: &&str| {
                (state.to_string(), json!(format!("{state}, {unread} unread, {held} held")))
            };
            report["state_labels"] = LABELS.iter().map(label).collect();
        }
    }
    report
}

/// What an error of `agent.prompt` means: nothing was typed, for a reason or because herdr does not prompt this agent.
fn answer_to(error: io::Error) -> io::Result<LineSubmission> {
    let text = error.to_string();
    match text.split_once(':').map_or(text.as_str(), |(code, _)| code) {
        "agent_blocked" => {
            Ok(LineSubmission::Refused(Deferral::Dialog { name: "blocked".to_owned() }))
        }
        "agent_not_ready" => Ok(LineSubmission::Unsupported),
        _ => Err(error),
    }
}

const fn state_word(state: AgentState) -> &'static str {
    match state {
        AgentState::Ready | AgentState::Draft => "idle",
        AgentState::Busy => "working",
        AgentState::Permission
        | AgentState::Trust
        | AgentState::Dialog
        | AgentState::Login
        | AgentState::RateLimited => "blocked",
        AgentState::Crashed | AgentState::Starting | AgentState::Unknown => "unknown",
    }
}

/// The socket that the environment names, or herdr's own place for it.
pub(super) fn socket_around(variable: VariableLookup<'_>) -> PathBuf {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(socket) = variable("HERDR_SOCKET_PATH") {
        return socket.into();
    }
    let home = || PathBuf::from(variable("HOME").unwrap_or_default()).join(".config");
    let directory = variable("XDG_CONFIG_HOME").map_or_else(home, PathBuf::from).join("herdr");
    match variable("HERDR_SESSION") {
        Some(session) => directory.join("sessions").join(session).join("herdr.sock"),
        None => directory.join("herdr.sock"),
    }
}

/// The first process of a pane; `None` if there is no such pane.
pub(super) fn find_process(socket: &Path, pane: &str) -> io::Result<Option<u32>> {
    let answer = ask_server(socket, "pane.process_info", &json!({ "pane_id": pane }))?;
    let pid = answer.and_then(|answer| answer["process_info"]["shell_pid"].as_u64());
    Ok(pid.and_then(|pid| u32::try_from(pid).ok()))
}

/// The answer of the server; `None` if it knows no such pane or agent.
fn ask_server(socket: &Path, method: &str, params: &Value) -> io::Result<Option<Value>> {
    let stream = UnixStream::connect(socket)?;
    let question = json!({ "id": SOURCE, "method": method, "params": params });
    wire::write(&stream, &question)?;
    let mut answer: Value = wire::read(&stream)?;
    let error = answer["error"].take();
    match error["code"].as_str() {
        None => Ok(Some(answer["result"].take())),
        Some("pane_not_found" | "agent_not_found" | "not_found") => Ok(None),
        Some(code) => {
            let message = error["message"].as_str().unwrap_or_default();
            Err(io::Error::other(format!("{code}: {message}")))
        }
    }
}

#[derive(Debug)]
pub(super) struct HerdrEvents {
    stream: UnixStream,
    rest: Vec<u8>,
}

impl HerdrEvents {
    pub(super) fn subscribe<'a>(
        socket: &Path,
        panes: impl Iterator<Item = &'a str>,
    ) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        let wanted = |pane| json!({ "type": "pane.agent_status_changed", "pane_id": pane });
        let subscriptions: Vec<Value> = panes.map(wanted).collect();
        let params = json!({ "subscriptions": subscriptions });
        let question = json!({ "id": SOURCE, "method": "events.subscribe", "params": params });
        wire::write(&stream, &question)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, rest: Vec::new() })
    }

    pub(super) fn changed_panes(&mut self) -> io::Result<Vec<String>> {
        use std::io::Read as _;
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.rest.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        let pane = |line: &[u8]| {
            let event: Value = serde_json::from_slice(line).ok()?;
            event["data"]["pane_id"].as_str().map(str::to_owned)
        };
        Ok(whole.split(|byte| *byte == b'\n').filter_map(pane).collect())
    }
}
