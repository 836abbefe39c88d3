//! `ensemble agent adopt`: agents that run in panes of tmux already become members of the team.

use std::path::{Path, PathBuf};

use ensemble_core::message::Name;
use ensemble_team::roster::Member;
use ensemble_tmux::tmux::{Binding, PaneInfo, Server};
use ensemble_watch::panes::PaneEntry;
use ensemble_watch::project::{AgentConfig, Project};
use ensemble_watch::team::{Brought, Plan};
use serde_json::json;

use super::join::lives;
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::starting::{open, report};
use crate::text::one_line;
use crate::watcher_start::watcher_runs;
use crate::wrap::free_name;

/// Find agents that run in tmux already, and take them into the team
///
/// Without arguments it lists the panes in which Claude Code, Codex, OpenCode or Gemini CLI stand in the foreground.
/// Those that are named become agents, called by their program: claude, claude-2, and so on. Nothing is typed and
/// nothing is started. From now on they are told that mail waits. `ensemble agent join` takes any pane, with a name and a role
/// of your own.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble agent adopt              # list them
  ensemble agent adopt %3 %7
  ensemble agent adopt --all")]
pub(crate) struct Arguments {
    /// Ids of the panes, such as %3
    #[arg(value_name = "PANE")]
    panes: Vec<String>,
    /// All that are listed
    #[arg(long, conflicts_with = "panes")]
    all: bool,
    /// The tmux server's socket [default: the one of $TMUX, else tmux's own]
    #[arg(long, value_name = "SOCKET", value_hint = clap::ValueHint::FilePath)]
    tmux_socket: Option<PathBuf>,
}

/// A pane in which an agent runs.
struct Found {
    pane: PaneInfo,
    provider: String,
    /// The member that has it already.
    member: Option<Name>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let server = server(self.tmux_socket.as_deref())?;
        let found = look(context.project()?, &server)?;
        if self.panes.is_empty() && !self.all {
            return list(context, &found);
        }
        let wanted = self.wanted(&found)?;
        self.adopt(context, &server, &wanted)
    }

    fn wanted<'a>(&self, found: &'a [Found]) -> Outcome<Vec<&'a Found>> {
        if self.all {
            return Ok(found.iter().filter(|it| it.member.is_none()).collect());
        }
        let one = |id: &String| {
            match found.iter().find(|it| it.pane.id == *id) {
            None => Err(Failure::nothing(format!("no agent runs in pane {id}")).with_hint(
                "`ensemble agent adopt` lists those there are; `ensemble agent join` takes any pane",
            )),
            Some(Found { member: Some(member), .. }) => {
                Err(Failure::refused(format!("pane {id} belongs to {member}")))
            }
            Some(it) => Ok(it),
        }
        };
        self.panes.iter().map(one).collect()
    }

    fn adopt(&self, context: &Context, server: &Server, wanted: &[&Found]) -> Outcome {
        let identity = context.identity()?;
        if let Some(actual) = identity.name.as_ref().filter(|_| identity.is_member()) {
            let text = format!("this is {actual}, who may not take panes into the team");
            return Err(Failure::refused(text).with_hint("run it outside of the team's panes"));
        }
        let spool = context.spool()?;
        let team = open(context, &spool)?;
        let lock = team.lock()?;
        let mut brought = Vec::new();
        for found in wanted {
            let binding = server.bind(&found.pane.id)?;
            brought.push(team.join(&plan(context.project()?, &found.provider)?, &binding)?);
        }
        drop(lock);
        for entry in brought.iter().filter_map(|one| PaneEntry::of(&one.member)) {
            super::bind::warn_if_absent(context.project()?, &entry);
        }
        report(context, &brought)?;
        say_next(context, &brought)
    }
}

/// A server that was named; the one around this process; the one that tmux takes by itself.
pub(super) fn server(named: Option<&Path>) -> Outcome<Server> {
    if named.is_some() || std::env::var_os("TMUX").is_some() {
        return super::bind::server(named);
    }
    let dir = std::env::var_os("TMUX_TMPDIR").filter(|dir| !dir.is_empty());
    let dir = dir.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let user = rustix::process::geteuid().as_raw();
    let socket = dir.join(format!("tmux-{user}")).join("default");
    if !socket.exists() {
        return Err(Failure::nothing("no tmux server runs here")
            .with_hint("`--tmux-socket PATH` names another one; `ensemble claude` needs no tmux"));
    }
    Ok(Server::brief(socket))
}

/// The number of agents in panes of tmux that are no members yet.
pub(super) fn unowned(context: &Context) -> usize {
    let found = server(None).and_then(|server| look(context.project()?, &server));
    // Where there is no tmux, there are none.
    found.map_or(0, |found| found.iter().filter(|it| it.member.is_none()).count())
}

/// The panes of the server in which agents run.
fn look(project: &Project, server: &Server) -> Outcome<Vec<Found>> {
    let profiles = project.profiles()?;
    let (members, _) = project.roster().entries()?;
    let mut present = Vec::new();
    for member in members.into_iter().filter(Member::is_present) {
        if let Some(bound) = member.binding.filter(|bound| bound.socket == *server.socket())
            && lives(&bound)?
        {
            present.push((member.name, bound));
        }
    }
    let owner = |pane: &PaneInfo| {
        let has = |bound: &Binding| bound.id == pane.id && bound.pid == pane.pid;
        present.iter().find(|(_, bound)| has(bound)).map(|(name, _)| name.clone())
    };
    let panes = server.panes()?.into_iter().filter(|pane| !pane.dead);
    Ok(panes
        .filter_map(|pane| {
            let provider = profiles.in_foreground(pane.pid)?.to_owned();
            Some(Found { member: owner(&pane), provider, pane })
        })
        .collect())
}

fn list(context: &Context, found: &[Found]) -> Outcome {
    let out = &context.out;
    if out.is_json() {
        return found.iter().try_for_each(|Found { pane, provider, member }| {
            out.object(&json!({
                "pane": pane.id, "provider": provider, "session": pane.session, "window": pane.window,
                "title": pane.title, "agent": member,
            }))
        });
    }
    if found.is_empty() {
        return out.line("no pane has an agent in its foreground");
    }
    let row = |Found { pane, provider, member }: &Found| {
        let place = format!("{}:{}", one_line(&pane.session), pane.window);
        let member = member.as_ref().map_or_else(|| "-".to_owned(), Name::to_string);
        vec![pane.id.clone(), provider.clone(), place, member, one_line(&pane.title)]
    };
    out.table(&["pane", "provider", "window", "agent", "title"], found.iter().map(row).collect())?;
    match found.iter().any(|it| it.member.is_none()) {
        true => out.line("take them into the team: ensemble agent adopt PANE…, or --all"),
        false => Ok(()),
    }
}

/// An agent that is called by its program.
fn plan(project: &Project, provider: &str) -> Outcome<Plan> {
    let name = free_name(project, provider)?;
    let mut agent = AgentConfig::default();
    agent.provider = Some(provider.to_owned());
    Ok(Plan::configured(project, &project.profiles()?, &name, &agent)?)
}

fn say_next(context: &Context, brought: &[Brought]) -> Outcome {
    let Some(first) = brought.first().filter(|_| !context.out.is_json()) else { return Ok(()) };
    if !watcher_runs(context.project()?) {
        context.out.line("they are notified of mail while a watcher runs: ensemble up")?;
    }
    context.out.line(format!("try it: ensemble send --to {} TEXT", first.member.name))
}
