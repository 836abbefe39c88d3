//! Agents that are to leave: asking them, and making sure that they exit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use ensemble_core::broker::UnreadMail;
use ensemble_core::driver::nap;
use ensemble_core::env::SystemClock;
use ensemble_core::message::Name;
use ensemble_core::message::period::whole_seconds;
use ensemble_core::proto::request::{AtExpiry, SHUTDOWN};
use ensemble_core::requests::{NewRequest, RequestEntry, Requests};
use ensemble_project::Project;
use ensemble_project::agent_host::PaneHost;
use ensemble_project::members::{ObservedMember, last_observed};
use ensemble_team::driver::{AgentDeparture, AgentHost as _, DepartureOutcome, ShutdownDriver};
use ensemble_team::proto::drain::{Effect, Event, TeamDrain};
use ensemble_team::proto::shutdown::{GRACE, ShutdownConsent, WorkerPresence};
use ensemble_team::roster::{Member, State};
use serde_json::Value;

use crate::App;
use crate::asking::{refused, requests, settle_answer};
use crate::authority::authorize_shutdown;
use crate::diagnostics::say;
use crate::error_line::FailureCode;
use crate::failure::{Failure, Outcome};
use crate::interrupt::{Interrupt, end_if_cancelled};
use crate::queue::ProjectQueue;
use crate::starting::place_to_answer;
use crate::text::age;
use crate::wait_line::WaitLine;
use crate::watcher_start::watcher_runs;

/// How much longer than its deadline and its grace an agent may take to be ended.
const OVERTIME: Duration = Duration::from_secs(90);
/// How long to wait before looking whether a watcher still runs.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What the seed says if nothing else is said.
pub const SHUTDOWN_REASON: &str = "Please shut down gracefully.";

/// A watcher in this process, which stops when this is dropped.
pub trait StandInWatcher {
    /// Whether it has stopped by itself.
    fn has_ended(&self) -> bool;
}

/// Starts a watcher in this process; `None` if another one has just started.
pub type StartWatcher = fn(&Project) -> Option<Box<dyn StandInWatcher>>;

#[derive(Debug)]
pub struct DepartureAsk<'c> {
    pub app: &'c App,
    pub from: Name,
    pub reason: String,
    /// How long they have to answer, all together where several are asked; `None` is what is configured for each.
    pub deadline: Option<Duration>,
    /// What silence means; `None` is what is configured.
    pub on_silence: Option<AtExpiry>,
    /// How their unread mail is handled; `None` is what is configured.
    pub unread: Option<UnreadMail>,
    /// Whether an agent whose shutdown cannot be stored is ended without it.
    pub ends_unrecorded: bool,
    pub id: Option<String>,
}

#[derive(Debug)]
pub struct DepartureFate {
    pub agent: Name,
    pub request_id: Option<Name>,
    /// `gone`, `stayed` or `unasked`.
    pub word: &'static str,
    pub detail: String,
    /// What a program reads besides of an agent that could not be asked.
    pub object: Option<Value>,
}

impl DepartureFate {
    fn new(agent: &Name, request_id: Option<Name>, word: &'static str, detail: String) -> Self {
        Self { agent: agent.clone(), request_id, word, detail, object: None }
    }
}

impl<'c> DepartureAsk<'c> {
    /// Asks one agent. One that is gone already is not waited for.
    pub fn ask(&self, queue: &ProjectQueue, agent: &Name) -> Outcome<RequestEntry> {
        self.ask_within(queue, agent, self.deadline)
    }

