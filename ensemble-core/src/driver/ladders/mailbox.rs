//! The ladders of one mailbox.

use super::{
    ACKED_KEEP, BTreeMap, BTreeSet, Clock, DeliveryContext, DeliveryOrder, Duration, Ended,
    Envelope, Error, FileLock, Found, LadderFile, LadderState, LadderStore, MailboxReader,
    MessageId, Monotonic, Name, Result, State, TaskDelivery, WaitingTasks, boot_id, boot_ms,
    finish_escalation, json, note_failure, types,
};
use crate::driver::Notice;
use crate::driver::delivery::{ack_version, dead_reason};
use crate::error::allow_gone;
use crate::mail;

/// The reasons of an escalation that speak of the worker and not of the one task.
const WORKER_REASONS: [&str; 3] = ["unanswered", "not_pressable", "crashed"];

pub(super) struct MailboxLadders<'a> {
    mailbox: Name,
    pub(super) lock: FileLock,
    /// By the name of the file. The file of the ladder that runs is at [`MailboxLadders::leader`].
    files: BTreeMap<String, LadderFile>,
    leader: Option<TaskDelivery<'a>>,
    /// Where the worker of that ladder runs.
    place: String,
    /// Whether the pace of lines is set by a ladder.
    is_paced: bool,
}

impl<'a> MailboxLadders<'a> {
    pub(super) fn open(store: &LadderStore, mailbox: Name, lock: FileLock) -> Result<Self> {
        let files = store.of_mailbox(&mailbox)?.into_iter().collect();
        Ok(Self { mailbox, lock, files, leader: None, place: String::new(), is_paced: false })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.leader.is_none()
    }

    /// Whether something is to happen soon.
    pub(super) fn is_open(&self) -> bool {
        let soon = |file: &LadderFile| file.state != LadderState::Escalated;
        self.leader.is_some() || self.files.values().any(soon)
    }

