//! The ways to a person: a command, the terminals that are attached to tmux, their status line.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::message::is_deceiving;
use ensemble_project::wrapped_terminal::terminal_of_wrapper;
use ensemble_project::{AlertRule, Project, TerminalSignal};
use ensemble_team::roster::Member;
use ensemble_tmux::tmux::{Binding, TmuxServer};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

pub(super) const COMMAND_LIMIT: Duration = Duration::from_secs(30);
const SHOWN: Duration = Duration::from_secs(10);
const TEST_INTERVAL: Duration = Duration::from_millis(20);
pub(super) const NO_TERMINAL: &str = "no terminal is attached to tmux";
const TEXT_CHARS_MAX: usize = 160;

pub(super) struct AlertCommand {
    child: Child,
    began: Monotonic,
}

impl AlertCommand {
    /// Starts a command of a rule in the project, with the alert on its standard input.
    pub(super) fn start(command: &str, root: &Path, alert: &Value) -> std::io::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", command])
            .current_dir(root)
            .env("ENSEMBLE_ALERT", plain(alert["text"].as_str().unwrap_or_default()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // One that reads nothing may have ended already. An alert fits into the pipe.
            let _ = writeln!(input, "{alert}");
        }
        Ok(Self { child, began: SystemClock.monotonic() })
    }

    /// How the command ended; `None` while it runs.
    pub(super) fn outcome(&mut self) -> Option<Result<(), String>> {
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Some(Ok(())),
            Ok(Some(status)) => Some(Err(format!("the command failed: {status}"))),
            Ok(None) if SystemClock.monotonic().since(self.began) < COMMAND_LIMIT => None,
            Ok(None) => {
                self.end();
                Some(Err(format!("the command was ended after {} s", COMMAND_LIMIT.as_secs())))
            }
            Err(error) => Some(Err(error.to_string())),
        }
    }

    pub(super) fn end(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

pub(super) struct PeopleTerminals(Vec<PersonTerminal>);

/// A terminal, and the tmux server whose client it is. A wrapped agent's terminal may not be a client.
struct PersonTerminal {
    path: PathBuf,
    server: Option<TmuxServer>,
}

impl PeopleTerminals {
    /// The terminals that are attached to the tmux servers of this project's agents, and those of wrapped agents.
    pub(super) fn of(project: &Project) -> Self {
        let members = project.roster().entries().map(|(members, _)| members).unwrap_or_default();
        let present = members.into_iter().filter(Member::is_present);
        let bindings: Vec<Binding> = present.filter_map(|member| member.binding).collect();
        let (panes, wrapped): (Vec<_>, Vec<_>) =
            bindings.into_iter().partition(Binding::is_in_tmux);
        let mut sockets: Vec<PathBuf> = panes.into_iter().map(|binding| binding.socket).collect();
        sockets.extend(ensemble_project::team::socket_of(project));
        sockets.sort_unstable();
        sockets.dedup();
        sockets.retain(|socket| socket.exists());
        let mut all: Vec<PersonTerminal> = sockets.into_iter().flat_map(attached).collect();
        let own = wrapped
            .iter()
            .filter(|it| it.is_terminal())
            .filter_map(|binding| terminal_of_wrapper(binding.pid));
        all.extend(own.map(|path| PersonTerminal { path, server: None }));
        Self(all)
    }

    /// Sends a signal to all. How many got it.
    pub(super) fn signal(&self, signal: TerminalSignal, text: &str) -> usize {
        let text = plain(text);
        let bytes = match signal {
            TerminalSignal::Bell => "\x07".to_owned(),
            TerminalSignal::Osc9 => format!("\x1b]9;Ensemble: {text}\x07"),
            TerminalSignal::Osc777 => {
                format!("\x1b]777;notify;Ensemble;{}\x07", text.replace(';', ","))
            }
        };
        let all = self.0.iter();
        all.filter(|terminal| write(&terminal.path, bytes.as_bytes()).is_ok()).count()
    }

    /// Shows a text on the status lines of all. How many show it.
    pub(super) fn show(&self, text: &str) -> usize {
        let text = plain(text);
        let shows = |PersonTerminal { path, server }: &&PersonTerminal| {
            let (path, server) = (path.to_str().unwrap_or_default(), server.as_ref());
            server.is_some_and(|server| server.show_message(path, &text, SHOWN).is_ok())
        };
        self.0.iter().filter(shows).count()
    }
}

fn attached(socket: PathBuf) -> Vec<PersonTerminal> {
    let server = TmuxServer::brief(socket);
    let terminals = server.attached_terminals().unwrap_or_default();
    let client = |path| PersonTerminal { path, server: Some(server.clone()) };
    terminals.into_iter().map(client).collect()
}

/// Sends a test alert by one rule. How many terminals got it; 1 for a command alone.
pub(super) fn test(project: &Project, rule: &AlertRule, alert: &Value) -> Result<usize, String> {
    let text = alert["text"].as_str().unwrap_or_default();
    let mut reached = 0;
    if rule.terminal.is_some() || rule.tmux {
        let terminals = PeopleTerminals::of(project);
        let signalled = rule.terminal.map_or(0, |signal| terminals.signal(signal, text));
        reached = signalled.max(if rule.tmux { terminals.show(text) } else { 0 });
    }
    if let Some(command) = &rule.command {
        let mut running = AlertCommand::start(command, project.root(), alert)
            .map_err(|error| error.to_string())?;
        loop {
            match running.outcome() {
                Some(outcome) => return outcome.map(|()| reached.max(1)),
                None => sleep(TEST_INTERVAL),
            }
        }
    }
    match reached {
        0 => Err(NO_TERMINAL.to_owned()),
        reached => Ok(reached),
    }
}

/// One write, so that it parts no sequence of a program; never waits for a terminal that is stopped.
fn write(terminal: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let mut terminal = OpenOptions::new().write(true).custom_flags(flags).open(terminal)?;
    terminal.write_all(bytes)
}

/// A text of others without what a terminal would obey, and not too long.
pub(super) fn plain(text: &str) -> String {
    let harmless = |c: char| if is_deceiving(c) { ' ' } else { c };
    text.chars().take(TEXT_CHARS_MAX).map(harmless).collect()
}
