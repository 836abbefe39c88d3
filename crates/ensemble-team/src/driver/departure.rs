//! Carries out a shutdown: [`proto::shutdown`](crate::proto::shutdown) over real processes, a pane,
//! mailboxes and the roster.
//!
//! ```text
//! leaving (roster) -> finish -> end, search, end -> close the pane -> give back -> shutdown (roster)
//! ```
//!
//! The next attempt skips what was done before a crash, so a process that finds a decided shutdown
//! simply calls [`ShutdownDriver::carry_out`] again. An agent that was spawned again in the meantime has
//! another generation and is not touched.

use crate::roster::RosterError;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::proto::shutdown::{
    AgentShutdown, Effect, Event, ShutdownConsent, ShutdownStep, WorkerPresence,
};
use crate::roster::{EndCause, Member, MemberEnd, MemberState, Roster};
use ensemble_core::Result;
use ensemble_core::broker::{Broker, HandedBack, UnreadMail};
use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::Name;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::request::Outcome;
use ensemble_core::requests::DecisionNote;
use ensemble_tmux::reaper::{ProcessSet, Reaper};

/// The longest single wait, so that being asked to stop is noticed.
const WAIT_SLICE: Duration = Duration::from_millis(250);

/// Where an agent runs, with what its departure needs.
pub trait AgentHost {
    fn observe_agent(&mut self) -> Result<WorkerPresence>;

    /// The exit status of the pane's first process, if that has ended and it is known.
    fn exit_code(&mut self) -> Option<i32>;

    /// Closes the pane, if it exists and was opened by the team, and removes its bindings.
    fn close(&mut self) -> Result<()>;

