//! Types into one of our terminals, under the same guard as into a pane of tmux.
//!
//! ```text
//! asked to type              a person has typed within PERSON_PAUSE  -> refused: draft
//!                            else the person's keys are kept back
//!   a dialog, a draft …      -> refused with the reason              (nothing was typed)
//!   an older line of ours    -> submitted if it is of the same kind, else taken back
//!   free                     -> the text; wait until exactly it stands in the composer, and for the profile's delay
//!     it stands there        -> Enter                                -> sent
//!     something came between -> taken back if it stands alone        -> refused
//!     it is not shown        -> left, and remembered                 -> text only
//! in every case              the person's keys go on, in their order
//! ```
//!
//! So a person's keys and ours are never mixed: what a person types while our line is in the composer arrives after
//! its Enter. The delay is the time the agent needs to draw a line, [`LINE_PATIENCE`] at most.

use std::io;
use std::time::{Duration, Instant};

use super::wire::{TerminalAction, TerminalAnswer};
use crate::provider::machine::AgentAnswer;
use crate::provider::{
    AgentObserver, Judgement, PASTE_BEGINS, PASTE_ENDS, TypingPurpose, UnsentLine, process,
    stands_alone,
};
use crate::tmux::{LINE_PATIENCE, SHARED_PACE};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::pane::{Deferral, Key, NUDGE_BYTES_MAX, NudgeOutcome, NudgeText, PaneState};
use serde::{Deserialize, Serialize};

/// How long a person must not have typed before a line is typed: the agent may not show their last key yet.
pub const PERSON_PAUSE: Duration = Duration::from_millis(500);
const PING: &str = "AGENT_TEAM_PING ";
/// The key that removes a character before the cursor.
const BACKSPACE: u8 = 0x7f;

/// A pseudo-terminal with the person and the agent at its ends.
pub trait PseudoTerminal: Send + Sync {
    fn shown(&self) -> TerminalSnapshot;
    /// When the person last pressed a key, where that can be seen.
    fn last_key(&self) -> Option<Instant> {
        None
    }
    /// Keeps the person's keys back from now on, where they pass through this process.
    fn hold_keys(&self) {}
    /// Lets them continue, in their order.
    fn release_keys(&self) {}
    /// Sends bytes to the agent, beside the person's keys.
    fn write(&self, bytes: &[u8]) -> io::Result<()>;
    /// How often the screen has changed; always 0 where that cannot be counted.
    fn version(&self) -> u64 {
        0
    }
    /// Returns once the screen has another version than `seen`, or at `deadline`.
    fn wait_for_change(&self, seen: u64, deadline: Instant);
    /// A reason against typing that the screen last shown does not show.
    fn refusal(&self) -> Option<Deferral> {
        None
    }
    /// Has the terminal's owner type and submit a line, if it checks the agent itself.
    fn submit_line(&self, _text: &str) -> io::Result<LineSubmission> {
        Ok(LineSubmission::Unsupported)
    }
}

/// The answer to a line that the terminal's owner was to type and submit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineSubmission {
    /// It does not do that here: nothing was typed.
    Unsupported,
    Submitted,
    /// Nothing was typed.
    Refused(Deferral),
}

/// The lines that were typed into a terminal, for the next process that types there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TypedMemory {
    /// Our line that is believed to be in the composer.
    typed: Option<String>,
    submitted: Option<String>,
    /// When that was, by the clock that all processes of a machine share.
    nudged_millis: Option<u64>,
}

/// What a terminal shows at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalSnapshot {
    /// A line each, without trailing blanks.
    pub screen: Vec<String>,
    /// Column and line of the cursor, from 0.
    pub cursor: (u32, u32),
    /// The title that the program has set.
    pub title: String,
    /// The agent has ended, with this exit status where it is known.
    pub ended: Option<Option<i32>>,
    pub in_mode: bool,
    /// There is no terminal: the agent reads a file or a pipe.
    pub input_off: bool,
    /// The program has asked for bracketed pastes.
    pub takes_pastes: bool,
}

/// The one who types into a terminal; one line at a time.
pub(crate) struct LineTypist<T> {
    terminal: T,
    /// The agent's process and its start.
    pid: u32,
    observer: AgentObserver,
    /// Our line that is believed to be in the composer.
    typed: Option<String>,
    nudged: Option<Instant>,
    submitted: Option<String>,
    /// The program in the foreground, in case the process table does not show it.
    running: String,
}

impl<T: PseudoTerminal> LineTypist<T> {
    pub(crate) const fn new(terminal: T, pid: u32, observer: AgentObserver) -> Self {
        Self {
            terminal,
            pid,
            observer,
            typed: None,
            nudged: None,
            submitted: None,
            running: String::new(),
        }
    }

