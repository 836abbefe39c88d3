//! Shell completion that knows the queue: the shell asks this program for the next word. Where the mailboxes are on
//! servers, these are asked, and have little time.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Command;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use ensemble_app::failure::Outcome;
use ensemble_app::ids;
use ensemble_app::queue::ProjectQueue;
use ensemble_core::message::Name;
use ensemble_core::requests::Requests;
use ensemble_project::Project;

/// The environment variable in which a shell says that it asks for words, and which shell it is.
pub(crate) const VARIABLE: &str = "ENSEMBLE_COMPLETE";

/// How long servers are waited for, since a person waits at the keyboard.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers a shell that asks for words; `false` if this is not such a run.
pub(crate) fn answer(program: fn() -> Command) -> Outcome<bool> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(false);
    }
    let directory = std::env::current_dir().ok();
    CompleteEnv::with_factory(program)
        .var(VARIABLE)
        .try_complete(std::env::args_os(), directory.as_deref())
        .map_err(|error| io::Error::other(error.to_string()).into())
}

pub(crate) fn mailboxes() -> ArgValueCandidates {
    of_queue(|queue| Ok(queue.mailboxes()?.into_iter().map(String::from).collect()))
}

pub(crate) fn agents() -> ArgValueCandidates {
    ArgValueCandidates::new(agent_names)
}

pub(crate) fn messages() -> ArgValueCandidates {
    of_queue(unfinished_messages)
}

pub(crate) fn dead_letters() -> ArgValueCandidates {
    of_queue(|queue| {
        queue.overlook()?;
        let mailboxes = queue.mailboxes()?.into_iter();
        let letters: ensemble_core::Result<Vec<_>> =
            mailboxes.map(|mailbox| queue.dead_letters(&mailbox)).collect();
        Ok(letters?.into_iter().flatten().map(|letter| letter.id.into()).collect())
    })
}

pub(crate) fn requests() -> ArgValueCandidates {
    of_queue(request_ids)
}

/// Things that have a story and have not ended: messages, requests and agents.
pub(crate) fn stories() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let queued =
            [unfinished_messages as QueueWords, request_ids].into_iter().flat_map(candidates);
        queued.chain(agent_names()).collect()
    })
}

/// The agents of the configuration and of the roster.
fn agent_names() -> Vec<CompletionCandidate> {
    let queue = queue_flag(std::env::args_os());
    let Ok(project) = Project::discover(queue.as_deref()) else { return Vec::new() };
    let (members, _) = project.roster().entries().unwrap_or_default();
    let recorded = members.into_iter().map(|member| member.name);
    let names: BTreeSet<Name> = project.config.agents.keys().cloned().chain(recorded).collect();
    names.into_iter().map(|name| CompletionCandidate::new(String::from(name))).collect()
}

fn unfinished_messages(queue: &ProjectQueue) -> ensemble_core::Result<Vec<String>> {
    queue.overlook()?;
    Ok(ids::unfinished(&**queue)?.into_iter().map(String::from).collect())
}

/// Requests, undecided ones first.
fn request_ids(queue: &ProjectQueue) -> ensemble_core::Result<Vec<String>> {
    let (mut entries, _) = Requests::new(queue.request_store()).list()?;
    entries.sort_by_key(|entry| entry.decision.is_some());
    Ok(entries.into_iter().map(|entry| entry.request.request_id.into()).collect())
}

type QueueWords = fn(&ProjectQueue) -> ensemble_core::Result<Vec<String>>;

fn of_queue(words: QueueWords) -> ArgValueCandidates {
    ArgValueCandidates::new(move || candidates(words))
}

/// Words that the queue knows. A shell that asks for words is not a place for error texts.
fn candidates(words: QueueWords) -> Vec<CompletionCandidate> {
    let queue = ProjectQueue::glimpse(queue_flag(std::env::args_os()).as_deref(), PATIENCE);
    let words = queue.and_then(|queue| words(&queue)).unwrap_or_default();
    words.into_iter().map(CompletionCandidate::new).collect()
}

fn queue_flag(words: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut words = words.skip_while(|word| word != "--").skip(1);
    while let Some(word) = words.next() {
        if word == "--queue" {
            return words.next().map(PathBuf::from);
        }
        if let Some(value) = word.to_str().and_then(|word| word.strip_prefix("--queue=")) {
            return Some(PathBuf::from(value));
        }
    }
    None
}
