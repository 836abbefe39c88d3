//! Property test: no matter what a person or the agent does between our text and our Enter, an idle agent with an
//! empty composer and unread mail is nudged within its pace.

use proptest::prelude::*;

use super::*;
use ensemble_core::pane::NudgeOutcome;
use ensemble_core::proto::testing::{at, drain};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Composer {
    Empty,
    Ours,
    /// Something that a person has typed, perhaps behind our line.
    Theirs,
}

/// An event in the pane while the schedule waits or a line is half typed.
#[derive(Clone, Copy, Debug)]
enum Act {
    Key,
    Enter,
    /// Ctrl-U, or as many backspaces.
    Delete,
    /// The agent works, or asks.
    Busy,
    Idle,
    /// A person scrolls; leaves copy-mode.
    Scroll,
    Unscroll,
    /// Time passes, in seconds.
    Wait(u64),
    /// More mail; a message is taken.
    Mail,
    Take,
}

/// A pane as the contract of the effects has it.
struct Pane {
    composer: Composer,
    is_idle: bool,
    scrolls: bool,
    submitted: usize,
}

impl Pane {
    fn act(&mut self, act: Act) {
        match act {
            Act::Key => self.composer = Composer::Theirs,
            Act::Enter if self.composer != Composer::Empty && self.is_idle => {
                (self.composer, self.is_idle) = (Composer::Empty, false);
            }
            Act::Delete => self.composer = Composer::Empty,
            Act::Busy => self.is_idle = false,
            Act::Idle => self.is_idle = true,
            Act::Scroll => self.scrolls = true,
            Act::Unscroll => self.scrolls = false,
            Act::Enter | Act::Wait(_) | Act::Mail | Act::Take => {}
        }
    }

    fn objection(&self) -> Option<Deferral> {
        match self {
            Self { scrolls: true, .. } => Some(Deferral::CopyMode),
            Self { is_idle: false, .. } => Some(Deferral::Busy),
            _ => None,
        }
    }

    /// Presses Enter if the composer contains exactly our line.
    fn enter(&mut self) -> Result<(), Deferral> {
        if let Some(deferral) = self.objection() {
            return Err(deferral);
        }
        match self.composer {
            Composer::Empty => Err(Deferral::LineGone),
            Composer::Theirs => Err(Deferral::Draft),
            Composer::Ours => {
                self.composer = Composer::Empty;
                self.submitted += 1;
                Ok(())
            }
        }
    }

    /// Takes our line back if nothing else is in the composer.
    fn withdraw(&mut self) -> Deferral {
        if let Some(deferral) = self.objection() {
            return deferral;
        }
        match self.composer {
            Composer::Theirs => Deferral::Draft,
            Composer::Empty | Composer::Ours => {
                self.composer = Composer::Empty;
                Deferral::LineGone
            }
        }
    }

    /// Does what the schedule wants; `between` happens between text and Enter.
    fn perform(&mut self, effect: &Effect, between: &[Act]) -> Option<NudgeOutcome> {
        let result = match effect {
            Effect::Record(_) => return None,
            Effect::Submit { .. } => self.enter(),
            Effect::Withdraw { .. } => Err(self.withdraw()),
            Effect::Nudge { .. } => match (self.objection(), self.composer) {
                (Some(deferral), _) => Err(deferral),
                (None, Composer::Theirs) => Err(Deferral::Draft),
                (None, Composer::Empty | Composer::Ours) => {
                    self.composer = Composer::Ours;
                    between.iter().for_each(|act| self.act(*act));
                    let pressed = self.enter();
                    return Some(match pressed {
                        Ok(()) => NudgeOutcome::Sent,
                        Err(deferral) => NudgeOutcome::TextOnly { deferral },
                    });
                }
            },
        };
        Some(match result {
            Ok(()) => NudgeOutcome::Sent,
            Err(deferral) => NudgeOutcome::Refused { deferral },
        })
    }
}

struct Play {
    schedule: NudgeSchedule,
    pane: Pane,
    now: Monotonic,
    waiting: u64,
}

impl Play {
    fn new() -> Self {
        let pane = Pane { composer: Composer::Empty, is_idle: true, scrolls: false, submitted: 0 };
        let (now, mut schedule) = (at(1), NudgeSchedule::new());
        schedule.handle(now, Event::Bound { binding: 1 });
        Self { schedule, pane, now, waiting: 0 }
    }

    fn mail(&mut self, waiting: u64, taken: u64) {
        self.waiting = waiting;
        self.schedule.handle(self.now, Event::Mail { waiting, taken });
    }

