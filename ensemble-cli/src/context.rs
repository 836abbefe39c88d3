//! What a verb works with. Nothing is opened before a verb asks for it.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_core::board::{Board, BoardOptions};
use ensemble_core::event_log::{EventLog, LogOptions, Recorder};
use ensemble_core::message::Name;
use ensemble_core::spool::{Options, Spool};
use ensemble_watch::project::Project;

use crate::args::Globals;
use crate::exit::{Failure, Outcome, say};
use crate::output::Output;

/// Who is asking, if no flag says it; the first that is set and not empty.
const AGENT_VARIABLES: [&str; 2] = ["ENSEMBLE_AGENT_ID", "LIZA_AGENT_ID"];

/// Who changes the blackboard, if nobody says.
const ACTOR: &str = "ensemble";

/// One run of the command.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) out: Output,
    queue: Option<PathBuf>,
    agent: Option<Name>,
    project: OnceCell<Project>,
    log: OnceCell<Arc<EventLog>>,
}

impl Context {
    pub(crate) fn new(globals: Globals) -> Self {
        let Globals { queue, agent, json } = globals;
        let out = Output::new(json);
        Self { out, queue, agent, project: OnceCell::new(), log: OnceCell::new() }
    }

    /// The queue as the flag names it.
    pub(crate) fn queue_flag(&self) -> Option<&Path> {
        self.queue.as_deref()
    }

    /// The project around the queue.
    pub(crate) fn project(&self) -> Outcome<&Project> {
        if self.project.get().is_none() {
            let project = Project::discover(self.queue.as_deref())?;
            return Ok(self.project.get_or_init(|| project));
        }
        self.project.get().ok_or_else(|| Failure::refused("there is no project"))
    }

    /// The queue, which must exist.
    pub(crate) fn spool(&self) -> Outcome<Spool> {
        let project = self.project()?;
        Ok(Spool::open(&project.queue, self.spool_options(project))?)
    }

    /// How this command opens a queue: what it does is recorded, if it does anything. The log is
    /// touched by the first record only, and no trouble with it stops a verb.
    pub(crate) fn spool_options(&self, project: &Project) -> Options {
        let mut options = project.spool_options(self.log(project));
        // Each run receives one message: it must not list a deep mailbox for it.
        options.share_backlog = true;
        options
    }

    /// The blackboard, which must exist.
    pub(crate) fn board(&self) -> Outcome<Board> {
        let project = self.project()?;
        Ok(Board::find(project.root(), self.board_options(project)?)?)
    }

    /// How this command keeps a blackboard.
    pub(crate) fn board_options(&self, project: &Project) -> Outcome<BoardOptions> {
        let actor = self.agent()?.map_or_else(|| ACTOR.to_owned(), |agent| agent.to_string());
        Ok(BoardOptions::new(actor)
            .with_durability(project.config.durability.unwrap_or_default())
            .with_recorder(self.log(project)))
    }

    /// The event log, for what a verb does besides the queue.
    pub(crate) fn recorder(&self) -> Outcome<Arc<dyn Recorder>> {
        Ok(self.log(self.project()?))
    }

    fn log(&self, project: &Project) -> Arc<dyn Recorder> {
        let open = || Arc::new(EventLog::deferred(&project.logs(), LogOptions::default()));
        Arc::<EventLog>::clone(self.log.get_or_init(open))
    }

    /// Who is asking, if anybody said so.
    pub(crate) fn agent(&self) -> Outcome<Option<Name>> {
        if self.agent.is_some() {
            return Ok(self.agent.clone());
        }
        for variable in AGENT_VARIABLES {
            let Some(value) = std::env::var_os(variable).filter(|v| !v.is_empty()) else {
                continue;
            };
            let name = Name::new(value.to_string_lossy());
            return name.map(Some).map_err(|e| Failure::usage(format!("{variable}: {e}")));
        }
        Ok(None)
    }

    /// Who is asking, for a verb that must know.
    pub(crate) fn agent_required(&self) -> Outcome<Name> {
        let unknown = || {
            Failure::usage("who is asking is not known")
                .with_hint("say it with `--as NAME` or ENSEMBLE_AGENT_ID")
        };
        self.agent()?.ok_or_else(unknown)
    }

    /// Says on stderr that something was done but not recorded.
    pub(crate) fn warn_about_log(&self) {
        if let Some((count, Some(last))) = self.log.get().map(|log| log.failures()) {
            let records = crate::text::plural(count, "record");
            say(&format!("warning: {records} missing in the event log: {last}"));
        }
    }
}
