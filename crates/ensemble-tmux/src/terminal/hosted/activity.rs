//! Signs that a screen has changed, of panes that no hook speaks for.

use std::collections::HashMap;

use super::*;
use crate::tmux::PaneCursor;

/// The signs of the panes of one multiplexer.
///
/// zellij is asked for its cursors. herdr pushes each change of an agent's state: every event counts as a new sign.
#[derive(Debug, Default)]
pub struct HostedActivity {
    events: Option<herdr::HerdrEvents>,
    /// How many events each pane of herdr has had; the panes that are subscribed to.
    counts: HashMap<String, u64>,
}

impl HostedActivity {
    /// The signs of these panes, by their addresses, at one socket.
    pub fn poll_signs(&mut self, socket: &Path, panes: &[String]) -> Result<Vec<PaneCursor>> {
        let polled = match panes.first().and_then(|first| first.parse().ok()) {
            Some(PaneAddress::Zellij { session, .. }) => poll_zellij(socket, &session, panes),
            Some(PaneAddress::Herdr { .. }) => self.poll_herdr(socket, panes),
            None => Ok(Vec::new()),
        };
        polled.map_err(|error| failed("ask for changed screens", socket, &error))
    }

    fn poll_herdr(&mut self, socket: &Path, panes: &[String]) -> io::Result<Vec<PaneCursor>> {
        if panes.len() != self.counts.len() || !panes.iter().all(|it| self.counts.contains_key(it))
        {
            self.events = None;
            self.counts = panes.iter().map(|pane| (pane.clone(), 0)).collect();
        }
        if self.events.is_none() {
            let ids = panes.iter().filter_map(|pane| pane.strip_prefix("herdr:"));
            self.events = Some(herdr::HerdrEvents::subscribe(socket, ids)?);
        }
        let changed = self.events.as_mut().map_or(Ok(Vec::new()), |it| it.changed_panes());
        if changed.is_err() {
            self.events = None;
        }
        for pane in changed? {
            if let Some(count) = self.counts.get_mut(&format!("herdr:{pane}")) {
                *count += 1;
            }
        }
        Ok(self.counts.iter().map(|(pane, count)| sign(pane, count.to_string())).collect())
    }
}

fn poll_zellij(socket: &Path, session: &str, panes: &[String]) -> io::Result<Vec<PaneCursor>> {
    let listed = zellij::list_panes(socket, session)?;
    let of = |address: &String| match address.parse() {
        Ok(PaneAddress::Zellij { pane, .. }) => {
            let found = listed.iter().find(|it| it.is_terminal_pane(pane))?;
            Some(sign(address, found.sign()))
        }
        _ => None,
    };
    Ok(panes.iter().filter_map(of).collect())
}

fn sign(pane: &str, cursor: String) -> PaneCursor {
    PaneCursor { id: pane.to_owned(), activity: String::new(), cursor }
}
