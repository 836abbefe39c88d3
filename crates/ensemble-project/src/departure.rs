//! Carries out a decided shutdown: ends the agent, returns its mail and closes the request.
//!
//! The watcher does it for each decided request, and a command does it where no watcher runs. A lock for each agent
//! prevents two at once.

use std::time::Duration;

use ensemble_core::broker::UnreadMail;
use ensemble_core::durable::{FileLock, make_directory};
use ensemble_core::env::SystemClock;
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::MessageId;
use ensemble_core::proto::request::{Decision, Outcome};
use ensemble_core::requests::{AskedRequest, RequestEntry, RequestStore, Requests};
use ensemble_core::spool::{Found, State};
use ensemble_core::{Result, allow_gone, allow_no_mailbox};
use ensemble_team::driver::{AgentDeparture, DepartureOutcome, ShutdownDriver};
use ensemble_team::proto::shutdown::{GRACE, ShutdownConsent};
use ensemble_team::roster::{Member, MemberState};
use serde_json::json;

use crate::Project;
use crate::agent_host::{PaneHost, return_work};

/// Maximum number of an agent's messages searched for obsolete questions.
const QUESTIONS_MAX: usize = 10_000;
const REASON_CHARACTERS_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureResult {
    /// The agent has gone, or had gone before, or was spawned again since; the request is closed.
    Done {
        /// Processes that did not end.
        survivors: usize,
    },
    Elsewhere,
    /// The waiting caller was asked to stop.
    Interrupted,
}

/// Carries out a shutdown that was approved, or that expired by force, and closes its request.
/// Blocks until the agent has gone. `rest` sleeps for at most the given time and returns whether to
/// continue.
///
/// The roster, the profile or the request cannot be read or written. The call may be repeated.
pub fn carry_out(
    project: &Project,
    store: &dyn RequestStore,
    recorder: &dyn Recorder,
    entry: &RequestEntry,
    rest: &mut dyn FnMut(Duration) -> bool,
) -> Result<DepartureResult> {
    let (asked, Some(decision)) = (&entry.request, &entry.decision) else {
        return Ok(DepartureResult::Done { survivors: 0 });
    };
    let locks = project.locks();
    make_directory(&locks)?;
    let lock = locks.join(format!("departure-{}.lock", asked.to));
    let Some(_alone) = FileLock::try_acquire(&lock)? else {
        return Ok(DepartureResult::Elsewhere);
    };
    let survivors = match member_departs(project, store, recorder, entry, decision, rest)? {
        DepartureOutcome::Gone { survivors } => survivors,
        DepartureOutcome::Interrupted => return Ok(DepartureResult::Interrupted),
        _ => 0,
    };
    settle_questions(store, asked, decision)?;
    Requests::new(store).close(asked.request_id.as_str())?;
    Ok(DepartureResult::Done { survivors })
}

/// Removes questions to an agent that was shut down, from the mailbox and from the pending
/// requests. At its deadline such a question would end the next agent of that name.
fn settle_questions(
    store: &dyn RequestStore,
    asked: &AskedRequest,
    decision: &Decision,
) -> Result<()> {
    let requests = Requests::new(store);
    let (entries, _) = requests.list()?;
    let same = |other: &AskedRequest| other.to == asked.to && other.kind == asked.kind;
    let before = |other: &AskedRequest| other.created_at <= decision.at.max(asked.created_at);
    let mut questions = Vec::new();
    for entry in entries.into_iter().filter(|entry| same(&entry.request)) {
        let other = entry.request;
        if entry.decision.is_none() && before(&other) {
            let words = format!("{} has gone (request {})", asked.to, asked.request_id);
            requests.moot(other.request_id.as_str(), &words)?;
        }
        if entry.decision.is_some() || before(&other) {
            questions.push(format!("{}.", other.request_id));
        }
    }
    let mailbox = asked.question_mailbox();
    let waiting = store.broker().unfinished(mailbox, QUESTIONS_MAX);
    let Some(waiting) = allow_no_mailbox(waiting)? else { return Ok(()) };
    let is_question = |id: &MessageId| questions.iter().any(|stem| id.as_str().starts_with(stem));
    let is_queued = |found: &&Found| matches!(found.state, State::Queued { .. });
    let queued = waiting.iter().filter(is_queued).map(|found| &found.id);
    for id in queued.filter(|id| is_question(id)) {
        let reason = format!("{} has gone", asked.to);
        allow_gone(store.broker().set_aside(mailbox, id, &reason))?;
    }
    // The request keeps what was asked, so that the message has nothing more to say.
    let dead = store.broker().dead_letters(mailbox)?;
    for letter in dead.iter().filter(|letter| is_question(&letter.id)) {
        allow_gone(store.broker().drop_dead(mailbox, &letter.id))?;
    }
    Ok(())
}

