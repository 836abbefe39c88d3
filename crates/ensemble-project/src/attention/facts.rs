//! The facts from which needs are derived.

use std::time::Duration;

use ensemble_core::driver::LadderFile;
use ensemble_core::message::{MessageId, Name, Timestamp};
use ensemble_core::requests::{AskedRequest, UnplannedTask};
use ensemble_team::budget::ParkedScope;
use ensemble_team::roster::State;
use ensemble_team::steps::StuckStep;

use super::{AwayServers, UnreadablePart, WatcherState};
use crate::short_ids::ShortIds;
use crate::troubles::BoardTrouble;

#[derive(Clone, Debug)]
pub struct AgentView {
    pub name: Name,
    pub state: State,
    pub why: String,
    /// Start of the state, if a watcher has seen it.
    pub since: Option<Timestamp>,
    pub holds: Vec<String>,
    pub unread: u64,
    pub waited: Option<Duration>,
    /// The watcher's last note on its nudges.
    pub nudges: Option<String>,
    pub has_pane: bool,
    /// The terminal in which the person has started it, if it runs in one.
    pub terminal: Option<String>,
    /// Whether it is in `ensemble.yaml` and was never started.
    pub is_new: bool,
    /// The command that starts it, once it is gone or if it is new.
    pub again: String,
    /// The machine that it runs on, if that is another one.
    pub machine: Option<String>,
}

impl AgentView {
    /// An agent without mail, work, pane and remedy.
    pub(crate) fn new(name: Name, state: State, why: String) -> Self {
        Self {
            name,
            state,
            why,
            since: None,
            holds: Vec::new(),
            unread: 0,
            waited: None,
            nudges: None,
            has_pane: false,
            terminal: None,
            is_new: false,
            again: String::new(),
            machine: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct DeadTask {
    pub mailbox: Name,
    pub id: MessageId,
    pub task: Option<String>,
    pub words: String,
    pub reason: String,
    pub at: Option<Timestamp>,
    /// Whether it can be read. One that cannot only dies again when it is returned.
    pub is_readable: bool,
}

/// A file in a drop box that cannot be routed as it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrandedFile {
    pub path: String,
    pub why: String,
    pub help: String,
}

#[derive(Clone, Debug)]
pub struct PersonMail {
    pub id: MessageId,
    pub from: Name,
    /// The project of the sender, if it is another one.
    pub project: Option<Name>,
    pub to: Name,
    pub words: String,
    pub act: MailAct,
    pub at: Timestamp,
}

/// What the sender of mail for the person does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailAct {
    Writes,
    Answers,
    Returns,
    Leaves,
    Stays,
}

#[derive(Clone, Debug)]
pub struct NeedFacts<'a> {
    pub now: Timestamp,
    pub watcher_remedy: &'static str,
    pub watcher: WatcherState,
    pub watcher_pid: Option<u32>,
    /// Why the servers cannot be asked, if they have the mailboxes.
    pub servers_away: Option<&'a AwayServers>,
    pub unreadable: &'a [UnreadablePart],
    /// Mail for the person, the oldest first.
    pub mail: &'a [PersonMail],
    pub agents: &'a [AgentView],
    pub pending: &'a [AskedRequest],
    /// Requests that passed their deadline without a decision, and that call for a person.
    pub undecided: &'a [AskedRequest],
    /// Tasks that were settled without an approved plan, whose notice is not received.
    pub unplanned: &'a [UnplannedTask],
    pub stranded: &'a [StrandedFile],
    pub dead: &'a [DeadTask],
    /// All dead letters, among which a short id must be unique.
    pub dead_ids: &'a ShortIds,
    pub ladders: &'a [LadderFile],
    /// Troubles of the board, and control files.
    pub troubles: &'a [BoardTrouble],
    pub steps: &'a [StuckStep],
    pub parked: &'a [ParkedScope],
}
