//! Types and presses what a delivery needs. Nothing here waits. The Enter of a line and the next key of a phase are
//! due later, as a deadline of the delivery. The ladder's next effect waits for it.
//!
//! ```text
//! phase 2   Escape  -- key gap -->  Escape  -- key gap -->  Ctrl-C  -- key gap -->  nudge
//! phase 3   reset  -- Enter delay -->  Enter  -- reset pause -->  the next attempt, nudge
//! ```
//!
//! Programs that read a terminal take bytes that arrive together for one key: Escape followed by
//! anything at once is Alt and that key. A worker that takes the task in the meantime is pressed no further.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use super::delivery::{DeliveryContext, TaskDelivery};
use crate::Result;
use crate::agent::EscalationStep;
use crate::agent::{TypedLine, TypingStep};
use crate::env::Monotonic;
use crate::event_log::types;
use crate::pane::{Deferral, Key, NudgeOutcome};
use crate::proto::ack::Phase;
use crate::spool::State;

/// How often a nudge is tried again that could not be typed.
const NUDGE_RETRY: Duration = Duration::from_secs(1);
/// Waiting messages are counted up to here for the words of a nudge.
const COUNT_MAX: usize = 100;

/// The largest part of a phase that the pause after a reset may take: 1 of this many.
const PAUSE_PART: u32 = 2;

pub(super) struct PendingKeystroke {
    pub(super) at: Monotonic,
    pub(super) then: NextKeystroke,
}

pub(super) enum NextKeystroke {
    Nudge,
    /// The Enter of a phase's reset.
    Reset(KeySequence),
    Key(KeySequence),
}

impl NextKeystroke {
    /// Whether a look at the mailbox must wait: the ladder speaks of the next attempt already, and the
    /// reset that it follows is not done.
    pub(super) const fn is_reset(&self) -> bool {
        match self {
            Self::Nudge => false,
            Self::Reset(pressing) | Self::Key(pressing) => {
                matches!(pressing.phase, Phase::ResetContext)
            }
        }
    }
}

pub(super) struct KeySequence {
    phase: Phase,
    pressed: Vec<EscalationStep>,
    left: VecDeque<EscalationStep>,
}

