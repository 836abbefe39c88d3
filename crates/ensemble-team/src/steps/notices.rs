//! Notices to the orchestrator: stored with the change that causes them, posted afterwards.

use serde::{Deserialize, Serialize};

use super::db::{DbResult, values};
use super::working::{QueueRules, WorkingStep};
use super::{StepStore, WriteTransaction};
use ensemble_core::Result;
use ensemble_core::broker::Broker;
use ensemble_core::env::PublishOutcome;
use ensemble_core::message::{Digest, Envelope, MessageId, Name};

const SENDER: &str = "steps";
const BATCH: usize = 64;

/// A notice to the orchestrator; the body of a message of the same type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Notice {
    /// `step.blocked`, `step.failed` or `steps.done`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The subtask.
    pub task_id: String,
    /// The step; absent if the notice is about the whole queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_index: Option<u32>,
    /// The agent of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Name>,
    /// Goal of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Reasons why the step is stuck.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Commands that resolve it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<String>,
}

impl Notice {
    pub(super) fn about_step(
        kind: &str,
        step: &WorkingStep,
        attempt: u32,
        reasons: &[String],
    ) -> Self {
        let (task, index) = (&step.key.task_id, step.key.step_index);
        let on = match kind {
            "step.blocked" => "unblock",
            _ => "retry",
        };
        Self {
            kind: kind.to_owned(),
            task_id: task.clone(),
            step_index: Some(index),
            agent: Some(step.agent.clone()),
            goal: Some(step.goal.clone()),
            attempt: Some(attempt),
            reasons: reasons.to_vec(),
            remedies: [(on, ""), ("split", " -f PARTS"), ("skip", "")]
                .map(|(verb, file)| format!("ensemble step {verb} {task} {index}{file}"))
                .to_vec(),
        }
    }

    pub(super) fn about_queue(task_id: &str) -> Self {
        Self { kind: "steps.done".to_owned(), task_id: task_id.to_owned(), ..Self::default() }
    }
}

/// Stores a notice for the queue's orchestrator. If the queue has none, the notice of a stuck step goes to `instead`;
/// without that, the step is only in [`StepStore::standing`].
pub(super) fn owe(
    tx: &WriteTransaction<'_, '_>,
    (queue, instead): (&QueueRules, Option<&Name>),
    notice: Notice,
    epoch: u64,
) -> DbResult<()> {
    let instead = instead.filter(|_| notice.step_index.is_some());
    let Some(orchestrator) = queue.orchestrator.as_ref().or(instead) else { return Ok(()) };
    let index = notice.step_index.map(|index| index.to_string()).unwrap_or_default();
    let parts = [&notice.task_id, &queue.created_at, &index, &epoch.to_string(), &notice.kind];
    let digest = Digest::of_parts(&parts.map(|part| part.as_bytes()));
    tx.execute(
        "INSERT INTO step_notices (id, mailbox, type, task_id, step_index, body, \
           created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
        values![
            format!("n-{}", digest.short(40)),
            orchestrator,
            notice.kind,
            notice.task_id,
            notice.step_index,
            ensemble_core::message::yaml::render(&notice),
            tx.now,
        ],
    )
}

impl StepStore {
    /// Posts pending notices to orchestrators. A notice's message id is derived from its content,
    /// so it is delivered once. Returns the number of new messages.
    ///
    /// # Errors
    /// A mailbox is unknown or full, which keeps no other orchestrator's notice back, or
    /// [`StepError::Database`](super::StepError::Database). A later call posts the remaining notices.
    pub fn post_notices(&self, mail: &dyn Broker) -> Result<usize> {
        let (mut posted, mut last, mut failed) = (0, 0, None);
        loop {
            let owed = self.owed_notices(last)?;
            for (number, envelope) in &owed {
                last = *number;
                let to = mail.mailbox_of(&envelope.to);
                match mail.publish(&envelope.addressed_to(to)) {
                    Ok(outcome) => posted += usize::from(outcome == PublishOutcome::Stored),
                    Err(error) if error.is_server_away() => return Err(error),
                    Err(error) => {
                        failed.get_or_insert(error);
                        continue;
                    }
                }
                self.write("mark a notice in", |tx| {
                    let mark = "UPDATE step_notices SET posted = 1 WHERE number = ?1";
                    Ok(tx.execute(mark, values![number])?)
                })?;
            }
            if owed.len() < BATCH {
                return failed.map_or(Ok(posted), Err);
            }
        }
    }

    pub fn owes_notices(&self) -> Result<bool> {
        let select = "SELECT EXISTS (SELECT 1 FROM step_notices WHERE posted = 0)";
        self.read(|tx| tx.only(select, &[]))
    }

    fn owed_notices(&self, after: i64) -> Result<Vec<(i64, Envelope)>> {
        type Row = (i64, String, String, String, String, String, String);
        let rows: Vec<Row> = self.read(|tx| {
            tx.all(
                "SELECT number, id, mailbox, type, task_id, body, created_at \
                 FROM step_notices \
                 WHERE posted = 0 AND number > ?1 ORDER BY number LIMIT ?2",
                values![after, BATCH as i64],
            )
        })?;
        let sender = Name::new(SENDER)?;
        let envelope = |(number, id, mailbox, kind, task_id, body, created_at): Row| {
            let mut envelope = Envelope::new(Name::new(mailbox)?, body)
                .with_id(MessageId::new(id)?)
                .with_kind(Name::new(kind)?)
                .from(sender.clone())
                .with_task(task_id);
            // The time must be equal at each try, or a second try would be another message.
            envelope.created_at = created_at.parse()?;
            Ok((number, envelope))
        };
        rows.into_iter().map(envelope).collect()
    }
}
