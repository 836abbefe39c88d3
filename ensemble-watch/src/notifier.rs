//! Telling agents of their mail: one [`NudgeSchedule`] for each agent that has a pane.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::pane::{NudgeOutcome, NudgeText};
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::nudge::{Effect, Event, NudgeSchedule, Occasion, Record};
use ensemble_core::provider::{Profile, Profiles};
use serde_json::json;

use crate::mail::Mail;
use crate::pane_worker::{PaneTask, PaneTaskKind, PaneWorkers, Report};
use crate::panes::PaneEntry;
use crate::run::ACTOR;

/// Waiting messages are counted up to here; a nudge then says "or more".
pub(crate) const COUNT_MAX: usize = 100;
/// How many of the waiting messages a line is recorded for, by id.
const COVERED_MAX: usize = 1_000;
/// How many ids one record names; what is beyond is named in further records.
const IDS_A_RECORD: usize = 32;

/// The attempt of pane_tasks that no schedule has asked for.
const UNASKED: u64 = 0;

struct Told {
    entry: PaneEntry,
    profile: Arc<Profile>,
    schedule: NudgeSchedule,
    binding: u64,
    /// The messages that waited at the last look.
    known: BTreeSet<MessageId>,
    /// The messages that the line under way tells of.
    covered: Vec<MessageId>,
    /// The last text that was typed, and for which attempt.
    typed: Option<(u64, NudgeText)>,
}

/// All notifier.
pub(crate) struct Notifier {
    told: BTreeMap<Name, Told>,
    /// Messages that were seen to land and are not in the log yet.
    noticed: BTreeMap<Name, Vec<MessageId>>,
    profiles: Profiles,
    pane_workers: PaneWorkers,
    bindings_made: u64,
}

impl Notifier {
    pub(crate) const fn new(profiles: Profiles, pane_workers: PaneWorkers) -> Self {
        Self {
            told: BTreeMap::new(),
            noticed: BTreeMap::new(),
            profiles,
            pane_workers,
            bindings_made: 0,
        }
    }

    /// Takes the bindings as they are on disk now.
    pub(crate) fn bind(&mut self, now: Monotonic, entries: Vec<PaneEntry>) {
        self.told.retain(|agent, _| entries.iter().any(|e| e.agent == *agent));
        for entry in entries {
            if self.told.get(&entry.agent).is_some_and(|t| t.entry == entry) {
                continue;
            }
            let profile = match self.profiles.get(&entry.provider) {
                Ok(profile) => profile,
                Err(error) => {
                    tracing::warn!(agent = %entry.agent, %error, "cannot nudge this agent");
                    continue;
                }
            };
            self.bindings_made += 1;
            let binding = self.bindings_made;
            let told = self.told.entry(entry.agent.clone()).or_insert_with(|| Told {
                entry: entry.clone(),
                profile: Arc::clone(&profile),
                schedule: NudgeSchedule::new(),
                binding,
                known: BTreeSet::new(),
                covered: Vec::new(),
                typed: None,
            });
            (told.entry, told.profile, told.binding) = (entry, profile, binding);
            told.schedule.handle(now, Event::Bound { binding });
        }
    }

    /// The mailboxes whose agents are notified.
    pub(crate) fn mailboxes(&self) -> impl Iterator<Item = &Name> {
        self.told.values().map(|t| &t.entry.mailbox)
    }

    /// A message was seen to land.
    pub(crate) fn notice(&mut self, mailbox: &Name, id: MessageId) {
        if self.told.values().any(|t| t.entry.mailbox == *mailbox) {
            // One landing may raise two events.
            let noticed = self.noticed.entry(mailbox.clone()).or_default();
            if noticed.last() != Some(&id) {
                noticed.push(id);
            }
        }
    }

    /// Counts a mailbox and tells its notifier.
    pub(crate) fn look(&mut self, now: Monotonic, mailbox: &Name, mail: &dyn Mail) {
        for told in self.told.values_mut().filter(|t| t.entry.mailbox == *mailbox) {
            // An agent is not notified of messages that a gate withholds.
            let ids = match mail.due_ids_for(mailbox, &told.entry.agent, COUNT_MAX) {
                Ok(ids) => ids.into_iter().collect::<BTreeSet<MessageId>>(),
                Err(error) => {
                    tracing::warn!(%mailbox, %error, "cannot count a mailbox");
                    return;
                }
            };
            // As many may have come as went: only the ids tell that the agent has read.
            let taken = told.known.difference(&ids).count() as u64;
            told.schedule.handle(now, Event::Mail { waiting: ids.len() as u64, taken });
            told.known = ids;
        }
    }

    /// Has an agent's pane looked at, if it has one.
    pub(crate) fn send_to_look(&mut self, agent: &Name) {
        if let Some(told) = self.told.get(agent) {
            let entry = told.entry.clone();
            self.send_to(entry);
        }
    }

    /// Has a pane looked at; `false` if its provider is not known.
    pub(crate) fn send_to(&mut self, entry: PaneEntry) -> bool {
        let Ok(profile) = self.profiles.get(&entry.provider) else { return false };
        self.pane_workers.send(PaneTask {
            entry,
            profile,
            attempt: UNASKED,
            text: None,
            job: PaneTaskKind::Look,
        });
        true
    }

