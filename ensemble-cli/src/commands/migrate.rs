use ensemble_app::diagnostics::say;
use ensemble_app::text::plural;
use ensemble_core::spool::Spool;
use ensemble_project::QueueAccess;
use ensemble_team::migration::migrate;

use crate::context::{Context, Failure, Outcome, VerbExit};

/// Move all mailboxes to the team's servers, or back into the queue's directory
///
/// Both queues may be in use during that. Waiting messages, delayed ones and dead letters are moved.
/// A held message stays until it is settled; then exit code 75 says to run this again. A message
/// whose id has other content in the new place is kept as a dead letter in the old one, with exit
/// code 1. Set `transport` in ensemble.yaml first, so that new messages go to the new place.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble admin migrate --destination servers --servers nats://hub:4222
  ensemble admin migrate --destination directory --servers nats://hub:4222")]
pub(crate) struct Arguments {
    /// New place of the mailboxes
    #[arg(long = "destination", alias = "to", value_name = "PLACE")]
    to: MailboxPlace,
    /// The servers [default: `transport` in ensemble.yaml]
    #[arg(long, value_name = "URL")]
    servers: Option<String>,
}

const KEPT_SHOWN_MAX: usize = 20;

/// A place for mailboxes.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MailboxPlace {
    /// On the servers
    Servers,
    /// In the queue's directory
    Directory,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let project = context.project()?;
        let mut team = project.clone();
        team.config.transport = self.servers.clone().or(team.config.transport);
        if !team.is_shared()? {
            let hint = "`--servers nats://host:4222`, or `transport` in ensemble.yaml";
            return Err(Failure::usage("which servers?").with_hint(hint));
        }
        let options = || Ok::<_, Failure>(project.spool_options(context.recorder()?));
        let spool = Spool::open(&project.queue, options()?)?;
        let queue = team.open(QueueAccess { creates: true, ..QueueAccess::new(options()?) })?;
        let moved = match self.to {
            MailboxPlace::Servers => migrate(&spool, &*queue)?,
            MailboxPlace::Directory => migrate(&*queue, &spool)?,
        };
        if context.out.is_json() {
            context.out.object(&serde_json::json!({
                "mailboxes": moved.mailboxes, "moved": moved.moved, "dead": moved.dead, "held": moved.held,
                "crowded": moved.crowded, "kept": moved.kept.iter().map(|kept| {
                    serde_json::json!({ "id": kept.id, "mailbox": kept.mailbox, "reason": kept.reason })
                }).collect::<Vec<_>>(),
            }))?;
        } else {
            context.out.line(format!(
                "moved {} and {}, {} made",
                plural(moved.moved, "message"),
                plural(moved.dead, "dead letter"),
                plural(moved.mailboxes, "mailbox"),
            ))?;
        }
        for kept in moved.kept.iter().take(KEPT_SHOWN_MAX) {
            say(&format!("message `{}` of mailbox `{}`: {}", kept.id, kept.mailbox, kept.reason));
        }
        if !moved.kept.is_empty() {
            let count = plural(moved.kept.len() as u64, "message");
            return Err(Failure::refused(format!("{count} kept as dead letters in the old queue"))
                .with_hint("drop them there, or send them again under other ids"));
        }
        if moved.crowded > 0 {
            let text = format!("no room for {} yet", plural(moved.crowded, "message"));
            let hint = "run this again once their mailboxes were read";
            return Err(Failure::new(VerbExit::Busy, text).with_hint(hint));
        }
        if moved.held > 0 {
            let text = format!("{} held where it was", plural(moved.held, "message"));
            return Err(
                Failure::new(VerbExit::Busy, text).with_hint("run this again once it is settled")
            );
        }
        Ok(())
    }
}