    fn ask_within(
        &self,
        queue: &ProjectQueue,
        agent: &Name,
        deadline: Option<Duration>,
    ) -> Outcome<RequestEntry> {
        let project = self.app.project()?;
        authorize_shutdown(self.app, &self.from, agent)?;
        let mut ask =
            NewRequest::new(SHUTDOWN, self.from.clone(), agent.clone(), self.reason.as_str());
        let agents = &project.config.agents;
        let configured = || agents.get(agent)?.shutdown.deadline.map(Duration::from);
        if let Some(deadline) = deadline.or_else(configured) {
            ask = ask.with_deadline_seconds(whole_seconds(deadline));
        }
        if let Some(on_silence) = self.on_silence {
            ask = ask.with_expiry(on_silence);
        }
        ask.generation = project.roster().get(agent)?.map(|member| member.generation);
        if is_gone(project, agent)? {
            ask = ask.with_deadline_seconds(0).with_expiry(AtExpiry::Force);
        }
        ask.unread_mail = self.unread;
        if let Some(id) = &self.id {
            ask = ask.with_id(id.as_str());
        }
        requests(self.app, queue)?.ask(ask).map_err(refused)
    }

    /// Asks a team, in order, and waits until each has gone or stays. Needs a watcher, and starts one where none
    /// runs.
    pub fn drain(
        &self,
        queue: &ProjectQueue,
        team: &[Member],
        start_watcher: StartWatcher,
    ) -> Outcome<Vec<DepartureFate>> {
        let mut drain = TeamDrain::new(team.iter().map(|m| (m.name.clone(), m.role.clone())));
        let mut leaving = LeavingTeam {
            farewell: self,
            queue,
            end: self.deadline.map(|deadline| Instant::now() + deadline),
            open: BTreeMap::new(),
            fates: Vec::new(),
            start_watcher,
            stand_in: None,
            interrupt: Interrupt::install()?,
            has_told: false,
        };
        let mut events = VecDeque::from([Event::Begin]);
        loop {
            while let Some(event) = events.pop_front() {
                let (next, effects) = drain.next(event);
                drain = next;
                for effect in effects {
                    match effect {
                        Effect::Ask(agent) => events.extend(leaving.ask(&agent)),
                        Effect::Over { unasked, .. } => return Ok(leaving.over(unasked)),
                    }
                }
            }
            events.extend(leaving.wait()?);
        }
    }
}

struct LeavingTeam<'a> {
    farewell: &'a DepartureAsk<'a>,
    queue: &'a ProjectQueue,
    /// When the last of them must have answered, if that was said.
    end: Option<Instant>,
    /// Those who were asked, with the time by which they must have gone.
    open: BTreeMap<Name, (RequestEntry, Instant)>,
    fates: Vec<DepartureFate>,
    start_watcher: StartWatcher,
    stand_in: Option<Box<dyn StandInWatcher>>,
    interrupt: Interrupt,
    has_told: bool,
}

