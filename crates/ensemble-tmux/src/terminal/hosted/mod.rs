//! Agents in panes of multiplexers other than tmux: zellij and herdr.
//!
//! Such a pane is a [`PseudoTerminal`], so the rules for typing are those of [`terminal`](super), word for
//! word: nothing is typed into a dialog, a draft or a shell's command, and Enter is pressed only behind exactly our
//! line. What a multiplexer does not reveal is treated as an obstacle, never as permission.
//!
//! | | tmux | our terminal | zellij | herdr |
//! |---|---|---|---|---|
//! | known by | token and first process | its process | first process | first process |
//! | asked through | one control-mode client | the wrapper's socket | `zellij action`, a process each time | its socket |
//! | cursor | always | always | while it is shown | never: no line is typed into scripts and shells |
//! | a person scrolls | puts a line off | does not matter | not revealed | puts a line off |
//! | a person types as we look | seen by the server | kept back | seen before Enter | seen before Enter |
//! | what it says itself | – | – | – | an agent that is `blocked` is left alone |
//! | can start an agent in it | yes | no | no | no |
//!
//! A binding whose id is an address ([`PaneAddress`]) names such a pane. The caller in it is recognized by the process
//! tree, as in tmux; the variables of its environment prove nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use ensemble_core::agent::AgentState;
use ensemble_core::message::{Digest, Name};
use ensemble_core::pane::Deferral;
use ensemble_core::{Error, Result};

use super::{LineSubmission, PseudoTerminal, TerminalSnapshot};
use crate::provider::AgentObserver;
use crate::provider::process::{line_of, start_time};
use crate::tmux::{Binding, TmuxError};

mod activity;
mod herdr;
mod typing;
mod zellij;

pub use activity::HostedActivity;
pub(super) use typing::answer_action;

/// The time between two looks while a line is not shown yet.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Digits of a binding's token, as in [`Binding::of_terminal`].
const TOKEN_DIGITS: usize = 32;
const OPERATION: &str = "bind a pane";
/// The place of a cursor that is not shown: beyond every screen.
const CURSOR_UNKNOWN: (u32, u32) = (u32::MAX, u32::MAX);

pub type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The address of a pane: `zellij:SESSION/PANE` or `herdr:PANE`.
///
/// ```
/// use ensemble_tmux::terminal::hosted::PaneAddress;
/// let address: PaneAddress = "zellij:main/3".parse().unwrap();
/// assert_eq!(address.to_string(), "zellij:main/3");
/// assert!("zellij:main".parse::<PaneAddress>().is_err());
/// assert!("%3".parse::<PaneAddress>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PaneAddress {
    /// `pane` as in `ZELLIJ_PANE_ID`.
    Zellij { session: String, pane: u32 },
    /// `pane` is its public id, such as `w1:p1`.
    Herdr { pane: String },
}

/// A text that is not the address of a pane of another multiplexer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the address of a pane: give zellij:SESSION/PANE or herdr:PANE")]
pub struct PaneAddressError(String);

impl FromStr for PaneAddress {
    type Err = PaneAddressError;

    fn from_str(text: &str) -> std::result::Result<Self, PaneAddressError> {
        let refuse = || PaneAddressError(text.to_owned());
        match text.split_once(':').ok_or_else(refuse)? {
            ("zellij", place) => {
                let (session, pane) = place.rsplit_once('/').ok_or_else(refuse)?;
                let is_name = |c: char| !c.is_control() && c != '/';
                match pane.parse() {
                    Ok(pane) if !session.is_empty() && session.chars().all(is_name) => {
                        Ok(Self::Zellij { session: session.to_owned(), pane })
                    }
                    _ => Err(refuse()),
                }
            }
            ("herdr", pane) => {
                let is_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '-');
                match !pane.is_empty() && pane.chars().all(is_id) {
                    true => Ok(Self::Herdr { pane: pane.to_owned() }),
                    false => Err(refuse()),
                }
            }
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for PaneAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zellij { session, pane } => write!(f, "zellij:{session}/{pane}"),
            Self::Herdr { pane } => write!(f, "herdr:{pane}"),
        }
    }
}

/// A multiplexer's pane, with the few things that it is asked for.
trait HostedPane: fmt::Debug + Send + Sync {
    /// Its screen and state; `None` if there is no such pane.
    fn observe_screen(&self) -> io::Result<Option<HostedScreen>>;
    fn write_bytes(&self, bytes: &[u8]) -> io::Result<()>;
    /// Has the multiplexer type and submit a line, if it checks the agent itself.
    fn submit_line(&self, _text: &str) -> io::Result<LineSubmission> {
        Ok(LineSubmission::Unsupported)
    }
    fn close_pane(&self) -> io::Result<()>;
    fn report_state(&self, _agent: &Name, _state: AgentState) -> io::Result<()> {
        Ok(())
    }
    /// Shows beside it how much mail waits and is held.
    fn show_mail(&self, _mail: MailCount) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Default)]
struct HostedScreen {
    shown: TerminalSnapshot,
    refusal: Option<Deferral>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailCount {
    pub unread: u64,
    pub held: u64,
}

impl Binding {
    pub fn is_hosted(&self) -> bool {
        self.id.parse::<PaneAddress>().is_ok()
    }

    pub fn is_in_tmux(&self) -> bool {
        !self.is_terminal() && !self.is_hosted()
    }

