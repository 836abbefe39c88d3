//! Notifies agents of their mail: one [`NudgeSchedule`] for each agent that has a pane.
//!
//! An agent whose session has a living waiter is woken by that. Nothing is typed then, unless no message was taken
//! within [`WAITER_PATIENCE`]: the attempt continues with keystrokes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::driver::LadderPrompt;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::pane::{NudgeOutcome, NudgeText};
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::ack::Phase;
use ensemble_project::panes::PaneEntry;
use ensemble_project::sessions;
use ensemble_project::status::ACTOR;
use ensemble_tmux::nudge::{Effect, Event, NudgeOccasion, NudgeRecord, NudgeSchedule, WantedLine};
use ensemble_tmux::provider::{Judgement, Profile, Profiles, UnsentLine};
use ensemble_tmux::session::{Activity, Sessions};
use serde_json::json;

use crate::context::WatchContext;
use crate::mail::MailSource;
use crate::pane_worker::{PaneTask, PaneTaskKind, PaneWorkers};
use crate::sidebar::SidebarMail;
use crate::wakes::{LoopWaker, TypeReport};

/// Waiting messages are counted up to here; a nudge then says "or more".
pub(crate) const COUNT_MAX: usize = 100;
/// How many of the waiting messages a line is recorded for, by id.
const COVERED_MAX: usize = 1_000;
/// How many ids one record names; what is beyond is named in further records.
const IDS_A_RECORD: usize = 32;

/// The least time between two lines for one agent, where a ladder asks for the second one.
const LADDER_PACE_MIN: Duration = Duration::from_secs(1);

/// How long the waiter of a session may take to hand over a message, before keys are typed.
pub(crate) const WAITER_PATIENCE: Duration = Duration::from_secs(5);

/// The attempt of pane tasks that no schedule has asked for.
const UNASKED: u64 = 0;

struct NotifyTarget {
    entry: PaneEntry,
    profile: Arc<Profile>,
    schedule: NudgeSchedule,
    binding: u64,
    known: BTreeSet<MessageId>,
    covered: Vec<MessageId>,
    /// The messages that waited when the last line was typed.
    announced: BTreeSet<MessageId>,
    weighty: BTreeSet<MessageId>,
    /// The last text that was typed, and for which attempt.
    typed: Option<(u64, NudgeText)>,
    /// The attempt that is left to the session's own waiter, and until when.
    awaited: Option<AwaitedAttempt>,
    keystrokes: u64,
    sidebar: SidebarMail,
}

struct AwaitedAttempt {
    attempt: u64,
    occasion: NudgeOccasion,
    until: Monotonic,
}

pub(crate) struct MailNotifier {
    context: Arc<WatchContext>,
    targets: BTreeMap<Name, NotifyTarget>,
    /// Messages that were seen to land and are not in the log yet.
    noticed: BTreeMap<Name, Vec<MessageId>>,
    profiles: Profiles,
    pane_workers: PaneWorkers,
    bindings_made: u64,
    laddered: BTreeSet<Name>,
    sessions: Sessions,
}

impl MailNotifier {
    pub(crate) fn new(context: &Arc<WatchContext>, waker: LoopWaker) -> Result<Self> {
        let project = &context.project;
        Ok(Self {
            context: Arc::clone(context),
            targets: BTreeMap::new(),
            noticed: BTreeMap::new(),
            profiles: project.profiles()?,
            pane_workers: PaneWorkers::new(project.sources(), project.locks(), waker),
            bindings_made: 0,
            laddered: BTreeSet::new(),
            sessions: project.sessions(),
        })
    }

