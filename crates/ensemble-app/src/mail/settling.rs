//! Settling, as the command and the MCP server do it. A request without an answer is not settled,
//! and the end of a task is recorded.
//!
//! ```text
//! the message             the agent that settles it                          settle
//! held                    its holder                                         settles it
//! queued again, delayed   its last holder, and no other delivery since       settles it
//! settled                 any, if the report of its task has settled it,     has nothing to do, and succeeds
//!                         or the answer to its question
//! held                    another                                            is refused
//! any other               any                                                is refused
//! ```
//!
//! `--epoch N` refuses every delivery but that one, so a lease that has ended never ends a later delivery.

use ensemble_core::Error;
use ensemble_core::broker::TaskEnd;
use ensemble_core::env::Lease;
use ensemble_core::message::{MessageId, Name, shell_word};
use ensemble_core::requests::RequestStore;
use ensemble_core::spool::State;
use ensemble_team::driver::STEP_TYPE;

use crate::App;
use crate::diagnostics::say;
use crate::exit_code::VerbExit;
use crate::failure::{Failure, Outcome};
use crate::queue::ProjectQueue;
use crate::steps::refuse_open_step;
use crate::watcher_start::watcher_runs;

pub enum UnheldMessage {
    /// It was the last holder, and holds the message again.
    Again(Lease),
    /// The report of this task has settled the message.
    Reported(String),
    /// The answer to the question has settled the message.
    Answered,
    None,
}

/// Settles a held message.
pub fn settle_lease(app: &App, store: &dyn RequestStore, lease: &Lease) -> Outcome {
    let (project, recorder, queue) = (app.project()?, app.recorder()?, store.broker());
    // A message that cannot be read neither asks anything nor ends a task; settling then shows what has happened to it.
    let envelope = queue.peek(&lease.mailbox, &lease.id).ok();
    if let Some(envelope) = &envelope {
        project.requests(store)?.refuse_unanswered(envelope)?;
        let task = envelope.task_id.as_deref().filter(|_| envelope.kind.as_str() == STEP_TYPE);
        if let Some(task) = task {
            let id = Some(lease.id.as_str());
            refuse_open_step(app, task, |_, message| message == id)?;
        }
    }
    queue.settle(lease)?;
    if let Some(envelope) = &envelope
        && let Err(error) = project.task_ends().settled(envelope, &lease.holder, &*recorder)
    {
        // The message is settled anyway.
        say(&format!("warning: the end of the task is not in the log: {error}"));
    }
    Ok(())
}

/// What settling means for an agent that does not hold the message, by the table of this module. `epoch` is the
/// delivery that the agent means, if it names one.
pub fn judge_unheld(
    app: &App,
    store: &dyn RequestStore,
    (mailbox, id): (&Name, &MessageId),
    state: &State,
    agent: Option<&Name>,
    epoch: Option<u64>,
) -> Outcome<UnheldMessage> {
    let (project, queue) = (app.project()?, store.broker());
    match state {
        State::Settled => {
            let Ok(envelope) = queue.peek(mailbox, id) else { return Ok(UnheldMessage::None) };
            let asked = project.requests(store)?.find_asked(&envelope)?;
            if asked.is_some_and(|entry| entry.decision.is_some()) {
                return Ok(UnheldMessage::Answered);
            }
            let task = envelope.task_id.unwrap_or_else(|| id.to_string());
            let is_its = project.task_ends().was_reported(&task, id)?;
            Ok(if is_its { UnheldMessage::Reported(task) } else { UnheldMessage::None })
        }
        State::Queued { epoch: last, .. } if *last > 0 && epoch.is_none_or(|n| n == *last) => {
            let Some(agent) = agent else { return Ok(UnheldMessage::None) };
            let is_former = mailbox == agent
                || queue
                    .former_holders(mailbox)?
                    .iter()
                    .any(|former| (&former.id, &former.holder, former.epoch) == (id, agent, *last));
            let again = match is_former {
                true => queue.receive_done(mailbox, id, agent)?,
                false => None,
            };
            Ok(again.map_or(UnheldMessage::None, |delivery| UnheldMessage::Again(delivery.lease)))
        }
        State::Queued { .. } | State::Acked { .. } | State::Dead => Ok(UnheldMessage::None),
    }
}

