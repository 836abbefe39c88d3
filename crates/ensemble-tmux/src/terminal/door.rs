//! The socket at which a wrapper answers.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::typist::{LineTypist, PseudoTerminal};
use super::wire::{self, TerminalAction, TerminalAnswer, TerminalQuestion};
use crate::provider::AgentObserver;
use crate::tmux::Binding;
use ensemble_core::pane::{Deferral, NudgeOutcome};
use ensemble_core::{Error, Result};

/// Only its owner may ask.
const MODE: u32 = 0o600;
/// Most clients at a time; a further one is turned away, and asks again.
const CONNECTIONS_MAX: usize = 64;

/// Answers questions about one terminal, one after another. The socket's file is removed at the end.
#[derive(Debug)]
pub struct TerminalDoor {
    listener: UnixListener,
    path: PathBuf,
}

impl TerminalDoor {
    /// Opens a socket at `path`. One that a killed wrapper has left is replaced.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |operation| move |source| Error::io(operation, path, source);
        if UnixStream::connect(path).is_ok() {
            let taken = io::Error::from(io::ErrorKind::AddrInUse);
            return Err(failed("listen at")(taken));
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove")(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed("listen at"))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))
            .map_err(failed("protect"))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Answers until the process ends. The agent of `binding` runs in `terminal`, and `observer` judges it.
    ///
    /// One thread answers, and each connection has another one, so that a client that sends nothing, or does not read
    /// its answer, keeps no other waiting.
    pub fn serve(&self, terminal: impl PseudoTerminal, binding: &Binding, observer: AgentObserver) {
        let (sender, questions) = channel::<(TerminalAction, Sender<TerminalAnswer>)>();
        let connections = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut typist = LineTypist::new(terminal, binding.pid, observer);
                for (ask, asker) in questions {
                    // Who asked may have gone.
                    let _ = asker.send(typist.answer(ask));
                }
            });
            for stream in self.listener.incoming().flatten() {
                if connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                    connections.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (sender, connections) = (sender.clone(), &connections);
                scope.spawn(move || {
                    let _ = wire::write(&stream, &answer_of(&stream, binding, &sender));
                    connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
    }
}

fn answer_of(
    stream: &UnixStream,
    binding: &Binding,
    answerer: &Sender<(TerminalAction, Sender<TerminalAnswer>)>,
) -> TerminalAnswer {
    match wire::read::<TerminalQuestion>(stream) {
        Err(error) => TerminalAnswer::Failed { detail: error.to_string() },
        Ok(question) if question.token != binding.token => {
            TerminalAnswer::Outcome(NudgeOutcome::Refused { deferral: Deferral::PaneReused })
        }
        Ok(question) => {
            let (asker, answer) = channel();
            let asked = answerer.send((question.ask, asker)).ok();
            asked
                .and_then(|()| answer.recv().ok())
                .unwrap_or_else(|| TerminalAnswer::Failed { detail: "the wrapper ends".to_owned() })
        }
    }
}

impl TerminalDoor {
    /// Removes the socket's file: nothing is asked any more.
    pub fn close(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for TerminalDoor {
    fn drop(&mut self) {
        self.close();
    }
}
