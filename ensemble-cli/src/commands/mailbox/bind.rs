//! Where an agent runs: `ensemble mailbox bind` and the same flags of `ensemble mailbox add`.

use std::path::PathBuf;

use ensemble_app::agent_panes::{bind_named_pane, warn_of_absent_agent};
use ensemble_app::authority::authorize_mailbox;
use ensemble_app::overview::agent_without_pane;
use ensemble_app::queue::ProjectQueue;
use ensemble_core::Error;
use ensemble_core::message::{Name, ReservedName};
use ensemble_project::panes::{self, PaneEntry};
use serde_json::json;

use crate::completion;
use crate::context::{Context, Failure, Outcome};

/// A pane, as flags.
#[derive(Debug, clap::Args)]
pub(super) struct PaneFlags {
    /// Pane of the agent to notify of new mail: its id (%3), an exact name (=session:window.0), or
    /// zellij:SESSION/PANE or herdr:PANE
    #[arg(long, value_name = "PANE")]
    pane: Option<String>,
    /// Which program the agent is: shell, claude, codex, opencode, gemini, qwen, copilot, kimi, acp or generic
    #[arg(long, value_name = "PROVIDER", default_value = "shell")]
    provider: String,
    /// The tmux server's socket [default: the one of $TMUX]
    #[arg(long, value_name = "SOCKET", value_hint = clap::ValueHint::FilePath)]
    tmux_socket: Option<PathBuf>,
}

/// Notify the agent in a tmux pane of new mail
///
/// The running watcher takes it up at once. The pane is known by its id, a token set in it and its
/// first process. So another pane that gets the same id later is never mistaken for it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble mailbox bind dispatch --pane %3 --provider claude")]
pub(super) struct BindMailbox {
    /// The mailbox
    #[arg(add = completion::mailboxes())]
    mailbox: Name,
    /// The agent, where several share a mailbox [default: the mailbox's name]
    #[arg(long, value_name = "NAME")]
    agent: Option<Name>,
    #[command(flatten)]
    place: PaneFlags,
}

impl BindMailbox {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let agent = self.agent.unwrap_or_else(|| self.mailbox.clone());
        for name in [&agent, &self.mailbox] {
            ReservedName::refuse_agent(name).map_err(Error::from)?;
        }
        authorize_mailbox(context, &agent)?;
        ProjectQueue::open(context)?.settings(&self.mailbox)?;
        let entry = self.place.bind(context, agent, self.mailbox)?;
        let answer = json!({
            "agent": entry.agent, "mailbox": entry.mailbox, "pane": entry.binding.id, "provider": entry.provider,
        });
        context.out.print_answer(
            &answer,
            format!(
                "{} will be notified of mail for {} in pane {}",
                entry.agent, entry.mailbox, entry.binding.id
            ),
        )
    }
}

pub(super) fn unbind(context: &Context, agent: &Name) -> Outcome {
    authorize_mailbox(context, agent)?;
    if !panes::forget(&context.project()?.panes(), agent)? {
        return Err(agent_without_pane(context.project()?, agent));
    }
    let said = format!("{agent} will not be notified any more");
    context.out.print_answer(&json!({ "agent": agent }), said)
}

impl PaneFlags {
    pub(super) const fn is_given(&self) -> bool {
        self.pane.is_some()
    }

    pub(super) fn bind(&self, context: &Context, agent: Name, mailbox: Name) -> Outcome<PaneEntry> {
        context.project()?.profiles()?.get(&self.provider)?;
        let Some(pane) = &self.pane else {
            return Err(Failure::usage("no pane given")
                .with_hint("pass `--pane %3`; `tmux list-panes -a` lists panes"));
        };
        let binding = bind_named_pane(Some(pane), self.tmux_socket.as_deref())?;
        let entry = PaneEntry::new(agent, mailbox, self.provider.clone(), binding);
        let project = context.project()?;
        project.ensure_state()?;
        panes::write(&project.panes(), &entry)?;
        warn_of_absent_agent(project, &entry);
        Ok(entry)
    }
}
