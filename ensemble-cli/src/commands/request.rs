use std::time::Duration;

use ensemble_app::asking::{ask, refused, requests};
use ensemble_app::authority::authorize;
use ensemble_app::departing::{DepartureAsk, SHUTDOWN_REASON, present_members};
use ensemble_app::failure::Outcome;
use ensemble_app::ids;
use ensemble_app::queue::ProjectQueue;
use ensemble_core::message::Name;
use ensemble_core::message::period::whole_seconds;
use ensemble_core::proto::request::AtExpiry;
use ensemble_core::requests::NewRequest;
use ensemble_team::authority::AuthorityAct;

use crate::args;
use crate::completion;
use crate::context::Context;
use crate::flags::content::ContentFlags;
use crate::flags::decision::OnSilence;
use crate::printing::departing::print_fates;
use crate::printing::requests::{print_decided, print_sent};
use crate::stand_in::start_watcher;

/// Ask an agent for something that it approves or rejects
///
/// The request has an id, one addressee and one answer: the first. The addressee answers with
/// `ensemble request answer ID`; you get a message with the answer.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Shutdown(AskShutdown),
    Ask(AskFor),
    Cancel(CancelRequest),
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Shutdown(shutdown) => shutdown.run(context),
            Verb::Ask(ask) => ask.run(context),
            Verb::Cancel(cancel) => cancel.run(context),
        }
    }
}

/// Flags of every question.
#[derive(Debug, clap::Args)]
struct QuestionFlags {
    /// Your own id: asking the same again changes nothing [default: 8 new characters]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Wait up to DURATION for the answer: exit code 0 if approved, 1 if not, 3 if still pending
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    wait: Option<Duration>,
}

/// Ask an agent to shut down
///
/// It approves, finishes and leaves, or rejects with a reason and stays. The running watcher ends it once it has
/// agreed, or when the deadline has passed. Then its processes and its pane are gone, and what it held is released.
/// Its unread mail is returned to its senders unless configured otherwise. With `--wait` this ends when the agent has
/// gone.
///
/// A supervisor answers for its agent: at once if it has no work, otherwise after the task. A worker may ask no other
/// agent, unless `authority: {shutdown: […]}` in ensemble.yaml lists it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble request shutdown worker-1 --reason 'the work is done' --wait 3m
  ensemble request shutdown worker-1 --deadline 10m --on-silence tell
  ensemble request shutdown --all")]
#[command(group = clap::ArgGroup::new("whom").required(true).multiple(true).args(["name", "all"]))]
struct AskShutdown {
    /// The agent
    #[arg(add = completion::mailboxes())]
    name: Option<Name>,
    /// All other agents of the team, workers first and the Conductor last, and wait for all
    #[arg(long, conflicts_with_all = ["name", "id", "wait"])]
    all: bool,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = SHUTDOWN_REASON)]
    reason: String,
    /// How long it has to answer; with --all, all together [default: as configured, 2m each]
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    deadline: Option<Duration>,
    /// Result if there is no answer by the deadline [default: as its kind says, force]
    #[arg(long, value_name = "WHAT")]
    on_silence: Option<OnSilence>,
    /// Do not wait for an answer
    #[arg(long, conflicts_with_all = ["deadline", "on_silence"])]
    force: bool,
    #[command(flatten)]
    flags: QuestionFlags,
}

impl AskShutdown {
    fn run(self, context: &Context) -> Outcome {
        let farewell = DepartureAsk {
            app: context,
            from: context.actor()?,
            reason: self.reason,
            deadline: if self.force { Some(Duration::ZERO) } else { self.deadline },
            on_silence: if self.force {
                Some(AtExpiry::Force)
            } else {
                self.on_silence.map(Into::into)
            },
            unread: None,
            ends_unrecorded: false,
            id: self.flags.id,
        };
        let queue = ProjectQueue::open(context)?;
        let Some(name) = self.name else {
            authorize(context, AuthorityAct::Shutdown)?;
            let mut team = present_members(context.project()?)?;
            team.retain(|member| member.name != farewell.from);
            return print_fates(context, &farewell.drain(&queue, &team, start_watcher)?);
        };
        let entry = farewell.ask(&queue, &name)?;
        print_sent(context, &requests(context, &queue)?, &queue, &entry, self.flags.wait)
    }
}

/// Ask for something of a kind that `ensemble.yaml` adds
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  ensemble request ask hand_over worker-2 'the parser, from line 200 on' --wait 10m
with in ensemble.yaml:
  requests: {kinds: {hand_over: {deadline: 10m, at_expiry: tell}}}")]
struct AskFor {
    /// A kind that `requests: {kinds: …}` in ensemble.yaml adds
    kind: String,
    /// The addressee, who alone may answer
    #[arg(add = completion::mailboxes())]
    name: Name,
    #[command(flatten)]
    content: ContentFlags,
    /// The task it is about, on which you cannot continue before the answer
    #[arg(long, value_name = "ID", value_parser = args::header)]
    task: Option<String>,
    /// Time to answer [default: as its kind says]
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    deadline: Option<Duration>,
    #[command(flatten)]
    flags: QuestionFlags,
}

impl AskFor {
    fn run(self, context: &Context) -> Outcome {
        let from = context.actor()?;
        let content = self.content.named()?.unwrap_or_default();
        let mut request = NewRequest::new(self.kind, from, self.name, content);
        if let Some(task) = self.task {
            request = request.with_task(task);
        }
        if let Some(deadline) = self.deadline {
            request = request.with_deadline_seconds(whole_seconds(deadline));
        }
        if let Some(id) = self.flags.id {
            request = request.with_id(id);
        }
        let queue = ProjectQueue::open(context)?;
        let entry = ask(context, &queue, request)?;
        print_sent(context, &requests(context, &queue)?, &queue, &entry, self.flags.wait)
    }
}

/// Withdraw one of your requests before it is decided
#[derive(Debug, clap::Args)]
struct CancelRequest {
    /// Its id, or a unique beginning of it
    #[arg(add = completion::requests())]
    id: String,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl CancelRequest {
    fn run(self, context: &Context) -> Outcome {
        let by = context.actor()?;
        let queue = ProjectQueue::open(context)?;
        let requests = requests(context, &queue)?;
        let id = ids::request(&requests, &self.id)?;
        let cancelled = requests.cancel(&id, &by, &self.reason);
        print_decided(context, &cancelled.map_err(refused)?)
    }
}