    pub(super) fn has(&self, message: &MessageId) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.message == *message)
            || self.files.values().any(|file| file.message == *message)
    }

    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        self.leader.as_ref().and_then(TaskDelivery::poll_timeout)
    }

    pub(super) fn handle_timeout(&mut self, world: &DeliveryContext<'_>) -> Result<bool> {
        let Some(leader) = &mut self.leader else { return Ok(false) };
        match leader.handle_timeout(world)? {
            None => Ok(false),
            Some(ended) => self.ended(world, ended).map(|()| true),
        }
    }

    /// The mailbox holds this now. Returns the failure of a single ladder.
    pub(super) fn update_tasks(
        &mut self,
        world: &DeliveryContext<'_>,
        found: &[Found],
        tasks: WaitingTasks,
    ) -> Result<Option<Error>> {
        let order: Vec<MessageId> = tasks.iter().map(|(id, _)| id.clone()).collect();
        let (mut has_ended, mut failed) = (false, None);
        if let Some(leader) = &mut self.leader
            && let Some(ended) = leader.check_ack(world)?
        {
            self.ended(world, ended)?;
            has_ended = true;
        }
        let states: BTreeMap<&MessageId, &State> =
            found.iter().map(|found| (&found.id, &found.state)).collect();
        for name in self.files.keys().cloned().collect::<Vec<_>>() {
            note_failure(&mut failed, self.follow(world, &name, &states))?;
        }
        let Some(durable) = &world.durable else { return Ok(failed) };
        let is_new = tasks.iter().any(|(id, envelope)| envelope.is_some() && !self.has(id));
        if order.is_empty() && self.leader.is_none() && !is_new {
            return self.set_pace(world, false).map(|()| failed);
        }
        let reader = durable.host.reader(&self.mailbox)?;
        for (id, envelope) in tasks {
            if let Some(envelope) = envelope.filter(|_| !self.has(&id)) {
                let begun = self.begin(world, &id, &envelope, &reader, states.get(&id).copied());
                note_failure(&mut failed, begun)?;
            }
        }
        let due = world.queue().due_ids_for(&self.mailbox, &reader.agent, super::LADDERS_MAX)?;
        let due: BTreeSet<MessageId> = due.into_iter().collect();
        // The ladder that has just ended may have seen a receipt that is newer than `found`.
        let held = match has_ended {
            true => held(&world.queue().unfinished(&self.mailbox, super::LADDERS_MAX)?),
            false => held(found),
        };
        let is_free = held < reader.count;
        self.put_leader_back(world, is_free, &due, &reader.place)?;
        if self.leader.is_none() && is_free {
            self.lead(world, &order, &due, reader)?;
        }
        let is_paced = self.leader.is_some();
        self.set_pace(world, is_paced).map(|()| failed)
    }

    /// Another process continues; this one types no more.
    pub(super) fn close(&mut self, world: &DeliveryContext<'_>) {
        let _ = self.set_pace(world, false);
    }

    fn set_pace(&mut self, world: &DeliveryContext<'_>, is_paced: bool) -> Result<()> {
        if self.is_paced != is_paced
            && let Some(durable) = &world.durable
        {
            durable.host.set_pace(&self.mailbox, is_paced);
        }
        self.is_paced = is_paced;
        Ok(())
    }

    fn write(&self, world: &DeliveryContext<'_>, name: &str) -> Result<()> {
        match (&world.durable, self.files.get(name)) {
            (Some(durable), Some(file)) => durable.store.write(name, file),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, world: &DeliveryContext<'_>, name: &str) -> Result<()> {
        if let Some(durable) = &world.durable {
            durable.store.remove(name)?;
        }
        self.files.remove(name);
        Ok(())
    }

    /// A task is seen for the first time.
    fn begin(
        &mut self,
        world: &DeliveryContext<'_>,
        id: &MessageId,
        envelope: &Envelope,
        reader: &MailboxReader,
        state: Option<&State>,
    ) -> Result<()> {
        let task = envelope.task_id.clone().unwrap_or_else(|| id.to_string());
        let (place, worker) = ((self.mailbox.clone(), id.clone()), reader.agent.clone());
        let mut file = LadderFile::new(place, worker, task, envelope.from.clone(), &*world.clock);
        file.attempt = envelope.attempt.unwrap_or(1);
        if let Some(State::Queued { epoch, .. }) = state {
            file.epoch = *epoch;
        }
        file.ack_before = ack_version(&world.spool, &file.task);
        let name = LadderStore::name(&self.mailbox, id);
        self.files.insert(name.clone(), file);
        self.write(world, &name)
    }

    /// Looks what has happened to a message whose ladder does not run.
    fn follow(
        &mut self,
        world: &DeliveryContext<'_>,
        name: &str,
        states: &BTreeMap<&MessageId, &State>,
    ) -> Result<()> {
        let Some(file) = self.files.get_mut(name) else { return Ok(()) };
        if file.state == LadderState::Escalating {
            return finish_escalation(world, name, file);
        }
        let state = match states.get(&file.message) {
            Some(state) => Some((*state).clone()),
            None => world.queue().state(&self.mailbox, &file.message)?,
        };
        let is_over = matches!(file.state, LadderState::Acked | LadderState::Escalated);
        let age = boot_ms(&*world.clock).saturating_sub(file.phase_began_ms);
        let is_old = file.boot != boot_id() || Duration::from_millis(age) >= ACKED_KEEP;
        let is_stale = file.state == LadderState::Acked && is_old;
        match state {
            Some(State::Queued { epoch, .. }) if epoch > file.epoch || is_stale => {
                // It was received and came back, or an ack file was not followed by a receive: its
                // worker lived.
                file.epoch = epoch;
                file.ack_before = ack_version(&world.spool, &file.task);
                file.put_back(&*world.clock);
                self.write(world, name)
            }
            Some(State::Queued { .. }) => Ok(()),
            Some(State::Acked { .. } | State::Settled) if is_stale => self.remove(world, name),
            Some(State::Acked { .. } | State::Settled) if file.state == LadderState::Acked => {
                Ok(())
            }
            Some(State::Acked { .. } | State::Settled) => self.acked(world, name),
            Some(State::Dead) if !is_over => self.died(world, name),
            // It is replaced by the next attempt, or not published yet.
            None if file.replaced.is_some() => Ok(()),
            Some(State::Dead) | None => self.remove(world, name),
        }
    }

    /// A message was received whose ladder did not run.
    fn acked(&mut self, world: &DeliveryContext<'_>, name: &str) -> Result<()> {
        let Some(file) = self.files.get_mut(name) else { return Ok(()) };
        let is_late = file.state == LadderState::Escalated;
        let kind = if is_late { types::LADDER_LATE_ACK } else { types::TASK_START };
        let data = json!({
            "attempt": file.attempt, "phase": file.phase, "id": file.message,
            "task_id": file.task, "worker_id": file.worker,
        });
        world.recorder.record(kind, world.actor.as_str(), data);
        mark_acked(file, &*world.clock);
        self.write(world, name)
    }

    /// A message became a dead letter before it was received.
    fn died(&mut self, world: &DeliveryContext<'_>, name: &str) -> Result<()> {
        let Some(file) = self.files.get(name) else { return Ok(()) };
        let reason = dead_reason(world.queue(), &self.mailbox, &file.message)?;
        let ends = [mail::EXPIRED, mail::SUPERSEDED, mail::RECALLED];
        if ends.iter().any(|begin| reason.starts_with(begin)) {
            return self.remove(world, name);
        }
        let mut notice = Notice::of_file(file, "undeliverable", world.clock.wall());
        notice.detail = Some(format!("it is a dead letter: {reason}"));
        self.escalate(world, name, &notice)
    }

    fn escalate(&mut self, world: &DeliveryContext<'_>, name: &str, notice: &Notice) -> Result<()> {
        let Some(file) = self.files.get_mut(name) else { return Ok(()) };
        file.decide(notice);
        self.write(world, name)?;
        match self.files.get_mut(name) {
            Some(file) => finish_escalation(world, name, file),
            None => Ok(()),
        }
    }

    fn ended(&mut self, world: &DeliveryContext<'_>, ended: Ended) -> Result<()> {
        let Some(leader) = self.leader.take() else { return Ok(()) };
        let timeout = leader.order.config.phase_timeout;
        let Some(kept) = leader.kept else { return Ok(()) };
        let (name, mut file) = (kept.name, kept.file);
        match ended {
            Ended::Acked { .. } => mark_acked(&mut file, &*world.clock),
            Ended::Escalated { .. } => file.state = LadderState::Escalated,
            Ended::Expired => {
                self.files.insert(name.clone(), file);
                return self.remove(world, &name);
            }
            Ended::Abandoned { .. } => {}
        }
        self.files.insert(name.clone(), file);
        self.write(world, &name)?;
        match ended {
            Ended::Escalated { notice, .. } if WORKER_REASONS.contains(&notice.reason) => {
                self.end_others(world, &notice, timeout)
            }
            _ => Ok(()),
        }
    }

    /// The worker is silent: what has waited behind the task ends with it.
    fn end_others(
        &mut self,
        world: &DeliveryContext<'_>,
        of: &Notice,
        timeout: Duration,
    ) -> Result<()> {
        let is_old = |file: &&LadderFile| {
            file.state == LadderState::Behind && file.waited(&*world.clock) >= timeout
        };
        let old = self.files.iter().filter(|(_, file)| is_old(file));
        for name in old.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            let Some(file) = self.files.get(&name) else { continue };
            let mut notice = Notice::of_file(file, of.reason, world.clock.wall());
            (notice.phase, notice.worker_state) = (of.phase, of.worker_state);
            notice.waited_seconds = file.waited(&*world.clock).as_secs();
            notice.detail = Some(format!("its worker has not answered for {}", of.task_id));
            self.escalate(world, &name, &notice)?;
        }
        Ok(())
    }

    /// While the worker holds a message, or may not begin the task, its ladder does not run.
    fn put_leader_back(
        &mut self,
        world: &DeliveryContext<'_>,
        is_free: bool,
        due: &BTreeSet<MessageId>,
        place: &str,
    ) -> Result<()> {
        let Some(leader) = &self.leader else { return Ok(()) };
        // A line is half typed, or the next attempt not stored.
        if leader.half.is_some() || leader.notice.is_some() {
            return Ok(());
        }
        let is_next = is_free && due.contains(&leader.message);
        if is_next && self.place == place {
            return Ok(());
        }
        let Some(mut kept) = self.leader.take().and_then(|leader| leader.kept) else {
            return Ok(());
        };
        // In another pane the ladder continues where it was, and one that was just taken ends where it was.
        let state = world.queue().state(&self.mailbox, &kept.file.message)?;
        if !is_next && matches!(state, Some(State::Queued { .. })) {
            kept.file.put_back(&*world.clock);
        }
        self.files.insert(kept.name.clone(), kept.file);
        self.write(world, &kept.name)
    }

    /// Begins the ladder of the next task, or continues with the one that was open.
    fn lead(
        &mut self,
        world: &DeliveryContext<'_>,
        order: &[MessageId],
        due: &BTreeSet<MessageId>,
        reader: MailboxReader,
    ) -> Result<()> {
        let is_open = |file: &LadderFile| file.state == LadderState::Open;
        let open = self.files.iter().find(|(_, file)| is_open(file)).map(|(name, _)| name.clone());
        let next = || {
            let waits = |id: &MessageId| {
                let is_it =
                    |file: &LadderFile| file.message == *id && file.state == LadderState::Behind;
                self.files.iter().find(|(_, file)| is_it(file)).map(|(name, _)| name.clone())
            };
            order.iter().filter(|id| due.contains(id)).find_map(waits)
        };
        let Some(name) = open.or_else(next) else { return Ok(()) };
        let Some(file) = self.files.get(&name).cloned() else { return Ok(()) };
        let Some(envelope) = self.envelope(world, &file)? else { return Ok(()) };
        let is_new = file.state == LadderState::Behind;
        self.place = reader.place;
        let (task, worker) = (file.task.clone(), reader.agent.clone());
        let order = DeliveryOrder::new(task, worker, envelope).with_config(reader.config);
        let pane = reader.pane.filter(|_| reader.count == 1);
        let mut leader =
            TaskDelivery::adopt(world, (name.clone(), file), order, pane.map(|p| p as _))?;
        self.files.remove(&name);
        if is_new {
            let data = json!({
                "id": leader.message, "mailbox": self.mailbox, "attempt": leader.ladder.attempt(),
            });
            leader.record(world, types::LADDER_BEGUN, data);
            self.set_pace(world, true)?;
            leader.nudge(world);
        }
        self.leader = Some(leader);
        Ok(())
    }

    /// The message of a ladder; that of the attempt before if the next is not stored yet.
    fn envelope(&self, world: &DeliveryContext<'_>, file: &LadderFile) -> Result<Option<Envelope>> {
        let ids = [Some(&file.message), file.replaced.as_ref()];
        for id in ids.into_iter().flatten() {
            if let Some(envelope) = allow_gone(world.queue().peek(&self.mailbox, id))? {
                return Ok(Some(envelope));
            }
        }
        Ok(None)
    }
}

fn held(found: &[Found]) -> usize {
    found.iter().filter(|found| matches!(found.state, State::Acked { .. })).count()
}

fn mark_acked(file: &mut LadderFile, clock: &dyn Clock) {
    file.state = LadderState::Acked;
    (file.boot, file.phase_began_ms) = (boot_id().to_owned(), boot_ms(clock));
    file.waits_for = None;
}
