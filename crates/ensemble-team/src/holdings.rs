//! What an agent holds: the one answer for `team`, `status`, `whoami`, the page and the watcher.
//!
//! | held as | means |
//! |---|---|
//! | `message` | the agent has received it, and its lease runs |
//! | `task` | the agent has claimed it on the blackboard |
//! | `review` | the agent reviews it |
//! | `step` | the step queue has handed it out to the agent |
//!
//! One task may be held in several ways, such as a step and the message that brought it. [`tasks`] then
//! names it once. A place that does not exist holds nothing; one that cannot be read hides only what is held there.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::board::State;
#[cfg(feature = "steps")]
use crate::steps::StepStore;
use ensemble_core::broker::Broker;
use ensemble_core::mailboxes::visit_mailboxes;
use ensemble_core::message::{Envelope, MessagePurpose, Name};
use ensemble_core::{Error, Result};

pub const NAMED_MAX: usize = 8;
/// Length of the ids that Ensemble makes.
const WHOLE_CHARS: usize = 36;
const TEXT_CHARS_MAX: usize = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldAs {
    Message,
    Task,
    Review,
    Step,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Holding {
    /// The task; the id of a message without a task.
    pub task_id: String,
    #[serde(rename = "as")]
    pub held_as: HeldAs,
    /// Epoch of the delivery, claim, review or hand-out.
    pub epoch: u64,
    /// Worktree of a task of the blackboard, relative to the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// Sender of a message, with its project if that is another one.
    #[serde(skip)]
    pub from: Option<String>,
    #[serde(skip)]
    pub text: Option<String>,
}

impl Holding {
    const fn new(task_id: String, held_as: HeldAs, epoch: u64) -> Self {
        Self { task_id, held_as, epoch, worktree: None, from: None, text: None }
    }

    /// The task and the first words of what is held. The id of a message says nothing to a person.
    pub fn describe(&self) -> String {
        let is_message = self.held_as == HeldAs::Message && self.task_id.len() >= WHOLE_CHARS;
        match self.text.as_ref().filter(|text| !text.is_empty()) {
            Some(text) if is_message => format!("\"{text}\""),
            Some(text) => format!("{}: \"{text}\"", self.task_id),
            None => self.task_id.clone(),
        }
    }
}

#[derive(Clone, Copy)]
pub struct HoldingPlaces<'a> {
    mail: ReceivedMail<'a>,
    board: Option<&'a State>,
    #[cfg(feature = "steps")]
    steps: Option<&'a StepStore>,
}