    /// Returns its steps and what it holds on the board, because `by` says so. What cannot be returned expires.
    fn return_work(&mut self, by: &Name);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentDeparture {
    pub agent: Name,
    pub generation: u64,
    pub consent: ShutdownConsent,
    pub by: Name,
    pub request_id: Option<Name>,
    /// Why: for the roster, the log, the dead letters and the senders.
    pub reason: String,
    pub unread: UnreadMail,
    /// How long it has to finish, if it agreed.
    pub grace: Duration,
    /// It leaves and returns with its team.
    pub returns: bool,
    /// Nothing can be stored, as on a full disk: only its processes end. The next departure stores the rest.
    pub is_unrecorded: bool,
}

impl AgentDeparture {
    /// `member` is to leave because `by` says so.
    pub fn of(member: &Member, consent: ShutdownConsent, by: Name) -> Self {
        Self {
            agent: member.name.clone(),
            generation: member.generation,
            consent,
            by,
            request_id: None,
            reason: format!("{} was shut down", member.name),
            unread: UnreadMail::default(),
            grace: crate::proto::shutdown::GRACE,
            returns: false,
            is_unrecorded: false,
        }
    }
}

/// Notes in the roster that an agent has agreed to its shutdown, for
/// [`Requests::with_note`](ensemble_core::requests::Requests::with_note). From then on the agent begins no work, even
/// if there is no watcher to shut it down.
pub fn departure_note(roster: Roster) -> DecisionNote<'static> {
    Arc::new(move |entry| match &entry.decision {
        Some(decision)
            if decision.outcome == Outcome::Approved
                && entry.request.kind().carries_out(decision) =>
        {
            roster.agree_to_leave(&entry.request.to, entry.request.generation, decision.at)
        }
        _ => Ok(()),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureOutcome {
    Gone {
        survivors: usize,
    },
    Before,
    /// It was spawned or joined again since; nothing was done.
    Superseded,
    /// The waiting process was asked to stop; the next attempt continues.
    Interrupted,
}

pub struct ShutdownDriver<'a> {
    pub queue: &'a dyn Broker,
    pub roster: &'a Roster,
    pub recorder: &'a dyn Recorder,
    pub clock: &'a dyn Clock,
}

impl ShutdownDriver<'_> {
    /// Blocks until the agent has gone. `rest` sleeps for at most the time it is given and says
    /// whether to continue.
    ///
    /// # Errors
    /// The roster does not know the agent, or its file cannot be changed. Other failures are recorded
    /// (`shutdown.failed`) and tried again.
    pub fn carry_out(
        &self,
        departure: &AgentDeparture,
        agent_host: &mut dyn AgentHost,
        rest: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<DepartureOutcome> {
        let member = match self.start(departure)? {
            Ok(member) => member,
            Err(early) => return Ok(early),
        };
        let others = self.others(departure);
        let mut run = DepartureRun {
            shutdown: self,
            departure,
            machine: AgentShutdown::new(departure.grace),
            reaper: Reaper::new(processes(&member, &others)),
            waiting: false,
            exit_code: None,
            returned: HandedBack::default(),
            last_failure: String::new(),
        };
        run.machine.handle(self.clock.monotonic(), Event::Begin(departure.consent));
        run.run(agent_host, rest)
    }

    /// Marks the agent as leaving, unless it has left already or this is meant for another generation.
    fn start(&self, departure: &AgentDeparture) -> Result<Result<Member, DepartureOutcome>> {
        if departure.is_unrecorded {
            let member = self.roster.get(&departure.agent)?;
            let member = member.filter(|member| member.generation == departure.generation);
            return Ok(member.ok_or(DepartureOutcome::Superseded));
        }
        let mut early = None;
        let now = self.clock.wall();
        let member = self.roster.change(&departure.agent, |member| {
            let Some(mut member) = member else { return Ok(None) };
            match member.state {
                _ if member.generation != departure.generation => {
                    early = Some(DepartureOutcome::Superseded);
                }
                MemberState::Shutdown => early = Some(DepartureOutcome::Before),
                MemberState::Leaving => {}
                MemberState::Up => {
                    (member.state, member.since) = (MemberState::Leaving, now);
                    return Ok(Some(member));
                }
            }
            Ok(None)
        })?;
        match (member, early) {
            (_, Some(early)) => Ok(Err(early)),
            (Some(member), None) => Ok(Ok(member)),
            (None, None) => Err(RosterError::Unknown { agent: departure.agent.clone() }.into()),
        }
    }

    fn others(&self, departure: &AgentDeparture) -> Vec<Member> {
        // One that cannot be read has no pane that we know of.
        let (members, _) = self.roster.entries().unwrap_or_default();
        members.into_iter().filter(|m| m.name != departure.agent && m.is_present()).collect()
    }
}

fn processes(member: &Member, others: &[Member]) -> ProcessSet {
    let mut processes = ProcessSet::new();
    if let Some(binding) = &member.binding {
        processes = processes.with_root(binding.pid, binding.started);
        // A pane that existed before it was joined has its owner's shell as its first process.
        if member.command.is_none() && ensemble_tmux::reaper::is_shell(binding.pid) {
            processes = processes.sparing_the_root();
        }
    }
    if let Some(supervisor) = member.supervisor.filter(|_| member.binding.is_none()) {
        processes = processes.with_root(supervisor.pid, supervisor.started);
    }
    if let Some(pass) = member.pass_sha256 {
        processes = processes.with_pass(pass);
    }
    let roots = others.iter().flat_map(|other| {
        let binding = other.binding.as_ref().map(|binding| (binding.pid, binding.started));
        binding.into_iter().chain(other.supervisor.map(|it| (it.pid, it.started)))
    });
    roots.fold(processes, |processes, (pid, started)| processes.but_not(pid, started))
}

struct DepartureRun<'a> {
    shutdown: &'a ShutdownDriver<'a>,
    departure: &'a AgentDeparture,
    machine: AgentShutdown,
    reaper: Reaper,
    /// Some process that was signalled may still live.
    waiting: bool,
    exit_code: Option<i32>,
    returned: HandedBack,
    last_failure: String,
}

impl DepartureRun<'_> {
    fn run(
        &mut self,
        agent_host: &mut dyn AgentHost,
        rest: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<DepartureOutcome> {
        loop {
            while let Some(effect) = self.machine.poll_effect() {
                if let Effect::Ended { survivors } = effect {
                    return Ok(DepartureOutcome::Gone { survivors });
                }
                if let Some(early) = self.perform(effect, agent_host)? {
                    return Ok(early);
                }
            }
            if !self.wait(rest) {
                return Ok(DepartureOutcome::Interrupted);
            }
            self.machine.handle_timeout(self.now());
        }
    }

    fn now(&self) -> Monotonic {
        self.shutdown.clock.monotonic()
    }

    fn perform(
        &mut self,
        effect: Effect,
        agent_host: &mut dyn AgentHost,
    ) -> Result<Option<DepartureOutcome>> {
        let event = match effect {
            Effect::Look => Event::Seen(agent_host.observe_agent().unwrap_or(WorkerPresence::Busy)),
            Effect::Sweep(signal) => {
                self.exit_code = self.exit_code.or_else(|| agent_host.exit_code());
                let swept = self.reaper.sweep(signal);
                self.waiting = matches!(swept, Ok(found) if found > 0);
                self.event_of_outcome(ShutdownStep::Sweep, swept.map(Event::Found))
            }
            Effect::Close => {
                self.exit_code = self.exit_code.or_else(|| agent_host.exit_code());
                self.event_of_step(ShutdownStep::Close, agent_host.close())
            }
            Effect::Return if self.departure.is_unrecorded => Event::Done(ShutdownStep::Return),
            Effect::Record { .. } if self.departure.is_unrecorded => {
                Event::Done(ShutdownStep::Record)
            }
            Effect::Return => {
                agent_host.return_work(&self.departure.by);
                let returned = self.hand_back();
                self.event_of_step(ShutdownStep::Return, returned)
            }
            Effect::Record { survivors } => match self.record(survivors) {
                Ok(false) => return Ok(Some(DepartureOutcome::Superseded)),
                recorded => self.event_of_step(ShutdownStep::Record, recorded.map(drop)),
            },
            Effect::Ended { .. } => return Ok(None),
        };
        self.machine.handle(self.now(), event);
        Ok(None)
    }

    fn event_of_step(&mut self, step: ShutdownStep, outcome: Result<()>) -> Event {
        self.event_of_outcome(step, outcome.map(|()| Event::Done(step)))
    }

    /// The event for the machine; a failure is recorded once for as long as it is the same.
    fn event_of_outcome(&mut self, step: ShutdownStep, outcome: Result<Event>) -> Event {
        let error = match outcome {
            Ok(event) => return event,
            Err(error) => error.to_string(),
        };
        if error != self.last_failure {
            let data = json!({ "agent": self.departure.agent, "step": format!("{step:?}").to_lowercase(), "error": error });
            self.shutdown.recorder.record(types::SHUTDOWN_FAILED, self.departure.by.as_str(), data);
            self.last_failure = error;
        }
        Event::Failed(step)
    }

    fn hand_back(&mut self) -> Result<()> {
        let AgentDeparture { agent, unread, reason, .. } = self.departure;
        let mailbox = self.shutdown.roster.get(agent)?.map_or_else(|| agent.clone(), |m| m.mailbox);
        // A mailbox that others read too is not this agent's to empty.
        let others = self.shutdown.others(self.departure);
        let shared = others.iter().any(|other| other.mailbox == mailbox);
        let unread = if shared { UnreadMail::Keep } else { *unread };
        let more = self.shutdown.queue.hand_back(agent, &mailbox, unread, reason)?;
        self.returned.released += more.released;
        self.returned.returned += more.returned;
        self.returned.dead += more.dead;
        self.returned.kept = more.kept;
        Ok(())
    }

    /// Whether it was still this generation's to write.
    fn record(&self, survivors: usize) -> Result<bool> {
        let AgentDeparture { agent, generation, consent, by, request_id, reason, .. } =
            self.departure;
        let at = self.shutdown.clock.wall();
        let how = match consent {
            ShutdownConsent::Approved => EndCause::Approved,
            ShutdownConsent::Forced => EndCause::Forced,
        };
        let mut ended = MemberEnd::new(at, how);
        ended.by = Some(by.clone());
        ended.request_id.clone_from(request_id);
        ended.reason = Some(reason.clone());
        ended.exit_code = self.exit_code;
        let data = json!({
            "worker_id": agent, "generation": generation, "how": how.word(), "request_id": request_id, "reason": reason,
            "exit_code": self.exit_code, "survivors": survivors, "leases_released": self.returned.released,
            "mail_returned": self.returned.returned, "mail_dead": self.returned.dead, "mail_kept": self.returned.kept,
        });
        let mut is_ours = false;
        self.shutdown.roster.change(agent, |member| {
            let member = member.filter(|member| member.generation == *generation);
            is_ours = member.is_some();
            Ok(member.map(|mut member| {
                // A crash after this repeats the record, which says the same; before it, nothing
                // would ever say it.
                self.shutdown.recorder.record(types::WORKER_RELEASE, by.as_str(), data);
                // No command brings a supervised agent back: its supervisor was started elsewhere.
                ended.returns = self.departure.returns && !member.is_supervised_alone();
                (member.state, member.since, member.binding) = (MemberState::Shutdown, at, None);
                (member.pass_sha256, member.ended) = (None, Some(ended));
                member.supervisor = None;
                member
            }))
        })?;
        Ok(is_ours)
    }

    /// Waits for the processes that were signalled or for the machine's next deadline; whether to
    /// continue.
    fn wait(&mut self, rest: &mut dyn FnMut(Duration) -> bool) -> bool {
        let left = self.machine.poll_timeout().map_or(WAIT_SLICE, |at| at.since(self.now()));
        let slice = left.min(WAIT_SLICE);
        if !self.waiting {
            return rest(slice);
        }
        if self.reaper.wait(slice) {
            self.waiting = false;
            self.machine.handle(self.now(), Event::Exited);
        }
        rest(Duration::ZERO)
    }
}