    pub(crate) fn bind(&mut self, now: Monotonic, entries: Vec<PaneEntry>) {
        self.targets.retain(|agent, _| entries.iter().any(|e| e.agent == *agent));
        for entry in entries {
            if self.targets.get(&entry.agent).is_some_and(|t| t.entry == entry) {
                continue;
            }
            let profile = self.profiles.get(&entry.provider).inspect_err(
                |error| tracing::warn!(agent = %entry.agent, %error, "cannot nudge this agent"),
            );
            let Ok(profile) = profile else { continue };
            self.bindings_made += 1;
            let binding = self.bindings_made;
            let target = self.targets.entry(entry.agent.clone()).or_insert_with(|| NotifyTarget {
                entry: entry.clone(),
                profile: Arc::clone(&profile),
                schedule: NudgeSchedule::new(),
                binding,
                known: BTreeSet::new(),
                covered: Vec::new(),
                announced: BTreeSet::new(),
                weighty: BTreeSet::new(),
                typed: None,
                awaited: None,
                keystrokes: 0,
                sidebar: SidebarMail::default(),
            });
            (target.entry, target.profile, target.binding) = (entry, profile, binding);
            (target.awaited, target.sidebar) = (None, SidebarMail::default());
            let is_laddered = self.laddered.contains(&target.entry.mailbox);
            target.schedule.handle(now, Event::Laddered(is_laddered));
            target.schedule.handle(now, Event::Bound { binding });
        }
    }

    pub(crate) fn mailboxes(&self) -> impl Iterator<Item = &Name> {
        self.targets.values().map(|t| &t.entry.mailbox)
    }

    pub(crate) fn has_agent(&self, mailbox: &Name) -> bool {
        self.targets.values().any(|target| target.entry.mailbox == *mailbox)
    }

    pub(crate) fn landed(&mut self, mailbox: &Name, id: MessageId) {
        if self.targets.values().any(|t| t.entry.mailbox == *mailbox) {
            self.noticed.entry(mailbox.clone()).or_default().push(id);
        }
    }

    pub(crate) fn count(&mut self, now: Monotonic, mailbox: &Name, mail: &dyn MailSource) {
        for target in self.targets.values_mut().filter(|t| t.entry.mailbox == *mailbox) {
            // An agent is not notified of messages that a plan gate keeps from it.
            let ids = match mail.due_ids_for(mailbox, &target.entry.agent, COUNT_MAX) {
                Ok(ids) => ids.into_iter().collect::<BTreeSet<MessageId>>(),
                Err(error) => {
                    tracing::warn!(%mailbox, %error, "cannot count a mailbox");
                    return;
                }
            };
            // As many messages may have arrived as were received, so only the ids show that the agent has read some.
            let taken = target.known.difference(&ids).count() as u64;
            target.schedule.handle(now, Event::Mail { waiting: ids.len() as u64, taken });
            target.known = ids;
            if taken > 0 {
                target.arrived_by_waiter(now);
            }
            if let Some(task) = target.mail_to_show(now) {
                self.pane_workers.send(task);
            }
        }
    }

    pub(crate) fn note_held(&mut self, now: Monotonic, agent: &Name, held: usize) {
        let Some(target) = self.targets.get_mut(agent) else { return };
        target.sidebar.held = held as u64;
        if let Some(task) = target.mail_to_show(now) {
            self.pane_workers.send(task);
        }
    }

    pub(crate) fn provider(&self, agent: &Name) -> Option<&str> {
        self.targets.get(agent).map(|target| target.entry.provider.as_str())
    }

    /// A hook of an agent has reported: a turn that has ended leaves the agent free to be notified.
    pub(crate) fn session_changed(&mut self, now: Monotonic, agent: &Name) {
        let Some(target) = self.targets.get_mut(agent) else { return };
        let session = self.sessions.get(agent).ok().flatten();
        if session.is_some_and(|session| session.activity == Activity::Idle) {
            target.schedule.handle(now, Event::PaneChanged);
        }
    }

    /// An agent's pane was observed. If its composer shows our unsent line alone, the line is taken back, or submitted
    /// again while mail waits.
    pub(crate) fn observed(&mut self, now: Monotonic, agent: &Name, seen: Option<&Judgement>) {
        let is_left = seen.is_some_and(|seen| seen.unsent_line() == UnsentLine::Alone);
        if let Some(target) = self.targets.get_mut(agent).filter(|_| is_left) {
            target.schedule.handle(now, Event::LineLeft);
        }
    }

