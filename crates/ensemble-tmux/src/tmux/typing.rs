//! Lines that are typed into a pane: a nudge, a ping, the command that resets an agent.
//!
//! ```text
//! text under the guard -> the profile's delay -> Enter under the guard, if exactly the text stands there
//!                                             -> another look after DRAW_STEP, while it is not shown yet
//!                                             -> TextOnly: it stands there, and is known again
//! ```
//!
//! The pane itself remembers what we have typed and not submitted (`mark`). A line of that mark
//! which is in the composer alone is ours. The same kind of line is submitted, any other takes
//! it back first. Without it, a person has sent or deleted it, and a new line may be typed. That
//! waits for [`LINE_PATIENCE`], since an agent may be slow to show what it was sent.
//!
//! An agent may put a line back that was submitted: its turn was interrupted, or its request failed. So the last
//! nudge that was submitted is ours, too, where it is in the composer alone.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::TmuxPane;
use super::failure::TmuxFailure;
use super::guard::{pasting, pressing, typing};
use super::lock::{LOCK_LIMIT, PaneLock};
use super::mark::{LineMark, PaneMarks, SENT_OPTION, TYPED_OPTION};
use super::pane::{key_name, outcome};
use super::quick::nudged_at_once;
use super::quote::quote;
use crate::provider::{self, Profile, TypingPurpose, UnsentLine};
use ensemble_core::Result;
use ensemble_core::agent::{AgentDiagnosis, AgentPane, ProgramSettings, TypedLine, TypingStep};
use ensemble_core::pane::{Deferral, Key, NudgeOutcome, NudgeText, PaneState};

/// How long an agent may take to show a line that was typed. A composer that is empty for longer has
/// lost it.
pub const LINE_PATIENCE: Duration = Duration::from_secs(3);
/// How long after a line was typed its Enter waits for the agent to show it.
const DRAW_PATIENCE: Duration = Duration::from_millis(500);
/// The time between two looks at a line that is not shown yet.
const DRAW_STEP: Duration = Duration::from_millis(10);
/// For how long a repeated nudge is left out after any process has submitted one. It is half of the
/// shortest time after which a nudge is repeated.
pub const SHARED_PACE: Duration = Duration::from_secs(30);
const PING: &str = "AGENT_TEAM_PING ";

#[derive(Debug)]
pub enum TextOutcome {
    /// The profile needs no delay: text and Enter went together, nothing is left to do.
    Sent,
    /// The text is in the pane. Call [`TmuxPane::nudge_enter`] once [`TypedNudge::enter_after`]
    /// has passed; until then, or until this is dropped, no other process types into the pane.
    Typed(TypedNudge),
    /// Nothing was typed.
    Refused { deferral: Deferral },
}

impl From<NudgeOutcome> for TextOutcome {
    /// The outcome of a line whose text and Enter were sent together.
    fn from(outcome: NudgeOutcome) -> Self {
        match outcome {
            NudgeOutcome::Sent => Self::Sent,
            NudgeOutcome::TextOnly { deferral } | NudgeOutcome::Refused { deferral } => {
                Self::Refused { deferral }
            }
        }
    }
}

/// A text that was typed and waits for its Enter. Holds the pane's lock.
#[derive(Debug)]
pub struct TypedNudge {
    text: String,
    typed_at: Instant,
    /// When Enter may follow: an agent takes an earlier one for part of a paste.
    pub enter_after: Instant,
    #[expect(dead_code, reason = "held, not used")]
    lock: PaneLock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    Nudge,
    Ping,
    Reset,
}

impl LineKind {
    fn of(text: &str) -> Self {
        match text {
            text if text.starts_with('/') => Self::Reset,
            text if text.starts_with(PING) => Self::Ping,
            _ => Self::Nudge,
        }
    }
}

impl TmuxPane {
    /// The first half of a nudge: types the text, and submits it at once if the profile needs no
    /// delay. For callers with many panes, who do something else during the delay.
    pub fn nudge_text(&mut self, text: &NudgeText) -> Result<TextOutcome> {
        self.type_text(text.as_str(), TypingPurpose::Nudge, LOCK_LIMIT)
    }

    /// The same pane, judged by a profile under which a line steers the running turn.
    pub fn steered(&mut self, steering: Arc<Profile>) -> &mut Self {
        self.observer.replace_profile(steering);
        self
    }

    /// As [`TmuxPane::nudge_text`], but ignores a usage limit that does not say when it ends: the line finds out
    /// whether that has passed.
    pub fn probe_text(&mut self, text: &NudgeText) -> Result<TextOutcome> {
        self.type_text(text.as_str(), TypingPurpose::Probe, LOCK_LIMIT)
    }

