//! Shell completion that knows the queue: the shell asks this program for the next word. Where the mailboxes are on
//! servers, these are asked, and have little time.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Command;
use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
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

pub(crate) fn mailboxes() -> Vec<CompletionCandidate> {
    of_queue(|queue| Ok(queue.mailboxes()?.into_iter().map(String::from).collect()))
}

pub(crate) fn agents() -> Vec<CompletionCandidate> {
    let queue = queue_flag(std::env::args_os());
    let Ok(project) = Project::discover(queue.as_deref()) else { return Vec::new() };
    let (members, _) = project.roster().entries().unwrap_or_default();
    let recorded = members.into_iter().map(|member| member.name);
    let names: BTreeSet<Name> = project.config.agents.keys().cloned().chain(recorded).collect();
    names.into_iter().map(|name| CompletionCandidate::new(String::from(name))).collect()
}

pub(crate) fn messages() -> Vec<CompletionCandidate> {
    of_queue(|queue| {
        queue.overlook()?;
        Ok(ids::unfinished(&**queue)?.into_iter().map(String::from).collect())
    })
}

pub(crate) fn dead_letters() -> Vec<CompletionCandidate> {
    of_queue(|queue| {
        queue.overlook()?;
        let mailboxes = queue.mailboxes()?.into_iter();
        let letters: ensemble_core::Result<Vec<_>> =
            mailboxes.map(|mailbox| queue.dead_letters(&mailbox)).collect();
        Ok(letters?.into_iter().flatten().map(|letter| letter.id.into()).collect())
    })
}

pub(crate) fn requests() -> Vec<CompletionCandidate> {
    of_queue(|queue| {
        let (mut entries, _) = Requests::new(queue.request_store()).list()?;
        entries.sort_by_key(|entry| entry.decision.is_some());
        Ok(entries.into_iter().map(|entry| entry.request.request_id.into()).collect())
    })
}

pub(crate) fn stories() -> Vec<CompletionCandidate> {
    [messages(), requests(), agents()].into_iter().flatten().collect()
}

/// Words that the queue knows. A shell that asks for words is not a place for error texts.
fn of_queue(
    words: impl FnOnce(&ProjectQueue) -> ensemble_core::Result<Vec<String>>,
) -> Vec<CompletionCandidate> {
    let queue = ProjectQueue::glimpse(queue_flag(std::env::args_os()).as_deref(), PATIENCE);
    candidates(queue.and_then(|queue| words(&queue)).unwrap_or_default())
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

fn candidates(ids: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    ids.into_iter().map(CompletionCandidate::new).collect()
}
