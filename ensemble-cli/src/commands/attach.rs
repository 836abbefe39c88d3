use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ensemble_app::overview::agent_without_pane;
use ensemble_app::text::one_line;
use ensemble_core::message::Name;
use ensemble_project::Project;
use ensemble_project::team::{socket_of, team_session};
use ensemble_tmux::tmux::TmuxServer;

use crate::completion;
use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::printing::overview::note_look;

/// Attach this terminal to the team's tmux session
///
/// With a name, its pane is selected; it may be a pane of another tmux server that has joined. This
/// process becomes tmux: leave with your detach key (usually Ctrl-B D).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent attach worker-1")]
pub(crate) struct Arguments {
    /// The agent whose pane to show
    #[arg(value_name = "NAME", add = completion::agents())]
    name: Option<Name>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let project = context.project()?;
        let (socket, target) = match &self.name {
            Some(name) => self.pane_of(context, name)?,
            None => session_of(project)?,
        };
        self.check_terminal()?;
        note_look(context);
        context.out.flush()?;
        let error = attach(&socket, &target).exec();
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                Err(Failure::new(VerbExit::MissingProgram, "`tmux` is not installed"))
            }
            _ => Err(Failure::refused(format!("cannot start tmux: {error}"))),
        }
    }

    /// Refuses a terminal that this machine does not know, before tmux does in its own words.
    fn check_terminal(&self) -> Outcome {
        let term = std::env::var("TERM").unwrap_or_default();
        let mut asked = Command::new("tput");
        asked.args(["-T", &term, "clear"]).stdout(Stdio::null()).stderr(Stdio::null());
        if asked.status().is_ok_and(|answer| !answer.success()) {
            let name = self.name.iter().map(|name| format!(" {name}")).collect::<String>();
            let text = match &*term {
                "" => "TERM is not set, so the terminal is not known".to_owned(),
                term => {
                    format!("TERM is `{}`, a terminal that cannot be used here", one_line(term))
                }
            };
            let help = format!("`TERM=xterm-256color ensemble agent attach{name}`");
            return Err(Failure::refused(text).with_hint(help));
        }
        Ok(())
    }

    fn pane_of(&self, context: &Context, name: &Name) -> Outcome<(PathBuf, String)> {
        let member = context.project()?.roster().get(name)?;
        let Some(binding) = member.and_then(|member| member.binding) else {
            return Err(agent_without_pane(context.project()?, name));
        };
        if binding.is_terminal() {
            let text = format!("{name} runs in its own terminal (process {})", binding.pid);
            return Err(Failure::refused(text).with_hint("look at the terminal it was started in"));
        }
        if binding.is_hosted() {
            let text = format!("{name} runs in pane {}", binding.id);
            return Err(Failure::refused(text).with_hint("look at it in its multiplexer"));
        }
        match TmuxServer::brief(binding.socket.clone()).check(&binding)? {
            None => Ok((binding.socket, binding.id)),
            Some(gone) => Err(Failure::nothing(format!("{name}: {gone}"))
                .with_hint("`ensemble up` starts it again")),
        }
    }
}

/// The team's session. It is looked for first, so that the error is not one of tmux.
fn session_of(project: &Project) -> Outcome<(PathBuf, String)> {
    let session = team_session(project)?.ok_or_else(|| {
        Failure::nothing("the team's session is not running").with_hint("`ensemble up` starts it")
    })?;
    Ok((socket_of(project)?, session.id))
}

/// Within the same server the client moves over; otherwise a session within a session is what was
/// asked for.
fn attach(socket: &std::path::Path, target: &str) -> Command {
    let around = std::env::var("TMUX").ok().and_then(|tmux| TmuxServer::from_variable(&tmux));
    let is_inside = around.is_some_and(|server| server.socket() == socket);
    let mut tmux = Command::new("tmux");
    tmux.arg("-S").arg(socket);
    if target.starts_with('%') {
        tmux.args(["select-window", "-t", target, ";", "select-pane", "-t", target, ";"]);
    }
    if is_inside {
        tmux.args(["switch-client", "-t", target]);
    } else {
        tmux.args(["attach-session", "-t", target]).env_remove("TMUX");
    }
    tmux
}