    pub(crate) fn observe_agent(&mut self, agent: &Name) {
        if let Some(target) = self.targets.get(agent) {
            let entry = target.entry.clone();
            self.observe_pane(entry);
        }
    }

    /// Has a pane observed; `false` if its provider is not known.
    pub(crate) fn observe_pane(&mut self, entry: PaneEntry) -> bool {
        let Ok(profile) = self.profiles.get(&entry.provider) else { return false };
        self.pane_workers.send(PaneTask {
            entry,
            profile,
            attempt: UNASKED,
            text: None,
            kind: PaneTaskKind::Observe,
        });
        true
    }

    /// Has an agent tried that has met a limit without an end and holds something. Where mail waits as
    /// well, its schedule does so by itself.
    pub(crate) fn probe(&mut self, agent: &Name, held: usize) {
        let Some(target) =
            self.targets.get(agent).filter(|target| target.schedule.status().waiting == 0)
        else {
            return;
        };
        let text = target.profile.program().nudge_text(&target.entry.mailbox, held, false);
        let kind = PaneTaskKind::Type(NudgeOccasion::Probe);
        self.pane_workers.send(target.pane_task(UNASKED, Some(text), kind));
    }

    /// A ladder wants a line for the agents of its mailbox. The line that has announced a task already
    /// is its delivery.
    pub(crate) fn prompt(&mut self, now: Monotonic, prompt: &LadderPrompt) {
        let wanted = match prompt.phase {
            Phase::Deliver | Phase::LeaveInputMode | Phase::ResetContext => {
                WantedLine::new(LADDER_PACE_MIN, true)
            }
            Phase::Nudge => WantedLine::new(prompt.phase_timeout / 2, false),
        };
        for target in self.targets.values_mut().filter(|t| t.entry.mailbox == prompt.mailbox) {
            if prompt.phase != Phase::Deliver || !target.announced.contains(&prompt.message) {
                target.schedule.handle(now, Event::Prompt(wanted));
            }
        }
    }

    /// A task, an escalation or a summary landed. If the last line announced only less urgent mail, another line
    /// follows without the usual pause.
    pub(crate) fn weighty(&mut self, now: Monotonic, mailbox: &Name, id: &MessageId) {
        for target in self.targets.values_mut().filter(|t| t.entry.mailbox == *mailbox) {
            target.weighty.retain(|known| target.known.contains(known));
            let is_told = target.weighty.iter().any(|known| target.announced.contains(known));
            target.weighty.insert(id.clone());
            if !is_told && !target.announced.contains(id) {
                target.schedule.handle(now, Event::Prompt(WantedLine::new(LADDER_PACE_MIN, true)));
            }
        }
    }

    /// A message landed that interrupts. Agents whose program does not allow that read it after the tool that runs.
    pub(crate) fn interrupt(&mut self, mailbox: &Name) {
        for target in self.targets.values().filter(|t| t.entry.mailbox == *mailbox) {
            let waiting = target.known.len().max(1);
            let text = target.profile.program().nudge_text(mailbox, waiting, false);
            self.pane_workers.send(target.pane_task(UNASKED, Some(text), PaneTaskKind::Interrupt));
        }
    }

    /// A ladder sets the pace of the lines for a mailbox, or does so no more.
    pub(crate) fn set_pace(&mut self, now: Monotonic, mailbox: &Name, is_laddered: bool) {
        match is_laddered {
            true => self.laddered.insert(mailbox.clone()),
            false => self.laddered.remove(mailbox),
        };
        for target in self.targets.values_mut().filter(|t| t.entry.mailbox == *mailbox) {
            target.schedule.handle(now, Event::Laddered(is_laddered));
        }
    }

