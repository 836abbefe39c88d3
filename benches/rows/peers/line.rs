//! Servers with one request and one answer at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::support::process::PATIENCE;
use crate::support::{Outcome, go_on};

/// Connection attempts to a server that was just started.
const CONNECT_TRIES: usize = 250;
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Retries until a starting server accepts a connection.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> std::io::Result<T>) -> Outcome<T> {
    for _ in 0..CONNECT_TRIES {
        go_on()?;
        if let Ok(done) = attempt() {
            return Ok(done);
        }
        std::thread::sleep(CONNECT_PAUSE);
    }
    Err(format!("no server listens at {what}").into())
}

pub fn connect(socket: &Path) -> Outcome<UnixStream> {
    let stream = until(&socket.display().to_string(), || UnixStream::connect(socket))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

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

    pub fn answer(&mut self) -> Outcome<String> {
        let mut answer = String::new();
        if self.input.read_line(&mut answer)? == 0 {
            return Err("the server closed the connection".into());
        }
        answer.truncate(answer.trim_end().len());
        Ok(answer)
    }

    /// Reads the content that follows an answer, with its line end.
    pub fn content(&mut self, bytes: usize) -> Outcome<String> {
        let mut content = vec![0; bytes + 2];
        self.input.read_exact(&mut content)?;
        content.truncate(bytes);
        Ok(String::from_utf8(content)?)
    }
}