    /// With the program that runs in a terminal without a process.
    #[cfg(test)]
    pub(super) fn running(mut self, program: &str) -> Self {
        program.clone_into(&mut self.running);
        self
    }

    pub(crate) fn with_memory(mut self, memory: TypedMemory) -> Self {
        let since = |millis| {
            let at = Monotonic::from_duration(Duration::from_millis(millis));
            Instant::now().checked_sub(SystemClock.boottime().since(at))
        };
        self.nudged = memory.nudged_millis.and_then(since);
        (self.typed, self.submitted) = (memory.typed, memory.submitted);
        self
    }

    pub(crate) fn into_memory(self) -> TypedMemory {
        let millis = |at: Instant| {
            let now = SystemClock.boottime().as_duration();
            u64::try_from(now.saturating_sub(at.elapsed()).as_millis()).unwrap_or(u64::MAX)
        };
        let nudged_millis = self.nudged.map(millis);
        TypedMemory { typed: self.typed, submitted: self.submitted, nudged_millis }
    }

    pub(crate) fn answer(&mut self, ask: TerminalAction) -> TerminalAnswer {
        let done = match ask {
            TerminalAction::Look {} => {
                let state = self.observe_terminal();
                let line = self.unsent_line(&state);
                return TerminalAnswer::Pane { state, line };
            }
            TerminalAction::Nudge { repeats: true, .. } if self.has_been_told() => {
                Ok(NudgeOutcome::Sent)
            }
            TerminalAction::Nudge { text, probes, steers, .. } => match harmless(text) {
                Ok(text) if steers => self.steer(&text),
                Ok(text) => {
                    let purpose = if probes { TypingPurpose::Probe } else { TypingPurpose::Nudge };
                    self.type_line(&text, purpose)
                }
                Err(detail) => return TerminalAnswer::Failed { detail },
            },
            TerminalAction::Submit { text } => self.submit_standing(&text),
            TerminalAction::Press { key } => self.press(key),
            TerminalAction::Reset {} => {
                match self.observer.profile().reset_command().map(str::to_owned) {
                    Some(command) => self.type_line(&command, TypingPurpose::Nudge),
                    None => {
                        let detail = "its profile has no reset command".to_owned();
                        return TerminalAnswer::Failed { detail };
                    }
                }
            }
            TerminalAction::WithdrawPing {} => self.withdraw_ping(),
            TerminalAction::WithdrawLine {} => self.withdraw_line(),
        };
        match done {
            Ok(outcome) => TerminalAnswer::Outcome(outcome),
            Err(error) => TerminalAnswer::Failed { detail: error.to_string() },
        }
    }

    fn has_been_told(&self) -> bool {
        self.nudged.is_some_and(|at| at.elapsed() < SHARED_PACE)
    }

    fn observe_terminal(&self) -> PaneState {
        let TerminalSnapshot { screen, cursor, title, ended, in_mode, input_off, .. } =
            self.terminal.shown();
        let profile = self.observer.profile();
        let is_agent = |it: &ensemble_core::pane::ForegroundProcess| {
            !it.shell && profile.program_among(std::slice::from_ref(it)).is_some()
        };
        let foreground = match ended {
            Some(_) => Vec::new(),
            None => process::foreground(self.pid, is_agent),
        };
        let command = profile.program_among(&foreground);
        let command = command.or_else(|| foreground.first().map(|first| first.name()));
        let command = command.unwrap_or(&self.running).to_owned();
        PaneState {
            bound: true,
            dead: ended.is_some(),
            dead_status: ended.flatten(),
            in_mode,
            input_off,
            pid: self.pid,
            command,
            foreground,
            title,
            cursor_x: cursor.0,
            cursor_y: cursor.1,
            screen,
            ..PaneState::default()
        }
    }

    /// Looks and judges; `heard` was asked before, so that nothing slow comes between the look and the keys.
    fn examine(&mut self, heard: &AgentAnswer) -> (PaneState, Judgement) {
        let state = self.observe_terminal();
        let judgement = self.observer.judge(&state, heard);
        (state, judgement)
    }

    fn objection(&mut self, purpose: TypingPurpose<'_>, heard: &AgentAnswer) -> Option<Deferral> {
        let (state, judgement) = self.examine(heard);
        let objection = judgement.objection(self.observer.profile(), &state, purpose);
        objection.or_else(|| self.terminal.refusal())
    }

    fn is_person_typing(&self) -> bool {
        self.terminal.last_key().is_some_and(|at| at.elapsed() < PERSON_PAUSE)
    }

    /// Types a line and submits it, while the person's keys are kept back.
    fn type_line(&mut self, text: &str, purpose: TypingPurpose<'_>) -> io::Result<NudgeOutcome> {
        self.alone(|typist, heard| match typist.objection(purpose, heard) {
            Some(Deferral::Draft) => typist.standing(text, purpose, heard),
            Some(deferral) => Ok(NudgeOutcome::Refused { deferral }),
            None => typist.type_and_enter(text, heard),
        })
    }

