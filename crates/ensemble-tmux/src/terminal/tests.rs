//! The table of the typist, with a terminal that is a text.

use std::io;
use std::sync::Mutex;
use std::time::Instant;

use ensemble_core::pane::{Deferral, Key, NudgeOutcome};

use super::typist::{LineTypist, PseudoTerminal, TerminalSnapshot};
use super::wire::{TerminalAction, TerminalAnswer};
use crate::provider::{AgentObserver, PASTE_BEGINS, PASTE_ENDS, Profiles};

/// A composer that shows what is typed, unless the test prevents that.
#[derive(Default)]
struct Played {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    composer: String,
    sent: Vec<String>,
    written: Vec<String>,
    is_held: bool,
    was_held_at_keys: Vec<bool>,
    last_key: Option<Instant>,
    dialog: bool,
    /// The agent does not show what it is sent.
    is_blind: bool,
    /// The program has asked for bracketed pastes.
    takes_pastes: bool,
    /// The agent puts a line back that was submitted, as after a turn that was interrupted.
    puts_back: bool,
    /// A person's key that arrives as soon as we have typed.
    slips_in: Option<char>,
    version: u64,
}

impl PseudoTerminal for &Played {
    fn shown(&self) -> TerminalSnapshot {
        let inner = self.inner.lock().unwrap();
        let rule = "─".repeat(40);
        let mut screen = match inner.dialog {
            true => "Do you want to proceed?\n❯ 1. Yes\n  2. No\n\nEsc to cancel · Tab to amend"
                .to_owned(),
            false => format!("{rule}\n❯ {}\n{rule}\n  ? for shortcuts", inner.composer),
        };
        screen.push('\n');
        let column = u32::try_from(inner.composer.chars().count() + 2).unwrap();
        TerminalSnapshot {
            screen: screen.lines().map(|line| line.trim_end().to_owned()).collect(),
            cursor: (column, 1),
            takes_pastes: inner.takes_pastes,
            ..TerminalSnapshot::default()
        }
    }
    fn last_key(&self) -> Option<Instant> {
        self.inner.lock().unwrap().last_key
    }
    fn hold_keys(&self) {
        self.inner.lock().unwrap().is_held = true;
    }
    fn release_keys(&self) {
        self.inner.lock().unwrap().is_held = false;
    }
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.inner.lock().unwrap();
        let is_held = inner.is_held;
        inner.was_held_at_keys.push(is_held);
        inner.written.push(String::from_utf8_lossy(bytes).into_owned());
        let text = String::from_utf8_lossy(bytes).replace(PASTE_BEGINS, "").replace(PASTE_ENDS, "");
        for byte in text.as_bytes() {
            match byte {
                b'\r' => {
                    let line = std::mem::take(&mut inner.composer);
                    if std::mem::take(&mut inner.puts_back) {
                        inner.composer.clone_from(&line);
                    }
                    inner.sent.push(line);
                }
                0x7f => drop(inner.composer.pop()),
                byte if !inner.is_blind => inner.composer.push(char::from(*byte)),
                _ => {}
            }
        }
        if let Some(slipped) = inner.slips_in.take() {
            inner.composer.push(slipped);
        }
        inner.version += 1;
        Ok(())
    }
    fn version(&self) -> u64 {
        self.inner.lock().unwrap().version
    }
    fn wait_for_change(&self, _: u64, _: Instant) {
        std::thread::yield_now();
    }
}

const HINT: &str = "ensemble: 1 message for w1";

fn asked(played: &Played, asks: &[TerminalAction]) -> Vec<TerminalAnswer> {
    let profile = Profiles::embedded().unwrap().get("claude").unwrap();
    // The process table is not asked about a process that is not there.
    let mut typist =
        LineTypist::new(played, u32::MAX, AgentObserver::new(profile)).running("claude");
    asks.iter().cloned().map(|ask| typist.answer(ask)).collect()
}

fn nudge(text: &str) -> TerminalAction {
    TerminalAction::Nudge { text: text.to_owned(), repeats: false, probes: false, steers: false }
}

fn played(change: impl FnOnce(&mut Inner)) -> Played {
    let played = Played::default();
    change(&mut played.inner.lock().unwrap());
    played
}

