//! The name of a wrapped agent: the one that the person wants, or the first free one of its program.

use ensemble_core::message::Name;
use ensemble_team::roster::Member;
use ensemble_watch::project::Project;
use ensemble_watch::team::Plan;

use super::Wish;
use crate::exit::{Failure, Outcome};

/// How many names are tried.
const TRIES_MAX: u32 = 1_000;

/// The plan of the agent that is to be started.
pub(super) fn plan(project: &Project, provider: &str, wish: &Wish) -> Outcome<Plan> {
    let name = match &wish.name {
        Some(name) => wanted(project, name)?,
        None => free(project, provider)?,
    };
    let mut agent = project.config.agents.get(&name).cloned().unwrap_or_default();
    let profiles = project.profiles()?;
    // Another program is not started by the command of the one that is configured.
    if agent.provider.as_deref() != Some(provider) {
        agent.command = None;
    }
    if agent.command.is_none() {
        let usual = profiles.get(provider)?.open_command().map(str::to_owned);
        agent.command = usual.map(|usual| without_repeated(&usual, &wish.arguments));
    }
    agent.provider = Some(provider.to_owned());
    agent.role = wish.role.clone().or(agent.role);
    agent.pane = None;
    // Without a configured one, it starts where the person is.
    agent.directory = match agent.directory {
        Some(directory) => Some(directory),
        None => Some(std::env::current_dir()?),
    };
    Ok(Plan::configured(project, &profiles, &name, &agent)?)
}

/// The profile's command without the flags that the person gives as well: programs refuse a flag that comes twice.
fn without_repeated(command: &str, said: &[String]) -> String {
    let is_repeated = |word: &&str| word.starts_with('-') && said.iter().any(|it| it == word);
    let words: Vec<&str> = command.split(' ').filter(|word| !is_repeated(word)).collect();
    words.join(" ")
}

fn wanted(project: &Project, name: &Name) -> Outcome<Name> {
    match project.roster().get(name)? {
        Some(member) if !is_free(&member) => Err(Failure::refused(format!("{name} is up already"))
            .with_hint("take another name; `ensemble team` shows all")),
        _ => Ok(name.clone()),
    }
}

/// The first free name of `claude`, `claude-2`, `claude-3` …
pub(crate) fn free(project: &Project, provider: &str) -> Outcome<Name> {
    let roster = project.roster();
    for number in 1..=TRIES_MAX {
        let text = if number == 1 { provider.to_owned() } else { format!("{provider}-{number}") };
        let name = Name::new(text).map_err(ensemble_core::Error::from)?;
        let is_configured = project.config.agents.contains_key(&name);
        let is_taken = roster.get(&name)?.is_some_and(|member| !is_free(&member));
        if !is_configured && !is_taken {
            return Ok(name);
        }
    }
    Err(Failure::refused(format!("{TRIES_MAX} agents of this program are up")))
}

/// Whether the name of an agent can be taken: the agent was shut down, or its wrapper was killed and it has ended.
fn is_free(member: &Member) -> bool {
    let has_ended = || {
        let binding = member.binding.as_ref().filter(|binding| binding.is_terminal());
        binding.is_some_and(|binding| !binding.lives())
    };
    !member.is_present() || has_ended()
}
