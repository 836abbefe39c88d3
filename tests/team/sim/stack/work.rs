//! Tasks of the blackboard and steps of a queue, and the workers that act on them.

use ensemble_team::proto::{step, task};

use super::*;

pub(super) struct Cell {
    machine: task::TaskMachine,
    /// The highest epoch that was ever accepted.
    epoch: u64,
}

impl Cell {
    pub(super) fn new() -> Self {
        let limits = task::TaskLimits::with_max(3, 2);
        let machine =
            task::TaskMachine::new(task::State::Draft, task::TaskCounts::default(), limits);
        Self { machine, epoch: 0 }
    }

    pub(super) fn key(&self, at: usize) -> Option<Key> {
        match self.machine.state() {
            task::State::Claimed { holder, .. } => Some(Key('t', at, holder.epoch)),
            task::State::ReadyForReview { review: Some(holder), .. } => {
                Some(Key('r', at, holder.epoch))
            }
            _ => None,
        }
    }

    fn is_over(&self) -> bool {
        use task::State::{Abandoned, Merged, Superseded};
        matches!(self.machine.state(), Merged | Superseded | Abandoned)
    }
}

pub(super) struct Steps {
    machine: step::StepMachine,
}

impl Steps {
    pub(super) fn new() -> Self {
        Self { machine: step::StepMachine::new(3).with_fixer(true) }
    }

    pub(super) fn key(&self, at: usize) -> Option<Key> {
        let is_held = matches!(self.machine.state(), step::State::InProgress { .. });
        is_held.then(|| Key('s', at, self.machine.epoch()))
    }

    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.machine.poll_timeout()
    }
}

/// The epoch that an event states, if it states one.
fn epoch_of(event: &task::Event) -> Option<u64> {
    use task::Event;
    match event {
        Event::Iterate(holder) | Event::Block(Some(holder)) => Some(holder.epoch),
        Event::Submit { holder, .. }
        | Event::Approve { holder, .. }
        | Event::Reject { holder, .. } => Some(holder.epoch),
        Event::Expire { epoch } => Some(*epoch),
        _ => None,
    }
}

impl World {
    /// Applies an event to a task; returns whether it was accepted.
    fn task_event(&mut self, at: usize, event: task::Event) -> Result<bool, String> {
        let cell = &mut self.cells[at];
        let (before, key) = (cell.machine.state().clone(), cell.key(at));
        let acts_under = epoch_of(&event);
        if let task::Event::Claim(holder) | task::Event::Review(holder) = &event {
            cell.epoch = cell.epoch.max(holder.epoch);
        }
        let said = format!("{event:?}");
        let (effects, refused) = match cell.machine.clone().next(event) {
            Ok((machine, effects)) => {
                cell.machine = machine;
                (printed(&effects), false)
            }
            Err(refusal) => (vec![format!("Refused({refusal:?})")], true),
        };
        let after = cell.machine.state().clone();
        let current = key.map(|Key(_, _, epoch)| epoch);
        if acts_under.is_some() && acts_under != current && !refused && after != before {
            return Err(format!(
                "task {at}: {said} acted under an old epoch, {current:?} holds it"
            ));
        }
        if let Some(Key(_, _, epoch)) = cell.key(at).filter(|now| Some(*now) != key)
            && epoch < cell.epoch
        {
            return Err(format!("task {at}: the epoch went back to {epoch}"));
        }
        let (before, after) = (format!("{before:?}"), format!("{after:?}"));
        self.rows.note("task", (&before, &said, &after), &effects)?;
        Ok(!refused)
    }

    pub(super) fn task_lease_ended(&mut self, at: usize, epoch: u64) -> Result<(), String> {
        self.task_event(at, task::Event::Expire { epoch }).map(drop)
    }

    /// A worker claims a task, or continues with the one that it believes to hold.
    pub(super) fn work_on_task(&mut self, number: usize) -> Result<(), String> {
        if !self.workers[number].runs(self.now()) {
            return Ok(());
        }
        if let Some((at, epoch, commit)) = self.workers[number].review.clone() {
            return self.review(number, at, epoch, commit);
        }
        match self.workers[number].task {
            Some((at, epoch)) => self.go_on(number, at, epoch),
            None => self.take(number),
        }
    }

