//! Errors of tmux servers.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::AreaError;

/// A tmux server did not do what it was asked for. Callers find it by
/// [`Error::area`](ensemble_core::Error::area). `operation` is an infinitive, such as `list panes`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TmuxError {
    #[error(
        "cannot {operation} at tmux server {}: no server is running there: start one with `tmux new`",
        socket.display()
    )]
    NoServer { operation: &'static str, socket: PathBuf },
    #[error(
        "cannot {operation} at tmux server {}: no answer within {} s: the server may be stopped or overloaded; try again later",
        socket.display(),
        limit.as_secs()
    )]
    Timeout { operation: &'static str, socket: PathBuf, limit: Duration },
    #[error(
        "cannot {operation} at tmux server {}: the connection ended before the answer came, so it is not known whether it was done: look at the pane before trying again",
        socket.display()
    )]
    Lost { operation: &'static str, socket: PathBuf },
    #[error("cannot {operation} at tmux server {}: {complaint}", socket.display())]
    Refused {
        operation: &'static str,
        socket: PathBuf,
        /// The message that tmux printed, in one line.
        complaint: String,
    },
    #[error("cannot {operation} at {}: {complaint}", socket.display())]
    Terminal { operation: &'static str, socket: PathBuf, complaint: String },
    #[error("{} is not private to you: remove it", path.display())]
    NotPrivate { path: PathBuf },
}

impl AreaError for TmuxError {}