    /// Types a line into a turn that runs, where the program takes it so.
    fn steer(&mut self, text: &str) -> io::Result<NudgeOutcome> {
        let Some(steering) = self.observer.profile().steering() else {
            return Ok(NudgeOutcome::Refused { deferral: Deferral::Busy });
        };
        let usual = self.observer.replace_profile(steering.into());
        let outcome = self.type_line(text, TypingPurpose::Nudge);
        self.observer.replace_profile(usual);
        outcome
    }

    /// Does something while the person's keys are kept back, unless the person is typing.
    fn alone(
        &mut self,
        act: impl FnOnce(&mut Self, &AgentAnswer) -> io::Result<NudgeOutcome>,
    ) -> io::Result<NudgeOutcome> {
        let heard = self.observer.ask(self.pid);
        self.terminal.hold_keys();
        let outcome = match self.is_person_typing() {
            true => Ok(NudgeOutcome::Refused { deferral: Deferral::Draft }),
            false => act(self, &heard),
        };
        self.terminal.release_keys();
        outcome
    }

    /// Handles a composer that is not empty. If it contains our older line, that is submitted if both are nudges, and
    /// deleted otherwise.
    fn standing(
        &mut self,
        wanted: &str,
        purpose: TypingPurpose<'_>,
        heard: &AgentAnswer,
    ) -> io::Result<NudgeOutcome> {
        let refused = |deferral| Ok(NudgeOutcome::Refused { deferral });
        let Some(typed) = self.our_line() else { return refused(Deferral::Draft) };
        if is_nudge(&typed) && is_nudge(wanted) {
            return self.enter(&typed, heard);
        }
        self.erase(&typed)?;
        let is_free = |typist: &mut Self| typist.objection(purpose, heard).is_none();
        match self.await_screen(is_free) {
            true => self.type_and_enter(wanted, heard),
            false => refused(Deferral::Moved),
        }
    }

    /// Our line that is in the composer alone: one that was not submitted, or a nudge that the agent
    /// has put back.
    fn our_line(&self) -> Option<String> {
        let screen = self.observe_terminal();
        let mut ours = [&self.typed, &self.submitted].into_iter().flatten();
        ours.find(|line| stands_alone(self.observer.profile(), &screen, line)).cloned()
    }

    fn unsent_line(&self, screen: &PaneState) -> UnsentLine {
        if self.our_line().is_some() {
            return UnsentLine::Alone;
        }
        let find = |typed| UnsentLine::find(self.observer.profile(), screen, typed);
        self.typed.as_deref().map_or(UnsentLine::Absent, find)
    }

    fn type_and_enter(&mut self, text: &str, heard: &AgentAnswer) -> io::Result<NudgeOutcome> {
        if is_nudge(text) {
            match self.terminal.submit_line(text)? {
                LineSubmission::Unsupported => {}
                LineSubmission::Submitted => return Ok(self.remember_sent(text)),
                LineSubmission::Refused(deferral) => {
                    return Ok(NudgeOutcome::Refused { deferral });
                }
            }
        }
        let profile = self.observer.profile();
        // A command of the program is recognized while it is typed.
        let may_paste = self.terminal.shown().takes_pastes && !is_command(text);
        let (typed_at, pasted) = (Instant::now(), profile.paste_delay.filter(|_| may_paste));
        let delay = pasted.unwrap_or(profile.enter_delay);
        // A part of it may arrive although the write fails.
        self.typed = Some(text.to_owned());
        match pasted {
            Some(_) => {
                self.terminal.write(format!("{PASTE_BEGINS}{text}{PASTE_ENDS}").as_bytes())?
            }
            None => self.terminal.write(text.as_bytes())?,
        }
        if delay.is_zero() {
            return self.press_enter(text);
        }
        let is_shown =
            |typist: &mut Self| typist.objection(TypingPurpose::Submit { text }, heard).is_none();
        if !self.await_screen(is_shown) {
            let deferral = self.objection(TypingPurpose::Submit { text }, heard);
            let deferral = deferral.unwrap_or(Deferral::LineGone);
            if !stands_alone(self.observer.profile(), &self.observe_terminal(), text) {
                return Ok(NudgeOutcome::TextOnly { deferral });
            }
            self.erase(text)?;
            return Ok(NudgeOutcome::Refused { deferral });
        }
        // An agent takes an earlier Enter for part of a paste.
        std::thread::sleep(delay.saturating_sub(typed_at.elapsed()));
        self.enter(text, heard)
    }

