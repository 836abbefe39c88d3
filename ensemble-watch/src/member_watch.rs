//! The watcher's look at the members of the team, at every poll interval and soon after a mailbox or a screen has
//! changed. It records `agent.state` when the answer is another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::message::{Name, Timestamp};
use ensemble_project::members::{
    ObservedMember, START_PATIENCE, by_supervisor, is_script, judge, last_observed, without_pane,
};
use ensemble_project::panes::PaneEntry;
use ensemble_project::sessions;
use ensemble_project::workload::{self, TaskBooks, Workload};
use ensemble_team::holdings::Holding;
use ensemble_team::roster::{Member, PaneObservation, Presence, State};
use ensemble_tmux::session::Sessions;
use serde_json::json;

use crate::context::WatchContext;
use crate::notifier::MailNotifier;
use crate::processes::WatchedProcess;

/// The least time between two looks, if events ask for them. A person is to know of a prompt within 2 s.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(500);

/// Where a `reported` workload is an argument, it comes from the thread that follows the team's servers; without a
/// team, the watcher looks by itself.
pub(crate) struct MemberWatch {
    context: Arc<WatchContext>,
    members: BTreeMap<Name, Member>,
    seen: BTreeMap<Name, ObservedMember>,
    next_look: Monotonic,
    last_look: Option<Monotonic>,
    last_drive: Option<Monotonic>,
    interval: Duration,
    stirred: BTreeSet<Name>,
    waiting: BTreeMap<Name, String>,
    books: TaskBooks,
    /// Programs that were seen in the foreground of agents' panes.
    programs: BTreeMap<Name, u32>,
    ended: BTreeMap<Name, WatchedProcess>,
    /// Since when each is a member, by its own word, and until when it may be starting.
    starts: BTreeMap<Name, (Timestamp, Monotonic)>,
    sessions: Sessions,
}

impl MemberWatch {
    pub(crate) fn new(now: Monotonic, context: &Arc<WatchContext>) -> Self {
        let project = &context.project;
        let seen = last_observed(&project.watch_status());
        Self {
            context: Arc::clone(context),
            members: BTreeMap::new(),
            seen: seen.into_iter().map(|observed| (observed.agent.clone(), observed)).collect(),
            next_look: now,
            last_look: None,
            last_drive: None,
            interval: project.config.poll_interval(),
            stirred: BTreeSet::new(),
            waiting: BTreeMap::new(),
            books: TaskBooks::default(),
            programs: BTreeMap::new(),
            ended: BTreeMap::new(),
            starts: BTreeMap::new(),
            sessions: project.sessions(),
        }
    }

    pub(crate) const fn next_timeout(&self) -> Monotonic {
        self.next_look
    }

    /// Something has changed in a mailbox: look at those who read it, but not at once again.
    pub(crate) fn stir(&mut self, now: Monotonic, mailbox: &Name) {
        let readers = self.members.values().filter(|member| member.mailbox == *mailbox);
        let readers: Vec<Name> = readers.map(|member| member.name.clone()).collect();
        self.stir_all(now, readers);
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.members.keys()
    }

    /// Called when these agents hold or wait for something else: as [`Self::stir`].
    pub(crate) fn stir_all(&mut self, now: Monotonic, agents: impl IntoIterator<Item = Name>) {
        let before = self.stirred.len();
        let members = &self.members;
        self.stirred.extend(agents.into_iter().filter(|agent| members.contains_key(agent)));
        if self.stirred.len() > before {
            let earliest = self.last_drive.map_or(now, |at| at + LOOK_INTERVAL_MIN);
            self.next_look = self.next_look.min(earliest.max(now));
        }
    }