    /// As [`TmuxPane::nudge_text`], for a nudge that only repeats an earlier one: [`TextOutcome::Sent`] without
    /// typing if any process of the team has submitted one within [`SHARED_PACE`].
    pub fn nudge_again(&mut self, text: &NudgeText) -> Result<TextOutcome> {
        if self.has_been_told() { Ok(TextOutcome::Sent) } else { self.nudge_text(text) }
    }

    fn has_been_told(&self) -> bool {
        let is_nudge = |sent: &LineMark| LineKind::of(&sent.text) == LineKind::Nudge;
        self.marks().sent.is_some_and(|sent| is_nudge(&sent) && sent.age() < SHARED_PACE)
    }

    /// Withdraws a line that was typed and not submitted, because its mail has been received in another way. Anything
    /// else in the composer is a person's draft, and stays. Returns [`Deferral::LineGone`] if no line is left there,
    /// otherwise what was in the way.
    pub fn withdraw_line(&mut self) -> Result<Deferral> {
        const OPERATION: &str = "take back a line";
        let _lock = match self.lock(OPERATION, LOCK_LIMIT)? {
            Ok(lock) => lock,
            Err(deferral) => return Ok(deferral),
        };
        let mut marks = self.marks();
        // An agent may be slow to clear its composer, and a person's first keys may follow.
        marks.sent = marks.sent.filter(|sent| sent.age() >= LINE_PATIENCE);
        if marks == PaneMarks::default() {
            return Ok(Deferral::LineGone);
        }
        let state = match self.observe_pane() {
            Ok((_, state)) => state,
            Err(failure) => return self.refusal(OPERATION, failure),
        };
        match self.our_line(marks, &state) {
            Some(line) => Ok(self.take_back(&line.text)?.unwrap_or(Deferral::LineGone)),
            None => Ok(self
                .examine(&[TypingPurpose::Nudge])?
                .objections
                .pop()
                .flatten()
                .unwrap_or(Deferral::LineGone)),
        }
    }

    /// Withdraws our ping that is in the composer; whether one did.
    pub fn withdraw_ping(&mut self) -> Result<bool> {
        let Ok(_lock) = self.lock("take back a ping", LOCK_LIMIT)? else { return Ok(false) };
        match self.marks().typed.filter(|typed| LineKind::of(&typed.text) == LineKind::Ping) {
            Some(ping) => Ok(self.take_back(&ping.text)?.is_none()),
            None => Ok(false),
        }
    }

    /// Types the profile's reset command and submits it, in the same way as a nudge and only where
    /// a nudge would be typed. The agent forgets its context: what it held must be delivered again.
    pub fn reset_context(&mut self) -> Result<NudgeOutcome> {
        let typed = self.reset_text(LOCK_LIMIT)?;
        self.submit_typed(typed)
    }

    fn reset_text(&mut self, patience: Duration) -> Result<TextOutcome> {
        let Some(command) = self.profile().reset_command().map(str::to_owned) else {
            let detail = format!("the profile {} has no reset command", self.profile().name());
            return Err(self.server.error("reset an agent", TmuxFailure::Refused(detail)));
        };
        self.type_text(&command, TypingPurpose::Nudge, patience)
    }

    fn type_text(
        &mut self,
        text: &str,
        purpose: TypingPurpose<'_>,
        patience: Duration,
    ) -> Result<TextOutcome> {
        const OPERATION: &str = "type a nudge";
        let line = LineKind::of(text);
        // A command of the program is recognized while it is typed.
        let pasted = self.profile().paste_delay.filter(|_| line != LineKind::Reset);
        let delay = pasted.map_or_else(|| self.profile().enter_delay, |delay| delay.max(DRAW_STEP));
        let refused = |deferral| Ok(TextOutcome::Refused { deferral });
        let lock = match self.lock(OPERATION, patience)? {
            Ok(lock) => lock,
            Err(deferral) => return refused(deferral),
        };
        if delay.is_zero() && line == LineKind::Nudge && self.binding.is_same_process() {
            match nudged_at_once(&self.server, &self.binding, self.profile(), text) {
                Ok(true) => return Ok(TextOutcome::Sent),
                // Nothing was typed; the long way finds out why, and whether it may be.
                Ok(false) => {}
                Err(failure) => return refused(self.refusal(OPERATION, failure)?),
            }
        }
        let mut commands = match pasted {
            Some(_) => pasting(&self.binding, text),
            None => typing(&self.binding, text, delay.is_zero()),
        };
        let mut marks = PaneMarks::default();
        if !delay.is_zero() {
            commands = format!("{commands} ; {}", self.remembering(TYPED_OPTION, text));
            marks = self.marks();
        }
        // The screen may not show it yet, and typing it again would duplicate it.
        let is_recent = marks.typed.as_ref().is_some_and(|typed| typed.age() < LINE_PATIENCE);
        let judged = match is_recent {
            true => self.examine(&[purpose])?.objections.pop().flatten(),
            false => self.judged(OPERATION, purpose, &commands)?,
        };
        match judged {
            // The draft may be our earlier line whose Enter was deferred.
            Some(Deferral::Draft) => self.standing(text, marks, lock),
            Some(deferral) => refused(deferral),
            None if is_recent => refused(Deferral::LineGone),
            None if delay.is_zero() => Ok(TextOutcome::Sent),
            None => {
                let (text, typed_at) = (text.to_owned(), Instant::now());
                let enter_after = typed_at + delay;
                Ok(TextOutcome::Typed(TypedNudge { text, typed_at, enter_after, lock }))
            }
        }
    }

