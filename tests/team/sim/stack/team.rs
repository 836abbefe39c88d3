//! A worker's handshake and its delivery ladder, with right, wrong, late and doubled events.

use ensemble_core::pane::Deferral;
use ensemble_core::proto::ack::{Ladder, WorkerActivity};
use ensemble_core::proto::ready::{Handshake, PongToken, WindowDiagnosis, Workspace};
use ensemble_core::proto::{ack, ready};

use super::*;

/// Longer than every timeout.
const HORIZON: Duration = Duration::from_secs(12 * 60 * 60);
const _: () = assert!(ack::PARK_MAX.as_secs() < HORIZON.as_secs());

pub(super) struct Pair {
    name: Name,
    handshake: Handshake,
    ladder: Ladder,
    escalated: u32,
    /// State in which the worker was last seen.
    seen: WorkerActivity,
}

impl Pair {
    pub(super) fn new(name: Name) -> Self {
        let handshake = Handshake::new(name.clone(), ready::PingTimes::default());
        let ladder = Ladder::new("task", 1, ack::LadderSettings::default());
        Self { name, handshake, ladder, escalated: 0, seen: WorkerActivity::Unknown }
    }

    pub(super) fn next_due(&self) -> Option<Monotonic> {
        let due = [self.handshake.poll_timeout(), self.ladder.poll_timeout()];
        due.into_iter().flatten().min()
    }
}

impl World {
    /// A new assignment, possibly while the old one is open.
    pub(super) fn assign(&mut self, worker: usize) {
        let name = self.workers[worker].name.clone();
        let press_unknown = self.rng.percent(30);
        let config = ack::LadderSettings { press_unknown, ..Default::default() };
        let ladder = Ladder::new("task", 1, config);
        self.pairs[worker] = Pair { ladder, ..Pair::new(name) };
    }

    pub(super) fn team(&mut self, worker: usize) -> Result<(), String> {
        match self.rng.percent(50) {
            true => {
                let event = self.handshake_event(worker);
                self.handshake_told(worker, event)
            }
            false => {
                let event = self.ladder_event(worker);
                self.ladder_told(worker, event)
            }
        }
    }

    fn handshake_event(&mut self, worker: usize) -> ready::Event {
        let pair = &self.pairs[worker];
        let right = pair.handshake.attempt();
        let attempt = if self.rng.percent(75) { right } else { self.rng.below(4) as u8 };
        match self.rng.below(12) {
            0..4 => ready::Event::Started,
            4 | 5 => {
                let other = Name::new("stranger").expect("a name");
                let worker = if self.rng.percent(80) { pair.name.clone() } else { other };
                ready::Event::Pong(PongToken { worker, attempt })
            }
            6 => ready::Event::SendFailed { attempt, deferral: Deferral::Draft },
            7..11 => self.inspected(attempt),
            _ => ready::Event::OpenDone { attempt, ok: self.rng.percent(50) },
        }
    }

    fn inspected(&mut self, attempt: u8) -> ready::Event {
        let workspaces = [Workspace::Open, Workspace::Closed, Workspace::Unknown];
        let workspace = *self.rng.pick(&workspaces).expect("some");
        let observation = "a screen".to_owned();
        let seen = WindowDiagnosis { session_alive: true, workspace, obstacle: None, observation };
        let diagnosis = if self.rng.percent(80) { Ok(seen) } else { Err("hangs".to_owned()) };
        ready::Event::Inspected { attempt, diagnosis }
    }

    /// Answers a handshake's request at once, late, or never.
    fn handshake_answers(
        &mut self,
        worker: usize,
        effects: &[ready::Effect],
    ) -> Result<(), String> {
        for effect in effects {
            let answer = match *effect {
                ready::Effect::SendPing(ref ping) if self.rng.percent(20) => {
                    let attempt = ping.attempt;
                    ready::Event::SendFailed { attempt, deferral: Deferral::Draft }
                }
                ready::Effect::Inspect { attempt } if self.rng.percent(50) => {
                    self.inspected(attempt)
                }
                ready::Effect::SendOpen { attempt } if self.rng.percent(50) => {
                    ready::Event::OpenDone { attempt, ok: self.rng.percent(50) }
                }
                _ => continue,
            };
            self.handshake_told(worker, answer)?;
        }
        Ok(())
    }

    fn handshake_told(&mut self, worker: usize, event: ready::Event) -> Result<(), String> {
        let now = self.now();
        let pair = &mut self.pairs[worker];
        let (before, said) = (state_of(&pair.handshake), format!("{event:?}"));
        let attempt = pair.handshake.attempt();
        let is_its_pong = match &event {
            ready::Event::Pong(pong) => pong.worker == pair.name && pong.attempt == attempt,
            _ => false,
        };
        pair.handshake.handle(now, event);
        let effects = drain(&mut pair.handshake);
        let after = state_of(&pair.handshake);
        let becomes_ready = effects.iter().any(|e| matches!(e, ready::Effect::Ready { .. }));
        if becomes_ready && !is_its_pong {
            return Err(format!("{}: ready by {said} in attempt {attempt}", pair.name));
        }
        self.rows.note("ready", (&before, &said, &after), &printed(&effects))?;
        self.handshake_answers(worker, &effects)
    }

