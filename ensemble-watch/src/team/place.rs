//! Finds an agent's pane by its binding or by the mark of its window.

use ensemble_core::Result;
use ensemble_core::message::Name;
use ensemble_team::roster::Member;
use ensemble_tmux::tmux::{Binding, PaneSigns, Server};

use super::Team;

/// Location of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the recorded pane.
    Bound(Binding),
    /// In an unrecorded pane with its mark: the process that started it was killed.
    Marked(PaneSigns),
    /// Its pane exists, but its program has ended.
    Ended(PaneSigns),
    /// Nowhere.
    Nowhere,
}

impl Team<'_> {
    /// Location of `name`.
    pub(super) fn place_of(&self, name: &Name, member: Option<&Member>) -> Result<Place> {
        let panes = self.server.team_panes(&self.session)?;
        let terminal = member.and_then(|member| member.binding.as_ref());
        if let Some(binding) = terminal.filter(|binding| binding.is_terminal()) {
            return Ok(if binding.lives() {
                Place::Bound(binding.clone())
            } else {
                Place::Nowhere
            });
        }
        if let Some(binding) = member.and_then(|member| member.binding.as_ref()) {
            let elsewhere = || Server::brief(binding.socket.clone()).pane_signs(&binding.id);
            let signs = match binding.socket == self.server.socket() {
                true => panes.iter().find(|pane| pane.id == binding.id).cloned(),
                false => elsewhere()?,
            };
            match signs.filter(|signs| signs.token == binding.token) {
                Some(signs) if signs.dead => return Ok(Place::Ended(signs)),
                Some(signs) if is_bound(&signs, binding) => {
                    return Ok(Place::Bound(binding.clone()));
                }
                // Another pane, or another program in the same one.
                Some(_) | None => {}
            }
        }
        let is_marked = |pane: &&PaneSigns| pane.member.as_ref().is_some_and(|(of, _)| of == name);
        let mut marked: Vec<&PaneSigns> = panes.iter().filter(is_marked).collect();
        // A living pane takes precedence over an ended one.
        marked.sort_by_key(|pane| pane.dead);
        Ok(match marked.first() {
            Some(pane) if pane.dead => Place::Ended((*pane).clone()),
            Some(pane) => Place::Marked((*pane).clone()),
            None => Place::Nowhere,
        })
    }
}

fn is_bound(signs: &PaneSigns, binding: &Binding) -> bool {
    signs.pid == binding.pid && binding.is_same_process()
}
