//! One control-mode client: questions in, answers out, each within its limit.
//!
//! The client is attached with `no-output,ignore-size`. So it does not lag behind a busy pane (a lagging client has
//! killed servers), and does not change the size of a user's window. Questions of several threads are written one
//! after the other and answered in that order, so no thread waits for another's answer before asking. Each query is
//! followed by a mark that cannot be guessed. The answer is everything up to the mark, however many blocks it has and
//! wherever it stopped.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::EXCHANGE_LIMIT;
use super::attach_lock::AttachLock;
use super::failure::TmuxFailure;
use super::left_behind;
use super::parser::{AnswerBlock, ControlParser, Event};
use super::spawned::{self, TmuxReply};

/// The arguments that identify a tmux process as our client. (`-E`: the session's environment stays as it is.)
pub(super) const ATTACH: [&str; 5] = ["-C", "attach-session", "-E", "-f", "no-output,ignore-size"];
/// The variables that such a client inherits. There are few, because tmux sends them to its server one by one, while
/// the client must not be disturbed.
const VARIABLES: [&str; 3] = ["PATH", "HOME", "TERM"];

/// An attached client. Dropping it ends its process; the server and its sessions are untouched.
#[derive(Debug)]
pub(super) struct ControlClient {
    child: Child,
    input: Mutex<UnixStream>,
    queue: Arc<Mutex<CallerQueue>>,
    /// Disconnected once the server has dropped the client and its process has exited.
    let_go: Mutex<Receiver<()>>,
    /// Whether the server has left a question without an answer.
    is_unanswered: AtomicBool,
    socket: PathBuf,
    /// It hangs while it is being attached. To end it now would crash the server once that wakes up
    /// (tmux#5004); it ends by itself then, since no process talks to it.
    abandoned: bool,
}

/// The callers that wait, each with its mark, oldest first.
#[derive(Debug, Default)]
struct CallerQueue {
    waiting: VecDeque<WaitingCaller>,
    attaching: Option<Sender<()>>,
    /// The reader has seen the end; no further question will be answered.
    ended: bool,
}

#[derive(Debug)]
struct WaitingCaller {
    mark: String,
    reply: Sender<TmuxReply>,
}

impl ControlClient {
    /// Attaches to some session of the server at `socket`.
    ///
    /// Returns [`TmuxFailure::Refused`] if the server has nothing to attach to or wants no control
    /// client. The caller can still ask it with one process a question.
    pub(super) fn attach(socket: &Path) -> Result<Self, TmuxFailure> {
        let (ours, theirs) = UnixStream::pair().map_err(refused)?;
        ours.set_write_timeout(Some(EXCHANGE_LIMIT)).map_err(refused)?;
        let output = ours.try_clone().map_err(refused)?;
        let _lock = AttachLock::wait_for_lock(socket);
        left_behind::end_session(socket)?;
        let inherited = VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let child = spawned::command(socket)
            .args(ATTACH)
            .env_clear()
            .envs(inherited)
            .env(left_behind::OWNER, std::process::id().to_string())
            .stdin(OwnedFd::from(theirs.try_clone().map_err(refused)?))
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::piped())
            // A Ctrl-C at the terminal of an embedder is not meant for this process.
            .process_group(0)
            .spawn()
            .map_err(spawned::cannot_start)?;
        let (attaching, attached) = channel();
        let (held, let_go) = channel();
        let queue = CallerQueue { attaching: Some(attaching), ..CallerQueue::default() };
        let queue = Arc::new(Mutex::new(queue));
        let mut client = Self {
            child,
            input: Mutex::new(ours),
            queue: Arc::clone(&queue),
            let_go: Mutex::new(let_go),
            is_unanswered: AtomicBool::new(false),
            socket: socket.to_owned(),
            abandoned: false,
        };
        thread::Builder::new()
            .name("tmux-control".to_owned())
            .spawn(move || read_answers(output, &queue, held))
            .map_err(refused)?;
        // Asked before, a server under load may answer that the client is in no session: the question has
        // overtaken the attaching.
        match attached.recv_timeout(EXCHANGE_LIMIT) {
            Ok(()) => Ok(client),
            Err(RecvTimeoutError::Disconnected) => Err(client.complaint()),
            Err(RecvTimeoutError::Timeout) => {
                client.abandoned = true;
                Err(TmuxFailure::Timeout)
            }
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        !lock(&self.queue).ended
    }

