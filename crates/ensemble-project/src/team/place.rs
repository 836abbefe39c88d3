//! Finds an agent's pane by its binding or by its mark. The names of sessions and windows do not matter: people change them.

use std::time::{Duration, Instant};

use ensemble_core::Result;
use ensemble_core::driver::{LOOK_INTERVAL, nap};
use ensemble_core::message::Name;
use ensemble_team::roster::Member;
use ensemble_tmux::tmux::{Binding, PaneSigns, TmuxServer};

use super::ProjectTeam;

/// How long a server may take to notice that a process has ended.
const NOTICE_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AgentPlace {
    /// In the recorded pane.
    Bound(Binding),
    /// In an unrecorded pane with its mark: the process that started it was killed.
    Marked(PaneSigns),
    /// Its pane exists, but its program has ended.
    Ended(PaneSigns),
    Nowhere,
}

impl ProjectTeam<'_> {
    /// Location of `name`: the recorded pane, wherever it was moved to; otherwise a pane with its mark.
    pub(super) fn place_of(&self, name: &Name, member: Option<&Member>) -> Result<AgentPlace> {
        let binding = member.and_then(|member| member.binding.as_ref());
        if let Some(binding) = binding.filter(|binding| !binding.is_in_tmux()) {
            return Ok(if binding.lives() {
                AgentPlace::Bound(binding.clone())
            } else {
                AgentPlace::Nowhere
            });
        }
        if let Some(binding) = binding {
            let other;
            let server = match binding.socket == self.server.socket() {
                true => &self.server,
                false => {
                    other = TmuxServer::brief(binding.socket.clone());
                    &other
                }
            };
            let signs = settled_signs(binding, || server.pane_signs(&binding.id))?;
            match signs.filter(|signs| signs.token == binding.token) {
                Some(signs) if signs.dead => return Ok(AgentPlace::Ended(signs)),
                Some(signs) if signs.pid == binding.pid && binding.is_same_process() => {
                    return Ok(AgentPlace::Bound(binding.clone()));
                }
                // Another pane, or another program in the same one.
                Some(_) | None => {}
            }
        }
        let mut marked = self.panes()?;
        marked.retain(|pane| pane.member.as_ref().is_some_and(|(of, _)| of == name));
        // A living pane takes precedence over an ended one.
        marked.sort_by_key(|pane| pane.dead);
        Ok(match marked.into_iter().next() {
            Some(pane) if pane.dead => AgentPlace::Ended(pane),
            Some(pane) => AgentPlace::Marked(pane),
            None => AgentPlace::Nowhere,
        })
    }
}

/// The signs of a pane, once its server has noticed that the process was killed.
fn settled_signs(
    binding: &Binding,
    mut look: impl FnMut() -> Result<Option<PaneSigns>>,
) -> Result<Option<PaneSigns>> {
    let until = Instant::now() + NOTICE_PATIENCE;
    loop {
        let signs = look()?;
        let is_unnoticed = signs.as_ref().is_some_and(|signs| {
            signs.token == binding.token && signs.pid == binding.pid && !signs.dead
        });
        if !is_unnoticed || binding.lives() || Instant::now() >= until {
            return Ok(signs);
        }
        nap(LOOK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn signs_of(binding: &Binding, dead: bool) -> PaneSigns {
        PaneSigns {
            id: binding.id.clone(),
            session: "$0".to_owned(),
            pid: binding.pid,
            dead,
            dead_status: None,
            active_at: None,
            token: binding.token.clone(),
            member: None,
            is_sidecar: false,
            team: String::new(),
        }
    }

    #[test]
    fn a_killed_process_is_looked_at_until_its_server_has_noticed() {
        let mut process = Command::new("sleep").arg("3600").spawn().unwrap();
        let binding = Binding::of_terminal("/nowhere".into(), process.id());
        let mut looks = [false, false, true].map(|dead| signs_of(&binding, dead)).into_iter();
        let mut look = || Ok(looks.next());
        let running = settled_signs(&binding, &mut look).unwrap().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        let killed = settled_signs(&binding, &mut look).unwrap().unwrap();
        assert_eq!((running.dead, killed.dead), (false, true));
    }
}
