use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ensemble_app::App;
pub(crate) use ensemble_app::exit_code::VerbExit;
pub(crate) use ensemble_app::failure::{Failure, Outcome};

use crate::args::GlobalFlags;
use crate::output::Output;
use crate::shell_job::is_typed_at_shell;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) out: Output,
    app: App,
}

/// Verbs that run for as long as the team works, so that no patience can be that of the whole verb.
const LASTING_VERBS: [&str; 2] = ["task dispatch", "agent supervise"];

impl Deref for Context {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

impl Context {
    pub(crate) fn new(globals: GlobalFlags, verb: &'static str) -> Self {
        let (out, called) = (Output::new(globals.json), Self::called(globals, verb));
        Self { out, app: called.app.typed(is_typed_at_shell()) }
    }

    /// Prints what a failure has for a program on stdout, before its line on stderr.
    pub(crate) fn with_object_printed(&self, mut failure: Failure) -> Failure {
        match failure.take_object().filter(|_| self.out.is_json()) {
            Some(object) => self.out.object(&object).err().unwrap_or(failure),
            None => failure,
        }
    }

    /// For one call of `verb` in a process that answers many: what it prints is kept.
    pub(crate) fn called(globals: GlobalFlags, verb: &'static str) -> Self {
        let app = App::new(globals.queue, globals.agent, verb);
        let app = if LASTING_VERBS.contains(&verb) { app.lasting() } else { app };
        Self { out: Output::kept(), app }
    }
}

/// For values that are whole after each change, so that one left by a panic is used.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use ensemble_app::queue::{OpeningPurpose, access_for};

    use super::*;

    #[test]
    fn verbs_that_last_are_verbs() {
        assert!(LASTING_VERBS.iter().all(|verb| crate::commands::PLACES.contains(verb)));
    }

    /// A command that has already worked for longer than it may wait for its servers must continue.
    #[test]
    fn calls_of_a_verb_that_lasts_share_no_patience() {
        let home = tempfile::tempdir().unwrap();
        let config = "transport: nats://127.0.0.1:1\n";
        std::fs::write(home.path().join("ensemble.yaml"), config).unwrap();
        let shares = |verb| {
            let queue = Some(home.path().join("queue"));
            let globals = GlobalFlags { queue, agent: None, json: false };
            let context = Context::new(globals, verb);
            access_for(&context, context.project().unwrap(), OpeningPurpose::Act).shares_patience
        };
        assert!(shares("send"));
        assert!(!shares("task dispatch"));
    }
}