impl TaskDelivery<'_> {
    /// Tells the worker's pane of its mail; what cannot be typed now is tried again.
    pub(super) fn nudge(&mut self, world: &DeliveryContext<'_>) {
        if self.half.is_some() {
            return;
        }
        self.nudge = None;
        if self.prompt(world) {
            return self.nudged(world, Ok(NudgeOutcome::Sent));
        }
        let count =
            world.queue().count_due(self.mailbox(), COUNT_MAX).map_or(1, |count| count.max(1));
        let Some(pane) = &mut self.pane else { return };
        let mailbox = &self.order.envelope.to;
        let text = pane.program().nudge_text(mailbox, count, count >= COUNT_MAX);
        // The ladder's first nudge says what the watcher's second one says, at the same time.
        let line = match self.ladder.phase() {
            Phase::Nudge => TypedLine::Again(&text),
            Phase::Deliver | Phase::LeaveInputMode | Phase::ResetContext => TypedLine::Nudge(&text),
        };
        match pane.begin(line) {
            Ok(TypingStep::Done(outcome)) => self.nudged(world, Ok(outcome)),
            Ok(TypingStep::EnterAfter(delay)) => {
                self.wait_for_enter(world, delay, NextKeystroke::Nudge)
            }
            Err(error) => self.nudged(world, Err(error)),
        }
    }

    fn wait_for_enter(
        &mut self,
        world: &DeliveryContext<'_>,
        delay: Duration,
        then: NextKeystroke,
    ) {
        self.half = Some(PendingKeystroke { at: world.clock.monotonic() + delay, then });
    }

    /// Continues with keystrokes that were begun. A reset that is no longer needed is withdrawn.
    pub(super) fn go_on(&mut self, world: &DeliveryContext<'_>, half: PendingKeystroke) {
        match half.then {
            NextKeystroke::Nudge => {
                let Some(pane) = &mut self.pane else { return };
                let outcome = pane.finish(false);
                self.nudged(world, outcome);
            }
            NextKeystroke::Reset(pressing) => {
                // It is alive: it has taken the task while the command was being typed.
                let taken = self.is_answered(world);
                let Some(pane) = &mut self.pane else { return };
                let outcome = pane.finish(taken || self.ladder.is_over());
                self.stepped(world, pressing, EscalationStep::Reset, outcome);
            }
            NextKeystroke::Key(pressing) if pressing.left.is_empty() => {
                self.pressed(world, &pressing, &Value::Null);
            }
            NextKeystroke::Key(pressing) if self.ladder.is_over() || self.is_answered(world) => {
                let step = pressing.left.front();
                let refused = json!({ "step": step, "reason": "answered" });
                self.pressed(world, &pressing, &refused);
            }
            NextKeystroke::Key(pressing) => self.press_next(world, pressing),
        }
    }

    pub(super) fn is_answered(&self, world: &DeliveryContext<'_>) -> bool {
        matches!(self.find(world), Ok(Some(State::Acked { .. } | State::Settled)))
    }

    fn nudged(&mut self, world: &DeliveryContext<'_>, outcome: Result<NudgeOutcome>) {
        let reason =
            outcome.map_or_else(|error| Some(Deferral::of(&error)), NudgeOutcome::into_deferral);
        let phase = self.ladder.phase().number();
        let word = reason.as_ref().map(Deferral::word);
        let detail = reason.as_ref().map(ToString::to_string);
        let data =
            json!({ "phase": phase, "sent": word.is_none(), "reason": word, "detail": detail });
        self.record(world, types::LADDER_NUDGE, data);
        if let Some(why) = reason.filter(|why| !why.is_permanent()) {
            self.nudge = Some((world.clock.monotonic() + NUDGE_RETRY, why));
        }
    }

    /// Presses what the worker's profile has for a phase, up to the first key that is refused. The
    /// nudge that follows is asked for by the ladder itself.
    pub(super) fn press(&mut self, world: &DeliveryContext<'_>, phase: Phase) {
        let Some(pane) = &self.pane else { return };
        let escalation = &pane.program().escalation;
        let steps = match phase {
            Phase::ResetContext => &escalation.phase_3,
            Phase::Deliver | Phase::Nudge | Phase::LeaveInputMode => &escalation.phase_2,
        };
        let left = steps.iter().copied().filter(|s| *s != EscalationStep::Nudge).collect();
        let keys = KeySequence { phase, pressed: Vec::new(), left };
        match self.is_answered(world) {
            true => self.pressed(world, &keys, &json!({ "reason": "answered" })),
            false => self.press_next(world, keys),
        }
    }

    fn press_next(&mut self, world: &DeliveryContext<'_>, mut pressing: KeySequence) {
        let Some(pane) = &mut self.pane else { return };
        let Some(step) = pressing.left.pop_front() else {
            return self.pressed(world, &pressing, &Value::Null);
        };
        let outcome = match step {
            EscalationStep::Escape => pane.press(Key::Escape),
            EscalationStep::CtrlC => pane.press(Key::CtrlC),
            EscalationStep::Reset => match pane.begin(TypedLine::Reset) {
                Ok(TypingStep::Done(outcome)) => Ok(outcome),
                Ok(TypingStep::EnterAfter(delay)) => {
                    return self.wait_for_enter(world, delay, NextKeystroke::Reset(pressing));
                }
                Err(error) => Err(error),
            },
            EscalationStep::Nudge => Ok(NudgeOutcome::Sent),
        };
        self.stepped(world, pressing, step, outcome);
    }

    fn stepped(
        &mut self,
        world: &DeliveryContext<'_>,
        mut pressing: KeySequence,
        step: EscalationStep,
        outcome: Result<NudgeOutcome>,
    ) {
        let reason = match outcome.map(NudgeOutcome::into_deferral) {
            Ok(None) => {
                pressing.pressed.push(step);
                let pause = self.pause_after(step);
                return self.wait_for_enter(world, pause, NextKeystroke::Key(pressing));
            }
            Ok(Some(deferral)) => deferral.word().to_owned(),
            Err(error) => error.to_string(),
        };
        self.pressed(world, &pressing, &json!({ "step": step, "reason": reason }));
    }

    /// How long the worker's program needs after a step before anything else is typed.
    fn pause_after(&self, step: EscalationStep) -> Duration {
        let Some(pane) = &self.pane else { return Duration::ZERO };
        match step {
            EscalationStep::Escape | EscalationStep::CtrlC => pane.program().key_gap,
            EscalationStep::Reset => {
                let longest = self.order.config.phase_timeout / PAUSE_PART;
                pane.program().reset_pause.min(longest)
            }
            EscalationStep::Nudge => Duration::ZERO,
        }
    }

    fn pressed(&self, world: &DeliveryContext<'_>, pressing: &KeySequence, refused: &Value) {
        let KeySequence { phase, pressed, .. } = pressing;
        let data = json!({ "phase": phase.number(), "pressed": pressed, "refused": refused });
        self.record(world, types::LADDER_PRESSED, data);
    }
}
