//! Lines that are typed into a pane: a nudge, a ping, the command that resets an agent.
//!
//! ```text
//! text under the guard -> the profile's delay -> Enter under the guard, if exactly the text stands there
//!                                             -> TextOnly: it stands there, and is known again
//! ```
//!
//! A nudge that stands in a composer is known by its words, and only its Enter is missing. The reset
//! command could be a person's as well, so the pane itself remembers in an option that we have typed
//! it. Whoever wants a reset submits it then; whoever wants to nudge takes it back, since much may
//! have happened since somebody wanted a reset.

use std::thread;
use std::time::{Duration, Instant};

use super::TmuxPane;
use super::failure::Failure;
use super::guard::{pressing, typing};
use super::lock::{LOCK_LIMIT, PaneLock};
use super::pane::{key_name, outcome};
use super::quick::nudged_at_once;
use super::quote::quote;
use super::spawned::Reply;
use crate::Result;
use crate::pane::{Deferral, Key, NudgeOutcome, NudgeText};
use crate::provider::{self, Purpose};

/// The pane option that holds a reset command which was typed and not submitted.
const TYPED_OPTION: &str = "@ensemble_typed";

/// What became of the first half of a nudge.
#[derive(Debug)]
#[must_use]
pub enum TextOutcome {
    /// The profile needs no delay: text and Enter went together, nothing is left to do.
    Sent,
    /// The text stands in the pane. Call [`TmuxPane::nudge_enter`] once
    /// [`TypedNudge::enter_after`] has passed; until then, or until this is dropped, nobody else
    /// types into the pane.
    Typed(TypedNudge),
    /// Nothing was typed.
    Refused {
        /// What was in the way.
        deferral: Deferral,
    },
}

/// A text that was typed and waits for its Enter. Holds the pane's lock.
#[derive(Debug)]
pub struct TypedNudge {
    text: String,
    line: Line,
    enter_after: Instant,
    #[expect(dead_code, reason = "held, not used")]
    lock: PaneLock,
}

impl TypedNudge {
    /// When Enter may follow: an agent takes an earlier one for part of a paste.
    #[must_use]
    pub const fn enter_after(&self) -> Instant {
        self.enter_after
    }
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Nudge,
    Reset,
}

impl TmuxPane {
    /// The first half of a nudge: types the text, and submits it at once if the profile needs no
    /// delay. For callers with many panes, who do something else during the delay.
    ///
    /// # Errors
    /// As for [`Pane::nudge`](crate::env::Pane::nudge).
    pub fn nudge_text(&mut self, text: &NudgeText) -> Result<TextOutcome> {
        self.type_text(text.as_str(), Line::Nudge, LOCK_LIMIT)
    }

    /// Types the profile's reset command and submits it, in the same way as a nudge and only where
    /// a nudge would be typed. The agent forgets its context: what it held must be delivered again.
    ///
    /// # Errors
    /// The profile has no reset command; otherwise as for
    /// [`Pane::nudge`](crate::env::Pane::nudge).
    pub fn reset_context(&mut self) -> Result<NudgeOutcome> {
        let typed = self.reset_text(LOCK_LIMIT)?;
        self.finish(typed)
    }

    /// The first half of a line for a caller that must not wait: of a nudge, or without a text of
    /// [`TmuxPane::reset_context`]. `Err` with the time until [`TmuxPane::finish_line`] is due, or
    /// what became of it. Whoever types into the pane now is not waited for either.
    pub(crate) fn begin_line(
        &mut self,
        text: Option<&NudgeText>,
    ) -> Result<std::result::Result<NudgeOutcome, Duration>> {
        let typed = match text {
            Some(text) => self.type_text(text.as_str(), Line::Nudge, Duration::ZERO)?,
            None => self.reset_text(Duration::ZERO)?,
        };
        Ok(match typed {
            TextOutcome::Sent => Ok(NudgeOutcome::Sent),
            TextOutcome::Refused { deferral } => Ok(NudgeOutcome::Refused { deferral }),
            TextOutcome::Typed(half) => {
                let left = half.enter_after.saturating_duration_since(Instant::now());
                self.half = Some(half);
                Err(left)
            }
        })
    }

    /// The second half. `withdraw`: takes the line back instead of submitting it.
    pub(crate) fn finish_line(&mut self, withdraw: bool) -> Result<NudgeOutcome> {
        match self.half.take() {
            None => Ok(NudgeOutcome::Refused { deferral: Deferral::Moved }),
            Some(half) if withdraw => {
                let deferral = self.take_back(&half.text)?.unwrap_or(Deferral::Moved);
                Ok(NudgeOutcome::Refused { deferral })
            }
            Some(half) => self.nudge_enter(half),
        }
    }

    fn reset_text(&mut self, patience: Duration) -> Result<TextOutcome> {
        let Some(command) = self.profile.reset_command().map(str::to_owned) else {
            let detail = format!("the profile {} has no reset command", self.profile.name());
            return Err(self.server.error("reset an agent", Failure::Refused(detail)));
        };
        self.type_text(&command, Line::Reset, patience)
    }