impl LeavingTeam<'_> {
    fn ask(&mut self, agent: &Name) -> Option<Event> {
        // Those who are asked later have what the others have left.
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        match self.farewell.ask_within(self.queue, agent, left) {
            Ok(entry) => {
                let answer = Duration::from_secs(entry.request.deadline_seconds);
                let end = Instant::now() + self.grace(agent) + answer + OVERTIME;
                self.open.insert(agent.clone(), (entry, end));
                None
            }
            Err(mut failure) => {
                let (object, text) = (failure.take_object(), failure.text());
                let unstored = [FailureCode::Io, FailureCode::Busy, FailureCode::Locked];
                if matches!(&failure, Failure::Told { code, .. } if unstored.contains(code))
                    && self.end_by_force(agent, &text)
                {
                    return Some(Event::Gone(agent.clone()));
                }
                self.fates.push(DepartureFate {
                    object,
                    ..DepartureFate::new(agent, None, "stayed", text)
                });
                Some(Event::Stayed(agent.clone()))
            }
        }
    }

    /// Ends one whose shutdown cannot be stored, if that is asked for; whether it has gone.
    fn end_by_force(&mut self, agent: &Name, why: &str) -> bool {
        let has_gone = self.farewell.ends_unrecorded
            && matches!(self.end_processes(agent), Ok(DepartureOutcome::Gone { .. }));
        if has_gone {
            say(&format!(
                "warning: {agent} was ended, but that could not be recorded: {why}; run \
                 `ensemble down` again to record it"
            ));
            self.fate(agent, None, "gone", "ended, not recorded".to_owned());
        }
        has_gone
    }

    fn end_processes(&self, agent: &Name) -> Outcome<DepartureOutcome> {
        let DepartureAsk { app, from, .. } = self.farewell;
        let (project, recorder) = (app.project()?, app.recorder()?);
        let roster = project.roster();
        let Some(member) = roster.get(agent)? else { return Ok(DepartureOutcome::Before) };
        let mut departure = AgentDeparture::of(&member, ShutdownConsent::Forced, from.clone());
        departure.is_unrecorded = true;
        let shutdown = ShutdownDriver {
            queue: &**self.queue,
            roster: &roster,
            recorder: &*recorder,
            clock: &SystemClock,
        };
        let end = Instant::now() + OVERTIME;
        let mut rest = |longest: Duration| {
            nap(longest);
            Instant::now() < end && !self.interrupt.is_noted()
        };
        let mut agent_host = PaneHost::of(project, &member)?;
        Ok(shutdown.carry_out(&departure, &mut agent_host, &mut rest)?)
    }

    fn grace(&self, agent: &Name) -> Duration {
        let project = self.farewell.app.project().ok();
        let agent = project.and_then(|project| project.config.agents.get(agent));
        agent.and_then(|agent| agent.shutdown.grace).map_or(GRACE, Duration::from)
    }

    fn fate(&mut self, agent: &Name, id: Option<Name>, word: &'static str, detail: String) {
        self.fates.push(DepartureFate::new(agent, id, word, detail));
    }

    /// Waits until the fate of at least one agent is known.
    fn wait(&mut self) -> Outcome<Vec<Event>> {
        let mut line = None;
        loop {
            self.see_to_a_watcher()?;
            // Before the look, so that a change during it wakes this process.
            let waiter = self.queue.listen(self.ids())?;
            let events = self.collect_fates()?;
            if !events.is_empty() || self.open.is_empty() {
                return Ok(events);
            }
            self.explain()?;
            line.get_or_insert_with(|| self.line());
            waiter.wait(LOOK_INTERVAL);
            end_if_cancelled()?;
            if self.interrupt.is_noted() {
                drop(line);
                return Err(self.take_back()?);
            }
        }
    }

    fn line(&self) -> WaitLine {
        WaitLine::new(format!("{} to go", self.names().join(", ")), self.left())
    }

    fn names(&self) -> Vec<&str> {
        self.open.keys().map(|name| name.as_str()).collect()
    }

    fn left(&self) -> Option<Duration> {
        let now = self.farewell.app.now();
        let left = |(entry, _): &(RequestEntry, Instant)| entry.request.deadline_at().since(now);
        self.open.values().map(left).max()
    }

    /// Says once who was asked, what silence means, and who may not be able to answer.
    fn explain(&mut self) -> Outcome {
        let is_asked = self.left().is_some_and(|left| !left.is_zero());
        if !is_asked || std::mem::replace(&mut self.has_told, true) {
            return Ok(());
        }
        let project = self.farewell.app.project()?;
        let seconds = self.open.values().map(|(entry, _)| entry.request.deadline_seconds).max();
        let within = age(Duration::from_secs(seconds.unwrap_or_default()));
        let silent = match self.farewell.on_silence {
            Some(AtExpiry::Force) => {
                format!("; agents that have not answered in {within} will be stopped")
            }
            _ => String::new(),
        };
        say(&format!("asked {} to shut down{silent}", self.names().join(", ")));
        for seen in last_observed(&project.watch_status()) {
            if seen.state == State::Blocked && self.open.contains_key(&seen.agent) {
                let ObservedMember { agent, why, .. } = seen;
                let place = place_to_answer(project, &agent);
                say(&format!("{agent} may not answer: {why}; {place}"));
            }
        }
        say("Ctrl-C cancels; `--force` stops them at once");
        Ok(())
    }

    fn take_back(&self) -> Outcome<Failure> {
        let requests = requests(self.farewell.app, self.queue)?;
        let mut stay = Vec::new();
        for (agent, (entry, _)) in &self.open {
            let id = entry.request.request_id.as_str();
            // One that has decided in the meantime leaves or stays, as it has decided.
            if requests.cancel(id, &self.farewell.from, "interrupted").is_ok() {
                stay.push(agent.as_str());
            }
        }
        let text = match stay.is_empty() {
            true => "interrupted: all of them have answered".to_owned(),
            false => {
                format!("interrupted: {} stay, and the request is taken back", stay.join(", "))
            }
        };
        Ok(Failure::refused(text)
            .with_hint("the same command asks again, and `--force` ends them at once"))
    }

    fn ids(&self) -> impl Iterator<Item = &Name> {
        self.open.values().map(|(entry, _)| &entry.request.request_id)
    }

    fn collect_fates(&mut self) -> Outcome<Vec<Event>> {
        let requests = Requests::new(self.queue.request_store());
        let mut events = Vec::new();
        for (agent, (entry, end)) in self.open.clone() {
            let id = entry.request.request_id.clone();
            let entry = requests.get(id.as_str())?;
            let Some((event, word, detail)) = judged(&agent, &entry, end) else { continue };
            self.open.remove(&agent);
            if word == "stayed" && self.end_by_force(&agent, &detail) {
                events.push(Event::Gone(agent));
                continue;
            }
            settle_answer(self.farewell.app, self.queue, &entry);
            self.fate(&agent, Some(id), word, detail);
            events.push(event);
        }
        Ok(events)
    }

    /// Requests are seen through by a watcher. If none runs, this process is one.
    fn see_to_a_watcher(&mut self) -> Outcome {
        let project = self.farewell.app.project()?;
        if self.stand_in.as_ref().is_none_or(|one| one.has_ended()) && !watcher_runs(project) {
            self.stand_in = (self.start_watcher)(project);
        }
        Ok(())
    }

    fn over(mut self, unasked: BTreeSet<Name>) -> Vec<DepartureFate> {
        for agent in unasked {
            self.fate(&agent, None, "unasked", "an agent that needs it stays".to_owned());
        }
        self.fates
    }
}

