//! Where an agent runs: `ensemble mailbox bind` and the same flags of `ensemble mailbox add`.

use std::path::{Path, PathBuf};

use clap_complete::engine::ArgValueCandidates;
use ensemble_core::Error;
use ensemble_core::env::Pane as _;
use ensemble_core::message::{Name, ReservedName};
use ensemble_core::pane::{Deferral, PaneState};
use ensemble_tmux::tmux::Server;
use ensemble_watch::members;
use ensemble_watch::panes::{self, PaneEntry};
use ensemble_watch::project::Project;
use serde_json::json;

use crate::authority::authorize_mailbox;
use crate::completion;
use crate::context::Context;
use crate::exit::{Failure, Outcome, say};
use crate::queue::Queue;

/// A pane of tmux, as flags.
#[derive(Debug, clap::Args)]
pub(super) struct PaneFlags {
    /// Pane of the agent to notify of new mail: its id (%3) or an exact name (=session:window.0)
    #[arg(long, value_name = "PANE")]
    pane: Option<String>,
    /// Which program the agent is: shell, claude, codex, opencode, gemini or generic
    #[arg(long, value_name = "PROVIDER", default_value = "shell")]
    provider: String,
    /// The tmux server's socket [default: the one of $TMUX]
    #[arg(long, value_name = "SOCKET", value_hint = clap::ValueHint::FilePath)]
    tmux_socket: Option<PathBuf>,
}

/// Notify the agent in a tmux pane of new mail
///
/// The running watcher takes it up at once. The pane is known by its id, a token set in it and its
/// first process. So another pane that gets the same id later is never taken for it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble mailbox bind dispatch --pane %3 --provider claude")]
pub(super) struct Bind {
    /// The mailbox
    #[arg(add = ArgValueCandidates::new(completion::mailboxes))]
    mailbox: Name,
    /// The agent, where several share a mailbox [default: the mailbox's name]
    #[arg(long, value_name = "NAME")]
    agent: Option<Name>,
    #[command(flatten)]
    place: PaneFlags,
}

/// Stop notifying an agent
#[derive(Debug, clap::Args)]
pub(super) struct Unbind {
    /// The agent
    agent: Name,
}

impl Bind {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let agent = self.agent.unwrap_or_else(|| self.mailbox.clone());
        for name in [&agent, &self.mailbox] {
            ReservedName::refuse_agent(name).map_err(Error::from)?;
        }
        authorize_mailbox(context, &agent)?;
        Queue::open(context)?.settings(&self.mailbox)?;
        let entry = self.place.bind(context, agent, self.mailbox)?;
        if context.out.is_json() {
            return context.out.object(&json!({
                "agent": entry.agent, "mailbox": entry.mailbox, "pane": entry.binding.id, "provider": entry.provider,
            }));
        }
        context.out.line(format!(
            "{} will be notified of mail for {} in pane {}",
            entry.agent, entry.mailbox, entry.binding.id
        ))
    }
}

impl Unbind {
    pub(super) fn run(self, context: &Context) -> Outcome {
        authorize_mailbox(context, &self.agent)?;
        if !panes::forget(&context.project()?.panes(), &self.agent)? {
            return Err(Failure::nothing(format!("no agent `{}` is bound to a pane", self.agent)));
        }
        match context.out.is_json() {
            true => context.out.object(&json!({ "agent": self.agent })),
            false => context.out.line(format!("{} will not be notified any more", self.agent)),
        }
    }
}

impl PaneFlags {
    /// Whether a pane was named.
    pub(super) const fn is_given(&self) -> bool {
        self.pane.is_some()
    }

    pub(super) fn bind(&self, context: &Context, agent: Name, mailbox: Name) -> Outcome<PaneEntry> {
        context.project()?.profiles()?.get(&self.provider)?;
        let Some(pane) = &self.pane else {
            return Err(Failure::usage("no pane given")
                .with_hint("pass `--pane %3`; `tmux list-panes -a` lists panes"));
        };
        let server = server(self.tmux_socket.as_deref())?;
        let binding = server.bind(pane)?;
        let entry = PaneEntry { agent, mailbox, provider: self.provider.clone(), binding };
        let project = context.project()?;
        project.ensure_state()?;
        panes::write(&project.panes(), &entry)?;
        warn_if_absent(project, &entry);
        Ok(entry)
    }
}

/// Says so if the agent of a pane does not run in it; mail is announced once it does. Also says so
/// if it was started without an option that its profile starts it with. A pane that cannot be
/// looked at now is left to the watcher.
pub(super) fn warn_if_absent(project: &Project, entry: &PaneEntry) {
    let (provider, id) = (&entry.provider, &entry.binding.id);
    if members::is_script(provider) {
        return;
    }
    let looked = || -> Outcome<(Option<Deferral>, Option<String>)> {
        let profile = project.profiles()?.get(provider)?;
        let open = profile.open_command().map(str::to_owned);
        let server = Server::brief(entry.binding.socket.clone());
        let mut pane = entry.open(server, profile, &project.sources(), &project.locks())?;
        let missing = open.filter(|open| lacks_an_option(&pane.inspect(), open));
        Ok((pane.diagnose()?.diagnosis.deferral, missing))
    };
    match looked() {
        Ok((Some(Deferral::BareShell { command } | Deferral::OtherProgram { command }), _)) => {
            say(&format!("warning: no {provider} runs in pane {id} yet: {command} does"));
        }
        Ok((_, Some(open))) => say(&format!(
            "warning: {provider} in pane {id} was not started as `{open}`: its commands may run outside of \
             the pane, and `ensemble` refuses them the agent's mail"
        )),
        Ok(_) | Err(_) => {}
    }
}

/// Whether no program in the foreground has all options of the command that starts the agent. Without
/// `/proc` none is known to lack one.
fn lacks_an_option(pane: &ensemble_core::Result<PaneState>, open: &str) -> bool {
    let options: Vec<&str> = open.split(' ').filter(|word| word.starts_with("--")).collect();
    let Ok(pane) = pane else { return false };
    let lines: Vec<Vec<u8>> = pane
        .foreground
        .iter()
        .filter_map(|process| std::fs::read(format!("/proc/{}/cmdline", process.pid)).ok())
        .collect();
    let has_all = |line: &Vec<u8>| {
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        options.iter().all(|option| words.contains(&option.as_bytes()))
    };
    !lines.is_empty() && !lines.iter().any(has_all)
}

/// The tmux server that a flag names, or the one around this process.
pub(super) fn server(socket: Option<&Path>) -> Outcome<Server> {
    let server = match socket {
        Some(socket) => Some(Server::brief(socket)),
        None => std::env::var("TMUX").ok().and_then(|tmux| Server::from_variable(&tmux)),
    };
    let unknown = || Failure::usage("not inside tmux, and no server given");
    server.ok_or_else(|| unknown().with_hint("pass `--tmux-socket PATH`"))
}
