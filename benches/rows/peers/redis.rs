//! Redis: a list and a list of messages in work, the reliable queue that Redis documents.

use std::path::Path;
use std::process::Stdio;

use super::Started;
use super::line::{Line, connect};
use crate::rows::shared::Queue;
use crate::support::process::Guard;
use crate::support::{Outcome, now_ns, peer};

/// An append-only file, synced as `sync` says.
pub fn start(home: &Path, sync: &str) -> Started {
    let socket = home.join("redis.sock");
    let mut command = peer::command("redis-server")?;
    command.args(["--port", "0", "--appendonly", "yes", "--appendfsync", sync, "--save", ""]);
    command.arg("--unixsocket").arg(&socket).arg("--dir").arg(home).stderr(Stdio::null());
    let server = Guard::start(&mut command)?;
    connect(&socket)?;
    Ok((socket, Some(server)))
}

pub struct Redis(Line);

impl Redis {
    pub fn connect(address: &str) -> Outcome<Self> {
        Line::connect(address).map(Self)
    }

    fn command(&mut self, words: &[&str]) -> Outcome<String> {
        let mut question = format!("*{}\r\n", words.len());
        for word in words {
            question.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.ask(&question)
    }

    /// Settles the message in the answer to a move between lists; false if no entry was moved.
    fn settle(&mut self, answer: &str, seen: &mut dyn FnMut()) -> Outcome<bool> {
        let Some(length) = answer.strip_prefix('$').filter(|length| *length != "-1") else {
            return Ok(false);
        };
        let message = self.0.content(length.parse()?)?;
        seen();
        Ok(self.command(&["LREM", "held", "1", &message])? == ":1")
    }
}

/// `LREM` removes an entry by its value, so the value must be unique.
fn unique(body: &str) -> String {
    format!("{}-{} {body}", std::process::id(), now_ns())
}

impl Queue for Redis {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        Ok(self.command(&["LPUSH", "work", &unique(body)])?.starts_with(':'))
    }

    /// One command for all.
    fn send_batch(&mut self, body: &str, count: usize) -> Outcome<bool> {
        let all: Vec<String> = (0..count).map(|_| unique(body)).collect();
        let mut words = vec!["LPUSH", "work"];
        words.extend(all.iter().map(String::as_str));
        Ok(self.command(&words)?.starts_with(':'))
    }

    fn take(&mut self) -> Outcome<bool> {
        let answer = self.command(&["LMOVE", "work", "held", "RIGHT", "LEFT"])?;
        self.settle(&answer, &mut || ())
    }

    fn wait(&mut self, seen: &mut dyn FnMut()) -> Outcome<()> {
        let answer = self.command(&["BLMOVE", "work", "held", "RIGHT", "LEFT", "1"])?;
        self.settle(&answer, seen).map(drop)
    }
}
