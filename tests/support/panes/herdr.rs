//! Panes of herdr: of the real program, or of a scripted server that speaks its protocol over panes of tmux.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use ensemble_tmux::terminal::hosted::{PaneAddress, bind_herdr};
use ensemble_tmux::tmux::{Binding, TmuxServer};
use serde_json::{Value, json};

use crate::hosts::{PaneScreen, TmuxStage};
use crate::stage::PaneStage;
use crate::tmux_support::eventually;

pub(crate) enum HerdrStage {
    Scripted { tmux: TmuxStage, double: Arc<HerdrDouble> },
    Real { dir: tempfile::TempDir, server: Child },
}

impl HerdrStage {
    pub(crate) fn scripted() -> Self {
        let tmux = TmuxStage::start();
        let double = HerdrDouble::start(tmux.0.server.clone(), tmux.directory());
        Self::Scripted { tmux, double }
    }

    /// `None`, with the reason printed, where herdr is not installed.
    pub(crate) fn real() -> Option<Self> {
        if let Err(error) = Command::new("herdr").arg("--version").output() {
            println!("skipped: no herdr on PATH: {error}");
            return None;
        }
        let dir = tempfile::tempdir_in("/tmp").expect("a directory");
        let mut herdr = Command::new("herdr");
        herdr
            .arg("server")
            .env("HERDR_SOCKET_PATH", dir.path().join("api"))
            .env("HOME", dir.path());
        for variable in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME"] {
            herdr.env(variable, dir.path().join(variable));
        }
        for variable in ["HERDR_ENV", "HERDR_PANE_ID", "HERDR_SESSION"] {
            herdr.env_remove(variable);
        }
        herdr.env("SHELL", "/bin/sh").stdin(Stdio::null()).stdout(Stdio::null());
        let server = herdr.stderr(Stdio::null()).spawn().expect("herdr runs");
        let stage = Self::Real { dir, server };
        eventually("it answers", || ask(&stage.socket(), "ping", &json!({})).is_ok());
        Some(stage)
    }

    fn socket(&self) -> PathBuf {
        match self {
            Self::Scripted { double, .. } => double.socket.clone(),
            Self::Real { dir, .. } => dir.path().join("api"),
        }
    }

    /// The scripted server.
    pub(crate) fn double(&self) -> &HerdrDouble {
        match self {
            Self::Scripted { double, .. } => double,
            Self::Real { .. } => panic!("a real server has no script"),
        }
    }

    fn request(&self, method: &str, params: Value) -> Value {
        let answer = ask(&self.socket(), method, &params).expect("an answer");
        assert!(answer["error"].is_null(), "{method} {params}: {answer}");
        answer["result"].clone()
    }

    fn bind(&self, pane: &str) -> Binding {
        let pane = PaneAddress::Herdr { pane: pane.to_owned() };
        let mut found = None;
        eventually("it is bound", || {
            found = bind_herdr(&self.socket(), &pane).ok();
            found.is_some()
        });
        found.expect("a binding")
    }
}