    /// Sends one line of tmux commands and waits for all it prints.
    ///
    /// After [`TmuxFailure::Timeout`] the client should be dropped: a server that did not answer once
    /// must be asked again.
    pub(super) fn ask(&self, commands: &str) -> Result<TmuxReply, TmuxFailure> {
        let deadline = Instant::now() + EXCHANGE_LIMIT;
        let answer = self.send(commands)?;
        match answer.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => {
                self.is_unanswered.store(true, Ordering::Relaxed);
                Err(TmuxFailure::Timeout)
            }
            Err(RecvTimeoutError::Disconnected) => Err(TmuxFailure::Lost),
        }
    }

    fn send(&self, commands: &str) -> Result<Receiver<TmuxReply>, TmuxFailure> {
        let (reply, answer) = channel();
        let mark = format!("ensemble-mark-{}", uuid::Uuid::now_v7().simple());
        // The mark is not a command, and the complaint about that repeats it: cheaper for the server
        // than any command that prints it.
        let lines = format!("{commands}\n{mark}\n");
        // Writing and queueing under one lock keeps the two in the same order.
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = lock(&self.queue);
        if queue.ended {
            return Err(TmuxFailure::Lost);
        }
        queue.waiting.push_back(WaitingCaller { mark, reply });
        drop(queue);
        match input.write_all(lines.as_bytes()) {
            Ok(()) => Ok(answer),
            // The server has stopped reading. Half a line may be on its way, so nothing more can
            // be said through this client.
            Err(error) => {
                lock(&self.queue).end();
                let hung = matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                );
                Err(if hung { TmuxFailure::Timeout } else { TmuxFailure::Lost })
            }
        }
    }

    fn complaint(&mut self) -> TmuxFailure {
        const BYTES_MAX: u64 = 4096;
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mut text = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(BYTES_MAX).read_to_string(&mut text);
        }
        TmuxFailure::from_complaint(&text)
    }
}

impl Drop for ControlClient {
    /// The server notifies its other control clients when one detaches. So detaching needs the lock, too, and waits
    /// until the server has dropped the client, unless that has already exited or the server did not answer.
    fn drop(&mut self) {
        if !self.abandoned {
            let is_missed = self.is_alive() && !*self.is_unanswered.get_mut();
            let _lock = is_missed.then(|| AttachLock::wait_for_lock(&self.socket));
            let _ = self.child.kill();
            let _ = self.child.wait();
            if is_missed {
                let let_go = self.let_go.get_mut().unwrap_or_else(PoisonError::into_inner);
                let _ = let_go.recv_timeout(EXCHANGE_LIMIT);
            }
        }
        // The server holds the other end as well; only a shutdown makes the reader return even
        // if the server hangs.
        let input = self.input.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = input.shutdown(Shutdown::Both);
    }
}

impl CallerQueue {
    fn end(&mut self) {
        self.ended = true;
        self.waiting.clear();
        self.attaching = None;
    }

    /// Takes a block; gives `so_far` to the first in line when the block is its mark.
    fn deliver_block(&mut self, block: AnswerBlock, so_far: &mut TmuxReply) {
        let is_mark = self.waiting.front().is_some_and(|first| {
            block.failed && block.lines.iter().any(|line| line.ends_with(&first.mark))
        });
        if !is_mark {
            so_far.add(block);
            return;
        }
        let reply = std::mem::take(so_far);
        if let Some(first) = self.waiting.pop_front() {
            // It fails if the waiting thread has given up.
            let _ = first.reply.send(reply);
        }
    }
}

/// Reads until no process holds the other end any more; `_held` is dropped then.
fn read_answers(output: UnixStream, queue: &Mutex<CallerQueue>, _held: Sender<()>) {
    let mut parser = ControlParser::default();
    let mut so_far = TmuxReply::default();
    let mut line = Vec::new();
    let mut output = BufReader::new(output);
    loop {
        line.clear();
        match output.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        match parser.line(line.strip_suffix(b"\n").unwrap_or(&line)) {
            Some(Event::Block(block)) => lock(queue).deliver_block(block, &mut so_far),
            Some(Event::Attached) => {
                if let Some(attaching) = lock(queue).attaching.take() {
                    let _ = attaching.send(());
                }
            }
            Some(Event::Exit(_)) => lock(queue).end(),
            None => {}
        }
    }
    lock(queue).end();
}

fn lock(queue: &Mutex<CallerQueue>) -> MutexGuard<'_, CallerQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(error: std::io::Error) -> TmuxFailure {
    TmuxFailure::Refused(error.to_string())
}
