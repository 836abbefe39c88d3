//! One worker, and the three machines that supervise it.

use std::time::Duration;

use super::{Ends, Item, World};
use ensemble_core::env::{Monotonic, Pane, Transport};
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::pane::{Deferral, Key, NudgeOutcome, NudgeText};
use ensemble_core::proto::Machine;
use ensemble_core::proto::ack::{self, Ladder, WorkerActivity};
use ensemble_core::proto::ready::{
    self, Handshake, Ping, PingTimes, PongToken, WindowDiagnosis, Workspace,
};
use ensemble_core::sim::SimPane;
use ensemble_tmux::nudge::{self, NudgeSchedule};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Character {
    Healthy,
    /// Does not answer pings.
    Deaf,
    /// Answers pings and does not read its mail.
    Forgetful,
}

pub(super) struct Agent {
    number: usize,
    name: Name,
    hint: NudgeText,
    pane: SimPane,
    // The actual state.
    character: Character,
    doing: WorkerActivity,
    pongs: Vec<u8>,
    moods_left: u32,
    // The state that the machines know.
    handshake: Handshake,
    ladder: Ladder,
    schedule: NudgeSchedule,
    seen: WorkerActivity,
    wake: Option<Monotonic>,
    // The results.
    assigned: bool,
    refused: u32,
    acked: u32,
    escalated: u32,
    expired: bool,
}

impl Agent {
    pub(super) fn new(number: usize, world: &mut World) -> Self {
        let name = Name::new(format!("worker-{number}")).unwrap();
        world.transport.add_mailbox(&name);
        let character = match world.rng.below(10) {
            0 => Character::Deaf,
            1 => Character::Forgetful,
            _ => Character::Healthy,
        };
        let press_unknown = world.rng.percent(20);
        let agent = Self {
            number,
            hint: NudgeText::new("ensemble: mail").unwrap(),
            pane: SimPane::default(),
            character,
            doing: WorkerActivity::Idle,
            pongs: Vec::new(),
            moods_left: 40,
            handshake: Handshake::new(name.clone(), PingTimes::default()),
            ladder: Ladder::new(
                name.as_str(),
                1,
                ack::LadderSettings::default().with_press_unknown(press_unknown),
            ),
            schedule: NudgeSchedule::new(),
            name,
            seen: WorkerActivity::Unknown,
            wake: None,
            assigned: false,
            refused: 0,
            acked: 0,
            escalated: 0,
            expired: false,
        };
        let mut later = |most: u64, item| {
            let at = world.now() + world.rng.time_below(SECOND * most as u32);
            world.schedule(at, number, item);
        };
        later(100, Item::Mood);
        later(300, Item::Ready(ready::Event::Started));
        later(300, Item::NudgeSchedule(nudge::Event::Bound { binding: 1 }));
        if world.rng.percent(5) {
            let at = world.now() + world.rng.time_below(SECOND * 2_000);
            world.schedule(at, number, Item::Ladder(ack::Event::Expired));
        }
        agent
    }

    pub(super) fn happen(&mut self, world: &mut World, item: Item) {
        let now = world.now();
        match item {
            Item::Wake => {
                self.wake = self.wake.filter(|at| *at > now);
                self.handshake.handle_timeout(now);
                self.ladder.handle_timeout(now);
                self.schedule.handle_timeout(now);
            }
            Item::Mood => self.change_mood(world),
            Item::Ping(attempt) => {
                if self.takes_input() && self.character != Character::Deaf {
                    let at = now + world.rng.time_below(SECOND * 6);
                    world.schedule(at, self.number, Item::Answer(attempt));
                }
            }
            Item::Answer(attempt) => {
                self.pongs.push(attempt);
                let pong = PongToken { worker: self.name.clone(), attempt };
                let item = Item::Ready(ready::Event::Pong(pong));
                world.send(self.number, &item, SECOND * 4);
            }
            Item::Hint => {
                if self.takes_input() && self.character != Character::Forgetful {
                    let at = now + world.rng.time_below(SECOND * 5);
                    world.schedule(at, self.number, Item::Read);
                }
            }
            Item::Read => self.read(world),
            Item::Ready(event) => self.handshake.handle(now, event),
            Item::Ladder(event) => {
                if let ack::Event::Seen(worker) = &event {
                    self.seen = *worker;
                }
                self.expired |= event == ack::Event::Expired && !self.ladder.is_over();
                self.ladder.handle(now, event);
            }
            Item::NudgeSchedule(event) => self.schedule.handle(now, event),
        }
        let landed = self.pane.presses_count();
        self.perform(world);
        let untouched = self.pane.presses_count() == landed;
        assert!(untouched || self.doing.is_pressable(), "typed while {}", self.doing.word());
        self.sleep(world);
    }

