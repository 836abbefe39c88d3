//! The parts of the overview that are not about single agents.

use std::mem;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::broker::{Broker, RETURNED_TYPE};
use ensemble_core::driver::{LadderFile, LadderState, LadderStore};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Envelope, MessageId, MessagePurpose, Name, yaml};
use ensemble_core::requests::{REQUESTS, RequestStore, UnplannedTask};
use ensemble_core::spool::{DeadLetter, Glance, Glances, RECALLED, Spool, State};
use ensemble_core::{Error, Result};
use ensemble_team::driver::list_left_batches;
use ensemble_team::holdings::{Holding, of_mailbox};
use ensemble_team::steps::StuckStep;

use super::{MailboxOverview, undecided};
use crate::attention::{DeadTask, MailAct, PersonMail, UnreadablePart};
use crate::project::Project;
use crate::troubles::BoardTrouble;
use crate::workload::TaskBooks;

/// Messages are counted up to here; an exact count of more takes long.
pub const COUNT_MAX: u64 = 1000;
const DEAD_READ_MAX: usize = 50;
const MAIL_READ_MAX: usize = 50;
const WORDS_CHARS_MAX: usize = 60;
/// The type of the answer to a shutdown request.
const FAREWELL_TYPE: &str = "shutdown_response";
const DISPATCH: &str = "dispatch";
/// The directories of a mailbox in which a change changes what is shown of it.
const SHOWN_STATES: [&str; 4] = ["new", "front", "cur", "dead"];

/// The age of a message that was made at that time, in milliseconds since 1970.
pub fn since_millis(made_at: u64) -> Duration {
    let now = u64::try_from(SystemClock.wall().unix_millis()).unwrap_or(0);
    Duration::from_millis(now.saturating_sub(made_at))
}

/// A mailbox at a glance; in a directory counted up to `limit`.
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

#[derive(Debug)]
pub(super) struct SeenMailbox {
    pub(super) view: MailboxOverview,
    pub(super) held: Vec<(Name, Holding)>,
    pub(super) dead: SeenLetters,
    /// Notices of requests that were not decided.
    pub(super) notices: Vec<MessageId>,
    /// Tasks that were settled without their plan, whose notice is not received.
    pub(super) unplanned: Vec<UnplannedTask>,
    pub(super) mail: Vec<PersonMail>,
    pub(super) unreadable: Vec<UnreadablePart>,
}

/// The mailboxes that are read: all in a directory, or on servers.
#[derive(Clone, Copy)]
pub(super) struct MailboxSource<'a> {
    pub(super) queue: &'a dyn Broker,
    pub(super) directory: Option<(&'a Spool, &'a Glances<'a>)>,
    pub(super) project: &'a Project,
}

impl SeenMailbox {
    /// Reads a mailbox. If it is empty, this costs no more than the counts.
    pub(super) fn read(
        MailboxSource { queue, directory, project }: MailboxSource<'_>,
        name: &Name,
    ) -> Result<Self> {
        let mut glance = match directory {
            Some((_, glances)) => glances.at(name, COUNT_MAX)?,
            None => glance(queue, None, name, COUNT_MAX)?,
        };
        // Damage of one part must not hide the rest.
        let mut unreadable = Vec::new();
        // The next message may fail at settings that are wrong.
        let settings = directory.map(|(_, glances)| glances.check_settings(name));
        part(settings, name, &mut unreadable)?;
        let refused = directory.filter(|_| glance.has_refused);
        let overflow = refused.map(|(spool, _)| spool.overflow(name));
        let overflow = part(overflow, name, &mut unreadable)?.flatten();
        let held = (glance.held > 0).then(|| of_mailbox(queue, name, |_| true));
        let held = part(held, name, &mut unreadable)?.unwrap_or_default();
        let dead = (glance.dead > 0).then(|| dead_letters(queue, name));
        let dead = part(dead, name, &mut unreadable)?.unwrap_or_default();
        // Nothing is owed for what its sender took back.
        glance.dead = glance.dead.saturating_sub(dead.recalled);
        if directory.is_none() && glance.waiting > 0 {
            let found = undecided::find_waiting(queue, name);
            glance.notices = part(Some(found), name, &mut unreadable)?.unwrap_or_default();
        }
        let found = mem::take(&mut glance.notices);
        let unplanned = undecided::unplanned(queue, name, &found);
        let notices = undecided::of_expiries(name, found);
        let is_of_person = project.is_person(name);
        let mail = (is_of_person && glance.waiting > 0)
            .then(|| mail_for_person(queue, name, &project.mailbox_of(name)));
        let mail = part(mail, name, &mut unreadable)?.unwrap_or_default();
        let view = MailboxOverview { name: name.clone(), glance, overflow };
        Ok(Self { view, held, dead, notices, unplanned, mail, unreadable })
    }

