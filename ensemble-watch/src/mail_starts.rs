//! Starts agents of `ensemble.yaml` with `start_on_mail` whose mail waits and who are not there.
//!
//! ```text
//! the agent       its mail      starts left today   what happens
//! runs, leaves    any           any                 nothing
//! not there       notices only  any                 nothing: a notice needs no reader now
//! not there       waits         some                the start is counted, then begun on a thread of its own
//! not there       waits         none                the person gets a message, once that day
//! ```
//!
//! A start that fails is tried again after [`PAUSE`], and counts each time. *A crash* between count and start costs one
//! start of the day.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::event_log::types;
use ensemble_core::message::{Envelope, MessageId, MessagePurpose, Name};
use ensemble_core::spool::Spool;
use ensemble_core::{Error, Result, allow_no_mailbox};
use ensemble_project::mail_starts::{count_start, is_absent, last_start, starts_left};
use ensemble_project::status::ACTOR;
use ensemble_project::team::PaneOpener;
use ensemble_project::{AgentConfig, Project};
use serde_json::json;

use crate::context::WatchContext;
use crate::mail::MailSource;

const PAUSE: Duration = Duration::from_secs(60);
const LOOKED_AT_MAX: usize = 100;

pub(crate) struct MailStarts {
    context: Arc<WatchContext>,
    /// Missing where no agent is started by its mail.
    next: Option<Monotonic>,
    interval: Duration,
    /// The last start; there is one at a time.
    starting: Option<JoinHandle<()>>,
}

impl MailStarts {
    pub(crate) fn new(now: Monotonic, context: &Arc<WatchContext>) -> Self {
        let project = &context.project;
        let is_used = project.config.agents.values().any(|agent| agent.start_on_mail);
        Self {
            context: Arc::clone(context),
            next: is_used.then_some(now),
            interval: project.config.poll_interval(),
            starting: None,
        }
    }

    pub(crate) const fn next_timeout(&self) -> Option<Monotonic> {
        self.next
    }

    pub(crate) const fn look_at(&mut self, now: Monotonic) {
        if self.next.is_some() {
            self.next = Some(now);
        }
    }

    pub(crate) fn drive(&mut self, now: Monotonic, mail: &dyn MailSource) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + self.interval);
        let context = Arc::clone(&self.context);
        for (name, agent) in context.project.config.agents.iter().filter(|(_, it)| it.start_on_mail)
        {
            if self.starting.as_ref().is_some_and(|starting| !starting.is_finished()) {
                return;
            }
            if let Err(error) = self.start((name, agent), mail) {
                tracing::warn!(%error, agent = %name, "cannot start the reader of mail");
            }
        }
    }

    fn start(&mut self, (name, agent): (&Name, &AgentConfig), mail: &dyn MailSource) -> Result<()> {
        let WatchContext { project, spool, recorder } = &*self.context;
        let mailbox = agent.mailbox.as_ref().unwrap_or(name);
        let waiting = allow_no_mailbox(mail.due_ids_for(mailbox, name, LOOKED_AT_MAX))?;
        let Some(waiting) = waiting else { return Ok(()) };
        // On servers, only its reader opens a message.
        let needs_reader = |id: &MessageId| {
            spool
                .peek(mailbox, id)
                .map_or(true, |envelope| envelope.purpose() != MessagePurpose::Notice)
        };
        if !waiting.iter().any(needs_reader) || !is_absent(project, (name, mailbox))? {
            return Ok(());
        }
        let today = spool.now();
        if starts_left(project, name, agent, today) == 0 {
            return ask_person(project, (name, agent), waiting.len(), spool);
        }
        if last_start(project, name, today).is_some_and(|ago| ago < PAUSE) {
            return Ok(());
        }
        let count = count_start(project, name, today)?;
        let data = json!({
            "agent": name, "mailbox": mailbox, "waiting": waiting.len(), "count": count, "max": agent.starts_max(),
        });
        self.context.record(types::AGENT_MAIL_START, data);
        let opener = PaneOpener {
            project: project.clone(),
            recorder: Arc::clone(recorder),
            actor: Name::new(ACTOR)?,
        };
        let name = name.clone();
        self.starting = Some(std::thread::spawn(move || {
            if let Err(error) = opener.start_agent(&name) {
                tracing::warn!(%error, agent = %name, "mail could not start its reader");
            }
        }));
        Ok(())
    }
}

/// Writes to the person, once a day, that mail waits and may not start its reader any more.
fn ask_person(
    project: &Project,
    (name, agent): (&Name, &AgentConfig),
    waiting: usize,
    spool: &Spool,
) -> Result<()> {
    let day = spool.now().to_string().chars().take(10).collect::<String>();
    let text = format!(
        "mail waits for {name}, which is not running; its mail has started it as often as it may today ({}): \
         `ensemble up {name}` starts it ({waiting} waiting)",
        agent.starts_max()
    );
    let id = MessageId::new(format!("starts-{name}-{day}"))?;
    let asked = Envelope::new(project.mailbox_of(&Name::operator()), text).with_id(id);
    match spool.publish(&asked.from(Name::new(ACTOR)?)) {
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(error) if error.is_undeliverable() => Ok(()),
        Err(error) => Err(error),
    }
}
