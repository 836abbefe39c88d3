use ensemble_app::asking::{refused, requests};
use ensemble_app::diagnostics::say;
use ensemble_app::door_hints::queue_flag;
use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::ids;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::{elapsed, one_line};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::requests::RequestEntry;

use crate::completion;
use crate::context::Context;
use crate::output::STRONG;

/// List the requests, or show one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble request list --pending
  ensemble request list 3f2a91c0
  ensemble request list --json | jq -r 'select(.to == \"worker-1\") | .request_id'")]
pub(crate) struct Arguments {
    /// Show this one, with what is asked
    #[arg(add = completion::requests())]
    id: Option<String>,
    /// Only those without a decision
    #[arg(long)]
    pending: bool,
}

impl Arguments {
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