    /// Whether it looks the same until a file changes: delayed messages become due, and damage may be repaired anywhere.
    pub(super) const fn lasts(&self) -> bool {
        self.view.glance.delayed == 0 && self.unreadable.is_empty()
    }
}

/// A part of a mailbox; one that cannot be read is noted, once.
fn part<T>(
    read: Option<Result<T>>,
    name: &Name,
    unreadable: &mut Vec<UnreadablePart>,
) -> Result<Option<T>> {
    match read {
        Some(Err(error)) if error.is_server_away() => Err(error),
        Some(Err(error)) => {
            if unreadable.is_empty() {
                unreadable.push(UnreadablePart::new(format!("mailbox {name}"), &error));
            }
            Ok(None)
        }
        Some(Ok(value)) => Ok(Some(value)),
        None => Ok(None),
    }
}

pub(super) fn mailboxes_dir(project: &Project) -> PathBuf {
    project.queue.join("mailbox")
}

pub(super) fn requests_dir(project: &Project) -> PathBuf {
    project.queue.join(REQUESTS)
}

/// The directories whose change changes what is shown of a mailbox; its own has what it refused.
pub(super) fn mailbox_places(mailboxes: &Path, name: &Name) -> Vec<PathBuf> {
    let home = mailboxes.join(name.as_str());
    let states = SHOWN_STATES.map(|state| home.join(state));
    states.into_iter().chain([home]).collect()
}