    pub(crate) fn report(&mut self, now: Monotonic, report: TypeReport) {
        let Some(target) = self.targets.get_mut(&report.agent) else { return };
        if report.outcome == NudgeOutcome::Sent {
            target.keystrokes += 1;
            let ids = std::mem::take(&mut target.covered);
            self.context.record(types::NUDGE_SENT, json!({
                "agent": report.agent, "mailbox": target.entry.mailbox, "pane": target.entry.binding.id, "attempt": report.attempt,
            }));
            let evidence = json!({ "way": target.typing(), "pane": target.entry.binding.id, "outcome": "sent" });
            let mailbox = &target.entry.mailbox;
            record_receipts(&self.context, types::RECEIPT_SUBMITTED, mailbox, &ids, &evidence);
        }
        if let Some(until) = report.limited_until {
            let left = until.since(SystemClock.wall());
            target.schedule.handle(now, Event::Parked { until: now + left });
        }
        if report.is_limited && report.attempt != UNASKED {
            target.schedule.handle(now, Event::Limited);
        }
        target
            .schedule
            .handle(now, Event::Outcome { attempt: report.attempt, outcome: report.outcome });
    }

    pub(crate) fn drive(&mut self, now: Monotonic, mail: &dyn MailSource) {
        for target in self.targets.values_mut() {
            target.schedule.handle_timeout(now);
            while let Some(effect) = target.schedule.poll_effect() {
                if let Some(effect) = target.leave_to_waiter(now, effect, &self.sessions) {
                    perform(target, effect, &mut self.pane_workers, mail, &self.context);
                }
            }
            // The waiter has done nothing.
            if let Some(late) = target.awaited.take_if(|awaited| now >= awaited.until) {
                let AwaitedAttempt { attempt, occasion, .. } = late;
                let waiting = target.known.len() as u64;
                let effect = Effect::Nudge { attempt, waiting, occasion };
                perform(target, effect, &mut self.pane_workers, mail, &self.context);
            }
        }
        let evidence = json!({ "by": ACTOR });
        for (mailbox, ids) in std::mem::take(&mut self.noticed) {
            record_receipts(&self.context, types::RECEIPT_NOTIFIED, &mailbox, &ids, &evidence);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        let awaited = |target: &NotifyTarget| target.awaited.as_ref().map(|awaited| awaited.until);
        let deadlines = |target: &NotifyTarget| [target.schedule.poll_timeout(), awaited(target)];
        self.targets.values().flat_map(deadlines).flatten().min()
    }

    pub(crate) fn summary(&self, now: Monotonic) -> Vec<serde_json::Value> {
        let row = |(agent, target): (&Name, &NotifyTarget)| {
            let status = target.schedule.status();
            json!({
                "agent": agent,
                "mailbox": target.entry.mailbox,
                "provider": target.entry.provider,
                "pane": target.entry.binding.id,
                "phase": status.phase.word(),
                "waiting": status.waiting,
                "nudges": status.nudges,
                "ways": sessions::ways(&self.sessions, agent, target.typing(), target.keystrokes),
                "way": match sessions::is_woken_by_itself(&self.sessions, agent) {
                    true => "waiter",
                    false => target.typing(),
                },
                "deferred": status.deferral.as_ref().map(|d| json!({ "reason": d.word(), "detail": d.to_string() })),
                "next_in_seconds": status.next.map(|at| at.since(now).as_secs()),
            })
        };
        self.targets.iter().map(row).collect()
    }
}

impl NotifyTarget {
    /// The task that shows the agent's mail beside its pane, if its multiplexer shows another count or none.
    fn mail_to_show(&mut self, now: Monotonic) -> Option<PaneTask> {
        let mail = self.sidebar.mail_to_show(now, self.known.len() as u64);
        let mail = mail.filter(|_| self.entry.binding.is_hosted())?;
        Some(self.pane_task(UNASKED, None, PaneTaskKind::ShowMail(mail)))
    }