#[derive(Clone, Copy)]
enum ReceivedMail<'a> {
    Queue(&'a dyn Broker),
    Read(&'a [(Name, Holding)]),
}

impl<'a> HoldingPlaces<'a> {
    pub const fn new(queue: &'a dyn Broker) -> Self {
        Self::of(ReceivedMail::Queue(queue))
    }

    /// Received messages that [`of_mailbox`] has read.
    pub const fn of_messages(held: &'a [(Name, Holding)]) -> Self {
        Self::of(ReceivedMail::Read(held))
    }

    const fn of(mail: ReceivedMail<'a>) -> Self {
        Self {
            mail,
            board: None,
            #[cfg(feature = "steps")]
            steps: None,
        }
    }

    pub const fn with_board(mut self, board: Option<&'a State>) -> Self {
        self.board = board;
        self
    }

    #[cfg(feature = "steps")]
    pub const fn with_steps(mut self, steps: Option<&'a StepStore>) -> Self {
        self.steps = steps;
        self
    }
}

/// What agents hold, except what could not be read.
#[derive(Debug, Default)]
pub struct KnownHoldings {
    /// Sorted, and at most [`NAMED_MAX`] of each kind for an agent.
    pub by_agent: BTreeMap<Name, Vec<Holding>>,
    /// Why a mailbox or the step database could not be read, each.
    pub unread: Vec<Error>,
}

pub fn holds(places: &HoldingPlaces<'_>, who: impl Fn(&Name) -> bool) -> Result<KnownHoldings> {
    let mut known = KnownHoldings::default();
    let KnownHoldings { by_agent: all, unread } = &mut known;
    match places.mail {
        ReceivedMail::Read(held) => {
            for (agent, holding) in held.iter().filter(|(agent, _)| who(agent)) {
                push(all.entry(agent.clone()).or_default(), holding.clone());
            }
        }
        ReceivedMail::Queue(queue) => {
            let bad = visit_mailboxes(queue.mailboxes()?, |mailbox| {
                for (agent, holding) in of_mailbox(queue, mailbox, &who)? {
                    push(all.entry(agent).or_default(), holding);
                }
                Ok(())
            })?;
            unread.extend(bad.into_iter().map(|bad| bad.error));
        }
    }
    let mut add = |agent: &Name, holding: Holding| {
        if who(agent) {
            push(all.entry(agent.clone()).or_default(), holding);
        }
    };
    for (agent, holding) in places.board.into_iter().flat_map(on_board) {
        add(agent, holding);
    }
    #[cfg(feature = "steps")]
    if let Some(steps) = places.steps {
        let held = steps.all_held().unwrap_or_else(|error| {
            unread.push(error);
            Vec::new()
        });
        for step in held {
            if let Some(agent) = &step.holder {
                add(agent, Holding::new(step.key.task_id.clone(), HeldAs::Step, step.epoch));
            }
        }
    }
    known.by_agent.values_mut().for_each(|held| held.sort_unstable());
    Ok(known)
}

/// The claimed tasks and reviews of a blackboard, with their holders.
pub fn on_board(state: &State) -> impl Iterator<Item = (&Name, Holding)> {
    state.tasks.iter().filter_map(|task| {
        let hold = task.hold()?;
        let held_as = if hold.is_review { HeldAs::Review } else { HeldAs::Task };
        let holding = Holding::new(task.id.to_string(), held_as, hold.epoch);
        Some((hold.by, Holding { worktree: task.worktree.clone(), ..holding }))
    })
}

/// The tasks among these, each named once.
pub fn tasks(held: &[Holding]) -> Vec<String> {
    let mut names: Vec<String> = held.iter().map(|holding| holding.task_id.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The same with the first words of messages.
pub fn describe_tasks(held: &[Holding]) -> Vec<String> {
    let mut named: Vec<&Holding> = held.iter().collect();
    // A message comes first among what brings the same task, and has its words.
    named.sort_unstable();
    named.dedup_by(|later, earlier| later.task_id == earlier.task_id);
    named.into_iter().map(Holding::describe).collect()
}

fn push(held: &mut Vec<Holding>, holding: Holding) {
    let same = held.iter().filter(|other| other.held_as == holding.held_as).count();
    if same < NAMED_MAX && !held.contains(&holding) {
        held.push(holding);
    }
}

/// The first words of a message. A notice is written for programs, so its type says more.
fn describe_envelope(envelope: &Envelope) -> String {
    match envelope.purpose() {
        MessagePurpose::Notice => envelope.kind.as_str().replace(['_', '.'], " "),
        _ => envelope.first_words(TEXT_CHARS_MAX),
    }
}

/// The received messages of a mailbox that these agents have not settled, at most [`NAMED_MAX`] of each agent.
pub fn of_mailbox(
    queue: &dyn Broker,
    mailbox: &Name,
    who: impl Fn(&Name) -> bool,
) -> Result<Vec<(Name, Holding)>> {
    let mut all: Vec<(Name, Holding)> = Vec::new();
    for lease in queue.observe(mailbox)?.into_iter().map(|observed| observed.lease) {
        let held = all.iter().filter(|(holder, _)| *holder == lease.holder).count();
        if held < NAMED_MAX && who(&lease.holder) {
            let envelope = queue.peek(mailbox, &lease.id).ok();
            let task = envelope.as_ref().and_then(|envelope| envelope.task_id.clone());
            let task_id = task.unwrap_or_else(|| lease.id.to_string());
            let mut holding = Holding::new(task_id, HeldAs::Message, lease.epoch);
            holding.text = envelope.as_ref().map(describe_envelope);
            holding.from = envelope.map(|envelope| envelope.sender_address());
            all.push((lease.holder, holding));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_core::proto::testing::name;
    use ensemble_core::spool::{Spool, SpoolOptions};

    #[test]
    fn messages_tasks_and_reviews_are_held_together_and_each_task_is_named_once() {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default()).unwrap();
        let bob = name("bob");
        spool.add_mailbox(&bob, &Default::default()).unwrap();
        let mut task = Envelope::new(bob.clone(), "do it");
        task.task_id = Some("t1".to_owned());
        spool.publish(&task).unwrap();
        spool.receive(&bob, &bob).unwrap().unwrap();
        let text = "tasks:\n\
             - {id: t1, status: CLAIMED, assigned_to: bob, lease_epoch: 7, worktree: w/t1}\n\
             - {id: t2, status: READY_FOR_REVIEW, assigned_to: ann, reviewing_by: bob}\n\
             - {id: t3, status: MERGED, assigned_to: bob}\n";
        let state: State = ensemble_core::message::yaml::parse(text, home.path()).unwrap();
        let places = HoldingPlaces::new(&spool).with_board(Some(&state));
        let held = holds(&places, |_| true).unwrap().by_agent;
        assert_eq!(held.keys().collect::<Vec<_>>(), [&bob]);
        let ways: Vec<(&str, HeldAs)> =
            held[&bob].iter().map(|h| (h.task_id.as_str(), h.held_as)).collect();
        assert_eq!(ways, [("t1", HeldAs::Message), ("t1", HeldAs::Task), ("t2", HeldAs::Review)]);
        assert_eq!(tasks(&held[&bob]), ["t1", "t2"]);
        assert_eq!(describe_tasks(&held[&bob]), ["t1: \"do it\"", "t2"]);
        let numbers: Vec<(u64, Option<&str>)> =
            held[&bob].iter().map(|h| (h.epoch, h.worktree.as_deref())).collect();
        assert_eq!(numbers, [(1, None), (7, Some("w/t1")), (0, None)]);
        assert!(holds(&places, |agent| *agent == name("ann")).unwrap().by_agent.is_empty());
        let notice = Envelope::new(bob, "request_id: p1").with_kind(name("plan_approval_response"));
        assert_eq!(describe_envelope(&notice), "plan approval response");
    }
}
