//! The two lines of the handshake, exactly as seed 000 writes them.

use std::fmt;

use super::ATTEMPTS_LIMIT;
use crate::message::Name;

const PING: &str = "AGENT_TEAM_PING";
const PONG: &str = "AGENT_TEAM_PONG";

/// `AGENT_TEAM_PING <worker-id> <attempt>`: all that is ever typed to ask for readiness. It never
/// contains the answer, so its echo on the screen cannot be mistaken for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    pub worker: Name,
    /// Which attempt this is, from 1.
    pub attempt: u8,
}

/// `AGENT_TEAM_PONG <worker-id> <attempt>`: the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PongToken {
    pub worker: Name,
    pub attempt: u8,
}

impl Ping {
    /// Reads a line that is a ping and nothing else, apart from blanks around it.
    pub fn parse(line: &str) -> Option<Self> {
        parse(PING, line).map(|(worker, attempt)| Self { worker, attempt })
    }

    pub fn pong(&self) -> PongToken {
        PongToken { worker: self.worker.clone(), attempt: self.attempt }
    }
}

impl PongToken {
    /// Reads a line that is a pong and nothing else, apart from blanks around it.
    pub fn parse(line: &str) -> Option<Self> {
        parse(PONG, line).map(|(worker, attempt)| Self { worker, attempt })
    }

    /// The pongs on a screen, for profiles that allow an answer there. A line is a pong if it is
    /// one without the bullets, frames and blanks around it. A pong quoted in a sentence is
    /// none.
    pub fn on_screen(screen: &[String]) -> impl Iterator<Item = Self> {
        screen.iter().filter_map(|line| {
            Self::parse(line.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        })
    }
}

impl fmt::Display for Ping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PING} {} {}", self.worker, self.attempt)
    }
}

impl fmt::Display for PongToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PONG} {} {}", self.worker, self.attempt)
    }
}

fn parse(token: &str, line: &str) -> Option<(Name, u8)> {
    let mut fields = line.trim().strip_prefix(token)?.strip_prefix(' ')?.split(' ');
    let (worker, attempt, rest) = (fields.next()?, fields.next()?, fields.next());
    let number = attempt.parse().ok().filter(|n| (1..=ATTEMPTS_LIMIT).contains(n))?;
    // One way to write it: no sign, no leading zero, no second blank.
    (rest.is_none() && number.to_string() == attempt)
        .then(|| Name::new(worker).ok().map(|worker| (worker, number)))
        .flatten()
}