fn refused(answer: &TerminalAnswer) -> &Deferral {
    match answer {
        TerminalAnswer::Outcome(NudgeOutcome::Refused { deferral }) => deferral,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_line_is_typed_and_submitted_while_the_persons_keys_wait() {
    let terminal = played(|_| {});
    let answers = asked(
        &terminal,
        &[
            nudge(HINT),
            TerminalAction::Nudge {
                text: HINT.to_owned(),
                repeats: true,
                probes: false,
                steers: false,
            },
        ],
    );
    assert_eq!(
        answers,
        [TerminalAnswer::Outcome(NudgeOutcome::Sent), TerminalAnswer::Outcome(NudgeOutcome::Sent)]
    );
    let inner = terminal.inner.lock().unwrap();
    assert_eq!(inner.sent, [HINT], "a repetition is left out");
    assert!(inner.was_held_at_keys.iter().all(|held| *held) && !inner.is_held);
}

#[test]
fn a_hint_that_the_agent_puts_back_is_no_draft_of_a_person() {
    let terminal = played(|inner| inner.puts_back = true);
    let answers = asked(&terminal, &[nudge(HINT), nudge(HINT)]);
    assert_eq!(
        answers,
        [TerminalAnswer::Outcome(NudgeOutcome::Sent), TerminalAnswer::Outcome(NudgeOutcome::Sent)]
    );
    let inner = terminal.inner.lock().unwrap();
    assert_eq!(inner.sent, [HINT, HINT]);
    assert_eq!(inner.written.last().map(String::as_str), Some("\r"), "it is not typed again");
}

#[test]
fn a_program_that_asks_for_pastes_gets_a_hint_as_one_and_a_command_as_keys() {
    for takes_pastes in [true, false] {
        let terminal = played(|inner| inner.takes_pastes = takes_pastes);
        let mut profiles = Profiles::embedded().unwrap();
        let change = serde_json::Map::from_iter([("paste_delay_ms".to_owned(), 0.into())]);
        profiles.amend("claude", &change, "test".as_ref()).unwrap();
        let observer = AgentObserver::new(profiles.get("claude").unwrap());
        let mut typist = LineTypist::new(&terminal, u32::MAX, observer).running("claude");
        for ask in [nudge(HINT), TerminalAction::Reset {}] {
            assert_eq!(typist.answer(ask), TerminalAnswer::Outcome(NudgeOutcome::Sent));
        }
        let hint = match takes_pastes {
            true => format!("{PASTE_BEGINS}{HINT}{PASTE_ENDS}"),
            false => HINT.to_owned(),
        };
        let written = &terminal.inner.lock().unwrap().written;
        assert_eq!(*written, [hint, "\r".to_owned(), "/clear".to_owned(), "\r".to_owned()]);
    }
}

#[test]
fn a_person_a_draft_and_a_dialog_put_a_line_off() {
    let typing = played(|it| it.last_key = Some(Instant::now()));
    assert_eq!(refused(&asked(&typing, &[nudge(HINT)])[0]), &Deferral::Draft);
    let draft = played(|it| it.composer = "half a sentence".to_owned());
    assert_eq!(refused(&asked(&draft, &[nudge(HINT)])[0]), &Deferral::Draft);
    let dialog = played(|it| it.dialog = true);
    let answers = asked(&dialog, &[nudge(HINT), TerminalAction::Press { key: Key::Enter }]);
    assert_eq!(refused(&answers[0]).word(), "dialog");
    assert_eq!(refused(&answers[1]).word(), "dialog");
    for terminal in [typing, draft, dialog] {
        let inner = terminal.inner.into_inner().unwrap();
        assert!(inner.was_held_at_keys.is_empty() && !inner.is_held);
    }
}

#[test]
fn enter_follows_only_behind_exactly_our_line() {
    let slipped = played(|it| it.slips_in = Some('x'));
    let answers = asked(&slipped, &[nudge(HINT)]);
    assert!(
        matches!(&answers[0], TerminalAnswer::Outcome(NudgeOutcome::TextOnly { .. })),
        "{answers:?}"
    );
    assert!(slipped.inner.lock().unwrap().sent.is_empty());
    // The next attempt submits our line that is already in the composer instead of typing it again.
    let late = played(|it| it.is_blind = true);
    let profile = Profiles::embedded().unwrap().get("claude").unwrap();
    let mut typist =
        LineTypist::new(&late, u32::MAX, AgentObserver::new(profile)).running("claude");
    assert!(matches!(
        typist.answer(nudge(HINT)),
        TerminalAnswer::Outcome(NudgeOutcome::TextOnly { .. })
    ));
    late.inner.lock().unwrap().composer = HINT.to_owned();
    assert_eq!(typist.answer(nudge(HINT)), TerminalAnswer::Outcome(NudgeOutcome::Sent));
    assert_eq!(late.inner.lock().unwrap().sent, [HINT]);
}

#[test]
fn nothing_is_typed_that_means_something_to_a_terminal() {
    let terminal = played(|_| {});
    for text in ["a\rb", "\x1b[201~", "$(x)", "", &"x".repeat(400)] {
        let answers = asked(&terminal, &[nudge(text)]);
        assert!(matches!(&answers[0], TerminalAnswer::Failed { .. }), "{text:?}: {answers:?}");
    }
    assert!(terminal.inner.lock().unwrap().was_held_at_keys.is_empty());
}

#[test]
fn a_standing_ping_is_withdrawn() {
    let terminal = played(|it| it.slips_in = Some('x'));
    let profile = Profiles::embedded().unwrap().get("claude").unwrap();
    let mut typist =
        LineTypist::new(&terminal, u32::MAX, AgentObserver::new(profile)).running("claude");
    let ping = "AGENT_TEAM_PING w1 abc";
    assert!(matches!(
        typist.answer(nudge(ping)),
        TerminalAnswer::Outcome(NudgeOutcome::TextOnly { .. })
    ));
    terminal.inner.lock().unwrap().composer = ping.to_owned();
    assert_eq!(
        typist.answer(TerminalAction::WithdrawPing {}),
        TerminalAnswer::Outcome(NudgeOutcome::Sent)
    );
    assert_eq!(terminal.inner.lock().unwrap().composer, "");
}
