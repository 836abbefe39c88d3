//! The supervisor speaks for its agent: in the roster, and where the agent is asked to shut down.
//!
//! | the agent | at a request for its shutdown |
//! |---|---|
//! | has no work | the supervisor approves at once, and leaves |
//! | has work | it claims nothing more, and approves when the work is finished |
//! | has work, and the deadline is [`PRESS_MARGIN`] away | it ends the agent, hands the work over with notes, and approves |
//! | any, and the requester has no authority | it rejects, with the rule |
//!
//! *A crash* leaves the request pending, and the row in the roster with a process that is gone. The next
//! supervisor of that name finds both.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;

use super::LOOK_EVERY;
use super::agent::ProcessMark;
use super::plans::is_plan_for;
use super::run::SupervisorRun;
use super::work::{HeldClaim, SupervisedWork};
use crate::authority::{ActorStanding, Authority};
use crate::board::{NewHandoff, is_fenced};
use crate::driver::departure_note;
use crate::proto::supervise::Event;
use crate::roster::{Enrolment, Member, MemberState, Roster, SupervisorFarewell};
use ensemble_core::env::Monotonic;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::proto::request::{DecisionRefusal, SHUTDOWN};
use ensemble_core::requests::{RequestEntry, RequestStore, Requests};
use ensemble_core::spool::{Settings, State};
use ensemble_core::{Error, Result};

/// How long before a request's deadline the work is handed over; a quarter of a shorter deadline.
pub const PRESS_MARGIN: Duration = Duration::from_secs(15);
const REQUESTS_EVERY_MIN: Duration = Duration::from_millis(200);
/// Most messages that are searched for questions that were answered.
const QUESTIONS_MAX: usize = 1_000;

#[derive(Clone)]
pub struct RosterAccess {
    pub store: Arc<dyn RequestStore + Send + Sync>,
    pub roster: Roster,
    pub authority: Authority,
    /// The agent's provider, for a new row.
    pub provider: String,
}

impl RosterAccess {
    pub fn new(
        store: Arc<dyn RequestStore + Send + Sync>,
        roster: Roster,
        provider: impl Into<String>,
    ) -> Self {
        Self { store, roster, authority: Authority::default(), provider: provider.into() }
    }
}

#[derive(Debug)]
struct OpenQuestion {
    entry: RequestEntry,
    press_at: Monotonic,
    is_pressed: bool,
    /// The task that was held when the request was seen.
    task: Option<Name>,
    is_handed_over: bool,
}

#[derive(Debug, Default)]
pub(super) struct RepresentedAgent {
    member: Option<Member>,
    pass: Option<ProcessMark>,
    question: Option<OpenQuestion>,
    /// Requests that are decided, or addressed to another agent.
    settled: BTreeSet<Name>,
    requests_seen: Option<Monotonic>,
    roster_seen: Option<Monotonic>,
    has_agreed: bool,
    pub(super) plans: Vec<Name>,
    /// The last plan of the claimed task when the agent was started.
    pub(super) plan_before: Option<Name>,
    /// The plan whose wait was recorded.
    pub(super) plan_told: Option<Name>,
}

impl RepresentedAgent {
    /// The pass by which the agent's commands are recognized.
    pub(super) fn pass(&self) -> Option<&str> {
        self.pass.as_ref().map(ProcessMark::text)
    }

    pub(super) fn mailbox(&self) -> Option<&Name> {
        self.member.as_ref().map(|member| &member.mailbox)
    }
}

