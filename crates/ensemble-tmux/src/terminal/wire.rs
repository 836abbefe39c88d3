//! Requests to a terminal through its socket: one line of JSON each way, one question a connection.
//!
//! ```text
//! {"token":"…","ask":{"what":"look"}}                                 {"answer":"pane", …}
//! {"token":"…","ask":{"what":"nudge","text":"…","repeats":false}}     {"answer":"outcome","outcome":"sent"}
//! {"token":"…","ask":{"what":"press","key":"escape"}}                 {"answer":"outcome","outcome":"refused", …}
//! anything else                                                       {"answer":"failed","detail":"…"}
//! ```

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::provider::UnsentLine;
use ensemble_core::pane::{Key, NudgeOutcome, PaneState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest question or answer, in bytes: a screen of 500 by 500 cells of four bytes each, and its frame.
const LINE_BYTES_MAX: usize = 1_200_000;
const CHUNK_BYTES: usize = 16 * 1024;
/// How long one side waits for the other. A line may wait [`LINE_PATIENCE`](crate::tmux::LINE_PATIENCE) to be shown.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TerminalQuestion {
    /// The token of the binding: another agent's terminal does nothing.
    pub(super) token: String,
    pub(super) ask: TerminalAction,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum TerminalAction {
    Look {},
    Nudge {
        text: String,
        /// The line only repeats an earlier nudge.
        #[serde(default)]
        repeats: bool,
        /// A usage limit without an end is not a reason against it.
        #[serde(default)]
        probes: bool,
        /// A turn that runs is not a reason against it: the line steers it.
        #[serde(default)]
        steers: bool,
    },
    Submit {
        text: String,
    },
    Press {
        key: Key,
    },
    /// Type the profile's reset command and submit it.
    Reset {},
    WithdrawPing {},
    /// Withdraw our unsent line if nothing else is in the composer.
    WithdrawLine {},
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum TerminalAnswer {
    Pane {
        state: PaneState,
        #[serde(default)]
        line: UnsentLine,
    },
    Outcome(NudgeOutcome),
    /// The question was none.
    Failed {
        detail: String,
    },
}

pub(super) fn write<T: Serialize>(mut stream: &UnixStream, value: &T) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Receives one line. The other side has [`PATIENCE`] for all of it.
pub(super) fn read<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    let (mut line, mut chunk) = (Vec::new(), [0; CHUNK_BYTES]);
    while !line.ends_with(b"\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match (&*stream).read(&mut chunk)? {
            0 => break,
            count => line.extend_from_slice(&chunk[..count]),
        }
        if line.len() > LINE_BYTES_MAX {
            let text = format!("the line has more than {LINE_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    }
    Ok(serde_json::from_slice(&line)?)
}
