//! The people who run the team, each with a mailbox, and the mailboxes that the configuration names.

use ensemble_core::message::Name;

use super::Project;

const USER_VARIABLE: &str = "USER";

impl Project {
    /// The people of the configuration; without it `operator` alone.
    pub fn people(&self) -> Vec<Name> {
        match self.config.people.is_empty() {
            true => vec![Name::operator()],
            false => self.config.people.clone(),
        }
    }

    /// The person who runs a command without a name: the one who is called like the user, otherwise the first.
    pub fn person(&self) -> Name {
        let user = std::env::var(USER_VARIABLE).unwrap_or_default();
        let people = self.people();
        let same = people.iter().find(|person| person.as_str() == user);
        same.or_else(|| people.first()).cloned().unwrap_or_else(Name::operator)
    }

    pub fn is_person(&self, name: &Name) -> bool {
        name.is_operator() || self.config.people.contains(name)
    }

    /// Whether this is the mailbox of an agent of the configuration, which may never have been started.
    pub fn is_configured_mailbox(&self, mailbox: &Name) -> bool {
        let agents = self.config.agents.iter();
        agents.map(|(name, agent)| agent.mailbox.as_ref().unwrap_or(name)).any(|it| it == mailbox)
    }

    /// The mailbox that a person reads besides their own: the first one has what came for `operator` before.
    pub fn earlier_mailbox(&self, person: &Name) -> Option<Name> {
        let operator = Name::operator();
        (self.mailbox_of(&operator) == *person && operator != *person).then_some(operator)
    }
}