    fn takes_input(&self) -> bool {
        matches!(self.doing, WorkerActivity::Idle | WorkerActivity::Busy)
    }

    fn change_mood(&mut self, world: &mut World) {
        self.doing = match world.rng.below(20) {
            0..8 => WorkerActivity::Idle,
            8..14 => WorkerActivity::Busy,
            14..16 => WorkerActivity::Asking,
            16 => WorkerActivity::HumanOccupied,
            17 => {
                let until = world.now() + world.rng.time_below(SECOND * 10_000);
                WorkerActivity::Limited { until: Some(until).filter(|_| world.rng.percent(50)) }
            }
            18 => WorkerActivity::Crashed,
            _ => WorkerActivity::Unknown,
        };
        self.pane.defer(match self.doing {
            WorkerActivity::Idle | WorkerActivity::Unknown => None,
            WorkerActivity::Busy => Some(Deferral::Busy),
            WorkerActivity::Asking => Some(Deferral::Dialog { name: "permission".to_owned() }),
            WorkerActivity::Limited { .. } => {
                Some(Deferral::NotReady { state: "limited".to_owned() })
            }
            WorkerActivity::HumanOccupied => Some(Deferral::Draft),
            WorkerActivity::Crashed => Some(Deferral::BareShell { command: "bash".to_owned() }),
        });
        if self.moods_left > 0 {
            self.moods_left -= 1;
            let most = *world.rng.pick(&[10, 100, 600]).unwrap();
            let at = world.now() + world.rng.time_below(SECOND * most);
            world.schedule(at, self.number, Item::Mood);
        }
        world.send(self.number, &Item::NudgeSchedule(nudge::Event::PaneChanged), SECOND * 3);
    }

    /// The worker takes one message and acks it; the ack may get lost.
    fn read(&mut self, world: &mut World) {
        let Some(delivery) = world.transport.receive(&self.name, &self.name).unwrap() else {
            return;
        };
        world.transport.settle(&delivery.lease).unwrap();
        let (task, attempt) = (self.name.to_string(), delivery.envelope.attempt.unwrap());
        let ack = Item::Ladder(ack::Event::Ack { task, attempt });
        world.send(self.number, &ack, SECOND * 20);
        self.look(world, 1);
    }

    fn look(&mut self, world: &mut World, taken: u64) {
        let waiting = world.transport.scan(&self.name).unwrap().queued;
        let mail = Item::NudgeSchedule(nudge::Event::Mail { waiting, taken });
        world.send(self.number, &mail, SECOND);
        // The poll finds what the watch has missed.
        world.schedule(world.now() + SECOND * 30, self.number, mail);
    }

    fn perform(&mut self, world: &mut World) {
        while let Some(effect) = self.handshake.poll_effect() {
            self.perform_ready(world, effect);
        }
        while let Some(effect) = self.ladder.poll_effect() {
            self.perform_ladder(world, effect);
        }
        while let Some(effect) = self.schedule.poll_effect() {
            self.perform_courier(world, effect);
        }
    }

    fn perform_ready(&mut self, world: &mut World, effect: ready::Effect) {
        let number = self.number;
        match effect {
            ready::Effect::SendPing(Ping { attempt, .. }) => {
                match self.pane.nudge(&self.hint).unwrap() {
                    NudgeOutcome::Sent => world.send(number, &Item::Ping(attempt), SECOND),
                    NudgeOutcome::TextOnly { deferral } | NudgeOutcome::Refused { deferral } => {
                        let failed = ready::Event::SendFailed { attempt, deferral };
                        world.send(number, &Item::Ready(failed), SECOND);
                        // The ping was also sent as a file.
                        world.send(number, &Item::Ping(attempt), SECOND);
                    }
                }
            }
            ready::Effect::Inspect { attempt } => {
                let workspace = match self.doing {
                    WorkerActivity::Crashed => Workspace::Closed,
                    _ => Workspace::Open,
                };
                let observation = self.doing.word().to_owned();
                let diagnosis = Ok(WindowDiagnosis {
                    session_alive: true,
                    workspace,
                    obstacle: None,
                    observation,
                });
                let event = ready::Event::Inspected { attempt, diagnosis };
                world.send(number, &Item::Ready(event), SECOND);
            }
            ready::Effect::SendOpen { attempt } => {
                // A pane's guard allows a start only where no program runs.
                let ok = self.doing == WorkerActivity::Crashed && world.rng.percent(80);
                let event = ready::Event::OpenDone { attempt, ok };
                world.send(number, &Item::Ready(event), SECOND);
            }
            ready::Effect::Ready { attempt } => {
                assert!(self.pongs.contains(&attempt), "assigned without a pong");
                assert_eq!(attempt, self.handshake.attempt(), "assigned on a stale pong");
                assert_eq!(self.refused, 0);
                self.assigned = true;
                self.ladder.handle(world.now(), ack::Event::Started);
            }
            ready::Effect::Failed(failure) => {
                assert_eq!(failure.attempt, 3);
                self.refused += 1;
            }
            ready::Effect::Record(_) => {}
        }
    }

