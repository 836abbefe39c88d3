use std::path::Path;
use std::time::Duration;

use ensemble_app::asking::{PlanSubmission, ask, refused, requests, submit_plan};
use ensemble_app::authority::authorize;
use ensemble_app::content::STDIN;
use ensemble_app::departing::{DepartureAsk, SHUTDOWN_REASON, present_members};
use ensemble_app::diagnostics::say;
use ensemble_app::door_hints::queue_flag;
use ensemble_app::ids;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::{elapsed, one_line};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Name;
use ensemble_core::message::period::whole_seconds;
use ensemble_core::proto::request::AtExpiry;
use ensemble_core::requests::{NewRequest, RequestEntry};
use ensemble_team::authority::AuthorityAct;

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::flags::{ContentFlags, FileContent, OnSilence, check_answer};
use crate::output::STRONG;
use crate::printing::print_fates;
use crate::printing::requests::{print_decided, print_sent};
use crate::stand_in::start_watcher;
use crate::{args, completion};

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
    /// Withdraw one of your requests before it is decided
    Cancel {
        /// Its id, or a unique beginning of it
        #[arg(add = completion::requests())]
        id: String,
        /// Why
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Shutdown(shutdown) => shutdown.run(context),
            Verb::Ask(ask) => ask.run(context),
            Verb::Cancel { id, reason } => cancel(context, &id, &reason),
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

fn cancel(context: &Context, id: &str, reason: &str) -> Outcome {
    let by = context.actor()?;
    let queue = ProjectQueue::open(context)?;
    let requests = requests(context, &queue)?;
    let id = ids::request(&requests, id)?;
    let cancelled = requests.cancel(&id, &by, reason);
    print_decided(context, &cancelled.map_err(refused)?)
}

const SOURCE_CHARACTERS_MAX: usize = 200;

/// Submit a plan for approval
///
/// With `--task` you can neither receive nor settle messages of that task before the plan is
/// approved; after a rejection, submit the next plan. The answer is a message in your mailbox.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble request plan -f plan.md --task task-001
  ensemble request plan -f - --to lead --wait 30m < plan.md")]
pub(crate) struct SubmitPlan {
    #[command(flatten)]
    plan: FileContent,
    /// Reviewer of the plan [default: who demands it or has reviewed the last one, or the lead]
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    to: Option<Name>,
    /// The task that is not begun before the plan is approved
    #[arg(long, value_name = "ID", value_parser = args::header)]
    task: Option<String>,
    /// Your own id: submitting the same again changes nothing [default: 8 new characters]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Wait up to DURATION for the review: exit code 0 if approved, 1 if not, 3 if still pending
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    wait: Option<Duration>,
}

impl SubmitPlan {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let from = context.actor()?;
        let content = self.plan.read()?;
        let queue = ProjectQueue::open(context)?;
        let requests = requests(context, &queue)?;
        let file = self.plan.path()?;
        let source = (file != Path::new(STDIN)).then(|| one_line(&file.to_string_lossy()));
        let source = source.map(|source| source.chars().take(SOURCE_CHARACTERS_MAX).collect());
        let (to, task, id) = (self.to, self.task, self.id);
        let plan = PlanSubmission { from, to, task, id, source, content };
        let entry = submit_plan(context, &queue, plan)?;
        print_sent(context, &requests, &queue, &entry, self.wait)
    }
}

/// Answer a request that is addressed to you: a plan, a shutdown or any other
///
/// The first answer counts. A later one is refused, with the author and the time of the first. An
/// agent cannot decide its own request.
#[derive(Debug, clap::Args)]
#[command(override_usage = "ensemble request answer <ID> --approve
       ensemble request answer <ID> --reject --reason <TEXT>")]
#[command(after_help = "Examples:
  ensemble request answer 3f2a91c0 --approve
  ensemble request answer 3f2a91c0 --reject --reason 'keep the old column until the next release'")]
pub(crate) struct AnswerRequest {
    /// Its id, as the message has it, or a unique beginning of it
    #[arg(add = completion::requests())]
    id: String,
    /// Yes
    #[arg(long, conflicts_with = "reject")]
    approve: bool,
    /// No
    #[arg(long)]
    reject: bool,
    /// Why; the author of a rejected plan needs it for the next one
    #[arg(long, alias = "feedback", value_name = "TEXT", default_value = "")]
    reason: String,
}

