//! Detects that an agent's screen has changed, with one cheap query per server, so that an agent without hooks that
//! stops at a prompt is inspected at once and not at the next regular look.
//!
//! ```text
//! the cursor has moved, is shown or hidden, stands on another character    look
//! output has ended, or begins again                                        look
//! output goes on around the same cursor: a spinner, a clock                 nothing
//! the server does not answer                                                ask again, ever later up to RETRY_MAX
//! ```

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ensemble_core::message::Name;
use ensemble_tmux::terminal::hosted::HostedActivity;
use ensemble_tmux::tmux::{PaneCursor, TmuxServer};

/// How often a server is asked. A person is to know of a prompt within 2 s.
const INTERVAL: Duration = Duration::from_millis(500);
/// How often zellij is asked, which takes a process each time.
const HOSTED_INTERVAL: Duration = Duration::from_millis(1500);
/// The longest pause after a question that a server has not answered. Each such question in a row doubles the pause.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Output has ended after this many answers without any. One answer is not enough, since tmux reports the time of
/// output in whole seconds.
const QUIET_ANSWERS: u32 = 3;

#[derive(Debug)]
pub(crate) struct ServerScreens {
    agents: HashMap<String, SeenScreen>,
    hosted: HostedActivity,
    next: Instant,
    /// The pause after the next question that is not answered.
    retry: Duration,
}

#[derive(Debug)]
struct SeenScreen {
    agent: Name,
    /// The last answer, and how many consecutive answers before it showed no new output.
    last: Option<(PaneCursor, u32)>,
}

impl ServerScreens {
    pub(crate) fn new(now: Instant) -> Self {
        let (agents, hosted) = (HashMap::new(), HostedActivity::default());
        Self { agents, hosted, next: now, retry: INTERVAL }
    }

    pub(crate) fn follow(&mut self, pane: &str, agent: &Name) {
        self.agents
            .entry(pane.to_owned())
            .and_modify(|seen| seen.agent.clone_from(agent))
            .or_insert_with(|| SeenScreen { agent: agent.clone(), last: None });
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.agents.is_empty()).then_some(self.next)
    }

    pub(crate) fn ask(&mut self, now: Instant, server: &TmuxServer) -> Vec<Name> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        // A server is of one multiplexer.
        let in_tmux = self.agents.keys().all(|pane| pane.starts_with('%'));
        let cursors = match in_tmux {
            true => server.cursors(),
            false => {
                let panes: Vec<String> = self.agents.keys().cloned().collect();
                self.hosted.poll_signs(server.socket(), &panes)
            }
        };
        match cursors {
            Ok(cursors) => {
                self.next = now + if in_tmux { INTERVAL } else { HOSTED_INTERVAL };
                self.retry = INTERVAL;
                self.changed(cursors)
            }
            Err(error) => {
                tracing::debug!(%error, "cannot ask for cursors");
                self.next = now + self.retry;
                self.retry = (self.retry * 2).min(RETRY_MAX);
                Vec::new()
            }
        }
    }

    /// Takes an answer. A pane that is not in it is gone.
    fn changed(&mut self, cursors: Vec<PaneCursor>) -> Vec<Name> {
        let mut now: HashMap<String, PaneCursor> =
            cursors.into_iter().map(|cursor| (cursor.id.clone(), cursor)).collect();
        self.agents.retain(|pane, _| now.contains_key(pane));
        let mut changed = Vec::new();
        for (pane, seen) in &mut self.agents {
            if now.remove(pane).is_some_and(|cursor| seen.update_cursor(cursor)) {
                changed.push(seen.agent.clone());
            }
        }
        changed
    }
}

impl SeenScreen {
    /// Whether this answer shows that the screen has changed. The first answer only sets the baseline.
    fn update_cursor(&mut self, cursor: PaneCursor) -> bool {
        let Some((last, quiet)) = self.last.take() else {
            self.last = Some((cursor, 0));
            return false;
        };
        let has_moved = last.cursor != cursor.cursor;
        let is_silent = last.activity == cursor.activity;
        let begins = !is_silent && quiet >= QUIET_ANSWERS;
        let quiet = if is_silent { quiet.saturating_add(1) } else { 0 };
        self.last = Some((cursor, quiet));
        has_moved || begins || quiet == QUIET_ANSWERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(pane: &str, activity: u32, cursor: &str) -> PaneCursor {
        PaneCursor {
            id: pane.to_owned(),
            activity: activity.to_string(),
            cursor: cursor.to_owned(),
        }
    }

    #[test]
    fn a_moved_cursor_and_the_ends_of_output_are_changes_and_a_spinner_is_none() {
        let agent = Name::new("w1").unwrap();
        let mut screens = ServerScreens::new(Instant::now());
        screens.follow("%1", &agent);
        let mut tells = |activity, at: &str| {
            let changed = screens.changed(vec![cursor("%1", activity, at), cursor("%2", 0, at)]);
            changed == [agent.clone()]
        };
        assert!(!tells(1, "2,3,1,0, "), "the first answer");
        assert!(!tells(2, "2,3,1,0, ") && !tells(3, "2,3,1,0, "), "a spinner");
        assert!(tells(4, "1,3,1,0,❯"), "the cursor has moved");
        let silent: Vec<bool> = (0..5).map(|_| tells(4, "1,3,1,0,❯")).collect();
        assert_eq!(silent, [false, false, true, false, false], "output has ended once");
        assert!(tells(9, "1,3,1,0,❯"), "output begins again");
        assert!(!tells(10, "1,3,1,0,❯"));
    }

    #[test]
    fn a_server_that_does_not_answer_is_asked_again_soon_and_then_ever_later() {
        let home = tempfile::tempdir().unwrap();
        let (mut now, server) = (Instant::now(), TmuxServer::brief(home.path().join("none")));
        let mut screens = ServerScreens::new(now);
        screens.follow("%1", &Name::new("w1").unwrap());
        let pauses: Vec<Duration> = (0..8)
            .map(|_| {
                assert!(screens.ask(now, &server).is_empty());
                let next = screens.due().unwrap();
                next - std::mem::replace(&mut now, next)
            })
            .collect();
        assert_eq!((pauses[0], pauses[1], pauses[7]), (INTERVAL, INTERVAL * 2, RETRY_MAX));
    }

    #[test]
    fn a_pane_that_is_gone_is_forgotten() {
        let now = Instant::now();
        let mut screens = ServerScreens::new(now);
        assert_eq!(screens.due(), None);
        screens.follow("%1", &Name::new("w1").unwrap());
        assert_eq!(screens.due(), Some(now));
        assert!(screens.changed(vec![cursor("%2", 1, "0,0")]).is_empty());
        assert_eq!(screens.due(), None);
    }
}