    fn ladder_event(&mut self, worker: usize) -> ack::Event {
        let right = self.pairs[worker].ladder.attempt();
        match self.rng.below(16) {
            0..5 => ack::Event::Started,
            5 => {
                let attempt = if self.rng.percent(60) { right } else { right + 1 };
                ack::Event::Ack { task: "task".to_owned(), attempt }
            }
            6 if self.rng.percent(30) => ack::Event::Undeliverable,
            7 if self.rng.percent(30) => ack::Event::Expired,
            _ => ack::Event::Seen(self.mood()),
        }
    }

    fn mood(&mut self) -> WorkerActivity {
        match self.rng.below(20) {
            0..9 => WorkerActivity::Idle,
            9..11 => WorkerActivity::Unknown,
            11..14 => WorkerActivity::Busy,
            14 => WorkerActivity::Asking,
            15 => WorkerActivity::HumanOccupied,
            16 => WorkerActivity::Crashed,
            17 => WorkerActivity::Limited { until: None },
            _ => {
                let until = self.now() + self.rng.time_below(Duration::from_secs(9_000));
                WorkerActivity::Limited { until: Some(until) }
            }
        }
    }

    fn ladder_told(&mut self, worker: usize, event: ack::Event) -> Result<(), String> {
        let now = self.now();
        let pair = &mut self.pairs[worker];
        if let ack::Event::Seen(seen) = &event {
            pair.seen = *seen;
        }
        let (before, said) = (state_of(&pair.ladder), format!("{event:?}"));
        pair.ladder.handle(now, event);
        self.ladder_effects(worker, &before, &said)
    }

    fn ladder_effects(&mut self, worker: usize, before: &str, said: &str) -> Result<(), String> {
        let pair = &mut self.pairs[worker];
        let effects = drain(&mut pair.ladder);
        let after = state_of(&pair.ladder);
        let mut looks = false;
        for effect in &effects {
            match effect {
                ack::Effect::Escalate(_) => pair.escalated += 1,
                ack::Effect::Acked { .. } if pair.escalated > 0 => {
                    return Err(format!("{}: acked after the conductor was told", pair.name));
                }
                ack::Effect::Nudge | ack::Effect::LeaveInputMode | ack::Effect::ResetContext
                    if said.starts_with("Seen") && !pair.seen.is_pressable() =>
                {
                    return Err(format!("{}: {effect:?} while {}", pair.name, pair.seen.word()));
                }
                ack::Effect::Inspect => looks = true,
                _ => {}
            }
        }
        if pair.escalated > 1 {
            return Err(format!("{}: the conductor was told {} times", pair.name, pair.escalated));
        }
        self.rows.note("ack", (before, said, &after), &printed(&effects))?;
        // The answer to an observation comes at once, late, or never.
        if looks && self.rng.percent(70) {
            let seen = ack::Event::Seen(self.mood());
            return self.ladder_told(worker, seen);
        }
        Ok(())
    }

    /// Lets time pass until no handshake and no ladder waits any more.
    pub(super) fn end_pairs(&mut self) -> Result<(), String> {
        let end = self.now() + HORIZON;
        loop {
            let due = |pair: &Pair| Some((pair.next_due()?, pair.name.clone()));
            let Some((due, name)) = self.pairs.iter().filter_map(due).min() else { return Ok(()) };
            if due > end {
                return Err(format!("{name}: it waits until {due:?}"));
            }
            self.clock.advance_to(due.max(self.now()));
            self.wake_pairs()?;
        }
    }

    pub(super) fn wake_pairs(&mut self) -> Result<(), String> {
        let now = self.now();
        for worker in 0..self.pairs.len() {
            let pair = &mut self.pairs[worker];
            if pair.handshake.poll_timeout().is_some_and(|due| now >= due) {
                let before = state_of(&pair.handshake);
                pair.handshake.handle_timeout(now);
                let effects = drain(&mut pair.handshake);
                let after = state_of(&pair.handshake);
                self.rows.note("ready", (&before, "Time", &after), &printed(&effects))?;
                self.handshake_answers(worker, &effects)?;
            }
            let pair = &mut self.pairs[worker];
            if pair.ladder.poll_timeout().is_some_and(|due| now >= due) {
                let before = state_of(&pair.ladder);
                pair.ladder.handle_timeout(now);
                self.ladder_effects(worker, &before, "Time")?;
            }
        }
        Ok(())
    }
}
