//! The parts of the overview that are not about single agents.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::broker::Broker;
use ensemble_core::driver::{LadderFile, LadderState, LadderStore};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{MessageId, Name, Purpose};
use ensemble_core::spool::{Glance, Glances, Spool};
use ensemble_team::holdings::{Holding, of_mailbox};

use super::{MailboxView, undecided};
use crate::attention::DeadTask;
use crate::project::Project;
use crate::workload::Books;

/// Messages are counted up to here; an exact count of more takes long.
pub const COUNT_MAX: u64 = 1000;
/// Most dead letters that are read of one mailbox.
const DEAD_READ_MAX: usize = 50;
/// The directories of a mailbox in which a change changes what is shown of it.
const SHOWN_STATES: [&str; 4] = ["new", "front", "cur", "dead"];

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

/// All that is seen of a mailbox.
#[derive(Debug)]
pub(super) struct SeenMailbox {
    pub(super) view: MailboxView,
    /// Received messages, by holder.
    pub(super) held: Vec<(Name, Holding)>,
    pub(super) dead: Vec<DeadTask>,
    /// Notices of requests that were not decided.
    pub(super) notices: Vec<MessageId>,
    warning: Option<String>,
}

/// The mailboxes that are read: all in a directory, or on servers.
#[derive(Clone, Copy)]
pub(super) struct Post<'a> {
    pub(super) queue: &'a dyn Broker,
    pub(super) directory: Option<(&'a Spool, &'a Glances<'a>)>,
}

impl SeenMailbox {
    /// Reads what lies there. An empty mailbox costs no more than the counts.
    pub(super) fn read(Post { queue, directory }: Post<'_>, name: &Name) -> Result<Self> {
        let glance = match directory {
            Some((_, glances)) => glances.at(name, COUNT_MAX)?,
            None => glance(queue, None, name, COUNT_MAX)?,
        };
        // Damage that `fsck` repairs must not hide the rest.
        let refused = directory.filter(|_| glance.has_refused);
        let overflow = refused.map_or(Ok(None), |(spool, _)| spool.overflow(name));
        let (overflow, warning) = match overflow {
            Ok(overflow) => (overflow, None),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Self {
            held: if glance.held > 0 { of_mailbox(queue, name, |_| true)? } else { Vec::new() },
            dead: if glance.dead > 0 { dead_tasks(queue, name)? } else { Vec::new() },
            notices: if glance.waiting > 0 { undecided::notices(queue, name)? } else { Vec::new() },
            view: MailboxView { name: name.clone(), glance, overflow },
            warning,
        })
    }

    /// Whether it looks the same until a file changes: delayed messages become due, and a warning is repeated.
    pub(super) const fn lasts(&self) -> bool {
        self.view.glance.delayed == 0 && self.warning.is_none()
    }

    pub(super) fn warning(&self) -> Option<&String> {
        self.warning.as_ref()
    }
}

/// The directory of all mailboxes.
pub(super) fn mailboxes_dir(project: &Project) -> PathBuf {
    project.queue.join("mailbox")
}

/// The directories whose change changes what is shown of a mailbox; its own has what it refused.
pub(super) fn mailbox_places(mailboxes: &Path, name: &Name) -> Vec<PathBuf> {
    let home = mailboxes.join(name.as_str());
    let states = SHOWN_STATES.map(|state| home.join(state));
    states.into_iter().chain([home]).collect()
}

/// The tasks whose ack is waited for, the highest phase first.
pub(super) fn ladders(store: &LadderStore) -> Result<Vec<LadderFile>> {
    let all = store.all()?.into_iter().map(|(_, file)| file);
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
fn dead_tasks(queue: &dyn Broker, mailbox: &Name) -> Result<Vec<DeadTask>> {
    let mut found = Vec::new();
    let letters = queue.dead_letters(mailbox)?;
    for letter in letters.into_iter().filter(|l| !l.has_successor()).take(DEAD_READ_MAX) {
        // One that cannot be read may be anything: a person should look.
        let envelope = queue.peek(mailbox, &letter.id).ok();
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
    Ok(found)
}