/// The task that the author of a report means; as it was written if that cannot be found out.
pub fn find_meant_task(app: &App, task: &str, author: &Name) -> String {
    let find = || {
        let queue = ProjectQueue::open(app)?;
        Ok(app.project()?.task_ends().meant_task(&*queue, task, author)?)
    };
    let found: Outcome<String> = find();
    found.unwrap_or_else(|_| task.to_owned())
}

/// Refuses a report on a task that came back from review too often.
pub fn refuse_stopped(app: &App, task: &str) -> Outcome {
    let Some(text) = app.project()?.reviews().get(task)?.refusal() else { return Ok(()) };
    Err(Failure::refused(text).with_hint(format!(
        "the conductor decides: `ensemble task review {} --lift` lets it continue, or it stays stopped",
        shell_word(task)
    )))
}

/// An agent's report on a task, and the queue in which the task's messages are.
pub struct ReportContext<'a> {
    app: &'a App,
    task: &'a str,
    author: &'a Name,
    queue: Outcome<ProjectQueue>,
}

impl<'a> ReportContext<'a> {
    /// # Errors
    /// The agent holds a step of this task, which ends by its submission.
    pub fn open(app: &'a App, task: &'a str, author: &'a Name) -> Outcome<Self> {
        refuse_open_step(app, task, |step, _| step.agent == *author)?;
        Ok(Self { app, task, author, queue: ProjectQueue::open(app) })
    }

    /// The attempt that the report is of, if the task has attempts and its messages can be read.
    pub fn attempt(&self) -> Option<u32> {
        let ends = self.app.project().ok()?.task_ends();
        ends.attempt(&**self.queue.as_ref().ok()?, self.task, self.author).ok()?
    }

    /// Settles the messages of the task. A failure is only a warning: the report is stored, and the watcher will
    /// settle what this process has not. But where a full disk or a lock is in the way here, it is an error: without a
    /// watcher, the reported task would be handed out again.
    pub fn settle(self, attempt: Option<u32>) -> Outcome<Vec<MessageId>> {
        let task = self.task;
        let is_here = self.queue.as_ref().is_ok_and(|queue| queue.directory().is_some());
        self.ended(attempt).or_else(|failure| {
            let text = format!("the messages of {task} are not settled: {}", failure.text());
            if is_here && failure.exit() == VerbExit::Busy {
                let stored =
                    Failure::new(VerbExit::Busy, format!("the report is stored, but {text}"));
                return Err(stored.with_hint("report it again"));
            }
            say(&format!("warning: {text}"));
            Ok(Vec::new())
        })
    }

    fn ended(self, attempt: Option<u32>) -> Outcome<Vec<MessageId>> {
        let Self { app, task, author, queue } = self;
        let (queue, project, recorder) = (queue?, app.project()?, app.recorder()?);
        let everywhere = TaskEnd { task, author, written_at: None, attempt, only_in: None };
        let end_in = |end: &TaskEnd<'_>| {
            let ended = project.task_ends().settle_reported(&*queue, end, &*recorder)?;
            Ok(ended.into_iter().map(|message| message.id).collect::<Vec<_>>())
        };
        if queue.directory().is_none() {
            // To look at all mailboxes of a team on servers costs as much as it has open messages. The watcher
            // follows them in any case, and nearly always the message is in the author's own mailbox.
            let own = match end_in(&TaskEnd { only_in: Some(author), ..everywhere }) {
                Err(Error::NoMailbox { .. }) => Vec::new(),
                other => other?,
            };
            if !own.is_empty() || watcher_runs(project) {
                return Ok(own);
            }
            queue.overlook()?;
        }
        Ok(end_in(&everywhere)?)
    }
}
