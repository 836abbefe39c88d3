//! The socket at which a wrapper answers.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::typist::{Terminal, Typist};
use super::wire::{self, Answer, Question};
use crate::provider::Observer;
use crate::tmux::Binding;
use ensemble_core::pane::{Deferral, NudgeOutcome};
use ensemble_core::{Error, Result};

/// Only its owner may ask.
const MODE: u32 = 0o600;

/// Answers questions about one terminal, one after another. The socket's file is removed at the end.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// Opens a socket at `path`. One that a killed wrapper has left is replaced.
    ///
    /// # Errors
    /// Another wrapper listens there, or the socket cannot be made.
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
    pub fn serve(&self, terminal: impl Terminal, binding: &Binding, observer: Observer) {
        let mut typist = Typist::new(terminal, binding.pid, observer);
        for stream in self.listener.incoming().flatten() {
            let answer = match wire::read::<Question>(&stream) {
                Err(error) => Answer::Failed { detail: error.to_string() },
                Ok(question) if question.token != binding.token => {
                    Answer::Outcome(NudgeOutcome::Refused { deferral: Deferral::PaneReused })
                }
                Ok(question) => typist.answer(question.ask),
            };
            // Who asked may have gone.
            let _ = wire::write(&stream, &answer);
        }
    }
}

impl Door {
    /// Removes the socket's file: nothing is asked any more.
    pub fn close(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}
