//! The parts of the overview that are not about single agents.

use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::driver::{LadderFile, LadderState, LadderStore};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Name, Purpose};
use ensemble_core::spool::{Glance, Spool};
use ensemble_core::{Error, Result};

use super::MailboxView;
use crate::attention::DeadTask;
use crate::project::Project;
use crate::workload::Books;

/// Messages are counted up to here; an exact count of more takes long.
pub const COUNT_MAX: u64 = 1000;
/// Most dead letters that are read of one mailbox.
const DEAD_READ_MAX: usize = 50;

/// The age of a message that was made at that time, in milliseconds since 1970.
#[must_use]
pub fn since_millis(made_at: u64) -> Duration {
    let now = u64::try_from(SystemClock.wall().unix_millis()).unwrap_or(0);
    Duration::from_millis(now.saturating_sub(made_at))
}

/// A mailbox at a glance; in a directory counted up to `limit`.
///
/// # Errors
/// The mailbox is unknown or cannot be listed.
pub fn glance(
    queue: &dyn Broker,
    directory: Option<&Spool>,
    mailbox: &Name,
    limit: u64,
) -> Result<Glance> {
    if let Some(spool) = directory {
        return spool.glance(mailbox, limit);
    }
    let counts = queue.scan(mailbox)?;
    let mut glance = Glance::default();
    (glance.waiting, glance.delayed) = (counts.queued, counts.delayed);
    (glance.held, glance.dead) = (counts.acked, counts.dead);
    Ok(glance)
}

pub(super) fn mailboxes(
    queue: &dyn Broker,
    directory: Option<&Spool>,
    warnings: &mut Vec<String>,
) -> Result<Vec<MailboxView>> {
    let mut all = Vec::new();
    for name in queue.mailboxes()? {
        let glance = match glance(queue, directory, &name, COUNT_MAX) {
            // Removed since it was listed.
            Err(Error::NoMailbox { .. }) => continue,
            other => other?,
        };
        // Damage that `fsck` repairs must not hide the rest.
        let overflow = directory.map_or(Ok(None), |spool| spool.overflow(&name));
        let overflow = overflow.unwrap_or_else(|error| {
            warnings.push(error.to_string());
            None
        });
        all.push(MailboxView { name, glance, overflow });
    }
    Ok(all)
}

/// The tasks whose ack is waited for, the highest phase first.
pub(super) fn ladders(project: &Project) -> Result<Vec<LadderFile>> {
    let all = LadderStore::new(&project.state).all()?.into_iter().map(|(_, file)| file);
    let mut open: Vec<LadderFile> = all.filter(|file| file.state != LadderState::Acked).collect();
    open.sort_by_key(|file| (std::cmp::Reverse((file.state, file.phase)), file.began_ms));
    for file in &mut open {
        // For the conductor, who has it in a file.
        file.escalation = None;
    }
    Ok(open)
}

/// The tasks of the blackboard that are not finished.
pub(super) fn open_tasks(books: &Books) -> u64 {
    let tasks = books.board().map_or(&[][..], |board| &board.tasks);
    tasks.iter().filter(|task| !task.status.is_terminal()).count() as u64
}

/// Tasks that became dead letters, and that no later attempt replaces. Requests and notices need no person.
pub(super) fn dead_tasks(queue: &dyn Broker, mailboxes: &[MailboxView]) -> Result<Vec<DeadTask>> {
    let mut found = Vec::new();
    for mailbox in mailboxes.iter().filter(|mailbox| mailbox.glance.dead > 0) {
        let letters = queue.dead_letters(&mailbox.name)?;
        for letter in letters.into_iter().filter(|l| !l.has_successor()).take(DEAD_READ_MAX) {
            // One that cannot be read may be anything: a person should look.
            let envelope = queue.peek(&mailbox.name, &letter.id).ok();
            if envelope.as_ref().is_none_or(|envelope| envelope.purpose() == Purpose::Work) {
                found.push(DeadTask {
                    mailbox: letter.mailbox,
                    id: letter.id,
                    task: envelope.and_then(|envelope| envelope.task_id),
                    reason: letter.reason,
                    at: letter.at,
                });
            }
        }
    }
    Ok(found)
}