impl SupervisorRun<'_> {
    pub(super) fn enrol(&mut self) -> Result<()> {
        let Some(office) = &self.order.office else { return Ok(()) };
        let (id, now) = (self.order.id.clone(), self.order.clock.wall());
        let role = Name::new(self.order.role.as_str()).map_err(Error::from)?;
        let pass = ProcessMark::new()?;
        let mut enrolment = Enrolment::new(id, role, office.provider.clone(), now);
        enrolment.pass_sha256 = Some(pass.digest());
        let member = office.roster.enrol(&enrolment)?;
        let is_new = |member: &Member| member.pass_sha256 == enrolment.pass_sha256;
        self.desk.pass = Some(pass).filter(|_| member.as_ref().is_some_and(is_new));
        self.desk.member = member;
        if let Some(mailbox) = self.desk.mailbox()
            && let Err(error) = office.store.broker().add_mailbox(mailbox, &Settings::default())
            && !matches!(error, Error::MailboxExists { .. })
        {
            self.failed("make the agent's mailbox", &error);
        }
        Ok(())
    }

    /// Now, by the queue's calendar, which a jump of the wall clock does not move.
    pub(super) fn calendar(&self) -> Timestamp {
        let office = self.order.office.as_ref();
        office.map_or_else(|| self.order.clock.wall(), |office| office.store.now())
    }

    pub(super) fn dismiss(&mut self) {
        let (Some(office), Some(member)) = (&self.order.office, self.desk.member.take()) else {
            return;
        };
        let Some(supervisor) = member.supervisor else { return };
        let farewell = match self.desk.has_agreed {
            true => SupervisorFarewell::Agreed,
            false => SupervisorFarewell::Ended,
        };
        let now = self.order.clock.wall();
        if let Err(error) = office.roster.dismiss(&member.name, supervisor, farewell, now) {
            self.failed("leave the roster", &error);
        }
    }

    /// Whether the agent is to leave its team, or was brought up again elsewhere.
    pub(super) fn leaves_team(&mut self) -> bool {
        let now = self.now();
        let (Some(office), Some(member)) = (&self.order.office, &self.desk.member) else {
            return false;
        };
        if self.desk.roster_seen.is_some_and(|at| now < at + LOOK_EVERY) {
            return false;
        }
        self.desk.roster_seen = Some(now);
        // A file that cannot be read says nothing.
        let Ok(recorded) = office.roster.get(&member.name) else { return false };
        recorded.is_none_or(|it| it.generation != member.generation || it.state != MemberState::Up)
    }

    pub(super) fn notice_requests(&mut self) {
        let now = self.now();
        let Some(office) = &self.order.office else { return };
        if self.desk.requests_seen.is_some_and(|at| now < at + REQUESTS_EVERY_MIN) {
            return;
        }
        self.desk.requests_seen = Some(now);
        let store = Arc::clone(&office.store);
        let found = match self.pending(&Requests::new(&*store)) {
            Ok(found) => found,
            Err(error) => return self.failed("look at the requests", &error),
        };
        let known = self.desk.question.as_ref().map(|q| q.entry.request.request_id.clone());
        match found {
            None if known.is_some() => {
                self.desk.question = None;
                self.queue_line("the request for its shutdown waits no more".to_owned());
                self.handle(Event::Withdrawn);
            }
            Some(entry) if known.as_ref() != Some(&entry.request.request_id) => {
                self.take_question(entry);
            }
            None | Some(_) => {}
        }
        if let Some(question) = &mut self.desk.question
            && !question.is_pressed
            && now >= question.press_at
        {
            question.is_pressed = true;
            self.handle(Event::Pressed);
        }
    }

    /// The oldest pending request for the agent's shutdown. Rejects those without authority.
    fn pending(&mut self, requests: &Requests<'_>) -> Result<Option<RequestEntry>> {
        let mut oldest: Option<RequestEntry> = None;
        let mut plans = Vec::new();
        let ids = requests.ids()?;
        let is_there = |id: &Name| ids.contains(id);
        if self.desk.settled.len() > ids.len() {
            self.desk.settled.retain(is_there);
        }
        for id in &ids {
            if self.desk.settled.contains(id) {
                continue;
            }
            // A file that is damaged is the watcher's to set aside.
            let Ok(Some(entry)) = requests.find(id.as_str()) else { continue };
            let asked = &entry.request;
            if entry.decision.is_none() && is_plan_for(asked, &self.order.id) {
                plans.push(asked.request_id.clone());
                continue;
            }
            let is_ours = asked.to == self.order.id && asked.kind.as_str() == SHUTDOWN;
            if !is_ours || entry.decision.is_some() {
                self.desk.settled.insert(id.clone());
                continue;
            }
            let known = self.desk.question.as_ref().map(|it| &it.entry.request.request_id);
            let is_known = known == Some(id);
            if !is_known && let Some(why) = self.without_authority(&asked.from) {
                requests.respond(id.as_str(), &self.order.id, false, &why)?;
                continue;
            }
            if oldest.as_ref().is_none_or(|it| asked.created_at < it.request.created_at) {
                oldest = Some(entry);
            }
        }
        plans.sort_unstable();
        if plans != self.desk.plans {
            self.desk.plans = plans;
            self.handle(Event::Woken);
        }
        Ok(oldest)
    }

    fn without_authority(&self, from: &Name) -> Option<String> {
        let office = self.order.office.as_ref()?;
        let (members, _) = office.roster.entries().unwrap_or_default();
        let state = self.board.read().ok();
        let standing = ActorStanding::of(from, &members, state.as_ref());
        let refused = office.authority.check_shutdown(&standing, &self.order.id).err()?;
        Some(refused.to_string())
    }

    fn take_question(&mut self, entry: RequestEntry) {
        let asked = &entry.request;
        let left = asked.deadline_at().since(self.calendar());
        let margin = PRESS_MARGIN.min(Duration::from_secs(asked.deadline_seconds) / 4);
        let press_at = self.now() + left.saturating_sub(margin);
        let task = self.held_task().cloned();
        let (from, id) = (&asked.from, &asked.request_id);
        let then = match (&self.work, &task) {
            (None, _) => "it has no work".to_owned(),
            (Some(_), Some(task)) => format!("it finishes `{task}` first and claims nothing"),
            (Some(_), None) => "it finishes the plan first".to_owned(),
        };
        self.queue_line(format!("{from} asks for its shutdown (request {id}): {then}"));
        let (is_pressed, is_handed_over) = (false, false);
        self.desk.question =
            Some(OpenQuestion { entry, press_at, is_pressed, task, is_handed_over });
        self.handle(Event::Asked);
    }

    /// Gives the work to the next agent, with notes where there is a task.
    pub(super) fn hand_over(&mut self) -> Event {
        let noted = match (&self.work, &self.desk.question) {
            (Some(SupervisedWork::Task(HeldClaim { id, holder, .. })), Some(question)) => {
                let asked = &question.entry.request;
                let (by, from, request) = (&self.order.id, &asked.from, &asked.request_id);
                let notes = NewHandoff {
                    summary: format!(
                        "`{by}` was shut down by {from} (request {request}) before it had finished. Its commits and changes are kept under refs/ensemble/salvage/{id}/{}.",
                        holder.epoch
                    ),
                    next_action: "Look at what was kept, and continue from there.".to_owned(),
                    more: Map::new(),
                };
                self.board.lock().and_then(|mut locked| {
                    // The agent's own notes say more.
                    let own = super::work::notes_of(locked.state(), Some(id));
                    if own == self.before.1 {
                        locked.hand_off(id, holder, &notes)?;
                    }
                    locked.commit().map(drop)
                })
            }
            _ => Ok(()),
        };
        match noted {
            Err(error) if !is_fenced(&error) => {
                self.failed("leave notes for the next agent", &error);
                Event::Failed
            }
            Ok(()) | Err(_) => {
                if let Some(question) = &mut self.desk.question {
                    question.is_handed_over = true;
                }
                self.work = None;
                Event::HandedOver
            }
        }
    }

    pub(super) fn agree(&mut self) -> Event {
        let (Some(office), Some(question)) = (&self.order.office, &self.desk.question) else {
            return Event::Withdrawn;
        };
        let words = match &question.task {
            Some(task) if question.is_handed_over => format!("{task} is handed over"),
            Some(task) => format!("{task} is finished"),
            None => "it has no work".to_owned(),
        };
        let id = question.entry.request.request_id.clone();
        let (store, me) = (Arc::clone(&office.store), self.order.id.clone());
        let requests = Requests::new(&*store).with_note(departure_note(office.roster.clone()));
        match requests.respond(id.as_str(), &me, true, &words) {
            Ok(_) => {
                self.desk.has_agreed = true;
                self.queue_line(format!("agreed to its shutdown (request {id}): {words}"));
                if let Err(error) = settle_questions(&*store, &me, &id) {
                    self.failed("settle the question", &error);
                }
                Event::Agreed
            }
            Err(error) if error.area::<DecisionRefusal>().is_some() => {
                // Another process has decided it: the next look shows what follows.
                self.desk.question = None;
                Event::Withdrawn
            }
            Err(error) => {
                self.failed("agree to the shutdown", &error);
                Event::Failed
            }
        }
    }
}

fn settle_questions(store: &dyn RequestStore, me: &Name, request: &Name) -> Result<()> {
    let (broker, stem) = (store.broker(), format!("{request}."));
    for found in broker.unfinished(me, QUESTIONS_MAX)? {
        let is_question = found.id.as_str().starts_with(&stem);
        if is_question
            && matches!(found.state, State::Queued { .. })
            && let Some(delivery) = broker.receive_id(me, &found.id, me)?
        {
            broker.settle(&delivery.lease)?;
        }
    }
    Ok(())
}