    /// Presses Enter if exactly `text` is in the composer.
    fn enter(&mut self, text: &str, heard: &AgentAnswer) -> io::Result<NudgeOutcome> {
        match self.objection(TypingPurpose::Submit { text }, heard) {
            None => self.press_enter(text),
            Some(deferral) => Ok(NudgeOutcome::TextOnly { deferral }),
        }
    }

    fn press_enter(&mut self, text: &str) -> io::Result<NudgeOutcome> {
        self.terminal.write(bytes_of(Key::Enter))?;
        Ok(self.remember_sent(text))
    }

    fn remember_sent(&mut self, text: &str) -> NudgeOutcome {
        self.typed = None;
        if is_nudge(text) {
            (self.nudged, self.submitted) = (Some(Instant::now()), Some(text.to_owned()));
        }
        NudgeOutcome::Sent
    }

    fn erase(&mut self, text: &str) -> io::Result<()> {
        self.terminal.write(&vec![BACKSPACE; text.chars().count()])?;
        self.typed = None;
        Ok(())
    }

    fn submit_standing(&mut self, text: &str) -> io::Result<NudgeOutcome> {
        self.alone(|typist, heard| match typist.objection(TypingPurpose::Submit { text }, heard) {
            None => typist.press_enter(text),
            Some(deferral) => {
                if deferral.ends_line() {
                    typist.typed = None;
                }
                Ok(NudgeOutcome::Refused { deferral })
            }
        })
    }

    fn press(&mut self, key: Key) -> io::Result<NudgeOutcome> {
        self.alone(|typist, heard| match typist.objection(TypingPurpose::Press(key), heard) {
            None => typist.terminal.write(bytes_of(key)).map(|()| NudgeOutcome::Sent),
            Some(deferral) => Ok(NudgeOutcome::Refused { deferral }),
        })
    }

    fn withdraw_ping(&mut self) -> io::Result<NudgeOutcome> {
        let Some(ping) = self.typed.clone().filter(|typed| typed.starts_with(PING)) else {
            return Ok(NudgeOutcome::Sent);
        };
        self.alone(|typist, _| {
            if stands_alone(typist.observer.profile(), &typist.observe_terminal(), &ping) {
                typist.erase(&ping)?;
            }
            Ok(NudgeOutcome::Sent)
        })
    }

    /// Withdraws our unsent line if nothing else is in the composer. Answers [`Deferral::LineGone`] or why it could
    /// not.
    fn withdraw_line(&mut self) -> io::Result<NudgeOutcome> {
        let refused = |deferral| Ok(NudgeOutcome::Refused { deferral });
        if self.typed.is_none() && self.submitted.is_none() {
            return refused(Deferral::LineGone);
        }
        self.alone(|typist, heard| {
            let Some(line) = typist.our_line() else {
                let deferral = typist.objection(TypingPurpose::Nudge, heard);
                return refused(deferral.unwrap_or(Deferral::LineGone));
            };
            // An agent may be slow to clear its composer.
            let is_recent = typist.nudged.is_some_and(|at| at.elapsed() < LINE_PATIENCE);
            if typist.typed.as_ref() != Some(&line) && is_recent {
                return refused(Deferral::Moved);
            }
            match typist.objection(TypingPurpose::Submit { text: &line }, heard) {
                None => typist.erase(&line).and_then(|()| refused(Deferral::LineGone)),
                Some(deferral) => refused(deferral),
            }
        })
    }

    /// Waits until the screen is as wanted, for [`LINE_PATIENCE`] at most.
    fn await_screen(&mut self, mut is_wanted: impl FnMut(&mut Self) -> bool) -> bool {
        let deadline = Instant::now() + LINE_PATIENCE;
        loop {
            // Before the look: what changes after it is not missed.
            let seen = self.terminal.version();
            if is_wanted(self) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            self.terminal.wait_for_change(seen, deadline);
        }
    }
}

/// Checks a line from another process: it may hold nothing that means something to a terminal.
fn harmless(text: String) -> Result<String, String> {
    let rest = text.strip_prefix(PING).unwrap_or(&text);
    if text.len() > NUDGE_BYTES_MAX + PING.len() {
        return Err(format!("a nudge has at most {NUDGE_BYTES_MAX} bytes"));
    }
    NudgeText::new(rest).map_err(|error| error.to_string())?;
    Ok(text)
}

/// Whether a line says that mail waits: no ping, and no command of the agent's program.
fn is_nudge(text: &str) -> bool {
    !is_command(text) && !text.starts_with(PING)
}

fn is_command(text: &str) -> bool {
    text.starts_with('/')
}

const fn bytes_of(key: Key) -> &'static [u8] {
    match key {
        Key::Enter => b"\r",
        Key::Escape => b"\x1b",
        Key::CtrlC => b"\x03",
    }
}