    /// The blackboard or a step queue has changed: as [`Self::stir`], for all agents.
    pub(crate) fn stir_everyone(&mut self, now: Monotonic) {
        let all: Vec<Name> = self.members.keys().cloned().collect();
        self.stir_all(now, all);
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = WatchedProcess> {
        self.members.values().filter(|member| member.is_present()).flat_map(|member| {
            let process =
                |pid, started| WatchedProcess { agent: member.name.clone(), pid, started };
            let roots = [
                member.binding.as_ref().map(|binding| process(binding.pid, binding.started)),
                member.supervisor.map(|it| process(it.pid, it.started)),
                self.programs.get(&member.name).map(|pid| process(*pid, None)),
            ];
            roots.into_iter().flatten()
        })
    }

    /// Look at an agent again soon: the program in its pane may be started again.
    pub(crate) fn look_again(&mut self, now: Monotonic, agent: &Name) {
        self.stirred.insert(agent.clone());
        self.next_look = self.next_look.min(now + LOOK_INTERVAL_MIN);
    }

    pub(crate) fn is_root(&self, process: &WatchedProcess) -> bool {
        let Some(member) = self.members.get(&process.agent) else { return false };
        let is_it = |pid: u32, started| pid == process.pid && started == process.started;
        match (&member.binding, member.supervisor) {
            (Some(binding), _) => is_it(binding.pid, binding.started),
            (None, Some(supervisor)) => is_it(supervisor.pid, supervisor.started),
            (None, None) => false,
        }
    }

    /// The roster or the place of an agent has changed: look at all agents.
    pub(crate) fn look_soon(&mut self, now: Monotonic) {
        self.last_look = None;
        self.next_look = now;
    }

    /// Observes the members that are due. Other threads look at panes and report with [`Self::seen`].
    pub(crate) fn drive(
        &mut self,
        now: Monotonic,
        reported: Option<&Workload>,
        notifier: &mut MailNotifier,
    ) -> bool {
        if now < self.next_look {
            return false;
        }
        self.last_drive = Some(now);
        let is_regular = self.last_look.is_none_or(|at| now >= at + self.interval);
        let stirred = std::mem::take(&mut self.stirred);
        if is_regular {
            self.last_look = Some(now);
            self.read_roster(now);
        }
        let regular = self.last_look.map_or(now, |at| at + self.interval);
        self.next_look = regular.max(now + LOOK_INTERVAL_MIN);
        match reported {
            Some(workload) => self.waiting.clone_from(&workload.waits_for),
            None => {
                match workload::waits_for(&*self.context.spool) {
                    Ok(waiting) => self.waiting = waiting,
                    Err(error) => tracing::warn!(%error, "cannot tell who waits for a decision"),
                }
                self.books.refresh_books(&self.context.project);
            }
        }
        let mut changed = false;
        for member in self.members.clone().values() {
            if !is_regular && !stirred.contains(&member.name) {
                continue;
            }
            if let Some(observation) = by_supervisor(&self.context.project, member) {
                changed |= self.seen(&member.name, observation, reported);
                continue;
            }
            let observation = match PaneEntry::of(member).filter(|_| member.is_present()) {
                Some(entry) if notifier.observe_pane(entry.clone()) => continue,
                Some(_) => PaneObservation::Unseen,
                None => match without_pane(member) {
                    // The roster names an agent before its pane is opened.
                    PaneObservation::NotStarted if self.is_starting(now, member) => continue,
                    other => other,
                },
            };
            changed |= self.seen(&member.name, observation, reported);
        }
        changed
    }

    pub(crate) fn process_ended(
        &mut self,
        process: &WatchedProcess,
        reported: Option<&Workload>,
    ) -> bool {
        self.ended.insert(process.agent.clone(), process.clone());
        let what = format!("its process {}", process.pid);
        self.seen(&process.agent, PaneObservation::Ended { what }, reported)
    }

    /// Whether an inspection of a pane began before the agent's process ended, and comes after that.
    fn is_outdated(&self, member: &Member, observation: &PaneObservation) -> bool {
        observation.diagnosis().is_some()
            && observation.absence(is_script(&member.provider)).is_none()
            && self.ended.get(&member.name).is_some_and(|process| self.is_root(process))
    }

    pub(crate) fn seen(
        &mut self,
        agent: &Name,
        observation: PaneObservation,
        reported: Option<&Workload>,
    ) -> bool {
        let Some(member) = self.members.get(agent) else { return false };
        let last = self.seen.get(agent);
        // The pane could not be observed: the last state stays.
        if observation == PaneObservation::Unseen && last.is_some() {
            return false;
        }
        if self.is_outdated(member, &observation) {
            return false;
        }
        match observation.diagnosis().and_then(|seen| seen.program) {
            Some(pid) => drop(self.programs.insert(agent.clone(), pid)),
            None => drop(self.programs.remove(agent)),
        }
        let waits_for = self.waiting.get(agent);
        let held = match member.is_present() {
            true => self.held_by(agent, reported),
            false => Ok(Vec::new()),
        };
        let Presence { state, why, .. } = match held {
            Ok(held) => {
                let reported = sessions::reported(&self.sessions, agent);
                judge(member, observation, reported, waits_for, &held)
            }
            Err(error) => {
                tracing::warn!(%agent, %error, "cannot tell what an agent is doing");
                return false;
            }
        };
        let from = last.map(|observed| observed.state);
        if from != Some(state) {
            let data = json!({ "agent": agent, "from": from, "to": state, "why": why });
            self.context.record(types::AGENT_STATE, data);
        }
        let since = match last {
            Some(observed) if observed.state == state => observed.since,
            Some(_) | None => SystemClock.wall(),
        };
        let observed = ObservedMember { agent: agent.clone(), state, since, why };
        let is_new = last != Some(&observed);
        self.seen.insert(agent.clone(), observed);
        is_new
    }

    fn held_by(&self, agent: &Name, reported: Option<&Workload>) -> Result<Vec<Holding>> {
        if let Some(workload) = reported {
            return Ok(workload.held_by(agent));
        }
        let mut known = self.books.holds(&*self.context.spool, |holder| holder == agent)?;
        Ok(known.by_agent.remove(agent).unwrap_or_default())
    }

    fn is_starting(&self, now: Monotonic, member: &Member) -> bool {
        member.is_present() && self.starts.get(&member.name).is_some_and(|start| now < start.1)
    }

    fn read_roster(&mut self, now: Monotonic) {
        match self.context.project.roster().entries() {
            Ok((members, errors)) => {
                for error in errors {
                    tracing::warn!(%error, "cannot read a file of the roster");
                }
                self.members = members.into_iter().map(|m| (m.name.clone(), m)).collect();
                self.seen.retain(|agent, _| self.members.contains_key(agent));
                self.ended.retain(|agent, _| self.members.contains_key(agent));
                self.note_starts(now);
            }
            Err(error) => tracing::warn!(%error, "cannot read the roster"),
        }
    }

    /// The wall clock says only once how long ago a member started: it may be set afterwards.
    fn note_starts(&mut self, now: Monotonic) {
        let mut before = std::mem::take(&mut self.starts);
        for member in self.members.values() {
            let known = before.remove(&member.name).filter(|known| known.0 == member.since);
            let start = known.unwrap_or_else(|| {
                let ago = SystemClock.wall().since(member.since);
                (member.since, now + START_PATIENCE.saturating_sub(ago))
            });
            self.starts.insert(member.name.clone(), start);
        }
    }

    pub(crate) fn gone(&self) -> impl Iterator<Item = (&Name, &str)> {
        let gone = |observed: &&ObservedMember| observed.state == State::Gone;
        let is_present = |name: &Name| self.members.get(name).is_some_and(Member::is_present);
        self.seen
            .values()
            .filter(gone)
            .filter(move |observed| is_present(&observed.agent))
            .map(|observed| (&observed.agent, observed.why.as_str()))
    }

    pub(crate) fn summary(&self) -> Vec<&ObservedMember> {
        self.seen.values().collect()
    }
}

#[cfg(test)]
mod tests {
    use ensemble_core::pane::PaneState;
    use ensemble_core::sim::SimRecorder;
    use ensemble_core::spool::{Spool, SpoolOptions};
    use ensemble_project::Project;
    use ensemble_team::roster::SupervisorProcess;
    use ensemble_tmux::provider::{Profiles, diagnose};