    fn pane_task(&self, attempt: u64, text: Option<NudgeText>, kind: PaneTaskKind) -> PaneTask {
        let (entry, profile) = (self.entry.clone(), Arc::clone(&self.profile));
        PaneTask { entry, profile, attempt, text, kind }
    }

    fn typing(&self) -> &'static str {
        if self.entry.binding.is_terminal() { "terminal" } else { "keystrokes" }
    }

    /// Leaves a nudge to the waiter of the agent's session, if it has one; returns what is left to do.
    fn leave_to_waiter(
        &mut self,
        now: Monotonic,
        effect: Effect,
        sessions: &Sessions,
    ) -> Option<Effect> {
        let Effect::Nudge { attempt, occasion, .. } = effect else { return Some(effect) };
        if !sessions::is_woken_by_itself(sessions, &self.entry.agent) {
            return Some(effect);
        }
        self.announced.clone_from(&self.known);
        self.awaited = Some(AwaitedAttempt { attempt, occasion, until: now + WAITER_PATIENCE });
        None
    }

    /// A message was taken: the attempt that was left to the waiter has reached the agent.
    fn arrived_by_waiter(&mut self, now: Monotonic) {
        if let Some(AwaitedAttempt { attempt, .. }) = self.awaited.take() {
            let outcome = NudgeOutcome::Sent;
            self.schedule.handle(now, Event::Outcome { attempt, outcome });
        }
    }
}

fn perform(
    target: &mut NotifyTarget,
    effect: Effect,
    pane_workers: &mut PaneWorkers,
    mail: &dyn MailSource,
    context: &WatchContext,
) {
    match effect {
        Effect::Nudge { attempt, waiting, occasion } => {
            let count = usize::try_from(waiting).unwrap_or(usize::MAX);
            let more = count >= COUNT_MAX;
            let text = target.profile.program().nudge_text(&target.entry.mailbox, count, more);
            target.typed = Some((attempt, text.clone()));
            target.announced.clone_from(&target.known);
            let kind = PaneTaskKind::Type(occasion);
            pane_workers.send(target.pane_task(attempt, Some(text), kind));
            // Beyond these, the line itself says that there is more.
            target.covered = if more {
                mail.due_ids_for(&target.entry.mailbox, &target.entry.agent, COVERED_MAX).unwrap_or_default()
            } else {
                target.known.iter().cloned().collect()
            };
        }
        Effect::Submit { attempt, typed } => {
            let Some((_, text)) = target.typed.clone().filter(|(number, _)| *number == typed) else { return };
            // A later submit asks for the same line.
            target.typed = Some((typed, text.clone()));
            pane_workers.send(target.pane_task(attempt, Some(text), PaneTaskKind::Submit));
        }
        Effect::Withdraw { attempt } => {
            pane_workers.send(target.pane_task(attempt, None, PaneTaskKind::Withdraw));
        }
        Effect::Record(NudgeRecord::Deferred { deferral, waiting }) => context.record(types::NUDGE_DEFERRED, json!({
            "agent": target.entry.agent, "mailbox": target.entry.mailbox, "pane": target.entry.binding.id,
            "reason": deferral.word(), "detail": deferral.to_string(), "waiting": waiting,
        })),
        Effect::Record(NudgeRecord::Unanswered { waiting, nudges }) => context.record(types::NUDGE_UNANSWERED, json!({
            "agent": target.entry.agent, "mailbox": target.entry.mailbox, "waiting": waiting, "nudges": nudges,
        })),
    }
}

/// Records how far messages got, a bounded number of ids a line.
fn record_receipts(
    context: &WatchContext,
    kind: &str,
    mailbox: &Name,
    ids: &[MessageId],
    evidence: &serde_json::Value,
) {
    for ids in ids.chunks(IDS_A_RECORD) {
        context.record(kind, json!({ "mailbox": mailbox, "ids": ids, "evidence": evidence }));
    }
}