    fn type_text(&mut self, text: &str, line: Line, patience: Duration) -> Result<TextOutcome> {
        const OPERATION: &str = "type a nudge";
        let delay = self.profile.enter_delay();
        let refused = |deferral| Ok(TextOutcome::Refused { deferral });
        let lock = match self.lock(OPERATION, patience)? {
            Ok(lock) => lock,
            Err(deferral) => return refused(deferral),
        };
        if delay.is_zero() && line == Line::Nudge && self.binding.is_same_process() {
            match nudged_at_once(&self.server, &self.binding, &self.profile, text) {
                Ok(true) => return Ok(TextOutcome::Sent),
                // Nothing was typed; the long way finds out why, and whether it may be.
                Ok(false) => {}
                Err(failure) => return refused(self.refusal(OPERATION, failure)?),
            }
        }
        let mut commands = typing(&self.binding, text, delay.is_zero());
        if line == Line::Reset && !delay.is_zero() {
            commands = format!("{commands} ; {}", self.remembering(Some(text)));
        }
        match self.judged(OPERATION, Purpose::Nudge, &commands)? {
            // What stands there may be an earlier line of ours whose Enter was held back.
            Some(Deferral::Draft) => self.standing(line, lock),
            Some(deferral) => refused(deferral),
            None if delay.is_zero() => Ok(TextOutcome::Sent),
            None => {
                let enter_after = Instant::now() + delay;
                let (text, line) = (text.to_owned(), line);
                Ok(TextOutcome::Typed(TypedNudge { text, line, enter_after, lock }))
            }
        }
    }

    /// What to do about a line that stands in the composer.
    fn standing(&mut self, wanted: Line, lock: PaneLock) -> Result<TextOutcome> {
        let refused = |deferral| Ok(TextOutcome::Refused { deferral });
        let Ok((_, state)) = self.look() else { return refused(Deferral::Draft) };
        let enter_after = Instant::now();
        if let Some(text) = provider::standing_nudge(&self.profile, &state) {
            let line = Line::Nudge;
            return Ok(TextOutcome::Typed(TypedNudge { text, line, enter_after, lock }));
        }
        match provider::standing_reset(&self.profile, &state) {
            Some(text) if self.has_typed(&text) => match wanted {
                Line::Reset => {
                    let line = Line::Reset;
                    Ok(TextOutcome::Typed(TypedNudge { text, line, enter_after, lock }))
                }
                // The next try finds an empty composer.
                Line::Nudge => refused(self.take_back(&text)?.unwrap_or(Deferral::Moved)),
            },
            Some(_) | None => refused(Deferral::Draft),
        }
    }

    /// Removes exactly `text` from the composer, if it stands there alone. `None` if that was done.
    fn take_back(&mut self, text: &str) -> Result<Option<Deferral>> {
        let erasing = format!(
            "send-keys -t {} -N {} BSpace ; {}",
            quote(&self.binding.id),
            text.chars().count(),
            self.remembering(None)
        );
        self.judged("take back a line", Purpose::Submit { text }, &erasing)
    }

    /// The command that has the pane remember what was typed into it, or forget it.
    fn remembering(&self, text: Option<&str>) -> String {
        let target = quote(&self.binding.id);
        match text {
            Some(text) => format!("set-option -p -t {target} {TYPED_OPTION} {}", quote(text)),
            None => format!("set-option -p -u -q -t {target} {TYPED_OPTION}"),
        }
    }

    /// Whether the pane remembers that this was typed by one of us.
    fn has_typed(&self, text: &str) -> bool {
        let target = quote(&self.binding.id);
        let line = format!("display-message -p -t {target} '#{{{TYPED_OPTION}}}'");
        let reply = self.server.look(&line).and_then(Reply::into_lines);
        reply.is_ok_and(|lines| lines.first().is_some_and(|typed| typed == text))
    }

    /// The second half: presses Enter if the text still stands right before the cursor and nothing
    /// has come in between. Waits until [`TypedNudge::enter_after`] if it is called early.
    ///
    /// # Errors
    /// As for [`Pane::nudge`](crate::env::Pane::nudge).
    pub fn nudge_enter(&mut self, typed: TypedNudge) -> Result<NudgeOutcome> {
        const OPERATION: &str = "submit a nudge";
        thread::sleep(typed.enter_after.saturating_duration_since(Instant::now()));
        let mut commands = pressing(&self.binding, key_name(Key::Enter));
        if typed.line == Line::Reset {
            commands = format!("{commands} ; {}", self.remembering(None));
        }
        let purpose = Purpose::Submit { text: &typed.text };
        Ok(match self.judged(OPERATION, purpose, &commands)? {
            None => NudgeOutcome::Sent,
            Some(deferral) => NudgeOutcome::TextOnly { deferral },
        })
    }

    pub(super) fn finish(&mut self, typed: TextOutcome) -> Result<NudgeOutcome> {
        match typed {
            TextOutcome::Sent => Ok(NudgeOutcome::Sent),
            TextOutcome::Refused { deferral } => Ok(NudgeOutcome::Refused { deferral }),
            TextOutcome::Typed(typed) => self.nudge_enter(typed),
        }
    }

    /// Submits a text that an earlier nudge has left standing ([`NudgeOutcome::TextOnly`]): presses
    /// Enter if exactly that text, and nothing else, stands before the cursor.
    ///
    /// # Errors
    /// As for [`Pane::nudge`](crate::env::Pane::nudge).
    pub fn submit(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        const OPERATION: &str = "submit a nudge";
        let _lock = match self.lock(OPERATION, LOCK_LIMIT)? {
            Ok(lock) => lock,
            Err(deferral) => return Ok(NudgeOutcome::Refused { deferral }),
        };
        let commands = pressing(&self.binding, key_name(Key::Enter));
        let purpose = Purpose::Submit { text: text.as_str() };
        Ok(outcome(self.judged(OPERATION, purpose, &commands)?))
    }
}
