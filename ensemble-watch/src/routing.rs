//! From a complete drop-box file to messages in its recipients' mailboxes, once for each version
//! and recipient.
//!
//! The order is what makes it exactly once. Publish under ids that follow from path, version and
//! content. Let the recipients be woken, and make the messages safe. Only then write the version
//! into the ledger. A crash anywhere before the last step repeats the same ids, which stores
//! nothing new.

use ensemble_core::broker::Broker;
use ensemble_core::driver::ack_signer;
use ensemble_core::dropbox::{
    CompleteFile, Ledger, LedgerEntry, RouteDestination, Routes, UnfitFile,
};
use ensemble_core::env::{Lease, PublishOutcome};
use ensemble_core::mailboxes::visit_all_mailboxes;
use ensemble_core::message::{Envelope, MessagePurpose, Name};
use ensemble_core::spool::{Found, Spool, State, UnsyncedMessages};
use ensemble_core::{Error, Result};

use ensemble_core::message::fields::{is_same_task, plain_task};
use ensemble_reports::contract::{self, ContractKind, DocumentNode, is_copy_of, meant_name};

use crate::judge::ReportJudge;
use crate::work_file::{ACK_BOX, REPORT_BOX, contract_of, is_report, promised_contract};

const ACK_SEARCH_MAX: usize = 1_000;
/// What file managers add to the name of a copy, besides a number.
const COPY_WORDS: [&str; 5] = ["copy", "kopie", "copie", "copia", "-"];

#[derive(Debug)]
pub(crate) enum RoutingPlan {
    Publish(RoutedFile),
    Ack {
        file: CompleteFile,
        entry: LedgerEntry,
        task: String,
    },
    Unmatched {
        file: CompleteFile,
    },
    /// Its route leads to an impossible name.
    Impossible {
        file: CompleteFile,
        error: Error,
    },
    /// It names itself a report (or a review …) and is none: it is to be set aside, unless its writer may still
    /// complete it.
    Broken {
        unfit: UnfitFile,
        may_grow: bool,
    },
    Known,
}

#[derive(Debug)]
pub(crate) struct RoutedFile {
    file: CompleteFile,
    entry: LedgerEntry,
    envelopes: Vec<Envelope>,
}

impl RoutedFile {
    /// What reports the end of a task names it as `find_task` does.
    pub(crate) fn name_task(&mut self, find_task: impl FnOnce(&str, &Name) -> Option<String>) {
        if promised_contract(&self.file) != Some(ContractKind::Report) || !is_report(&self.file) {
            return;
        }
        let task = self.envelopes.first().and_then(|envelope| envelope.task_id.clone());
        let named = task.zip(self.file.author());
        if let Some(task) = named.and_then(|(task, author)| find_task(&task, &author)) {
            self.file.set_task(&task);
            self.envelopes.iter_mut().for_each(|it| it.task_id = Some(task.clone()));
        }
    }
}

