//! One tmux process a question: slower by a factor of eight, and always possible.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::EXCHANGE_LIMIT;
use super::failure::TmuxFailure;
use super::parser::AnswerBlock;
use super::quote::quote;

const REPLY_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How often to look whether a process that has closed its output has ended.
const REAP_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TmuxReply {
    pub(super) lines: Vec<String>,
    /// The first complaint; the commands after it were not run.
    pub(super) complaint: Option<String>,
}

impl TmuxReply {
    pub(super) fn add(&mut self, block: AnswerBlock) {
        if block.failed {
            self.complaint.get_or_insert_with(|| block.lines.join("; "));
        } else {
            self.lines.extend(block.lines);
        }
    }

    pub(super) fn into_lines(self) -> Result<Vec<String>, TmuxFailure> {
        match self.complaint {
            Some(complaint) => Err(TmuxFailure::from_complaint(&complaint)),
            None => Ok(self.lines),
        }
    }
}

/// `tmux` talking UTF-8 to the server at `socket`, never starting one, and unaware of the tmux it
/// may itself run in.
pub(super) fn command(socket: &Path) -> Command {
    let mut command = Command::new("tmux");
    command.args(["-N", "-u", "-S"]).arg(socket).env_remove("TMUX").env_remove("TMUX_PANE");
    command
}

/// Runs one line of tmux commands in its own process. It reads them from its standard input,
/// as a control client would: every user of the machine could read a command line.
pub(super) fn ask(socket: &Path, commands: &str) -> Result<TmuxReply, TmuxFailure> {
    let mut command = command(socket);
    command.args(["source-file", "-"]);
    run_with(command, question(commands).as_bytes())
}

/// Quotes commands as a string, which tmux parses when it runs. A parse error of a string goes to
/// the process that sent it; a parse error of the input would go to an attached client. An input
/// cut short, because its writer was killed, lacks the brace, and nothing of it is run.
fn question(commands: &str) -> String {
    format!("if-shell -F 1 {{ if-shell -F 1 {} }}\n", quote(commands))
}

/// Runs another multiplexer's command and returns the lines it prints, within [`EXCHANGE_LIMIT`].
pub(crate) fn run_program(name: &str, command: Command) -> std::io::Result<Vec<String>> {
    match run(command) {
        Ok(lines) => Ok(lines),
        Err(TmuxFailure::MissingProgram) => {
            Err(std::io::Error::new(ErrorKind::NotFound, format!("{name} is not installed")))
        }
        Err(TmuxFailure::Timeout) => Err(ErrorKind::TimedOut.into()),
        Err(TmuxFailure::Refused(complaint)) => Err(std::io::Error::other(complaint)),
        Err(TmuxFailure::NoServer | TmuxFailure::Lost) => {
            Err(std::io::Error::other(format!("{name} does not run there")))
        }
    }
}

/// Runs a tmux command and returns the lines that it prints; ends it after [`EXCHANGE_LIMIT`].
pub(super) fn run(command: Command) -> Result<Vec<String>, TmuxFailure> {
    run_with(command, &[])?.into_lines()
}

fn run_with(mut command: Command, input: &[u8]) -> Result<TmuxReply, TmuxFailure> {
    let deadline = Instant::now() + EXCHANGE_LIMIT;
    // Two pairs: one that ends without having read its input resets that connection, answers and all.
    let (questions, their_input) = UnixStream::pair().map_err(refused)?;
    let (answers, their_output) = UnixStream::pair().map_err(refused)?;
    questions.set_write_timeout(Some(EXCHANGE_LIMIT)).map_err(refused)?;
    let child = command
        .stdin(OwnedFd::from(their_input))
        .stdout(OwnedFd::from(their_output))
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot_start)?;
    let mut child = SpawnedChild(child);
    // The command holds its ends of the pairs: without this the end would never be seen.
    drop(command);
    // One that does not read says itself why.
    let _ = (&questions).write_all(input);
    drop(questions);
    let output = read_until(&answers, deadline)?;
    let status = child.wait_until(deadline)?;
    let lines = String::from_utf8_lossy(&output).lines().map(str::to_owned).collect();
    let complaint = (!status.success()).then(|| child.complaint());
    Ok(TmuxReply { lines, complaint })
}

/// A child that does not outlive its question.
struct SpawnedChild(Child);

impl SpawnedChild {
    fn wait_until(&mut self, deadline: Instant) -> Result<ExitStatus, TmuxFailure> {
        loop {
            match self.0.try_wait().map_err(refused)? {
                Some(status) => return Ok(status),
                None if Instant::now() >= deadline => return Err(TmuxFailure::Timeout),
                None => thread::sleep(REAP_INTERVAL),
            }
        }
    }

    fn complaint(&mut self) -> String {
        let mut text = Vec::new();
        if let Some(stderr) = self.0.stderr.take() {
            let _ = stderr.take(REPLY_BYTES_MAX).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}

impl Drop for SpawnedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read_until(mut output: &UnixStream, deadline: Instant) -> Result<Vec<u8>, TmuxFailure> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(TmuxFailure::Timeout);
        }
        output.set_read_timeout(Some(left)).map_err(refused)?;
        match output.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(n) if bytes.len() as u64 + n as u64 > REPLY_BYTES_MAX => {
                return Err(TmuxFailure::Refused("the answer is too long".to_owned()));
            }
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(TmuxFailure::Timeout);
            }
            Err(error) => return Err(refused(error)),
        }
    }
}

pub(super) fn cannot_start(error: std::io::Error) -> TmuxFailure {
    match error.kind() {
        ErrorKind::NotFound => TmuxFailure::MissingProgram,
        _ => TmuxFailure::Refused(format!("cannot start tmux: {error}")),
    }
}

fn refused(error: std::io::Error) -> TmuxFailure {
    TmuxFailure::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tmux::TmuxServer;

    #[test]
    fn a_question_cut_short_is_not_carried_out() {
        let home = tempfile::tempdir().expect("a directory");
        let socket = home.path().join("socket");
        let server = TmuxServer::brief(&socket);
        server.new_session("main", "exec cat", 80, 24).expect("a session");
        let set = "set-option -g @done 'it is' ; set-option -g @done 'it is'";
        let asked = question(set);
        for length in 0..=asked.len() - "}\n".len() {
            let mut cut = command(&socket);
            cut.args(["source-file", "-"]);
            let _ = run_with(cut, &asked.as_bytes()[..length]);
        }
        let before = server.run(&["show-options", "-gqv", "@done"]);
        let whole = ask(&socket, set);
        let after = server.run(&["show-options", "-gqv", "@done"]);
        server.kill_server().expect("ended");
        assert_eq!(before.expect("an answer"), Vec::<String>::new());
        assert_eq!(whole.expect("an answer").complaint, None);
        assert_eq!(after.expect("an answer"), ["it is"]);
    }
}