impl AnswerRequest {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        check_answer(self.approve, self.reject)?;
        let by = context.actor()?;
        let queue = ProjectQueue::open(context)?;
        let requests = requests(context, &queue)?;
        let id = ids::request(&requests, &self.id)?;
        // The first of the people may have been asked as `operator`, before they had another name.
        let asked = requests.find(&id)?.map(|entry| entry.request.to);
        let earlier = context.project()?.earlier_mailbox(&by);
        let by = earlier.filter(|it| asked.as_ref() == Some(it)).unwrap_or(by);
        let entry = requests.respond(&id, &by, self.approve, &self.reason);
        print_decided(context, &entry.map_err(refused)?)
    }
}

/// List the requests, or show one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble request list --pending
  ensemble request list 3f2a91c0
  ensemble request list --json | jq -r 'select(.to == \"worker-1\") | .request_id'")]
pub(crate) struct ListRequests {
    /// Show this one, with what is asked
    #[arg(add = completion::requests())]
    id: Option<String>,
    /// Only those without a decision
    #[arg(long)]
    pending: bool,
}

impl ListRequests {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = ProjectQueue::open(context)?;
        let requests = requests(context, &queue)?;
        if let Some(id) = &self.id {
            let entry = requests.get(&ids::request(&requests, id)?).map_err(refused)?;
            return show(context, &entry);
        }
        let (mut entries, errors) = requests.list()?;
        entries.retain(|entry| !self.pending || entry.decision.is_none());
        if context.out.is_json() {
            entries.iter().try_for_each(|entry| context.out.object(&entry.to_json()))?;
        } else {
            let heading = ["request", "kind", "state", "from", "to", "task", "age", "by"];
            context.out.table(&heading, entries.iter().map(row).collect())?;
        }
        for error in &errors {
            say(&error.to_string());
        }
        match errors.len() {
            0 => Ok(()),
            count => {
                let unread = ensemble_app::text::plural(count as u64, "request");
                Err(Failure::new(VerbExit::Corrupt, format!("{unread} cannot be read"))
                    .with_hint("`ensemble status` says what helps"))
            }
        }
    }
}

fn row(entry: &RequestEntry) -> Vec<String> {
    let asked = &entry.request;
    let by = entry.decision.as_ref().map_or_else(String::new, |decision| decision.by.to_string());
    vec![
        asked.request_id.to_string(),
        asked.kind.to_string(),
        entry.state().to_owned(),
        asked.from.to_string(),
        asked.to.to_string(),
        asked.task_id.clone().unwrap_or_default(),
        elapsed(SystemClock.wall().since(asked.created_at)),
        by,
    ]
}

fn show(context: &Context, entry: &RequestEntry) -> Outcome {
    let asked = &entry.request;
    if context.out.is_json() {
        let mut object = entry.to_json();
        object[&asked.content_field] = asked.content.as_str().into();
        return context.out.object(&object);
    }
    let decision = entry.decision.as_ref();
    let headers = [
        ("request", Some(context.out.paint(STRONG, &asked.request_id))),
        ("kind", Some(asked.kind.to_string())),
        ("state", Some(entry.state().to_owned())),
        ("from", Some(asked.from.to_string())),
        ("to", Some(asked.to.to_string())),
        ("task", asked.task_id.as_deref().map(one_line)),
        ("round", asked.round.map(|round| round.to_string())),
        ("previous", asked.previous.as_ref().map(ToString::to_string)),
        ("asked", Some(asked.created_at.to_string())),
        ("deadline", Some(asked.deadline_at().to_string())),
        ("decided", decision.map(|d| format!("{} by {}", d.at, d.by))),
        ("comment", decision.map(|d| one_line(&d.comment)).filter(|text| !text.is_empty())),
    ];
    for (name, value) in headers {
        if let Some(value) = value {
            context.out.line(format!("{name:<8} {value}"))?;
        }
    }
    context.out.line("")?;
    context.out.content(asked.content.as_bytes())?;
    if !asked.content.ends_with('\n') {
        context.out.line("")?;
    }
    if decision.is_some() {
        return Ok(());
    }
    let (answer, to) = (format!("ensemble request answer {}", asked.request_id), &asked.to);
    let who = format!("--as {to}{}", queue_flag(context.queue_flag()));
    context.out.line(format!("\n{to} decides: {answer} --approve {who}"))?;
    context.out.line(format!("          or: {answer} --reject {who}"))
}