/// Decides what is to be done with a complete file. `again` is the entry of one that counts although its content was
/// routed before.
pub(crate) fn plan(
    mut file: CompleteFile,
    again: Option<LedgerEntry>,
    routes: &Routes,
    ledger: &Ledger,
    spool: &Spool,
    judge: &ReportJudge,
) -> RoutingPlan {
    let path = file.path();
    let entry = again.or_else(|| ledger.next_version(&path, &file.stat, &file.content));
    let Some(entry) = entry else { return RoutingPlan::Known };
    if &*file.box_name == ACK_BOX {
        return match file.file.strip_suffix(".ack").map(str::to_owned) {
            Some(task) => RoutingPlan::Ack { file, entry, task },
            None => RoutingPlan::Unmatched { file },
        };
    }
    let copied = copied_report(&file);
    let is_copy = copied.as_ref().is_some_and(|path| ledger.get(path).is_some());
    if is_copy || is_marked_copy(&file, &entry, ledger) {
        return RoutingPlan::Unmatched { file };
    }
    let destination = match routes.destination(&path) {
        Ok(Some(destination)) => match without_copy_mark(copied, routes, &destination) {
            Some(meant) => named_by(&mut file, meant),
            None => destination,
        },
        Ok(None) => match meant_destination(&file, routes, ledger) {
            Some(meant) => named_by(&mut file, meant),
            None => return RoutingPlan::Unmatched { file },
        },
        Err(error) => return RoutingPlan::Impossible { file, error },
    };
    file.kind = Some(destination.kind.clone());
    if let Some(error) = judge.unfit(&file, &destination.kind) {
        let may_grow = file.may_grow;
        return broken(file, error, may_grow);
    }
    if let Err(error) = file.find_signer(spool) {
        return RoutingPlan::Impossible { file, error };
    }
    let author = file.author();
    match author.as_ref().map(|author| spool.refuse_owner(author, &file.stat)).transpose() {
        Ok(None | Some(None)) => {}
        Ok(Some(Some(error))) => {
            // It is not left to a writer that may not write it.
            file.is_final = true;
            return broken(file, error, false);
        }
        Err(error) => return RoutingPlan::Impossible { file, error },
    }
    let mut envelopes = Vec::with_capacity(destination.to.len());
    let (kind, stem) = (Some(&destination.kind), destination.stem.as_deref());
    for to in &destination.to {
        match file.to_envelope(&entry, spool.mailbox_of(to), kind, stem, spool) {
            Ok(envelope) => envelopes.push(envelope),
            Err(error) => return RoutingPlan::Impossible { file, error },
        }
    }
    RoutingPlan::Publish(RoutedFile { file, entry, envelopes })
}

/// The destination of a report whose name no route matches: its name or its content says what it is, and it keeps that
/// contract. `t-completed (1).yaml` beside a `t-completed.yaml` that was delivered is a copy, and not a second report.
fn meant_destination(
    file: &CompleteFile,
    routes: &Routes,
    ledger: &Ledger,
) -> Option<RouteDestination> {
    let by_content = || Some(format!("{}-completed.yaml", file.task_field()?));
    let meant = format!("{REPORT_BOX}/{}", meant_name(&file.file).or_else(by_content)?);
    if &*file.box_name != REPORT_BOX || ledger.get(&meant).is_some() {
        return None;
    }
    let destination = routes.destination(&meant).ok()??;
    let fields = DocumentNode::without_places(&file.fields);
    let kept = contract::check(contract_of(&destination.kind)?, &fields, meant.as_ref());
    kept.is_ok().then_some(destination)
}

/// The report that a file manager has copied to this file: `Copy of t-completed.yaml` is about `t`.
fn copied_report(file: &CompleteFile) -> Option<String> {
    let is_copy = &*file.box_name == REPORT_BOX && is_copy_of(&file.file);
    Some(format!("{REPORT_BOX}/{}", meant_name(&file.file).filter(|_| is_copy)?))
}

/// Whether a delivered file was copied to this one, by content and name: `x (1).md`, `x copy.md` or `x 2.md`.
fn is_marked_copy(file: &CompleteFile, entry: &LedgerEntry, ledger: &Ledger) -> bool {
    let is_mark = |word: &str| {
        let word = word.trim_matches(['(', ')']).to_ascii_lowercase();
        word.parse::<u32>().is_ok() || COPY_WORDS.contains(&word.as_str())
    };
    let Some((mut stem, end)) = file.file.rsplit_once('.') else { return false };
    while let Some((before, word)) = stem.rsplit_once(' ')
        && is_mark(word)
    {
        let original = ledger.get(&format!("{}/{before}.{end}", file.box_name));
        if original.is_some_and(|original| original.sha256 == entry.sha256) {
            return true;
        }
        stem = before;
    }
    false
}

fn without_copy_mark(
    copied: Option<String>,
    routes: &Routes,
    destination: &RouteDestination,
) -> Option<RouteDestination> {
    let meant = routes.destination(&copied?).ok()??;
    (meant.kind == destination.kind).then_some(meant)
}