fn member_departs(
    project: &Project,
    store: &dyn RequestStore,
    recorder: &dyn Recorder,
    entry: &RequestEntry,
    decision: &Decision,
    rest: &mut dyn FnMut(Duration) -> bool,
) -> Result<DepartureOutcome> {
    let (asked, roster) = (&entry.request, project.roster());
    let Some(member) = roster.get(&asked.to)? else {
        return outsider_departs(project, store, recorder, entry);
    };
    if is_another(&member, asked, decision) {
        return Ok(DepartureOutcome::Superseded);
    }
    let consent = match decision.outcome {
        Outcome::Approved => ShutdownConsent::Approved,
        Outcome::Expired | Outcome::Rejected | Outcome::Cancelled => ShutdownConsent::Forced,
    };
    let configured = project.config.agents.get(&asked.to).map(|agent| agent.shutdown);
    let grace = configured.and_then(|shutdown| shutdown.grace);
    let mut departure = AgentDeparture::of(&member, consent, asked.from.clone());
    departure.request_id = Some(asked.request_id.clone());
    departure.reason = reason(entry);
    departure.unread = unread_mail(project, entry);
    departure.grace = grace.map_or(GRACE, Duration::from);
    departure.returns = asked.unread_mail == Some(UnreadMail::Keep);
    let mut agent_host = PaneHost::of(project, &member)?;
    let shutdown =
        ShutdownDriver { queue: store.broker(), roster: &roster, recorder, clock: &SystemClock };
    shutdown.carry_out(&departure, &mut agent_host, rest)
}

/// Whether the agent was brought up again after this decision. If the request names a generation
/// and it is the same one, no clock counts. For another generation, and for a request that names
/// none, the stamps decide.
fn is_another(member: &Member, asked: &AskedRequest, decision: &Decision) -> bool {
    let is_same = asked.generation == Some(member.generation);
    member.state == MemberState::Up && !is_same && member.since > decision.at
}

/// An agent agreed and is in no roster, so its processes are unknown. Its mail and its held messages are released
/// anyway.
fn outsider_departs(
    project: &Project,
    store: &dyn RequestStore,
    recorder: &dyn Recorder,
    entry: &RequestEntry,
) -> Result<DepartureOutcome> {
    let asked = &entry.request;
    let (agent, reason) = (&asked.to, reason(entry));
    return_work(project, agent, &asked.from);
    let returned = store.broker().hand_back(agent, agent, unread_mail(project, entry), &reason);
    let returned = allow_no_mailbox(returned)?;
    recorder.record(
        types::WORKER_RELEASE,
        asked.from.as_str(),
        json!({
            "worker_id": agent, "how": entry.state(), "request_id": asked.request_id, "reason": reason,
            "in_roster": false, "leases_released": returned.map(|r| r.released),
            "mail_returned": returned.map(|r| r.returned), "mail_dead": returned.map(|r| r.dead),
            "mail_kept": returned.map(|r| r.kept),
        }),
    );
    Ok(DepartureOutcome::Gone { survivors: 0 })
}

fn unread_mail(project: &Project, entry: &RequestEntry) -> UnreadMail {
    let configured = || project.config.agents.get(&entry.request.to)?.shutdown.mail;
    entry.request.unread_mail.or_else(configured).unwrap_or_default()
}

fn reason(entry: &RequestEntry) -> String {
    let asked = &entry.request;
    let text: String = asked
        .content
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(REASON_CHARACTERS_MAX)
        .collect();
    let (id, from, to) = (&asked.request_id, &asked.from, &asked.to);
    format!("{to} was shut down by {from} (request {id}, {}): {}", entry.state(), text.trim())
}