    /// Looks, lets the profile judge, and has `commands` carried out under the guard.
    pub(super) fn judged(
        &mut self,
        operation: &'static str,
        purpose: TypingPurpose<'_>,
        commands: &str,
    ) -> Result<Option<Deferral>> {
        let outcome = self.try_judged(purpose, commands);
        self.settle(operation, outcome)
    }

    fn try_judged(
        &mut self,
        purpose: TypingPurpose<'_>,
        commands: &str,
    ) -> Result<Option<Deferral>, TmuxFailure> {
        // Asked before looking, so that nothing slow comes between the look and the keys.
        let heard = self.ask();
        let (snapshot, state) = self.observe_pane()?;
        let diagnosis = self.judge(&state, &heard);
        if let Some(deferral) = diagnosis.objection(self.profile(), &state, purpose) {
            return Ok(Some(deferral));
        }
        self.server.act_guarded(&self.binding, &snapshot.identity, commands)
    }

    /// Handles a line that is in the composer where another one is to be typed.
    fn standing(&mut self, wanted: &str, marks: PaneMarks, lock: PaneLock) -> Result<TextOutcome> {
        let refused = |deferral| Ok(TextOutcome::Refused { deferral });
        let Ok((_, state)) = self.observe_pane() else { return refused(Deferral::Draft) };
        let Some(typed) = self.our_line(marks, &state) else { return refused(Deferral::Draft) };
        let is_ping = LineKind::of(wanted) == LineKind::Ping;
        if LineKind::of(&typed.text) != LineKind::of(wanted) || (is_ping && typed.text != wanted) {
            // The next try finds an empty composer. An older ping asks for an answer that is late.
            return refused(self.take_back(&typed.text)?.unwrap_or(Deferral::Moved));
        }
        let left = self.profile().enter_delay.saturating_sub(typed.age());
        let typed_at = Instant::now();
        let (text, enter_after) = (typed.text, typed_at + left);
        Ok(TextOutcome::Typed(TypedNudge { text, typed_at, enter_after, lock }))
    }

    /// How the composer shows our unsent line. One that was just typed still waits for its Enter, even if a person types
    /// behind it.
    pub(super) fn unsent_line(&self, state: &PaneState) -> UnsentLine {
        let marks = self.marks();
        if self.our_line(marks.clone(), state).is_some() {
            return UnsentLine::Alone;
        }
        let left = marks.typed.filter(|typed| typed.age() >= LINE_PATIENCE);
        left.map_or(UnsentLine::Absent, |typed| {
            UnsentLine::find(self.profile(), state, &typed.text)
        })
    }

    fn our_line(&self, marks: PaneMarks, state: &PaneState) -> Option<LineMark> {
        let restored = marks.sent.filter(|sent| LineKind::of(&sent.text) == LineKind::Nudge);
        let mut ours = [marks.typed, restored].into_iter().flatten();
        ours.find(|line| provider::stands_alone(self.profile(), state, &line.text))
    }

    /// Deletes `text` from the composer, if there is nothing else in it. `None` if that was done.
    fn take_back(&mut self, text: &str) -> Result<Option<Deferral>> {
        let erasing = format!(
            "send-keys -t {} -N {} BSpace ; {}",
            quote(&self.binding.id),
            text.chars().count(),
            self.forgetting(TYPED_OPTION)
        );
        self.judged("take back a line", TypingPurpose::Submit { text }, &erasing)
    }