    fn take(&mut self, number: usize) -> Result<(), String> {
        let at = self.any_cell();
        let holder =
            task::TaskHolder { by: self.workers[number].name.clone(), epoch: self.draw_epoch() };
        let epoch = holder.epoch;
        if let task::State::ReadyForReview { commit, .. } = self.cells[at].machine.state() {
            let commit = commit.clone();
            if self.task_event(at, task::Event::Review(holder))? {
                self.workers[number].review = Some((at, epoch, commit));
                self.sign(Key('r', at, epoch), number);
            }
            return Ok(());
        }
        if self.task_event(at, task::Event::Claim(holder))? {
            self.workers[number].task = Some((at, epoch));
            self.sign(Key('t', at, epoch), number);
        }
        Ok(())
    }

    fn go_on(&mut self, number: usize, at: usize, epoch: u64) -> Result<(), String> {
        let by = self.workers[number].name.clone();
        let holder = task::TaskHolder { by, epoch };
        let (event, is_over) = match self.rng.below(20) {
            0..8 => (task::Event::Iterate(holder), false),
            8..16 => (task::Event::Submit { holder, commit: format!("c{epoch}") }, true),
            16..18 => (task::Event::Block(Some(holder)), true),
            // The worker hands the lease back.
            _ => (task::Event::Expire { epoch }, true),
        };
        let done = self.task_event(at, event)?;
        // A refused worker drops what was taken from it.
        if is_over || !done {
            self.workers[number].task = None;
        }
        Ok(())
    }

    fn review(
        &mut self,
        number: usize,
        at: usize,
        epoch: u64,
        commit: String,
    ) -> Result<(), String> {
        let holder = task::TaskHolder { by: self.workers[number].name.clone(), epoch };
        let event = match self.rng.below(10) {
            0..5 => task::Event::Approve { holder, commit },
            5..9 => task::Event::Reject { holder, commit },
            _ => task::Event::Expire { epoch },
        };
        self.task_event(at, event)?;
        self.workers[number].review = None;
        Ok(())
    }

    /// Actions of planners, supervisors and mergers, in or out of order.
    pub(super) fn plan(&mut self) -> Result<(), String> {
        let at = self.any_cell();
        let event = match self.rng.below(16) {
            0..4 => task::Event::Finalize,
            4..7 => task::Event::Merge,
            7..9 => task::Event::FailIntegration,
            9..11 => task::Event::Block(None),
            11..14 => task::Event::Unblock,
            14 => task::Event::Supersede,
            _ => task::Event::Abandon,
        };
        self.task_event(at, event)?;
        if self.cells[at].is_over() && self.rng.percent(80) {
            self.cells[at] = Cell::new();
        }
        Ok(())
    }

    fn any_cell(&mut self) -> usize {
        usize::try_from(self.rng.below(self.cells.len() as u64)).unwrap_or(0)
    }

    /// Applies an event to a step; returns whether it was accepted.
    fn step_event(&mut self, at: usize, event: step::Event) -> Result<bool, String> {
        let cell = &mut self.steps[at].machine;
        let (before, epoch) = (cell.state().clone(), cell.epoch());
        let said = format!("{event:?}");
        let acts_under = match &event {
            step::Event::Reported { epoch, .. } | step::Event::Beat { epoch, .. } => *epoch,
            step::Event::LeaseEnded { epoch } => Some(*epoch),
            _ => None,
        };
        cell.handle(self.clock.monotonic(), event);
        let effects = drain(cell);
        let refused = effects.iter().any(|effect| matches!(effect, step::Effect::Refused(_)));
        let after = cell.state().clone();
        if cell.epoch() < epoch || (refused && after != before) {
            return Err(format!("step {at}: {said} changed {before:?} to {after:?}, or its epoch"));
        }
        if acts_under.is_some_and(|under| under != epoch) && after != before {
            return Err(format!("step {at}: {said} acted under an old epoch, {epoch} is current"));
        }
        if matches!(before, step::State::Completed(_)) && after != before {
            return Err(format!("step {at}: {said} undid {before:?}"));
        }
        let (before, after) = (format!("{before:?}"), format!("{after:?}"));
        self.rows.note("step", (&before, &said, &after), &printed(&effects))?;
        Ok(!refused)
    }

