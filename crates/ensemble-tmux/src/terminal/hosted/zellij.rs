//! Panes of zellij 0.45 and newer, through its `action` commands.
//!
//! Each question is one process, since zellij's socket speaks the protocol of one version. A session is found by the
//! socket of its server, so that a watcher with another environment reaches the same one.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use ensemble_core::pane::Deferral;
use serde::Deserialize;

use super::{CURSOR_UNKNOWN, HostedPane, HostedScreen, TerminalSnapshot};
use crate::provider::process::{line_of, parent_of};
use crate::sys;
use crate::tmux::run_program;

const SESSION_VARIABLE: &str = "ZELLIJ_SESSION_NAME";
const PANE_VARIABLE: &str = "ZELLIJ_PANE_ID";
/// The argument of its server that precedes the path of its socket.
const SERVER_ARGUMENT: &[u8] = b"--server";

/// How often a session is asked for its panes before its silence counts.
const TRIES_MAX: usize = 3;

#[derive(Debug)]
pub(super) struct ZellijPane {
    pub(super) socket: PathBuf,
    pub(super) session: String,
    pub(super) pane: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct ListedPane {
    id: u32,
    is_plugin: bool,
    #[serde(default)]
    title: String,
    #[serde(default)]
    exited: bool,
    exit_status: Option<i32>,
    #[serde(default)]
    is_held: bool,
    pane_x: u32,
    pane_content_x: u32,
    pane_y: u32,
    pane_content_y: u32,
    pane_content_rows: usize,
    /// Column and line within the pane's frame, while the cursor is shown.
    cursor_coordinates_in_pane: Option<(u32, u32)>,
}

impl ListedPane {
    fn cursor(&self) -> (u32, u32) {
        let Some((x, y)) = self.cursor_coordinates_in_pane else { return CURSOR_UNKNOWN };
        let left = self.pane_content_x.saturating_sub(self.pane_x);
        let top = self.pane_content_y.saturating_sub(self.pane_y);
        (x.saturating_sub(left), y.saturating_sub(top))
    }

    pub(super) fn sign(&self) -> String {
        let (x, y) = self.cursor();
        format!("{x},{y},{},{}", self.exited, self.title)
    }

    pub(super) const fn is_terminal_pane(&self, number: u32) -> bool {
        self.id == number && !self.is_plugin
    }
}

impl ZellijPane {
    fn target(&self) -> String {
        format!("terminal_{}", self.pane)
    }
}

impl HostedPane for ZellijPane {
    fn observe_screen(&self) -> io::Result<Option<HostedScreen>> {
        let find = || -> io::Result<Option<ListedPane>> {
            let panes = list_panes(&self.socket, &self.session)?;
            Ok(panes.into_iter().find(|pane| pane.is_terminal_pane(self.pane)))
        };
        let Some(before) = find()? else { return Ok(None) };
        let screen =
            action(&self.socket, &self.session, &["dump-screen", "--pane-id", &self.target()])?;
        let Some(pane) = find()? else { return Ok(None) };
        let mut screen: Vec<String> =
            screen.iter().map(|line| line.trim_end().to_owned()).collect();
        screen.resize(pane.pane_content_rows, String::new());
        let ended = (pane.exited || pane.is_held).then_some(pane.exit_status);
        // Screen and cursor come in two answers: they belong together if the cursor has not moved in between.
        let refusal = (before.cursor() != pane.cursor()).then_some(Deferral::Moved);
        let (cursor, title) = (pane.cursor(), pane.title);
        let shown =
            TerminalSnapshot { screen, cursor, title, ended, ..TerminalSnapshot::default() };
        Ok(Some(HostedScreen { shown, refusal }))
    }

    fn write_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let bytes: Vec<String> = bytes.iter().map(u8::to_string).collect();
        let target = self.target();
        let mut words = vec!["write", "--pane-id", &target];
        words.extend(bytes.iter().map(String::as_str));
        action(&self.socket, &self.session, &words).map(drop)
    }

    fn close_pane(&self) -> io::Result<()> {
        let words = ["close-pane", "--pane-id", &self.target()];
        action(&self.socket, &self.session, &words).map(drop)
    }
}

pub(super) fn list_panes(socket: &Path, session: &str) -> io::Result<Vec<ListedPane>> {
    let ask = || action(socket, session, &["list-panes", "--json", "--all"]);
    let mut answer = ask();
    // A busy session sometimes says nothing, or that it does not run.
    for _ in 1..TRIES_MAX {
        if answer.as_ref().is_ok_and(|lines| !lines.is_empty()) {
            break;
        }
        answer = ask();
    }
    Ok(serde_json::from_str(&answer?.join("\n"))?)
}

fn action(socket: &Path, session: &str, words: &[&str]) -> io::Result<Vec<String>> {
    let mut zellij = Command::new("zellij");
    zellij.args(["--session", session, "action"]).args(words);
    for variable in ["ZELLIJ", SESSION_VARIABLE, PANE_VARIABLE] {
        zellij.env_remove(variable);
    }
    // Below it is a directory for the version of its protocol.
    if let Some(directory) = socket.parent().and_then(Path::parent) {
        zellij.env("ZELLIJ_SOCKET_DIR", directory);
    }
    run_program("zellij", zellij)
}

/// The socket of the session, and the first process of its pane: the child of the session's server that was given the
/// pane's number. Where several servers have a session of this name, the one around this process is meant.
pub(super) fn find_process(session: &str, pane: u32) -> io::Result<Option<(PathBuf, u32)>> {
    let wanted = [format!("{SESSION_VARIABLE}={session}"), format!("{PANE_VARIABLE}={pane}")];
    let first_of_pane = |pid: u32| {
        let environment = sys::environment(pid)?;
        let variables: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
        let has = |wanted: &String| variables.contains(&wanted.as_bytes());
        let socket = wanted.iter().all(has).then(|| socket_of_server(parent_of(pid)?))??;
        socket.exists().then_some((socket, pid))
    };
    let mut around = line_of(std::process::id()).into_iter();
    if let Some(found) = around.find_map(|(pid, _)| first_of_pane(pid)) {
        return Ok(Some(found));
    }
    let mut found: Vec<_> = sys::all()?.into_iter().filter_map(first_of_pane).collect();
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            Err(io::Error::other("several servers have a session of this name: join from the pane"))
        }
    }
}

/// The socket of a zellij server; `None` for any other process.
fn socket_of_server(pid: u32) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let line = sys::command_line(pid)?;
    let mut words = line.split(|byte| *byte == 0);
    words.find(|word| *word == SERVER_ARGUMENT)?;
    let socket = Path::new(std::ffi::OsStr::from_bytes(words.next()?));
    socket.is_absolute().then(|| socket.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_counted_from_the_inside_of_the_frame() {
        let row = r#"{"id":3,"is_plugin":false,"is_focused":true,"title":"sh","exited":false,
            "exit_status":null,"is_held":false,"pane_x":0,"pane_content_x":1,"pane_y":2,"pane_content_y":3,
            "pane_rows":10,"pane_content_rows":8,"cursor_coordinates_in_pane":[7,4],"tab_id":0}"#;
        let mut pane: ListedPane = serde_json::from_str(row).expect("a pane");
        assert!(pane.is_terminal_pane(3) && !pane.is_terminal_pane(4));
        assert_eq!(pane.cursor(), (6, 3));
        pane.cursor_coordinates_in_pane = None;
        assert_eq!(pane.cursor(), CURSOR_UNKNOWN);
    }
}
