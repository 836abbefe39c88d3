//! Errors of tmux servers.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::AreaError;

/// A tmux server did not do what it was asked for. Callers find it by
/// [`Error::area`](ensemble_core::Error::area). `operation` is an infinitive, such as `list panes`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TmuxError {
    /// No server listens on the socket.
    #[error(
        "cannot {operation} at tmux server {}: no server is running there: start one with `tmux new`",
        socket.display()
    )]
    NoServer {
        /// The refused operation.
        operation: &'static str,
        /// The server's socket.
        socket: PathBuf,
    },
    /// The server did not answer within the limit. Nothing was done.
    #[error(
        "cannot {operation} at tmux server {}: no answer within {} s: the server may be stopped or overloaded; try again later",
        socket.display(),
        limit.as_secs()
    )]
    Timeout {
        /// The operation without an answer.
        operation: &'static str,
        /// The server's socket.
        socket: PathBuf,
        /// The limit of one exchange.
        limit: Duration,
    },
    /// The connection ended between question and answer. The operation may have been done.
    #[error(
        "cannot {operation} at tmux server {}: the connection ended before the answer came, so it is not known whether it was done: look at the pane before trying again",
        socket.display()
    )]
    Lost {
        /// The operation without an answer.
        operation: &'static str,
        /// The server's socket.
        socket: PathBuf,
    },
    /// The server answered with a complaint.
    #[error("cannot {operation} at tmux server {}: {complaint}", socket.display())]
    Refused {
        /// The refused operation.
        operation: &'static str,
        /// The server's socket.
        socket: PathBuf,
        /// The message that tmux printed, in one line.
        complaint: String,
    },
    /// The wrapper of an agent did not do what it was asked for.
    #[error("cannot {operation} at {}: {complaint}", socket.display())]
    Terminal {
        /// The refused operation.
        operation: &'static str,
        /// The wrapper's socket.
        socket: PathBuf,
        /// The reason, in one line.
        complaint: String,
    },
    /// The directory for sockets belongs to another user, or others may enter it.
    #[error("{} is not private to you: remove it", path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
    },
}

impl AreaError for TmuxError {}