    /// The second half: presses Enter if the text is still right before the cursor and nothing was typed in between.
    /// Waits until [`TypedNudge::enter_after`] if it is called early.
    pub fn nudge_enter(&mut self, mut typed: TypedNudge) -> Result<NudgeOutcome> {
        loop {
            thread::sleep(typed.enter_after.saturating_duration_since(Instant::now()));
            typed = match self.enter_if_shown(typed)? {
                Ok(outcome) => return Ok(outcome),
                Err(later) => later,
            };
        }
    }

    /// As [`TmuxPane::nudge_enter`], for callers with many panes. `Err` with the half that is still to do: the agent
    /// has not shown the line yet. Call it again once [`TypedNudge::enter_after`] has passed.
    pub fn enter_if_shown(
        &mut self,
        mut typed: TypedNudge,
    ) -> Result<std::result::Result<NudgeOutcome, TypedNudge>> {
        const OPERATION: &str = "submit a nudge";
        let commands = self.submitting(&typed.text);
        let purpose = TypingPurpose::Submit { text: &typed.text };
        let Some(deferral) = self.judged(OPERATION, purpose, &commands)? else {
            return Ok(Ok(NudgeOutcome::Sent));
        };
        // The cursor moves while the program draws.
        let may_come = matches!(deferral, Deferral::LineGone | Deferral::Moved);
        if may_come && typed.typed_at.elapsed() < DRAW_PATIENCE {
            typed.enter_after = Instant::now() + DRAW_STEP;
            return Ok(Err(typed));
        }
        Ok(Ok(NudgeOutcome::TextOnly { deferral }))
    }

    /// The commands that press Enter behind a line and have the pane remember it as submitted.
    fn submitting(&self, text: &str) -> String {
        let enter = pressing(&self.binding, key_name(Key::Enter));
        let (over, sent) = (self.forgetting(TYPED_OPTION), self.remembering(SENT_OPTION, text));
        format!("{enter} ; {over} ; {sent}")
    }

    pub(super) fn submit_typed(&mut self, typed: TextOutcome) -> Result<NudgeOutcome> {
        match typed {
            TextOutcome::Sent => Ok(NudgeOutcome::Sent),
            TextOutcome::Refused { deferral } => Ok(NudgeOutcome::Refused { deferral }),
            TextOutcome::Typed(typed) => self.nudge_enter(typed),
        }
    }

    /// Submits a text that an earlier nudge has left in the composer ([`NudgeOutcome::TextOnly`]): presses Enter if
    /// exactly that text, and nothing else, is before the cursor.
    pub fn submit(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        const OPERATION: &str = "submit a nudge";
        let _lock = match self.lock(OPERATION, LOCK_LIMIT)? {
            Ok(lock) => lock,
            Err(deferral) => return Ok(NudgeOutcome::Refused { deferral }),
        };
        let commands = self.submitting(text.as_str());
        let purpose = TypingPurpose::Submit { text: text.as_str() };
        Ok(outcome(self.judged(OPERATION, purpose, &commands)?))
    }
}

impl AgentPane for TmuxPane {
    fn program(&self) -> &ProgramSettings {
        self.profile().program()
    }

    fn diagnose(&mut self) -> Result<AgentDiagnosis> {
        Self::diagnose(self).map(|judgement| judgement.diagnosis)
    }

    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        Self::reset_context(self)
    }

    /// Does not wait either for a process that is typing into the pane.
    fn begin(&mut self, line: TypedLine<'_>) -> Result<TypingStep> {
        let typed = match line {
            TypedLine::Again(_) if self.has_been_told() => TextOutcome::Sent,
            TypedLine::Nudge(text) | TypedLine::Again(text) => {
                self.type_text(text.as_str(), TypingPurpose::Nudge, Duration::ZERO)?
            }
            TypedLine::Reset => self.reset_text(Duration::ZERO)?,
        };
        Ok(match typed {
            TextOutcome::Sent => TypingStep::Done(NudgeOutcome::Sent),
            TextOutcome::Refused { deferral } => {
                TypingStep::Done(NudgeOutcome::Refused { deferral })
            }
            TextOutcome::Typed(half) => {
                let left = half.enter_after.saturating_duration_since(Instant::now());
                self.half = Some(half);
                TypingStep::EnterAfter(left)
            }
        })
    }

    fn finish(&mut self, withdraw: bool) -> Result<NudgeOutcome> {
        match self.half.take() {
            None => Ok(NudgeOutcome::Refused { deferral: Deferral::Moved }),
            Some(half) if withdraw => {
                let deferral = self.take_back(&half.text)?.unwrap_or(Deferral::Moved);
                Ok(NudgeOutcome::Refused { deferral })
            }
            Some(half) => self.nudge_enter(half),
        }
    }

    fn withdraw_ping(&mut self) -> Result<()> {
        Self::withdraw_ping(self).map(drop)
    }
}