    fn perform(&mut self, between: &[Act]) {
        loop {
            let effects = drain(&mut self.schedule);
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                if let Some(outcome) = self.pane.perform(&effect, between) {
                    let attempt = self.schedule.attempt;
                    self.schedule.handle(self.now, Event::Outcome { attempt, outcome });
                }
            }
        }
    }

    /// Lets time pass until the schedule wants something, or until `until`.
    fn wait(&mut self, until: Monotonic, between: &[Act]) {
        while let Some(due) = self.schedule.poll_timeout().filter(|due| *due <= until) {
            self.now = due.max(self.now);
            self.schedule.handle_timeout(self.now);
            self.perform(between);
        }
        self.now = until.max(self.now);
    }

    fn act(&mut self, act: Act, between: &[Act]) {
        self.pane.act(act);
        match act {
            Act::Wait(seconds) => self.wait(self.now + Duration::from_secs(seconds), between),
            Act::Mail => self.mail(self.waiting + 1, 0),
            Act::Take if self.waiting > 0 => self.mail(self.waiting - 1, 1),
            _ => {}
        }
        self.perform(between);
    }

    /// Once the agent is idle with an empty composer, it must be nudged about its mail within the pace.
    fn is_told_at_last(&mut self) -> Result<(), TestCaseError> {
        for act in [Act::Unscroll, Act::Delete, Act::Idle] {
            self.pane.act(act);
        }
        if self.waiting == 0 {
            self.mail(1, 0);
            self.perform(&[]);
        }
        let before = self.pane.submitted;
        let was_told = self.schedule.nudges;
        if self.schedule.state == State::Unanswered || was_told >= NUDGES_MAX {
            return Ok(());
        }
        let pace = match self.schedule.state {
            State::Told { repeat_at } => repeat_at.since(self.now),
            _ => RETRY_MAX + RETRY_MAX,
        };
        prop_assert!(pace <= NUDGE_REPEAT_MAX);
        self.wait(self.now + pace, &[]);
        let told = self.pane.submitted > before || was_told < self.schedule.nudges;
        prop_assert!(told, "{:?}", self.schedule.status());
        Ok(())
    }
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Key),
        Just(Act::Enter),
        Just(Act::Delete),
        Just(Act::Busy),
        Just(Act::Idle),
        Just(Act::Scroll),
        Just(Act::Unscroll),
        (0..90_u64).prop_map(Act::Wait),
        Just(Act::Mail),
        Just(Act::Take),
    ]
}

/// The acts of a person or the agent within a gap.
fn any_gap() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        Just(Act::Key),
        Just(Act::Enter),
        Just(Act::Delete),
        Just(Act::Busy),
        Just(Act::Idle),
        Just(Act::Scroll),
    ];
    prop::collection::vec(act, 0..4)
}

proptest! {
    /// When nothing waits and the agent is idle, our line is not left behind.
    #[test]
    fn no_line_is_left_behind(acts in prop::collection::vec((any_act(), any_gap()), 0..40)) {
        let mut play = Play::new();
        for (act, between) in acts {
            play.act(act, &between);
        }
        for act in [Act::Unscroll, Act::Idle] {
            play.pane.act(act);
        }
        play.mail(0, play.waiting);
        play.perform(&[]);
        play.wait(play.now + RETRY_MAX + OUTCOME_PATIENCE, &[]);
        prop_assert_ne!(play.pane.composer, Composer::Ours, "{:?}", play.schedule.status());
    }

    #[test]
    fn an_idle_agent_with_mail_is_told(
        acts in prop::collection::vec((any_act(), any_gap()), 0..40),
    ) {
        let mut play = Play::new();
        for (act, between) in acts {
            play.act(act, &between);
        }
        play.is_told_at_last()?;
    }
}

/// The three ways that were seen with real agents, one by one.
#[test]
fn a_person_in_the_gap_delays_the_line_and_no_more() {
    for gap in [&[Act::Key, Act::Enter][..], &[Act::Enter], &[Act::Delete], &[Act::Key]] {
        let mut play = Play::new();
        play.act(Act::Mail, gap);
        assert_eq!(play.pane.submitted, 0, "{gap:?}");
        let met = play.now;
        play.is_told_at_last().expect("told");
        assert_eq!(play.pane.submitted, 1, "{gap:?}");
        assert!(play.now.since(met) <= RETRY_MAX + RETRY_MAX, "{gap:?}");
    }
}
