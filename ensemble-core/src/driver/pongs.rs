//! Pings and pongs as files: `.ensemble/ready/` (seed 000).
//!
//! ```text
//! <worker>.ping              the ping that is waited for now, as its one line
//! <worker>@<attempt>.pong    the answer; the name says everything, the content is for people
//! ```
//!
//! Any program that can create a file can answer. The handshake that reads a pong removes it. A
//! pong that exists when a handshake begins belongs to an earlier one and is removed.

use std::path::PathBuf;

use crate::Result;
use crate::durable::{self, Dir, Durability};
use crate::message::Name;
use crate::proto::ready::{ATTEMPTS_LIMIT, Ping, PongToken};

const PONG_SUFFIX: &str = ".pong";

/// The directory through which workers say that they are ready.
#[derive(Clone, Debug)]
pub struct PongBox {
    path: PathBuf,
}

impl PongBox {
    /// The box at `path`, which is made, private to its owner, if it is missing.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        durable::make_directory(&path)?;
        Ok(Self { path })
    }

    pub fn answer(&self, pong: &PongToken) -> Result<()> {
        let file = format!("{}@{}{PONG_SUFFIX}", pong.worker, pong.attempt);
        self.write(&file, &format!("{pong}\n"))
    }

    /// Takes the pongs of a worker away, in no order.
    pub fn take_pongs(&self, worker: &Name) -> Result<Vec<PongToken>> {
        let mut pongs = Vec::new();
        for file in Dir::open(&self.path)?.names()? {
            if let Some(pong) = parse(&file).filter(|pong| pong.worker == *worker) {
                self.remove(&file)?;
                pongs.push(pong);
            }
        }
        Ok(pongs)
    }

    /// Publishes the ping that is waited for, for workers that read files.
    pub fn ask(&self, ping: &Ping) -> Result<()> {
        self.write(&ping_file(&ping.worker), &format!("{ping}\n"))
    }

    /// The ping that a worker is asked now; `None` if no handshake runs.
    pub fn asked(&self, worker: &Name) -> Result<Option<Ping>> {
        const BYTES_MAX: usize = 256;
        let content = Dir::open(&self.path)?.read(&ping_file(worker), BYTES_MAX)?;
        Ok(content.and_then(|line| Ping::parse(&String::from_utf8_lossy(&line))))
    }

    pub fn clear(&self, worker: &Name) -> Result<()> {
        self.take_pongs(worker)?;
        self.remove(&ping_file(worker))
    }

    fn write(&self, file: &str, line: &str) -> Result<()> {
        durable::write_document(&self.path.join(file), line.as_bytes(), Durability::Process)
    }

    fn remove(&self, file: &str) -> Result<()> {
        durable::remove_file(&self.path.join(file))
    }
}

fn ping_file(worker: &Name) -> String {
    format!("{worker}.ping")
}

/// Parses the name of a pong file: written in one way only.
fn parse(file: &str) -> Option<PongToken> {
    let (worker, attempt) = file.strip_suffix(PONG_SUFFIX)?.split_once('@')?;
    let number: u8 = attempt.parse().ok().filter(|n| (1..=ATTEMPTS_LIMIT).contains(n))?;
    let worker = Name::new(worker).ok()?;
    (number.to_string() == attempt).then_some(PongToken { worker, attempt: number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_say_it_exactly_are_pongs() {
        assert!(parse("w1@3.pong").is_some_and(|p| p.worker.as_str() == "w1" && p.attempt == 3));
        for file in ["w1@0.pong", "w1@03.pong", "w1@+3.pong", "w1@100.pong", "w1.pong", "w1@3"] {
            assert!(parse(file).is_none(), "{file}");
        }
        for file in ["-w@1.pong", "@1.pong", "w1@1@2.pong", ".w1@1.pong.tmp"] {
            assert!(parse(file).is_none(), "{file}");
        }
    }

    #[test]
    fn others_pongs_stay_and_a_ping_can_be_read() {
        let home = tempfile::tempdir().unwrap();
        let pongs = PongBox::open(home.path()).unwrap();
        let name = |text: &str| Name::new(text).unwrap();
        let other = PongToken { worker: name("w2"), attempt: 1 };
        pongs.answer(&other).unwrap();
        // `touch` is enough.
        std::fs::write(home.path().join("w1@2.pong"), "").unwrap();
        let ping = Ping { worker: name("w1"), attempt: 2 };
        pongs.ask(&ping).unwrap();
        assert_eq!(pongs.asked(&name("w1")).unwrap(), Some(ping.clone()));
        assert_eq!(pongs.take_pongs(&name("w1")).unwrap(), [ping.pong()]);
        pongs.clear(&name("w1")).unwrap();
        assert_eq!(pongs.asked(&name("w1")).unwrap(), None);
        assert_eq!(pongs.take_pongs(&name("w2")).unwrap(), [other]);
    }
}
