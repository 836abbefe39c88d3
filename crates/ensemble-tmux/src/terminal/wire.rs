//! What is asked of a terminal through its socket: one line of JSON each way, one question a connection.
//!
//! ```text
//! {"token":"…","ask":{"what":"look"}}                                 {"answer":"pane", …}
//! {"token":"…","ask":{"what":"nudge","text":"…","repeats":false}}     {"answer":"outcome","outcome":"sent"}
//! {"token":"…","ask":{"what":"press","key":"escape"}}                 {"answer":"outcome","outcome":"refused", …}
//! anything else                                                       {"answer":"failed","detail":"…"}
//! ```

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ensemble_core::pane::{Key, NudgeOutcome, PaneState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest question or answer, in bytes: a screen of 500 by 500 cells of four bytes each, and its frame.
const LINE_BYTES_MAX: u64 = 1_200_000;
/// How long one side waits for the other. A line may wait [`LINE_PATIENCE`](crate::tmux::LINE_PATIENCE) to be shown.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question to a terminal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    /// The token of the binding: another agent's terminal does nothing.
    pub(super) token: String,
    pub(super) ask: Ask,
}

/// The action that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Ask {
    /// Show the screen.
    Look {},
    /// Type a line and submit it.
    Nudge {
        text: String,
        /// The line only repeats what the agent was told.
        #[serde(default)]
        repeats: bool,
        /// A usage limit without an end is no reason against it.
        #[serde(default)]
        probes: bool,
    },
    /// Submit a line that stands in the composer.
    Submit { text: String },
    /// Press a key.
    Press { key: Key },
    /// Type the profile's reset command and submit it.
    Reset {},
    /// Take back a ping that stands in the composer.
    WithdrawPing {},
}

/// The answer of a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// The screen and the processes.
    Pane { state: PaneState },
    /// What became of the keys.
    Outcome(NudgeOutcome),
    /// The question was none.
    Failed { detail: String },
}

/// Sends one line.
pub(super) fn write<T: Serialize>(mut stream: &UnixStream, value: &T) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Receives one line.
pub(super) fn read<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<T> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}
