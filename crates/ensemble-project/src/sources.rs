//! The interfaces over which agents report their state, from the configuration and this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_core::durable::read_chosen_file;
use ensemble_core::message::Name;
use ensemble_tmux::provider::machine::SourcePlaces;
use ensemble_tmux::provider::{
    AgentObserver, MachineSource, Profile, ServerConfig, TurnSign, Zones,
};
use ensemble_tmux::session::Sessions;

const PASSWORD_BYTES_MAX: usize = 1024;

/// The sources of a project's agents. Passwords are read when an agent is asked, so that a new one
/// counts at once.
#[derive(Clone, Debug)]
pub struct AgentSources {
    root: PathBuf,
    home: Option<PathBuf>,
    servers: BTreeMap<Name, ServerConfig>,
    zones: Zones,
    sessions: Sessions,
}

impl AgentSources {
    /// The sources of agents that are configured so, in a project at `root` whose hooks report to `sessions`.
    pub fn new(root: PathBuf, servers: BTreeMap<Name, ServerConfig>, sessions: Sessions) -> Self {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        Self { root, home, servers, zones: Zones::of_this_machine(), sessions }
    }

    /// Observes an agent of this profile by all sources. One without a name has no hooks.
    pub fn observer(&self, agent: Option<&Name>, profile: Arc<Profile>) -> AgentObserver {
        let places = self.places(agent, &profile);
        let observer =
            AgentObserver::new(profile).with_places(places).with_zones(self.zones.clone());
        let Some(agent) = agent.cloned() else { return observer };
        let sessions = self.sessions.clone();
        observer.with_turn_sign(TurnSign::new(move || sessions.is_turn_beginning(&agent)))
    }

    /// The interfaces over which the agent reports its state; `None` for an agent that has no name. A password that
    /// cannot be read appears in the agent's diagnosis, and the screen decides.
    fn places(&self, agent: Option<&Name>, profile: &Profile) -> SourcePlaces {
        let places = self.home.as_deref().map(SourcePlaces::in_home).unwrap_or_default();
        if profile.machine_source() != Some(MachineSource::OpencodeHttp) {
            return places;
        }
        let own = agent.and_then(|agent| self.servers.get(agent));
        let server = own.map_or_else(|| profile.server().clone(), |own| own.or(profile.server()));
        let found = self.password(&server).and_then(|password| Ok((password, server.place()?)));
        let user = server.user.as_deref();
        match found {
            Err(why) => places.without_opencode(why),
            Ok((Some(password), Some(place))) => {
                places.with_opencode(place.with_password(user, &password))
            }
            Ok((None, Some(place))) => places.with_opencode(place),
            Ok((password, None)) => places.with_opencode_as_started(user, password.as_deref()),
        }
    }

    fn password(&self, server: &ServerConfig) -> Result<Option<String>, String> {
        if let Some(variable) = &server.password_env {
            let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
            let missing = || format!("its password is missing: {variable} is not set here");
            return value.ok_or_else(missing).map(Some);
        }
        let Some(file) = &server.password_file else { return Ok(None) };
        read_password(&self.root.join(file)).map(Some)
    }
}

fn read_password(path: &Path) -> Result<String, String> {
    let failed = |why: &str| format!("its password is missing: {}: {why}", path.display());
    let content = read_chosen_file(path, PASSWORD_BYTES_MAX)
        .map_err(|error| format!("its password is missing: {error}"))?
        .ok_or_else(|| failed("does not exist"))?;
    let text = String::from_utf8(content).map_err(|_| failed("is not text"))?;
    match text.lines().next().unwrap_or_default() {
        "" => Err(failed("it is empty")),
        line => Ok(line.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use ensemble_tmux::provider::Profiles;

    use super::*;

    #[test]
    fn a_password_comes_from_a_file_and_its_absence_is_told() {
        let home = tempfile::tempdir().unwrap();
        let profiles = Profiles::embedded().unwrap();
        let opencode = profiles.get("opencode").unwrap();
        let server: ServerConfig = serde_json::from_value(serde_json::json!({
            "address": "http://127.0.0.1:4096", "password_file": "secret",
        }))
        .unwrap();
        let agent = Name::new("w1").unwrap();
        let servers = BTreeMap::from([(agent.clone(), server)]);
        let sessions = Sessions::open(home.path());
        let sources = AgentSources::new(home.path().to_owned(), servers, sessions);
        let described = || format!("{:?}", sources.places(Some(&agent), &opencode));
        assert!(described().contains("its password is missing"), "{}", described());
        std::fs::write(home.path().join("secret"), "\n").unwrap();
        assert!(described().contains("it is empty"), "{}", described());
        std::fs::write(home.path().join("secret"), "s3cret\nmore\n").unwrap();
        assert!(described().contains("127.0.0.1:4096"), "{}", described());
        assert!(!described().contains("s3cret"), "{}", described());
        // Another agent has no address, and no password.
        let other = sources.places(Some(&Name::new("w2").unwrap()), &opencode);
        let as_started = SourcePlaces::default().with_opencode_as_started(None, None);
        assert_eq!(other, {
            let claude = sources.places(None, &profiles.get("claude").unwrap());
            assert_ne!(claude, as_started, "Claude Code has no port");
            claude.with_opencode_as_started(None, None)
        });
    }
}
