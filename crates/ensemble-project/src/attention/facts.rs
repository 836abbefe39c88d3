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

/// The facts about an agent that its needs depend on.
#[derive(Clone, Debug)]
pub struct AgentView {
    /// Name of the agent.
    pub name: Name,
    /// State of the agent.
    pub state: State,
    /// Evidence for the state.
    pub why: String,
    /// Start of the state, if a watcher has seen it.
    pub since: Option<Timestamp>,
    /// Tasks in its hands.
    pub holds: Vec<String>,
    /// Unread messages.
    pub unread: u64,
    /// How long the oldest of them has waited.
    pub waited: Option<Duration>,
    /// The watcher's last note on its nudges.
    pub nudges: Option<String>,
    /// Whether a person can attach to it.
    pub has_pane: bool,
    /// The terminal in which the person has started it, if it runs in one.
    pub terminal: Option<String>,
    /// The command that starts it again once it is gone.
    pub again: String,
    /// The machine that it runs on, if that is another one.
    pub machine: Option<String>,
}

/// A task that became a dead letter.
#[derive(Clone, Debug)]
pub struct DeadTask {
    /// Mailbox of the letter.
    pub mailbox: Name,
    /// Id of the message.
    pub id: MessageId,
    /// The task.
    pub task: Option<String>,
    /// First words of the message.
    pub words: String,
    /// Reason of its death.
    pub reason: String,
    /// Time of its death.
    pub at: Option<Timestamp>,
    /// Whether it can be read. One that cannot only dies again when it is returned.
    pub is_readable: bool,
}

/// A file in a drop box that cannot be routed as it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrandedFile {
    /// Path of the file, below the queue.
    pub path: String,
    /// Reason why it is not routed.
    pub why: String,
    /// Advice for people.
    pub help: String,
}

/// Mail for the person who runs the team, not read yet.
#[derive(Clone, Debug)]
pub struct PersonMail {
    /// The message.
    pub id: MessageId,
    /// Sender of the message.
    pub from: Name,
    /// The person whose mailbox it is in.
    pub to: Name,
    /// First words of the message.
    pub words: String,
    /// What its sender does with it.
    pub act: MailAct,
    /// Time of its creation.
    pub at: Timestamp,
}

/// What the sender of mail for the person does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailAct {
    /// Writes.
    Writes,
    /// Answers a message.
    Answers,
    /// Agrees to be shut down.
    Leaves,
    /// Refuses to be shut down.
    Stays,
}

/// All that needs are taken from.
#[derive(Clone, Debug)]
pub struct NeedFacts<'a> {
    /// Time of the look.
    pub now: Timestamp,
    /// The command that starts a watcher.
    pub watcher_remedy: &'static str,
    /// The state of the watcher.
    pub watcher: WatcherState,
    /// Process of the watcher, if it is known.
    pub watcher_pid: Option<u32>,
    /// Why the servers cannot be asked, if they have the mailboxes.
    pub servers_away: Option<&'a AwayServers>,
    /// Parts that cannot be read.
    pub unreadable: &'a [UnreadablePart],
    /// Mail for the person, the oldest first.
    pub mail: &'a [PersonMail],
    /// The agents of the team.
    pub agents: &'a [AgentView],
    /// Requests without a decision.
    pub pending: &'a [AskedRequest],
    /// Requests that passed their deadline without a decision, and that call for a person.
    pub undecided: &'a [AskedRequest],
    /// Tasks that were settled without an approved plan, whose notice is not received.
    pub unplanned: &'a [UnplannedTask],
    /// Files in the drop boxes that cannot be routed as they are named.
    pub stranded: &'a [StrandedFile],
    /// Tasks that became dead letters.
    pub dead: &'a [DeadTask],
    /// All dead letters, among which a short id must be unique.
    pub dead_ids: &'a ShortIds,
    /// Ladders whose task was not received.
    pub ladders: &'a [LadderFile],
    /// Troubles of the board, and control files.
    pub troubles: &'a [BoardTrouble],
    /// Steps that wait for an intervention.
    pub steps: &'a [StuckStep],
    /// Budgets that are used up.
    pub parked: &'a [ParkedScope],
}