fn ask(socket: &Path, method: &str, params: &Value) -> std::io::Result<Value> {
    let stream = UnixStream::connect(socket)?;
    writeln!(&stream, "{}", json!({ "id": "suite", "method": method, "params": params }))?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn pane_of(binding: &Binding) -> &str {
    binding.id.strip_prefix("herdr:").expect("an address")
}

impl PaneStage for HerdrStage {
    fn directory(&self) -> &Path {
        match self {
            Self::Scripted { tmux, .. } => tmux.directory(),
            Self::Real { dir, .. } => dir.path(),
        }
    }
    fn open_pane(&self, command: &str) -> Binding {
        match self {
            Self::Scripted { tmux, double } => {
                let id = tmux.open_window(command);
                let pane = format!("w1:p{}", id.trim_start_matches('%'));
                double.panes.lock().unwrap().insert(pane.clone(), json!({ "focused": false }));
                self.bind(&pane)
            }
            Self::Real { dir, .. } => {
                let made = self.request("workspace.create", json!({ "cwd": dir.path() }));
                let pane = made["root_pane"]["pane_id"].as_str().expect("a pane").to_owned();
                let input = json!({ "pane_id": pane, "text": command, "keys": ["enter"] });
                self.request("pane.send_input", input);
                self.bind(&pane)
            }
        }
    }
    fn type_keys(&self, binding: &Binding, keys: &str) {
        self.request("pane.send_text", json!({ "pane_id": pane_of(binding), "text": keys }));
    }
    fn close_pane(&self, binding: &Binding) {
        self.request("pane.close", json!({ "pane_id": pane_of(binding) }));
    }
    fn shows_cursor(&self) -> bool {
        false
    }
}

impl Drop for HerdrStage {
    fn drop(&mut self) {
        if let Self::Real { dir, server } = self {
            let _ = ask(&dir.path().join("api"), "server.stop", &json!({}));
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// A server that answers as herdr's published schema says; its panes are panes of tmux.
pub(crate) struct HerdrDouble {
    socket: PathBuf,
    tmux: TmuxServer,
    /// What the script says of each pane.
    panes: Mutex<HashMap<String, Value>>,
    asked: Mutex<Vec<(String, Value)>>,
    subscribers: Mutex<Vec<UnixStream>>,
}

impl HerdrDouble {
    fn start(tmux: TmuxServer, directory: &Path) -> Arc<Self> {
        let socket = directory.join("herdr.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let double = Arc::new(Self {
            socket,
            tmux,
            panes: Mutex::default(),
            asked: Mutex::default(),
            subscribers: Mutex::default(),
        });
        let answerer = Arc::clone(&double);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answerer.answer(stream);
            }
        });
        double
    }

    pub(crate) fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn has_subscriber(&self) -> bool {
        !self.subscribers.lock().unwrap().is_empty()
    }

    /// Has the server recognize an agent, and push its state to the subscribers.
    pub(crate) fn set_agent(&self, binding: &Binding, mut agent: Value) {
        let pane = pane_of(binding);
        self.panes.lock().unwrap().insert(pane.to_owned(), agent.clone());
        (agent["pane_id"], agent["workspace_id"]) = (json!(pane), json!("w1"));
        let event = json!({ "event": "pane.agent_status_changed", "data": agent });
        for mut stream in self.subscribers.lock().unwrap().iter() {
            writeln!(stream, "{event}").expect("a subscriber");
        }
    }

    fn answer(&self, stream: UnixStream) {
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("a question");
        let question: Value = serde_json::from_str(&line).expect("JSON");
        let (method, params) =
            (question["method"].as_str().expect("a method"), &question["params"]);
        self.asked.lock().unwrap().push((method.to_owned(), params.clone()));
        let answered = self.result(method, params);
        let answer = match answered {
            Ok(result) => json!({ "id": question["id"], "result": result }),
            Err(code) => {
                json!({ "id": question["id"], "error": { "code": code, "message": method } })
            }
        };
        writeln!(&stream, "{answer}").expect("answered");
        if method == "events.subscribe" {
            self.subscribers.lock().unwrap().push(stream);
        }
    }

    fn result(&self, method: &str, params: &Value) -> Result<Value, &'static str> {
        if method == "events.subscribe" {
            return Ok(json!({ "type": "subscription_started" }));
        }
        let pane =
            params["pane_id"].as_str().or_else(|| params["target"].as_str()).unwrap_or_default();
        let known = self.panes.lock().unwrap().get(pane).cloned().ok_or("pane_not_found")?;
        let id = format!("%{}", pane.rsplit('p').next().unwrap_or_default());
        let screen = PaneScreen { server: self.tmux.clone(), id: id.clone() };
        let listed = self.tmux.panes().map_err(|_| "internal")?;
        let row = listed.iter().find(|row| row.id == id).ok_or("pane_not_found")?;
        match method {
            "pane.get" => {
                let mut pane = json!({ "pane_id": pane, "focused": false, "agent_status": "unknown",
                    "terminal_id": "t1", "workspace_id": "w1", "tab_id": "w1:t1", "revision": 0 });
                let facts = known.as_object().expect("a map").clone();
                pane.as_object_mut().expect("a map").extend(facts);
                Ok(json!({ "type": "pane_info", "pane": pane }))
            }
            "pane.read" => {
                let text = screen.capture().ok_or("pane_not_found")?.join("\n");
                Ok(json!({ "type": "pane_read", "read": { "pane_id": pane, "text": text,
                    "source": params["source"], "format": "text", "revision": 0, "truncated": false } }))
            }
            "pane.process_info" => Ok(json!({ "type": "pane_process_info",
                "process_info": { "pane_id": pane, "shell_pid": known["shell_pid"].as_u64().unwrap_or_else(|| row.pid.into()) } })),
            "pane.send_text" => {
                screen.write_bytes(params["text"].as_str().unwrap_or_default().as_bytes());
                Ok(json!({ "type": "ok" }))
            }
            // Text and Enter are two writes, so that the agent does not take them for a paste.
            "agent.prompt" => {
                let text = params["text"].as_str().unwrap_or_default();
                screen.write_bytes(text.as_bytes());
                let is_shown = || {
                    screen.capture().is_some_and(|lines| lines.iter().any(|it| it.contains(text)))
                };
                eventually("the agent shows the prompt", is_shown);
                screen.write_bytes(b"\r");
                Ok(json!({ "type": "agent_prompted", "agent": known }))
            }
            "pane.close" => {
                self.tmux.run(&["kill-pane", "-t", &id]).map_err(|_| "internal")?;
                Ok(json!({ "type": "ok" }))
            }
            "pane.report_metadata" | "pane.report_agent" => Ok(json!({ "type": "ok" })),
            _ => Err("invalid_request"),
        }
    }
}