    fn perform_ladder(&mut self, world: &mut World, effect: ack::Effect) {
        match effect {
            ack::Effect::Deliver { attempt } => {
                assert!(self.assigned, "delivered without an assignment");
                let id = MessageId::new(format!("{}-{attempt}", self.name)).unwrap();
                let task =
                    Envelope::new(self.name.clone(), "do it").with_id(id).with_attempt(attempt);
                world.transport.publish(&task).unwrap();
                self.look(world, 0);
            }
            ack::Effect::Inspect => {
                // The pane is observed now, and the result arrives a little later.
                let seen = Item::Ladder(ack::Event::Seen(self.doing));
                world.send(self.number, &seen, SECOND);
            }
            ack::Effect::Nudge => {
                self.press(None);
                world.send(self.number, &Item::Hint, SECOND);
            }
            ack::Effect::LeaveInputMode => {
                for key in ack::GENERIC_LEAVE_INPUT_MODE {
                    self.press(Some(key));
                }
            }
            ack::Effect::ResetContext => self.press(Some(Key::Enter)),
            ack::Effect::Acked { .. } => {
                assert_eq!(self.escalated, 0, "acked after the conductor was told");
                self.acked += 1;
            }
            ack::Effect::Escalate(_) => {
                assert_eq!(self.acked, 0, "escalated although acked");
                self.escalated += 1;
            }
            ack::Effect::Record(_) => {}
        }
    }

    /// Presses a key or types a hint for the ladder.
    fn press(&mut self, key: Option<Key>) {
        assert!(self.seen.is_pressable(), "pressed while {}", self.seen.word());
        match key {
            Some(key) => self.pane.press(key).unwrap(),
            None => self.pane.nudge(&self.hint).unwrap(),
        };
    }

    fn perform_courier(&mut self, world: &mut World, effect: nudge::Effect) {
        let (attempt, outcome) = match effect {
            nudge::Effect::Nudge { attempt, .. } => {
                if self.doing == WorkerActivity::Idle && world.rng.percent(5) {
                    let deferral = Deferral::Moved;
                    self.pane.answer_next(NudgeOutcome::TextOnly { deferral });
                }
                (attempt, self.pane.nudge(&self.hint).unwrap())
            }
            nudge::Effect::Submit { attempt, .. } => {
                (attempt, self.pane.press(Key::Enter).unwrap())
            }
            nudge::Effect::Withdraw { attempt } => {
                (attempt, NudgeOutcome::Refused { deferral: Deferral::LineGone })
            }
            nudge::Effect::Record(_) => return,
        };
        if outcome == NudgeOutcome::Sent {
            world.send(self.number, &Item::Hint, SECOND);
        }
        let outcome = Item::NudgeSchedule(nudge::Event::Outcome { attempt, outcome });
        world.send(self.number, &outcome, SECOND * 2);
    }

    /// Schedules a wake-up at the next deadline; early wake-ups do nothing.
    fn sleep(&mut self, world: &mut World) {
        let over = self.refused > 0 || (self.assigned && self.ladder.is_over());
        let schedule = if over { None } else { self.schedule.poll_timeout() };
        let deadlines = [self.handshake.poll_timeout(), self.ladder.poll_timeout(), schedule];
        let next = deadlines.into_iter().flatten().min();
        if let Some(next) = next.filter(|next| self.wake.is_none_or(|wake| *next < wake)) {
            self.wake = Some(next);
            world.schedule(next, self.number, Item::Wake);
        }
    }

    pub(super) fn count(&self, ends: &mut Ends) {
        ends.refused += self.refused;
        ends.acked += self.acked;
        ends.escalated += self.escalated;
        ends.expired += u32::from(self.expired);
    }

    pub(super) fn check_end(&self) {
        let name = &self.name;
        assert!(self.handshake.is_over(), "{name}: the handshake never ended");
        assert_eq!(self.assigned, self.refused == 0, "{name}: assigned and refused");
        assert!(self.refused <= 1 && self.acked <= 1 && self.escalated <= 1, "{name}: twice");
        let ends = self.refused + self.acked + self.escalated + u32::from(self.expired);
        assert!(ends >= 1, "{name}: the task never ended");
        assert!(self.expired || ends == 1, "{name}: the task ended {ends} times");
        assert!(!self.assigned || self.ladder.is_over(), "{name}: the ladder never ended");
        let status = self.schedule.status();
        assert!(status.nudges <= nudge::NUDGES_MAX, "{name}: {} lines", status.nudges);
    }
}