fn judged(
    agent: &Name,
    entry: &RequestEntry,
    end: Instant,
) -> Option<(Event, &'static str, String)> {
    let gone = |detail: String| Some((Event::Gone(agent.clone()), "gone", detail));
    let stayed = |detail: String| Some((Event::Stayed(agent.clone()), "stayed", detail));
    match &entry.decision {
        Some(decision) if entry.request.kind().carries_out(decision) && entry.is_closed => {
            gone(decision.outcome.word().to_owned())
        }
        Some(decision) if !entry.request.kind().carries_out(decision) => {
            let words = match decision.comment.as_str() {
                "" => String::new(),
                words => format!(": {}", crate::text::one_line(words)),
            };
            stayed(format!("{} by {}{words}", decision.outcome.word(), decision.by))
        }
        _ if Instant::now() >= end => {
            stayed("it is still there: `ensemble log` says what is in the way".to_owned())
        }
        _ => None,
    }
}

/// Whether an agent of the roster is seen to be gone, so that it cannot be asked.
fn is_gone(project: &Project, agent: &Name) -> Outcome<bool> {
    let Some(member) = project.roster().get(agent)? else { return Ok(false) };
    if member.binding.is_none() && !member.is_supervised_alone() {
        return Ok(false);
    }
    // An agent that cannot be observed is asked.
    let look = PaneHost::of(project, &member).and_then(|mut agent_host| agent_host.observe_agent());
    Ok(look.is_ok_and(|worker| worker == WorkerPresence::Gone))
}

/// The members that are up. One whose entry cannot be read keeps no other from leaving.
pub fn present_members(project: &Project) -> Outcome<Vec<Member>> {
    let (members, errors) = project.roster().entries()?;
    for error in errors {
        say(&format!("warning: a member is not asked to leave: {error}"));
    }
    Ok(members.into_iter().filter(Member::is_present).collect())
}
