//! The agents of the overview: members, and agents in panes that are bound to mailboxes alone.

use std::collections::BTreeMap;

use ensemble_core::event_log;
use ensemble_core::message::{Name, Timestamp};
use ensemble_team::roster::{Member, Presence, State};
use ensemble_tmux::tmux::TmuxServer;

use super::{AgentOverview, MailboxOverview, Overview, OverviewSource, StateSource, WatcherView};
use crate::attention::{AgentView, WatcherState};
use crate::hosts::OtherHost;
use crate::project::{AgentConfig, Project};
use crate::rows::{RosterRow, rows};
use crate::workload::{TaskBooks, Workload};

/// How much of the end of the log is searched for signs of life, in bytes.
const LOG_BYTES_MAX: u64 = 512 * 1024;

pub(super) struct AgentLookup<'a> {
    pub(super) project: &'a Project,
    pub(super) source: OverviewSource<'a>,
    pub(super) watcher: &'a WatcherView,
    pub(super) workload: &'a Workload,
    pub(super) hosts: &'a [OtherHost],
    pub(super) mailboxes: &'a [MailboxOverview],
    pub(super) evidence: StateSource,
}

impl AgentLookup<'_> {
    pub(super) fn agents(&self, members: &[Member], books: &TaskBooks) -> Vec<AgentOverview> {
        let elsewhere: Vec<Name> = match self.source.directory() {
            None => self.mailboxes.iter().map(|mailbox| mailbox.name.clone()).collect(),
            Some(_) => Vec::new(),
        };
        let records = match self.evidence {
            // Without the log, signs of life are missing, which are shown as unknown.
            StateSource::Panes => {
                event_log::recent(&self.project.logs(), LOG_BYTES_MAX).unwrap_or_default()
            }
            StateSource::Watcher => Vec::new(),
        };
        let spoken = records.iter().map(|it| (it.actor.as_str(), it.timestamp)).collect();
        let rows = rows(members.to_vec(), books, &elsewhere, self.hosts);
        rows.into_iter().map(|row| self.agent(row, &spoken)).collect()
    }

    fn agent(&self, row: RosterRow, spoken: &BTreeMap<&str, Timestamp>) -> AgentOverview {
        let name = &row.member.name;
        let is_watched =
            self.evidence == StateSource::Watcher && self.watcher.state() == WatcherState::Runs;
        let (waits_for, holds) = (self.workload.waits_for.get(name), self.workload.held_by(name));
        let seen = self.watcher.observed().iter().find(|observed| observed.agent == *name);
        let presence = match seen.filter(|_| is_watched && row.member.is_present()) {
            Some(seen) => Presence::new(seen.state, seen.why.clone()),
            None => row.presence_or_why(self.project, waits_for, &holds),
        };
        let since = match presence.state {
            _ if row.elsewhere.is_some() => row.elsewhere.as_ref().and_then(|it| it.since),
            State::Shutdown => row.member.ended.as_ref().map(|ended| ended.at),
            state => seen.filter(|seen| seen.state == state).map(|seen| seen.since),
        };
        let shown = if is_watched { None } else { active_at(&row) };
        let sign_of_life = spoken.get(name.as_str()).copied().max(shown);
        let mailbox = find(self.mailboxes, &row.member.mailbox);
        let unread = mailbox.map_or(0, |mailbox| mailbox.glance.waiting);
        let is_at_rest = matches!(presence.state, State::Idle | State::Shutdown);
        AgentOverview {
            is_kept_back: is_at_rest
                && unread > 0
                && self.source.keeps_back(&row.member.mailbox, name),
            unread,
            waited: mailbox.and_then(MailboxOverview::waited),
            row,
            presence,
            since,
            holds,
            sign_of_life,
        }
    }
}

impl Overview {
    /// Agents in panes that are bound to mailboxes, and that are not members.
    pub(super) fn bound_alone(&self, source: OverviewSource<'_>) -> Vec<AgentView> {
        let seen = self.watcher.observed();
        let view = |(agent, mailbox): (Name, Name)| {
            if self.agents.iter().any(|known| known.row.member.name == agent) {
                return None;
            }
            let seen = seen.iter().find(|seen| seen.agent == agent)?;
            let mailbox = find(&self.mailboxes, &mailbox)?;
            Some(AgentView {
                since: Some(seen.since),
                unread: mailbox.glance.waiting,
                waited: mailbox.waited().filter(|_| !source.keeps_back(&mailbox.name, &agent)),
                nudges: self.watcher.why_not_notified(&agent),
                has_pane: true,
                again: format!(
                    "start it in its pane, or run `ensemble agent join {agent}` in another"
                ),
                ..AgentView::new(agent, seen.state, seen.why.clone())
            })
        };
        self.watcher.notified().into_iter().filter_map(view).collect()
    }

    /// Agents of `ensemble.yaml` that were never started, and whose mail waits for them alone.
    pub(super) fn never_started(
        &self,
        (project, source): (&Project, OverviewSource<'_>),
        known: &[AgentView],
    ) -> Vec<AgentView> {
        let has_reader =
            |mailbox: &Name| self.agents.iter().any(|agent| agent.row.member.mailbox == *mailbox);
        let view = |(name, agent): (&Name, &AgentConfig)| {
            let mailbox = find(&self.mailboxes, agent.mailbox.as_ref().unwrap_or(name))?;
            let is_known = known.iter().any(|view| view.name == *name);
            let is_awaited = mailbox.glance.waiting > mailbox.glance.delayed
                && !agent.start_on_mail
                && !source.keeps_back(&mailbox.name, name);
            if is_known || !is_awaited || agent.pane.is_some() || has_reader(&mailbox.name) {
                return None;
            }
            Some(AgentView {
                unread: mailbox.glance.waiting,
                waited: mailbox.waited(),
                is_new: true,
                again: format!("`ensemble up {name}`"),
                ..AgentView::new(name.clone(), State::Shutdown, String::new())
            })
        };
        project.config.agents.iter().filter_map(view).collect()
    }
}

/// The view of a mailbox among those of all, which are sorted by name.
fn find<'a>(mailboxes: &'a [MailboxOverview], name: &Name) -> Option<&'a MailboxOverview> {
    let at = mailboxes.binary_search_by(|mailbox| mailbox.name.cmp(name)).ok()?;
    mailboxes.get(at)
}

fn active_at(row: &RosterRow) -> Option<Timestamp> {
    let binding = row.member.binding.as_ref().filter(|it| it.is_in_tmux())?;
    let server = row.member.is_present().then(|| TmuxServer::brief(binding.socket.clone()))?;
    let pane = server.pane_signs(&binding.id).ok()??;
    pane.active_at.filter(|_| pane.token == binding.token)
}
