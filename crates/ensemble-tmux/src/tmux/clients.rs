//! The terminals of people that are attached to a server.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::Result;

use super::quote::quote;
use super::server::TmuxServer;

impl TmuxServer {
    /// Paths of the terminals that are attached, without control clients.
    pub fn attached_terminals(&self) -> Result<Vec<PathBuf>> {
        let commands = "list-clients -F '#{client_control_mode} #{client_tty}'";
        let lines = self.lines("list the clients of", commands)?;
        let terminal = |line: &String| line.strip_prefix("0 ").map(PathBuf::from);
        Ok(lines.iter().filter_map(terminal).filter(|tty| tty.is_absolute()).collect())
    }

    /// Shows a line for that long on the status line of the client at `terminal`, then redraws the status line.
    ///
    /// The text is literal: tmux expands no format and no time in it.
    pub fn show_message(&self, terminal: &str, text: &str, shown: Duration) -> Result<()> {
        let (client, millis) = (quote(terminal), shown.as_millis());
        let text = quote(&literal(text));
        let commands = format!(
            "display-message -c {client} -d {millis} {text} ; refresh-client -S -t {client}"
        );
        self.lines("show a message on", &commands).map(drop)
    }
}

fn literal(text: &str) -> String {
    text.replace('#', "##").replace('%', "%%")
}
