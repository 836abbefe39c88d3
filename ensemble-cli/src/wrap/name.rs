use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::free_names::{find_free_name, is_free};
use ensemble_core::message::Name;
use ensemble_project::Project;
use ensemble_project::team::AgentPlan;

use super::WrapOptions;

pub(super) fn plan(project: &Project, provider: &str, wish: &WrapOptions) -> Outcome<AgentPlan> {
    let name = match &wish.name {
        Some(name) => wanted(project, name)?,
        None => find_free_name(project, provider)?,
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
    Ok(AgentPlan::configured(project, &profiles, &name, &agent)?)
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