/// Reads a file under the name that was meant: the task is the one of that name, unless a field says it.
fn named_by(file: &mut CompleteFile, meant: RouteDestination) -> RouteDestination {
    if let (None, Some(task)) = (file.task_field(), &meant.stem)
        && let Some(fields) = file.fields.as_object_mut()
    {
        fields.insert("task_id".to_owned(), task.as_str().into());
    }
    meant
}

fn broken(file: CompleteFile, error: String, may_grow: bool) -> RoutingPlan {
    RoutingPlan::Broken { unfit: file.into_unfit(error), may_grow }
}

#[derive(Debug, Default)]
pub(crate) struct RoutedBatch {
    pub(crate) unsynced: Vec<UnsyncedMessages>,
    /// The stored messages: mailbox, id, source, task.
    pub(crate) stored: Vec<Envelope>,
    /// Files that could not be published, with the error, to be tried again.
    pub(crate) failed: Vec<(CompleteFile, Error)>,
    /// The files that were routed, with their fields and their lines for the ledger.
    pub(crate) routed: Vec<(CompleteFile, LedgerEntry)>,
}

/// Publishes what was planned. A file of which any recipient fails is tried again as a whole.
pub(crate) fn publish(plans: Vec<RoutedFile>, spool: &Spool) -> RoutedBatch {
    let mut batch = RoutedBatch::default();
    for RoutedFile { file, entry, envelopes } in plans {
        let mut failed = None;
        // A recipient whose mailbox is full or broken withholds the file from no other.
        for envelope in &envelopes {
            let (unsynced, error) = spool.publish_unsynced(std::slice::from_ref(envelope));
            let is_new = unsynced.outcomes().contains(&PublishOutcome::Stored);
            batch.stored.extend(is_new.then(|| envelope.clone()));
            batch.unsynced.push(unsynced);
            failed = failed.or(error);
        }
        match failed {
            None => batch.routed.push((file, entry)),
            Some(error) => batch.failed.push((file, error)),
        }
    }
    batch
}

/// Makes a batch safe and enters into the ledger what has had its effects.
pub(crate) fn commit(
    unsynced: Vec<UnsyncedMessages>,
    entries: Vec<LedgerEntry>,
    ledger: &mut Ledger,
) -> Result<()> {
    for unsynced in unsynced {
        unsynced.sync()?;
    }
    ledger.append(entries)
}

/// Whether work on a task is unfinished: that of its author, or without an author that of any agent.
pub(crate) fn is_open(task: &str, author: Option<&Name>, queue: &dyn Broker) -> bool {
    let mailboxes = match author {
        Some(author) => vec![queue.mailbox_of(author)],
        None => queue.mailboxes().unwrap_or_default(),
    };
    let is_its = |it: &Envelope| it.task_id.as_ref().is_some_and(|id| is_same_task(id, task));
    // A mailbox that cannot be read hides no other.
    mailboxes.iter().any(|mailbox| matches!(find_work(mailbox, queue, &is_its), Ok(Some(_))))
}

/// Receives, for the writer of an `ack/` file, the message that hands over that task. The seeds'
/// workers say so with a file instead of a rename. `Ok(None)` if no such message waits.
pub(crate) fn acknowledge(content: &[u8], task: &str, queue: &dyn Broker) -> Result<Option<Lease>> {
    let all = queue.mailboxes()?;
    let mailboxes = ack_signer(content, &all).cloned().map_or(all, |agent| vec![agent]);
    let is_exactly = |envelope: &Envelope| envelope.task_id.as_deref() == Some(task);
    let has_it = match the_only_one(&mailboxes, queue, &is_exactly) {
        Ok(None) | Err(_) => the_only_one(&mailboxes, queue, &|envelope| is_meant(task, envelope))?,
        Ok(found) => found,
    };
    Ok(match has_it {
        Some((agent, Found { id, state: State::Queued { .. }, .. })) => {
            queue.receive_id(&agent, &id, &agent)?.map(|delivery| delivery.lease)
        }
        // It was received before, perhaps for this very file, and that was not written down.
        Some((agent, Found { id, state: State::Acked { holder, epoch }, .. })) => {
            (holder == agent).then_some(Lease { mailbox: agent, id, holder, epoch })
        }
        _ => None,
    })
}

