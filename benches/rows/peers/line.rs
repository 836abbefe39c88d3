//! Servers that are asked one question at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::support::process::PATIENCE;
use crate::support::{Outcome, go_on};

/// How often a server that was just started is tried.
const CONNECT_TRIES: usize = 250;
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Tries until a server answers that is being started.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> std::io::Result<T>) -> Outcome<T> {
    for _ in 0..CONNECT_TRIES {
        go_on()?;
        if let Ok(done) = attempt() {
            return Ok(done);
        }
        std::thread::sleep(CONNECT_PAUSE);
    }
    Err(format!("nobody listens at {what}").into())
}

pub fn connect(socket: &Path) -> Outcome<UnixStream> {
    let stream = until(&socket.display().to_string(), || UnixStream::connect(socket))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// One connection.
pub struct Line {
    input: BufReader<UnixStream>,
    output: UnixStream,
}

impl Line {
    pub fn connect(address: &str) -> Outcome<Self> {
        let output = connect(Path::new(address))?;
        Ok(Self { input: BufReader::new(output.try_clone()?), output })
    }

    pub fn ask(&mut self, question: &str) -> Outcome<String> {
        self.output.write_all(question.as_bytes())?;
        self.answer()
    }

    /// The next line.
    pub fn answer(&mut self) -> Outcome<String> {
        let mut answer = String::new();
        if self.input.read_line(&mut answer)? == 0 {
            return Err("the server has ended".into());
        }
        answer.truncate(answer.trim_end().len());
        Ok(answer)
    }

    /// The content that follows an answer, with its line end.
    pub fn content(&mut self, bytes: usize) -> Outcome<String> {
        let mut content = vec![0; bytes + 2];
        self.input.read_exact(&mut content)?;
        content.truncate(bytes);
        Ok(String::from_utf8(content)?)
    }
}
