//! Panes of tmux in which agents run, whether or not they are members of the team.

use std::path::{Path, PathBuf};

use ensemble_core::env::Pane as _;
use ensemble_core::message::Name;
use ensemble_core::pane::{Deferral, PaneState};
use ensemble_project::panes::PaneEntry;
use ensemble_project::team::AgentPlan;
use ensemble_project::{AgentConfig, Project, members};
use ensemble_team::roster::Member;
use ensemble_tmux::provider::process::line_of;
use ensemble_tmux::terminal::hosted::{self, PaneAddress};
use ensemble_tmux::tmux::{Binding, PaneInfo, TmuxServer};

use crate::App;
use crate::diagnostics::say;
use crate::failure::{Failure, Outcome};
use crate::free_names::find_free_name;

/// Says so if the agent of a pane does not run in it; mail is announced once it does. Also says so if it was started
/// without an option that its profile starts it with. A pane that cannot be inspected now is left to the watcher.
pub fn warn_of_absent_agent(project: &Project, entry: &PaneEntry) {
    let (provider, id) = (&entry.provider, &entry.binding.id);
    if members::is_script(provider) {
        return;
    }
    let looked = || -> Outcome<(Option<Deferral>, Option<String>)> {
        let profile = project.profiles()?.get(provider)?;
        let open = profile.open_command().map(str::to_owned);
        let mut pane = project.open_pane(entry, profile)?;
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
pub fn named_server(socket: Option<&Path>) -> Outcome<TmuxServer> {
    let server = match socket {
        // It is recorded with the pane, and read in other directories.
        Some(socket) => Some(TmuxServer::brief(std::path::absolute(socket)?)),
        None => std::env::var("TMUX").ok().and_then(|tmux| TmuxServer::from_variable(&tmux)),
    };
    server.ok_or_else(|| {
        Failure::usage("not inside tmux, and no server given").with_hint(
            "pass `--tmux-socket PATH`; `tmux display-message -p '#{socket_path}'` prints it",
        )
    })
}

/// Binds the pane that a flag names: of tmux, or by the address of another multiplexer. Without one, the nearest pane
/// around this process.
pub fn bind_named_pane(pane: Option<&str>, tmux_socket: Option<&Path>) -> Outcome<Binding> {
    if let Some(address) = pane.and_then(|pane| pane.parse::<PaneAddress>().ok()) {
        return Ok(hosted::bind_address(&address, &|name| std::env::var(name).ok())?);
    }
    if let Some(pane) = pane {
        return Ok(named_server(tmux_socket)?.bind(pane)?);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|_| tmux_socket.is_none());
    let hosted = hosted::bind_surrounding(&variable);
    let in_tmux = variable("TMUX_PANE").map(|pane| named_server(None).map(|it| it.bind(&pane)));
    let in_tmux = in_tmux.transpose()?.transpose()?;
    // Where one multiplexer runs in the other, the inner one has the nearer first process.
    let distance = |binding: &Binding| {
        let line = line_of(std::process::id());
        line.iter().position(|(pid, _)| *pid == binding.pid).unwrap_or(usize::MAX)
    };
    match (in_tmux, hosted) {
        (Some(pane), Some((at, _))) if distance(&pane) < at => Ok(pane),
        (_, Some((_, pane))) | (Some(pane), None) => Ok(pane),
        (None, None) => Err(Failure::usage("no pane given, and this is not one").with_hint(
            "pass `--pane %3` (`tmux list-panes -a` lists panes), `zellij:SESSION/PANE` or `herdr:PANE`",
        )),
    }
}

pub fn is_bound_alive(binding: &Binding) -> Outcome<bool> {
    if !binding.is_in_tmux() {
        return Ok(binding.lives());
    }
    let server = ensemble_tmux::tmux::TmuxServer::brief(binding.socket.clone());
    let signs = server.pane_signs(&binding.id)?;
    Ok(signs.is_some_and(|pane| {
        !pane.dead
            && pane.token == binding.token
            && pane.pid == binding.pid
            && binding.is_same_process()
    }))
}

pub struct RunningAgent {
    pub pane: PaneInfo,
    pub provider: String,
    pub member: Option<Name>,
}

/// A server that was named; the one around this process; the one that tmux takes by itself.
pub fn nearest_server(named: Option<&Path>) -> Outcome<TmuxServer> {
    if named.is_some() || std::env::var_os("TMUX").is_some() {
        return named_server(named);
    }
    let dir = std::env::var_os("TMUX_TMPDIR").filter(|dir| !dir.is_empty());
    let dir = dir.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let user = rustix::process::geteuid().as_raw();
    let socket = dir.join(format!("tmux-{user}")).join("default");
    if !socket.exists() {
        return Err(Failure::nothing("no tmux server runs here")
            .with_hint("`--tmux-socket PATH` names another one; `ensemble claude` needs no tmux"));
    }
    Ok(TmuxServer::brief(socket))
}

pub fn count_unowned_agents(app: &App) -> usize {
    let found = nearest_server(None).and_then(|server| find_agent_panes(app.project()?, &server));
    // Where there is no tmux, there are none.
    found.map_or(0, |found| found.iter().filter(|it| it.member.is_none()).count())
}

pub fn find_agent_panes(project: &Project, server: &TmuxServer) -> Outcome<Vec<RunningAgent>> {
    let profiles = project.profiles()?;
    let (members, _) = project.roster().entries()?;
    let mut present = Vec::new();
    for member in members.into_iter().filter(Member::is_present) {
        if let Some(bound) = member.binding.filter(|bound| bound.socket == *server.socket())
            && is_bound_alive(&bound)?
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
            Some(RunningAgent { member: owner(&pane), provider, pane })
        })
        .collect())
}

/// An agent that is called by its program.
pub fn plan_adopted(project: &Project, provider: &str) -> Outcome<AgentPlan> {
    let name = find_free_name(project, provider)?;
    let agent = AgentConfig { provider: Some(provider.to_owned()), ..AgentConfig::default() };
    Ok(AgentPlan::configured(project, &project.profiles()?, &name, &agent)?)
}