    pub(super) fn step_lease_ended(&mut self, at: usize, epoch: u64) -> Result<(), String> {
        self.step_event(at, step::Event::LeaseEnded { epoch }).map(drop)
    }

    pub(super) fn work_on_step(&mut self, number: usize) -> Result<(), String> {
        if !self.workers[number].runs(self.now()) {
            return Ok(());
        }
        let by = self.workers[number].name.clone();
        let Some((at, epoch)) = self.workers[number].step else {
            let at = usize::try_from(self.rng.below(self.steps.len() as u64)).unwrap_or(0);
            if self.step_event(at, step::Event::Taken { by })? {
                let epoch = self.steps[at].machine.epoch();
                self.workers[number].step = Some((at, epoch));
                self.sign(Key('s', at, epoch), number);
            }
            return Ok(());
        };
        let (held, epoch) = (epoch, Some(epoch));
        let reported = |report| step::Event::Reported { by: by.clone(), epoch, report };
        let event = match self.rng.below(20) {
            0..5 => step::Event::Beat { by: by.clone(), epoch },
            5..10 => reported(step::StepReport::Success),
            10..15 => reported(step::StepReport::Failure { error: "x".to_owned() }),
            15..17 => reported(step::StepReport::Blocked { reasons: vec!["x".to_owned()] }),
            17 if self.rng.percent(50) => {
                reported(step::StepReport::Failure { error: String::new() })
            }
            17 => reported(step::StepReport::Blocked { reasons: Vec::new() }),
            // A late event for the lease of an earlier hand-out.
            18 => step::Event::LeaseEnded { epoch: held.saturating_sub(1) },
            _ => step::Event::Beat { by: by.clone(), epoch: None },
        };
        let goes_on = matches!(event, step::Event::Beat { .. } | step::Event::LeaseEnded { .. });
        let done = self.step_event(at, event)?;
        if !goes_on || !done {
            let still_held = self.steps[at].key(at).map(|Key(_, _, epoch)| epoch) == epoch;
            // A report without reasons was refused, and the worker still holds the step.
            self.workers[number].step = self.workers[number].step.filter(|_| still_held && !done);
        }
        Ok(())
    }

    /// Orders of an orchestrator, in or out of order.
    pub(super) fn order(&mut self) -> Result<(), String> {
        let at = usize::try_from(self.rng.below(self.steps.len() as u64)).unwrap_or(0);
        let event = match self.rng.below(11) {
            8.. => step::Event::FixDone,
            0..3 => step::Event::Unblocked,
            3..6 => step::Event::Retried,
            6 => step::Event::Skipped,
            _ => step::Event::Split,
        };
        self.step_event(at, event)?;
        if matches!(self.steps[at].machine.state(), step::State::Completed(_))
            && self.rng.percent(80)
        {
            let attempts = self.rng.below(3) as u32 + 1;
            // The next step of the queue: its epochs continue after the previous ones.
            let (state, epoch) = (step::State::Pending, self.steps[at].machine.epoch());
            self.steps[at].machine =
                step::StepMachine::restore(state, 0, epoch, attempts, self.now())
                    .with_fixer(self.rng.percent(50));
        }
        Ok(())
    }

    pub(super) fn wake_steps(&mut self) -> Result<(), String> {
        let now = self.now();
        for at in 0..self.steps.len() {
            let cell = &mut self.steps[at].machine;
            if cell.poll_timeout().is_some_and(|due| now >= due) {
                let before = format!("{:?}", cell.state());
                cell.handle_timeout(now);
                let effects = printed(&drain(cell));
                let after = format!("{:?}", cell.state());
                self.rows.note("step", (&before, "Time", &after), &effects)?;
            }
        }
        Ok(())
    }
}