/// The mailbox that has a task, if exactly one has it. One that cannot be read is an error only if no other has it.
fn the_only_one(
    mailboxes: &[Name],
    queue: &dyn Broker,
    is_it: &dyn Fn(&Envelope) -> bool,
) -> Result<Option<(Name, Found)>> {
    let mut all = Vec::new();
    let visited = visit_all_mailboxes(mailboxes.iter().cloned(), |mailbox| {
        all.extend(find_work(mailbox, queue, is_it)?.map(|found| (mailbox.clone(), found)));
        Ok(())
    });
    match visited {
        Err(error) if all.is_empty() || error.is_server_away() => return Err(error),
        _ => {}
    }
    let is_one = all.len() == 1;
    Ok(all.pop().filter(|_| is_one))
}

/// The unfinished message of a mailbox that is work on a task: a waiting one, or a held one if none waits. Reports
/// and advice that name the task are not meant.
fn find_work(
    mailbox: &Name,
    queue: &dyn Broker,
    is_it: &dyn Fn(&Envelope) -> bool,
) -> Result<Option<Found>> {
    let mut held = None;
    for found in queue.unfinished(mailbox, ACK_SEARCH_MAX)? {
        let is_it = queue
            .peek(mailbox, &found.id)
            .is_ok_and(|envelope| envelope.purpose() == MessagePurpose::Work && is_it(&envelope));
        match found.state {
            State::Queued { .. } if is_it => return Ok(Some(found)),
            _ if is_it => held = held.or(Some(found)),
            _ => {}
        }
    }
    Ok(held)
}

/// Whether the name of an `ack/` file means the work of a message: by the message's id, or by its task with the agent,
/// the attempt or a word for what the file is, as in `worker-1-t.ack`, `t@2.ack`, `ACK_t.ack`. Any other rest may belong
/// to the name of another task.
fn is_meant(name: &str, envelope: &Envelope) -> bool {
    let name = plain_task(name);
    let is_rest = |rest: &str| {
        let word = rest.trim_matches(|c: char| matches!(c, '-' | '_' | '.' | ':' | ' '));
        let attempt = word.strip_prefix('@').unwrap_or_default();
        let is_attempt = !attempt.is_empty() && attempt.bytes().all(|it| it.is_ascii_digit());
        let known = ["", "ack", "acked", "task", envelope.to.as_str()];
        is_attempt || known.iter().any(|known| known.eq_ignore_ascii_case(word))
    };
    let task = envelope.task_id.as_deref().map(plain_task);
    envelope.id.as_str() == name
        || task.filter(|task| !task.is_empty()).is_some_and(|task| {
            let rests = [name.strip_prefix(&task), name.strip_suffix(&task)];
            rests.into_iter().flatten().any(is_rest)
        })
}

pub(crate) fn acked_lease(task: &str, ledger: &Ledger) -> Option<Lease> {
    let path = format!("{ACK_BOX}/{task}.ack");
    ledger.get(&path)?.lease.map(|lease| *lease)
}

/// Settles the message that was received by an `ack/` file. It does so even if the lease has ended,
/// as long as nothing has received the message since: its last holder has reported.
pub(crate) fn settle_acked(lease: &Lease, queue: &dyn Broker) -> Result<bool> {
    match queue.settle(lease) {
        Ok(()) => return Ok(true),
        Err(Error::LeaseLost { .. }) => {}
        Err(error) => return Err(error),
    }
    let Some(State::Queued { epoch, .. }) = queue.state(&lease.mailbox, &lease.id)? else {
        return Ok(false);
    };
    if epoch != lease.epoch {
        return Ok(false);
    }
    match queue.receive_done(&lease.mailbox, &lease.id, &lease.holder)? {
        Some(delivery) => queue.settle(&delivery.lease).map(|()| true),
        None => Ok(false),
    }
}
