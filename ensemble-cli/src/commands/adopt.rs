use std::path::PathBuf;

use ensemble_app::agent_panes::{
    RunningAgent, find_agent_panes, nearest_server, plan_adopted, warn_of_absent_agent,
};
use ensemble_app::starting::open;
use ensemble_app::text::one_line;
use ensemble_app::watcher_start::watcher_runs;
use ensemble_core::message::Name;
use ensemble_project::panes::PaneEntry;
use ensemble_project::team::LaunchedAgent;
use ensemble_tmux::tmux::TmuxServer;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};
use crate::printing::starting::print_brought;

/// Find agents that already run in tmux, and add them to the team
///
/// Without arguments it lists the panes in which Claude Code, Codex, OpenCode or Gemini CLI run in the foreground.
/// Those that are named become agents, called by their program: claude, claude-2, and so on. Nothing is typed and
/// nothing is started. From now on they are notified of mail. `ensemble agent join` takes any pane, with a name and a role
/// of your choice.
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
    /// The tmux server's socket [default: that of $TMUX, or tmux's default]
    #[arg(long, value_name = "SOCKET", value_hint = clap::ValueHint::FilePath)]
    tmux_socket: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let server = nearest_server(self.tmux_socket.as_deref())?;
        if self.panes.is_empty() && !self.all {
            return list(context, &find_agent_panes(context.project()?, &server)?);
        }
        self.adopt(context, &server)
    }

    fn wanted<'a>(&self, found: &'a [RunningAgent]) -> Outcome<Vec<&'a RunningAgent>> {
        if self.all {
            return Ok(found.iter().filter(|it| it.member.is_none()).collect());
        }
        let one = |id: &String| {
            match found.iter().find(|it| it.pane.id == *id) {
            None => Err(Failure::nothing(format!("no agent runs in pane {id}")).with_hint(
                "`ensemble agent adopt` lists those there are; `ensemble agent join` takes any pane",
            )),
            Some(RunningAgent { member: Some(member), .. }) => {
                Err(Failure::refused(format!("pane {id} belongs to {member}")))
            }
            Some(it) => Ok(it),
        }
        };
        self.panes.iter().map(one).collect()
    }

    fn adopt(&self, context: &Context, server: &TmuxServer) -> Outcome {
        let identity = context.identity()?;
        if let Some(actual) = identity.name.as_ref().filter(|_| identity.is_member()) {
            let text = format!("this is {actual}, who may not take panes into the team");
            return Err(Failure::refused(text).with_hint("run it outside of the team's panes"));
        }
        let spool = context.spool()?;
        let team = open(context, &spool)?;
        let lock = team.lock()?;
        // Under the lock: another command may have adopted some of them just now.
        let found = find_agent_panes(context.project()?, server)?;
        let (mut brought, mut failed) = (Vec::new(), None);
        for found in self.wanted(&found)? {
            let join = || -> Outcome<LaunchedAgent> {
                let binding = server.bind(&found.pane.id)?;
                Ok(team.join(&plan_adopted(context.project()?, &found.provider)?, &binding)?)
            };
            match join() {
                Ok(agent) => brought.push(agent),
                // Those that can join are shown before it is an error.
                Err(failure) => drop(failed.get_or_insert(failure)),
            }
        }
        drop(lock);
        for entry in brought.iter().filter_map(|one| PaneEntry::of(&one.member)) {
            warn_of_absent_agent(context.project()?, &entry);
        }
        if !brought.is_empty() || failed.is_none() {
            print_brought(context, &brought)?;
            say_next(context, &brought)?;
        }
        failed.map_or(Ok(()), Err)
    }
}

fn list(context: &Context, found: &[RunningAgent]) -> Outcome {
    let out = &context.out;
    if out.is_json() {
        return found.iter().try_for_each(|RunningAgent { pane, provider, member }| {
            out.object(&json!({
                "pane": pane.id, "provider": provider, "session": pane.session, "window": pane.window,
                "title": pane.title, "agent": member,
            }))
        });
    }
    if found.is_empty() {
        return out.line("no pane has an agent in its foreground");
    }
    let row = |RunningAgent { pane, provider, member }: &RunningAgent| {
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

fn say_next(context: &Context, brought: &[LaunchedAgent]) -> Outcome {
    let Some(first) = brought.first().filter(|_| !context.out.is_json()) else { return Ok(()) };
    if !watcher_runs(context.project()?) {
        context.out.line("they are notified of mail while a watcher runs: ensemble up")?;
    }
    context.out.line(format!("try it: ensemble send --to {} TEXT", first.member.name))
}
