//! Names for agents that are called by their program.

use ensemble_core::message::Name;
use ensemble_project::Project;
use ensemble_team::roster::Member;

use crate::failure::{Failure, Outcome};

const TRIES_MAX: u32 = 1_000;

pub fn find_free_name(project: &Project, provider: &str) -> Outcome<Name> {
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
pub fn is_free(member: &Member) -> bool {
    let has_ended = || {
        let binding = member.binding.as_ref().filter(|binding| !binding.is_in_tmux());
        binding.is_some_and(|binding| !binding.lives())
    };
    !member.is_present() || has_ended()
}