    use super::*;

    fn idle_pane() -> PaneObservation {
        let mut pane = PaneState::default();
        (pane.bound, pane.command) = (true, "claude".to_owned());
        pane.screen = vec!["> ".to_owned()];
        let claude = Profiles::embedded().unwrap().get("claude").unwrap();
        PaneObservation::Seen(diagnose(&claude, &pane))
    }

    #[test]
    fn a_look_that_began_before_the_end_of_an_agent_does_not_bring_it_back() {
        let home = tempfile::tempdir().unwrap();
        let queue = home.path().join("queue");
        std::fs::write(home.path().join("ensemble.yaml"), "durability: process\n").unwrap();
        let spool = Spool::create(&queue, SpoolOptions::default()).unwrap();
        let project = Project::discover(Some(&queue)).unwrap();
        let agent = Name::new("w1").unwrap();
        let process = |pid| WatchedProcess { agent: agent.clone(), pid, started: Some(7) };
        let supervisor: SupervisorProcess =
            serde_json::from_value(json!({ "pid": 40, "started": 7 })).unwrap();
        let mut member =
            Member::new(agent.clone(), agent.clone(), "claude".to_owned(), SystemClock.wall());
        member.supervisor = Some(supervisor);
        let recorder = SimRecorder::default();
        let context =
            WatchContext { project, spool: Arc::new(spool), recorder: Arc::new(recorder.clone()) };
        let mut watch = MemberWatch::new(SystemClock.monotonic(), &Arc::new(context));
        watch.members.insert(agent.clone(), member.clone());
        let states = || {
            let all = recorder.of(types::AGENT_STATE).into_iter();
            all.map(|it| it["to"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        watch.seen(&agent, idle_pane(), None);
        watch.process_ended(&process(40), None);
        watch.seen(&agent, idle_pane(), None);
        let before = states();
        assert_eq!(before[1..], ["gone"]);
        // Another process speaks for it: it was started again.
        member.supervisor.as_mut().unwrap().pid = 41;
        watch.members.insert(agent.clone(), member);
        watch.seen(&agent, idle_pane(), None);
        assert_eq!(states()[1..], ["gone", &before[0]]);
    }
}
