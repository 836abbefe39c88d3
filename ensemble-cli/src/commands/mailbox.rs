use std::time::Duration;

use ensemble_app::authority::authorize_mailbox;
use ensemble_app::diagnostics::say;
use ensemble_app::queue::{OpeningPurpose, ProjectQueue};
use ensemble_app::text::{age, plural};
use ensemble_core::Error;
use ensemble_core::mailboxes::{BadMailbox, visit_mailboxes};
use ensemble_core::message::{Name, ReservedName};
use ensemble_core::spool::{
    ATTEMPTS_MAX_DEFAULT, DONE_DAYS_DEFAULT, LEASE_SECONDS_DEFAULT, Settings,
};
use serde_json::json;

mod bind;

use crate::context::{Context, Failure, Outcome};
use crate::{args, completion};
use bind::{BindMailbox, PaneFlags, unbind};

/// Manage mailboxes; extend, release or recall a message
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Add(AddMailbox),
    /// List the mailboxes with their settings
    List,
    /// Remove a mailbox, with its settled messages and dead letters
    Remove {
        /// Name of the mailbox
        #[arg(add = completion::mailboxes())]
        name: Name,
        /// Even if messages wait or are held in it, which are lost, or if an agent that is up reads it
        #[arg(long)]
        force: bool,
    },
    Bind(BindMailbox),
    /// Stop notifying an agent
    Unbind {
        /// The agent
        agent: Name,
    },
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Add(add) => add.run(context),
            Verb::List => list(context),
            Verb::Remove { name, force } => remove(context, &name, force),
            Verb::Bind(bind) => bind.run(context),
            Verb::Unbind { agent } => unbind(context, &agent),
        }
    }
}

/// Create a mailbox for an agent or a group of agents
///
/// Several agents may receive from one mailbox; each message goes to one of them.
#[derive(Debug, clap::Args)]
struct AddMailbox {
    /// Its name: 1 to 64 of A-Z a-z 0-9 . _ -
    name: Name,
    /// How many messages may wait before senders are refused [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    capacity: Option<u64>,
    /// How often a message is delivered before it becomes a dead letter
    #[arg(long, value_name = "N", default_value_t = ATTEMPTS_MAX_DEFAULT)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    attempts_max: u64,
    /// How long a received message is held without an extension, 1s to 1d [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = args::lease)]
    lease: Option<Duration>,
    /// How long settled messages are kept, in days; within this time an id is stored once
    #[arg(long, value_name = "N", default_value_t = DONE_DAYS_DEFAULT)]
    done_days: u64,
    #[command(flatten)]
    place: PaneFlags,
}

impl AddMailbox {
    fn run(self, context: &Context) -> Outcome {
        let mut settings = Settings::default();
        settings.capacity = self.capacity;
        settings.attempts_max = self.attempts_max;
        settings.lease_seconds = self.lease.map_or(LEASE_SECONDS_DEFAULT, |l| l.as_secs());
        settings.done_days = self.done_days;
        if self.place.is_given() {
            ReservedName::refuse_agent(&self.name).map_err(Error::from)?;
        }
        ProjectQueue::open_for(context, OpeningPurpose::Begin)?
            .add_mailbox(&self.name, &settings)?;
        if self.place.is_given() {
            self.place.bind(context, self.name.clone(), self.name.clone())?;
        }
        context
            .out
            .print_answer(&described(&self.name, &settings), format!("added mailbox {}", self.name))
    }
}

fn list(context: &Context) -> Outcome {
    let queue = ProjectQueue::open(context)?;
    let mut known = Vec::new();
    let bad = visit_mailboxes(queue.mailboxes()?, |name| {
        known.push((name.clone(), queue.settings(name)?));
        Ok(())
    })?;
    for BadMailbox { name, error } in &bad {
        say(&format!("warning: mailbox {name}: {error}"));
    }
    if context.out.is_json() {
        known.iter().try_for_each(|(name, it)| context.out.object(&described(name, it)))?;
    } else {
        let row = |(name, settings): &(Name, Settings)| {
            vec![
                name.to_string(),
                settings.capacity.map_or_else(|| "-".to_owned(), |capacity| capacity.to_string()),
                settings.attempts_max.to_string(),
                age(settings.lease_duration()),
                format!("{}d", settings.done_days),
            ]
        };
        let heading = ["mailbox", "capacity", "attempts", "lease", "settled kept"];
        context.out.table(&heading, known.iter().map(row).collect())?;
    }
    // The others are listed; the exit code says that one is missing.
    bad.into_iter().next().map_or(Ok(()), |bad| Err(bad.error.into()))
}

fn remove(context: &Context, name: &Name, force: bool) -> Outcome {
    authorize_mailbox(context, name)?;
    let spool = context.spool()?;
    let counts = spool.counts(name)?;
    let (members, _) = context.project()?.roster().entries()?;
    let reader = members.iter().find(|it| it.is_present() && it.mailbox == *name);
    if let Some(reader) = reader.filter(|_| !force) {
        let text = format!("{} is up and reads `{name}`: nothing was removed", reader.name);
        return Err(Failure::refused(text).with_hint("`--force` removes it anyway"));
    }
    let unfinished = counts.queued + counts.acked;
    if unfinished > 0 && !force {
        let messages = plural(unfinished, "unfinished message");
        let text = format!("mailbox `{name}` has {messages}: nothing was removed");
        return Err(Failure::refused(text).with_hint("`--force` removes them, too"));
    }
    spool.remove_mailbox(name, force)?;
    context.out.print_answer(
        &json!({ "mailbox": name, "unfinished": unfinished }),
        format!("removed mailbox {name}"),
    )
}

fn described(name: &Name, settings: &Settings) -> serde_json::Value {
    json!({
        "mailbox": name,
        "capacity": settings.capacity,
        "attempts_max": settings.attempts_max,
        "lease_seconds": settings.lease_seconds,
        "done_days": settings.done_days,
    })
}
