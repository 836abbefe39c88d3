//! Shell completion that knows the queue: the shell asks this program for the next word.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::Name;
use ensemble_watch::project::Project;

use crate::args;
use crate::exit::Outcome;

/// The environment variable in which a shell says that it asks for words, and which shell it is.
pub(crate) const VARIABLE: &str = "ENSEMBLE_COMPLETE";

/// Answers a shell that asks for words; `false` if this is not such a run.
pub(crate) fn answer() -> Outcome<bool> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(false);
    }
    let directory = std::env::current_dir().ok();
    CompleteEnv::with_factory(args::program)
        .var(VARIABLE)
        .try_complete(std::env::args_os(), directory.as_deref())
        .map_err(|error| io::Error::other(error.to_string()).into())
}

/// The mailboxes of the queue that the line being completed is about.
pub(crate) fn mailboxes() -> Vec<CompletionCandidate> {
    let names = || -> ensemble_core::Result<Vec<Name>> {
        let queue = queue_flag(std::env::args_os());
        let project = Project::discover(queue.as_deref())?;
        project.open_spool(std::sync::Arc::new(NullRecorder))?.mailboxes()
    };
    // A shell that asks for words is no place for error texts.
    let names = names().unwrap_or_default();
    names.into_iter().map(|name| CompletionCandidate::new(String::from(name))).collect()
}

/// The agents of the configuration and of the roster.
pub(crate) fn agents() -> Vec<CompletionCandidate> {
    let queue = queue_flag(std::env::args_os());
    let Ok(project) = Project::discover(queue.as_deref()) else { return Vec::new() };
    let (members, _) = project.roster().entries().unwrap_or_default();
    let recorded = members.into_iter().map(|member| member.name);
    let names: BTreeSet<Name> = project.config.agents.keys().cloned().chain(recorded).collect();
    names.into_iter().map(|name| CompletionCandidate::new(String::from(name))).collect()
}

/// What `--queue` says among the words of a line.
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