    /// Has an agent tried that has met a limit without an end and holds something. Where mail waits as
    /// well, its schedule does so by itself.
    pub(crate) fn probe(&mut self, agent: &Name, held: usize) {
        let Some(told) = self.told.get(agent).filter(|told| told.schedule.status().waiting == 0)
        else {
            return;
        };
        let text = told.profile.program().nudge_text(&told.entry.mailbox, held, false);
        self.pane_workers.send(PaneTask {
            entry: told.entry.clone(),
            profile: Arc::clone(&told.profile),
            attempt: UNASKED,
            text: Some(text),
            job: PaneTaskKind::Type(Occasion::Probe),
        });
    }

    /// An pane_task has come back.
    pub(crate) fn report(&mut self, now: Monotonic, report: Report, recorder: &dyn Recorder) {
        let Some(told) = self.told.get_mut(&report.agent) else { return };
        if report.outcome == NudgeOutcome::Sent {
            let ids = std::mem::take(&mut told.covered);
            recorder.record("nudge.sent", ACTOR, json!({
                "agent": report.agent, "mailbox": told.entry.mailbox, "pane": told.entry.binding.id, "attempt": report.attempt,
            }));
            record_receipts(
                recorder,
                "receipt.submitted",
                &told.entry.mailbox,
                &ids,
                &json!({ "pane": told.entry.binding.id, "outcome": "sent" }),
            );
        }
        if let Some(until) = report.limited_until {
            let left = until.since(SystemClock.wall());
            told.schedule.handle(now, Event::Parked { until: now + left });
        }
        if report.is_limited && report.attempt != UNASKED {
            told.schedule.handle(now, Event::Limited);
        }
        told.schedule
            .handle(now, Event::Outcome { attempt: report.attempt, outcome: report.outcome });
    }

    /// Lets time pass and carries out what the notifier want.
    pub(crate) fn drive(&mut self, now: Monotonic, mail: &dyn Mail, recorder: &dyn Recorder) {
        for told in self.told.values_mut() {
            told.schedule.handle_timeout(now);
            while let Some(effect) = told.schedule.poll_effect() {
                perform(told, effect, &mut self.pane_workers, mail, recorder);
            }
        }
        for (mailbox, ids) in std::mem::take(&mut self.noticed) {
            record_receipts(recorder, "receipt.notified", &mailbox, &ids, &json!({ "by": ACTOR }));
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        self.told.values().filter_map(|t| t.schedule.poll_timeout()).min()
    }

    /// For `status`.
    pub(crate) fn summary(&self, now: Monotonic) -> Vec<serde_json::Value> {
        let row = |(agent, told): (&Name, &Told)| {
            let status = told.schedule.status();
            json!({
                "agent": agent,
                "mailbox": told.entry.mailbox,
                "provider": told.entry.provider,
                "pane": told.entry.binding.id,
                "phase": status.phase.word(),
                "waiting": status.waiting,
                "nudges": status.nudges,
                "deferred": status.deferral.as_ref().map(|d| json!({ "reason": d.word(), "detail": d.to_string() })),
                "next_in_seconds": status.next.map(|at| at.since(now).as_secs()),
            })
        };
        self.told.iter().map(row).collect()
    }
}

fn perform(
    told: &mut Told,
    effect: Effect,
    pane_workers: &mut PaneWorkers,
    mail: &dyn Mail,
    recorder: &dyn Recorder,
) {
    let pane_task = |told: &Told, attempt, text, job| PaneTask {
        entry: told.entry.clone(),
        profile: Arc::clone(&told.profile),
        attempt,
        text: Some(text),
        job,
    };
    match effect {
        Effect::Nudge { attempt, waiting, occasion } => {
            let count = usize::try_from(waiting).unwrap_or(usize::MAX);
            let more = count >= COUNT_MAX;
            let text = told.profile.program().nudge_text(&told.entry.mailbox, count, more);
            told.typed = Some((attempt, text.clone()));
            pane_workers.send(pane_task(told, attempt, text, PaneTaskKind::Type(occasion)));
            // Beyond these, the line itself says that there is more.
            told.covered = if more {
                mail.due_ids_for(&told.entry.mailbox, &told.entry.agent, COVERED_MAX).unwrap_or_default()
            } else {
                told.known.iter().cloned().collect()
            };
        }
        Effect::Submit { attempt, typed } => {
            let Some((_, text)) = told.typed.clone().filter(|(number, _)| *number == typed) else { return };
            // A later submit asks for the same line.
            told.typed = Some((typed, text.clone()));
            pane_workers.send(pane_task(told, attempt, text, PaneTaskKind::Submit));
        }
        Effect::Record(Record::Deferred { deferral, waiting }) => recorder.record("nudge.deferred", ACTOR, json!({
            "agent": told.entry.agent, "mailbox": told.entry.mailbox, "pane": told.entry.binding.id,
            "reason": deferral.word(), "detail": deferral.to_string(), "waiting": waiting,
        })),
        Effect::Record(Record::Unanswered { waiting, nudges }) => recorder.record("nudge.unanswered", ACTOR, json!({
            "agent": told.entry.agent, "mailbox": told.entry.mailbox, "waiting": waiting, "nudges": nudges,
        })),
        Effect::Record(other) => recorder.record("nudge.noted", ACTOR, json!({ "agent": told.entry.agent, "what": other })),
    }
}

/// Records how far messages got, a bounded number of ids a line.
fn record_receipts(
    recorder: &dyn Recorder,
    kind: &str,
    mailbox: &Name,
    ids: &[MessageId],
    evidence: &serde_json::Value,
) {
    for ids in ids.chunks(IDS_A_RECORD) {
        recorder.record(
            kind,
            ACTOR,
            json!({ "mailbox": mailbox, "ids": ids, "evidence": evidence }),
        );
    }
}