pub(super) fn box_places(project: &Project) -> Vec<PathBuf> {
    let table = project.drop_boxes().ok();
    let specs = table.iter().flat_map(|table| table.iter());
    let boxes = specs.map(|spec| match spec.directory() {
        Some(directory) => project.queue.join(directory),
        None => project.queue.clone(),
    });
    boxes.chain([mailboxes_dir(project)]).collect()
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

/// The ladders without those whose task was taken after all: without a watcher, an escalated one stays.
pub(super) fn untaken(all: &[LadderFile], store: Option<&dyn RequestStore>) -> Vec<LadderFile> {
    let is_taken = |ladder: &&LadderFile| {
        let state = || store?.broker().state(&ladder.mailbox, &ladder.message).ok()?;
        ladder.state >= LadderState::Escalating
            && matches!(state(), Some(State::Acked { .. } | State::Settled))
    };
    all.iter().filter(|ladder| !is_taken(ladder)).cloned().collect()
}

/// The batches that a killed `ensemble task dispatch` has left: their instructions are not settled.
pub(super) fn lost_batches(project: &Project, spool: Option<&Spool>) -> Vec<BoardTrouble> {
    let is_open = |batch: &Name| {
        let dispatch = Name::new(DISPATCH).ok().zip(MessageId::new(batch.as_str()).ok());
        let state = dispatch.zip(spool).map(|((mailbox, id), spool)| spool.state(&mailbox, &id));
        matches!(state, Some(Ok(Some(State::Queued { .. } | State::Acked { .. }))))
    };
    let left = list_left_batches(&project.state).unwrap_or_default().into_iter();
    let lost = left.filter(is_open).map(|batch| {
        let text = format!("batch {batch} is not done, and its `ensemble task dispatch` has ended");
        let help = "`ensemble task dispatch` continues with it".to_owned();
        BoardTrouble::new(DISPATCH, batch.as_str(), text, help)
    });
    lost.collect()
}

/// The steps that wait for an intervention; none, and a part that cannot be read, if the step queues cannot be read.
pub(super) fn standing_steps(
    books: &TaskBooks,
    project: &Project,
    unreadable: &mut Vec<UnreadablePart>,
) -> Vec<StuckStep> {
    let mut add_fault = |fault: &Error| {
        let help = "`ensemble admin fsck` says more".to_owned();
        unreadable.push(UnreadablePart { help, ..UnreadablePart::new("the step queue", fault) });
        Vec::new()
    };
    match &books.steps_fault {
        Some(fault) => add_fault(fault),
        None => books.standing(project).unwrap_or_else(|fault| add_fault(&fault)),
    }
}

pub(super) fn open_tasks(books: &TaskBooks) -> u64 {
    let tasks = books.board().map_or(&[][..], |board| &board.tasks);
    tasks.iter().filter(|task| !task.status.is_terminal()).count() as u64
}

/// What a person has not read, the oldest first. Requests are separate needs.
fn mail_for_person(queue: &dyn Broker, mailbox: &Name, person: &Name) -> Result<Vec<PersonMail>> {
    let waiting = queue.unfinished(mailbox, MAIL_READ_MAX)?.into_iter();
    let waiting = waiting.filter(|found| matches!(found.state, State::Queued { .. }));
    let read = |id: MessageId| {
        // One that cannot be read becomes a dead letter once the person receives it.
        let envelope = queue.peek(mailbox, &id).ok()?;
        let is_for_reading = envelope.purpose() != MessagePurpose::Request;
        let (act, words) = Some(&envelope).filter(|_| is_for_reading).and_then(said_to_person)?;
        let Envelope { created_at: at, from, project, .. } = envelope;
        Some(PersonMail { words, act, at, from, project, to: person.clone(), id })
    };
    let mut mail: Vec<PersonMail> = waiting.filter_map(|found| read(found.id)).collect();
    mail.sort_by_key(|unread| unread.at);
    Ok(mail)
}

/// What the sender of mail for the person does with it, and its first words. `None` for the end of a request
/// without an answer: that is another need.
fn said_to_person(envelope: &Envelope) -> Option<(MailAct, String)> {
    let words = |envelope: &Envelope| envelope.first_words(WORDS_CHARS_MAX);
    if envelope.kind.as_str() == RETURNED_TYPE
        && let Ok(notice) = yaml::parse::<ReturnedMail>(&envelope.body, Path::new(RETURNED_TYPE))
    {
        let task = envelope.task_id.as_ref().map_or_else(String::new, |task| format!("{task}: "));
        let reason = Envelope::new(envelope.to.clone(), task + &notice.reason);
        return Some((MailAct::Returns, words(&reason)));
    }
    if envelope.kind.as_str() != FAREWELL_TYPE {
        let is_answer = envelope.causation_id.is_some();
        let act = if is_answer { MailAct::Answers } else { MailAct::Writes };
        return Some((act, words(envelope)));
    }
    let Ok(farewell) = yaml::parse::<ShutdownAnswer>(&envelope.body, Path::new(FAREWELL_TYPE))
    else {
        return Some((MailAct::Answers, words(envelope)));
    };
    let reason = Envelope::new(envelope.to.clone(), farewell.reason);
    match (farewell.approve, farewell.outcome.as_str()) {
        (true, _) => Some((MailAct::Leaves, words(&reason))),
        (false, "rejected" | "") => Some((MailAct::Stays, words(&reason))),
        _ => None,
    }
}

#[derive(serde::Deserialize)]
struct ReturnedMail {
    reason: String,
}

#[derive(serde::Deserialize)]
struct ShutdownAnswer {
    approve: bool,
    #[serde(default)]
    outcome: String,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Default)]
pub(super) struct SeenLetters {
    /// Tasks, and that no later attempt replaces. Requests and notices need no person.
    pub(super) tasks: Vec<DeadTask>,
    pub(super) ids: Vec<MessageId>,
    recalled: u64,
}

fn dead_letters(queue: &dyn Broker, mailbox: &Name) -> Result<SeenLetters> {
    let letters = queue.dead_letters(mailbox)?;
    let ids = letters.iter().map(|letter| letter.id.clone()).collect();
    let is_recalled = |letter: &&DeadLetter| letter.reason.starts_with(RECALLED);
    let recalled = letters.iter().filter(is_recalled).count() as u64;
    let mut tasks = Vec::new();
    for letter in letters.into_iter().filter(|l| !l.has_successor()).take(DEAD_READ_MAX) {
        // One that cannot be read may be anything: a person should look.
        let envelope = queue.peek(mailbox, &letter.id).ok();
        if envelope.as_ref().is_none_or(|envelope| envelope.purpose() == MessagePurpose::Work) {
            tasks.push(DeadTask {
                mailbox: letter.mailbox,
                id: letter.id,
                is_readable: envelope.is_some(),
                words: envelope
                    .as_ref()
                    .map_or_else(String::new, |it| it.first_words(WORDS_CHARS_MAX)),
                task: envelope.and_then(|envelope| envelope.task_id),
                reason: letter.reason,
                at: letter.at,
            });
        }
    }
    Ok(SeenLetters { tasks, ids, recalled })
}