    /// Closes the pane of another multiplexer that was bound; one that is gone already is fine.
    pub(crate) fn close_hosted(&self) -> Result<()> {
        self.with_hosted("close a pane", |pane| pane.close_pane())
    }

    /// Reports the state of the agent in the pane, where its multiplexer shows that and does not know it by itself.
    pub fn report_state(&self, agent: &Name, state: AgentState) -> Result<()> {
        self.with_hosted("report a state", |pane| pane.report_state(agent, state))
    }

    /// Shows beside the pane how much mail its agent has, where its multiplexer has a place for that.
    pub fn show_mail(&self, mail: MailCount) -> Result<()> {
        self.with_hosted("show mail", |pane| pane.show_mail(mail))
    }

    /// Does something with the pane, unless it is gone or another one by now.
    fn with_hosted(
        &self,
        operation: &'static str,
        act: impl FnOnce(&dyn HostedPane) -> io::Result<()>,
    ) -> Result<()> {
        match open_pane(self) {
            Some(pane) if self.is_same_process() => {
                act(&*pane).map_err(|error| failed(operation, &self.socket, &error))
            }
            _ => Ok(()),
        }
    }
}

/// Binds the pane at an address. It is known by its first process from then on. `variable` says which herdr is meant.
///
/// # Errors
/// There is no such pane, its multiplexer does not answer, or the system does not reveal its first process.
pub fn bind_address(address: &PaneAddress, variable: VariableLookup<'_>) -> Result<Binding> {
    let found = match address {
        PaneAddress::Zellij { session, pane } => zellij::find_process(session, *pane),
        PaneAddress::Herdr { .. } => {
            return bind_herdr(&herdr::socket_around(variable), address);
        }
    };
    match found.map_err(|error| failed(OPERATION, Path::new("zellij"), &error))? {
        Some((socket, pid)) => bind_process(address, socket, Some(pid)),
        None => bind_process(address, "zellij".into(), None),
    }
}

/// As [`bind_address`], for a pane of the herdr server at `socket`.
pub fn bind_herdr(socket: &Path, address: &PaneAddress) -> Result<Binding> {
    let found = match address {
        PaneAddress::Herdr { pane } => herdr::find_process(socket, pane),
        PaneAddress::Zellij { .. } => Ok(None),
    };
    let found = found.map_err(|error| failed(OPERATION, socket, &error))?;
    bind_process(address, socket.to_owned(), found)
}

fn bind_process(address: &PaneAddress, socket: PathBuf, found: Option<u32>) -> Result<Binding> {
    let missing = |socket: &Path| {
        let detail = format!("there is no pane {address}, or the system hides its process");
        failed(OPERATION, socket, &io::Error::other(detail))
    };
    let pid = found.ok_or_else(|| missing(&socket))?;
    let started = start_time(pid);
    let seed = format!("{}\n{address}\n{pid}\n{started:?}", socket.display());
    let token = Digest::of(seed.as_bytes()).short(TOKEN_DIGITS);
    let binding = Binding { socket, id: address.to_string(), token, pid, started };
    let shown = open_pane(&binding).map(|pane| pane.observe_screen()).transpose();
    match shown.map_err(|error| failed(OPERATION, &binding.socket, &error))?.flatten() {
        Some(_) => Ok(binding),
        None => Err(missing(&binding.socket)),
    }
}

/// Binds the pane around this process, if it is one of zellij or herdr. The environment only says where to look: the
/// first process of the pane must be an ancestor of this one. Returns how many processes are between them, too.
pub fn bind_surrounding(variable: VariableLookup<'_>) -> Option<(usize, Binding)> {
    let line = line_of(std::process::id());
    let place = |binding: Binding| {
        let at = line.iter().position(|(pid, _)| *pid == binding.pid)?;
        Some((at, binding))
    };
    let bound = |address: &PaneAddress| bind_address(address, variable).ok();
    let around = addresses_around(variable);
    around.iter().filter_map(bound).filter_map(place).min_by_key(|(at, _)| *at)
}

/// The panes of zellij and herdr that the environment names as those around this process.
pub fn addresses_around(variable: VariableLookup<'_>) -> Vec<PaneAddress> {
    let zellij = variable("ZELLIJ_SESSION_NAME")
        .zip(variable("ZELLIJ_PANE_ID"))
        .map(|(session, pane)| format!("zellij:{session}/{pane}"));
    let herdr = variable("HERDR_PANE_ID").map(|pane| format!("herdr:{pane}"));
    zellij.into_iter().chain(herdr).filter_map(|address| address.parse().ok()).collect()
}

fn open_pane(binding: &Binding) -> Option<Box<dyn HostedPane>> {
    let socket = binding.socket.clone();
    Some(match binding.id.parse().ok()? {
        PaneAddress::Zellij { session, pane } => {
            Box::new(zellij::ZellijPane { socket, session, pane })
        }
        PaneAddress::Herdr { pane } => Box::new(herdr::HerdrPane { socket, pane }),
    })
}

fn failed(operation: &'static str, socket: &Path, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound && error.to_string().contains("zellij") {
        let remedy = "install zellij 0.45 or newer, or run agents in tmux";
        return Error::MissingProgram { program: "zellij", remedy };
    }
    let (socket, complaint) = (socket.to_owned(), error.to_string());
    TmuxError::Terminal { operation, socket, complaint }.into()
}
