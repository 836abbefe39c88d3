//! beanstalkd with its log.

use std::path::Path;
use std::process::Stdio;

use super::Started;
use super::line::{Line, connect};
use crate::rows::shared::Queue;
use crate::support::process::Guard;
use crate::support::{Outcome, peer, place};

/// `-f0` syncs for each message, `-F` never.
pub fn start(home: &Path, sync: &str) -> Started {
    let log = place::child(home, "beanstalkd.log.d")?;
    let socket = home.join("beanstalkd.sock");
    let mut command = peer::command("beanstalkd")?;
    command.arg("-l").arg(format!("unix:{}", socket.display())).arg("-b").arg(log).arg(sync);
    // Raises the default limit of 64 KiB, so that the overhead around the body does not matter.
    let server = Guard::start(command.args(["-z", "131072"]).stderr(Stdio::null()))?;
    connect(&socket)?;
    Ok((socket, Some(server)))
}

pub struct Beanstalkd(Line);

impl Beanstalkd {
    pub fn connect(address: &str) -> Outcome<Self> {
        Line::connect(address).map(Self)
    }

    fn reserve(&mut self, seconds: u32, seen: &mut dyn FnMut()) -> Outcome<bool> {
        let answer = self.0.ask(&format!("reserve-with-timeout {seconds}\r\n"))?;
        let Some((id, bytes)) = answer.strip_prefix("RESERVED ").and_then(|a| a.split_once(' '))
        else {
            return Ok(false);
        };
        self.0.content(bytes.parse()?)?;
        seen();
        Ok(self.0.ask(&format!("delete {id}\r\n"))? == "DELETED")
    }
}

fn put(body: &str) -> String {
    format!("put 0 0 300 {}\r\n{body}\r\n", body.len())
}

impl Queue for Beanstalkd {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        Ok(self.0.ask(&put(body))?.starts_with("INSERTED"))
    }

    /// The protocol has no batch command: send all requests, then read all answers.
    fn send_batch(&mut self, body: &str, count: usize) -> Outcome<bool> {
        let mut stored = self.0.ask(&put(body).repeat(count))?.starts_with("INSERTED");
        for _ in 1..count {
            stored &= self.0.answer()?.starts_with("INSERTED");
        }
        Ok(stored)
    }

    fn take(&mut self) -> Outcome<bool> {
        self.reserve(0, &mut || ())
    }

    fn wait(&mut self, seen: &mut dyn FnMut()) -> Outcome<()> {
        self.reserve(1, seen).map(drop)
    }
}
