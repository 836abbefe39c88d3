//! `ensemble admin bridge`: files here, servers there.

use clap_complete::engine::ArgValueCandidates;
use ensemble_app::failure::Outcome;
use ensemble_core::message::Name;

use crate::completion;
use crate::context::Context;

/// Carry messages between the queue's directory here and a team's servers, until Ctrl-C
///
/// For a host whose agents use files: mail for the mailboxes that are `--local` comes in, mail for
/// all others goes out. Each message arrives once, by its id; a bridge that was killed goes on where
/// it stopped.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: ensemble admin bridge --servers nats://hub:4222 --local worker-3,worker-4"
)]
#[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "there are no servers"))]
pub(crate) struct Arguments {
    /// The servers [default: `transport` in ensemble.yaml]
    #[arg(long, value_name = "URL")]
    servers: Option<String>,
    /// Mailboxes that are read here
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(add = ArgValueCandidates::new(completion::mailboxes))]
    local: Vec<Name>,
    /// Carry what waits now, and end
    #[arg(long)]
    once: bool,
}

#[cfg(not(feature = "nats"))]
impl Arguments {
    pub(crate) fn run(self, _: &Context) -> Outcome {
        Err(ensemble_app::failure::Failure::refused(
            "this program was built without the feature `nats`",
        ))
    }
}

#[cfg(feature = "nats")]
mod carrying {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use ensemble_core::Error;
    use ensemble_core::event_log::types;
    use ensemble_core::spool::{Settings, Spool};
    use ensemble_nats::NatsTransport;
    use ensemble_nats::bridge::{Bridge, Carried, Unknown};
    use serde_json::json;

    use super::{Arguments, Context, Name, Outcome};
    use ensemble_app::diagnostics::say;
    use ensemble_app::exit_code::Exit;
    use ensemble_app::failure::Failure;

    /// The holder of messages on their way.
    const HOLDER: &str = "bridge";
    /// How long a round waits for news of the servers before it looks again.
    const ROUND: Duration = Duration::from_millis(250);

    impl Arguments {
        pub(crate) fn run(self, context: &Context) -> Outcome {
            let project = context.project()?;
            let options = context.servers(self.servers.as_deref())?;
            let spool = Spool::open(&project.queue, project.spool_options(context.recorder()?))?;
            let ended = Arc::new(AtomicBool::new(false));
            for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
                signal_hook::flag::register(signal, Arc::clone(&ended))
                    .map_err(|e| Failure::refused(format!("cannot listen to signals: {e}")))?;
            }
            let queue = NatsTransport::connect(&options)?;
            let (mut seen, mut is_well) = (0, true);
            let mut stuck = BTreeMap::new();
            loop {
                match self.round(context, &spool, &queue) {
                    Ok(now) => {
                        say_changes(&stuck, &now);
                        stuck = now;
                        is_well = true;
                        if self.once {
                            return over(&stuck);
                        }
                    }
                    Err(error) if error.is_transient() && !self.once => {
                        if is_well {
                            say(&format!("{error}: tried again until it works"));
                        }
                        is_well = false;
                    }
                    Err(error) => return Err(error.into()),
                }
                seen = queue.wait_for_news(seen, ROUND);
                if ended.load(Ordering::SeqCst) {
                    return Ok(());
                }
            }
        }

        /// Both directions once.
        fn round(
            &self,
            context: &Context,
            spool: &Spool,
            queue: &NatsTransport,
        ) -> ensemble_core::Result<BTreeMap<Name, Error>> {
            let mut stuck = BTreeMap::new();
            let holder = Name::new(HOLDER)?;
            let out = Bridge::new(spool, queue, holder.clone(), Unknown::Create);
            let back = Bridge::new(queue, spool, holder, Unknown::Create);
            for mailbox in spool.mailboxes()?.iter().filter(|name| !self.local.contains(name)) {
                let glance = spool.glance(mailbox, 1)?;
                if glance.waiting + glance.held > 0 {
                    let carried = alone(out.carry(mailbox))?;
                    note(context, mailbox, "out", &carried);
                    stuck.extend(carried.stuck.map(|why| (mailbox.clone(), why)));
                }
            }
            for mailbox in &self.local {
                if let Err(error) = queue.add_mailbox(mailbox, &Settings::default())
                    && !matches!(error, Error::MailboxExists { .. })
                {
                    return Err(error);
                }
                let carried = alone(back.carry(mailbox))?;
                note(context, mailbox, "in", &carried);
                stuck.extend(carried.stuck.map(|why| (mailbox.clone(), why)));
            }
            Ok(stuck)
        }
    }

    /// A failure of one mailbox is its own; only a queue that cannot be used ends the round.
    fn alone(carried: ensemble_core::Result<Carried>) -> ensemble_core::Result<Carried> {
        match carried {
            Err(error @ Error::Server { unreachable: true, .. }) => Err(error),
            Err(error) => {
                let mut stuck = Carried::default();
                stuck.stuck = Some(error);
                Ok(stuck)
            }
            carried => carried,
        }
    }

    /// Says what has become stuck since the last round.
    fn say_changes(before: &BTreeMap<Name, Error>, now: &BTreeMap<Name, Error>) {
        for (mailbox, why) in now.iter().filter(|(mailbox, _)| !before.contains_key(*mailbox)) {
            say(&format!("mail for `{mailbox}` waits: {why}"));
        }
    }

    /// The result of a single round.
    fn over(stuck: &BTreeMap<Name, Error>) -> Outcome {
        if stuck.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = stuck.keys().map(Name::as_str).collect();
        let text = format!("mail for {} waits; everything else is carried", names.join(", "));
        let is_passing = stuck.values().all(Error::is_transient);
        Err(Failure::new(if is_passing { Exit::Busy } else { Exit::Failed }, text))
    }

    fn note(context: &Context, mailbox: &Name, direction: &str, carried: &Carried) {
        if carried.carried + carried.buried > 0
            && let Ok(recorder) = context.recorder()
        {
            let data = json!({ "from": mailbox, "direction": direction, "carried": carried.carried, "buried": carried.buried });
            recorder.record(types::BRIDGE_CARRIED, HOLDER, data);
        }
    }
}
