//! Our lines in an agent's composer: nudges that a person sent or deleted, pings that were left, and nudges of two
//! processes.

use std::sync::atomic::AtomicBool;

use ensemble_core::agent::AgentState::{Draft, Permission, Ready};
use ensemble_core::env::SystemClock;
use ensemble_core::proto::Machine as _;
use ensemble_tmux::nudge::{Effect, Event, NudgePhase, NudgeSchedule};
use ensemble_tmux::provider::{TurnSign, UnsentLine};

use crate::scripted::case::{Stage, refused, the_nudge};
use crate::scripted::seeing;

use crate::*;

/// What a person does between our text and our Enter, and what of it the agent gets.
const GAPS: [(&[&[&str]], Option<&str>); 4] = [
    (&[&["x"], &["Enter"]], Some("x")),
    (&[&["Enter"]], Some("")),
    (&[&["C-u"]], None),
    (&[&["-N", "120", "BSpace"]], None),
];

/// A line that a person sent, changed or deleted has ended: the agent is notified again.
#[test]
#[ignore = "long"]
fn a_line_that_a_person_sent_or_deleted_is_typed_anew() {
    for provider in seeing() {
        let stage = Stage::new(provider);
        let nudge = the_nudge(provider.name);
        for (keys, sent) in GAPS {
            let case = stage.case("ready", Ready);
            let mut schedule = NudgeSchedule::new();
            let clock = SystemClock;
            schedule.handle(clock.monotonic(), Event::Bound { binding: 1 });
            schedule.handle(clock.monotonic(), Event::Mail { waiting: 1, taken: 0 });
            let mut is_first = true;
            let told = || {
                schedule.handle_timeout(clock.monotonic());
                while let Some(effect) = schedule.poll_effect() {
                    let (attempt, outcome) = match effect {
                        Effect::Nudge { attempt, .. } => (
                            attempt,
                            case.nudge_with(|| {
                                if std::mem::take(&mut is_first) {
                                    for keys in keys {
                                        case.human(keys);
                                        case.settle();
                                    }
                                }
                            }),
                        ),
                        Effect::Submit { attempt, .. } => {
                            (attempt, case.pane().submit(&nudge).expect("an outcome"))
                        }
                        Effect::Withdraw { .. } | Effect::Record(_) => continue,
                    };
                    schedule.handle(clock.monotonic(), Event::Outcome { attempt, outcome });
                }
                schedule.status().phase == NudgePhase::Told
            };
            eventually("the agent is told", told);
            case.settle();
            let theirs = sent.map(|theirs| format!("SUBMIT {nudge}{theirs}"));
            let expected: Vec<String> =
                theirs.into_iter().chain([format!("SUBMIT {nudge}")]).collect();
            assert_eq!(case.events(), expected, "{} {keys:?}", provider.name);
        }
    }
}

/// An agent puts a line back that was submitted, for instance after its turn was interrupted.
#[test]
fn a_nudge_that_the_agent_puts_back_is_no_draft() {
    for provider in seeing() {
        let (stage, nudge) = (Stage::new(provider), the_nudge(provider.name));
        let case = stage.case("ready", Ready);
        assert_eq!(case.pane().nudge(&nudge).expect("an outcome"), NudgeOutcome::Sent);
        case.settle();
        case.human(&["-l", "--", nudge.as_str()]);
        case.wait_for_text(nudge.as_str());
        case.settle();
        case.wait_for(Ready);
        // A look in the middle of a redraw finds no composer; the schedule tries again then, too.
        eventually("the line is submitted", || match case.pane().nudge(&nudge) {
            Ok(NudgeOutcome::Refused { deferral: Deferral::Moved }) => false,
            outcome => {
                assert_eq!(outcome.expect("an outcome"), NudgeOutcome::Sent);
                true
            }
        });
        case.settle();
        let line = format!("SUBMIT {nudge}");
        assert_eq!(case.events(), [line.clone(), line], "{}", provider.name);
        // With a person's words behind it, it is theirs.
        case.human(&["-l", "--", nudge.as_str()]);
        case.human(&["x"]);
        case.wait_for(Draft);
    }
}

/// A line whose mail has arrived by another way is taken back, but never a person's words.
#[test]
fn an_unsent_line_is_taken_back_unless_a_person_has_typed_behind_it() {
    for provider in seeing() {
        let (stage, nudge) = (Stage::new(provider), the_nudge(provider.name));
        let left = || {
            let case = stage.case("ready", Ready);
            let outcome = case.nudge_with(|| {
                case.human(&["C-^"]);
                case.wait_for(Permission);
            });
            assert!(matches!(outcome, NudgeOutcome::TextOnly { .. }), "{outcome:?}");
            case
        };
        let case = left();
        let withdrawn = case.pane().withdraw_line().expect("an outcome");
        assert!(matches!(withdrawn, Deferral::Dialog { .. }), "not behind a dialog: {withdrawn}");
        case.human(&["Escape"]);
        case.wait_for(Ready);
        assert_eq!(case.diagnosis().unsent_line(), UnsentLine::Alone, "{}", provider.name);
        eventually("it is taken back", || {
            case.pane().withdraw_line().expect("an outcome") == Deferral::LineGone
        });
        case.wait_for_empty(nudge.as_str());
        case.settle();
        assert_eq!(case.events(), ["DENIED"], "{}", provider.name);
        // With a person's words behind it, it is theirs.
        let case = left();
        case.human(&["Escape"]);
        case.human(&["-l", "--", " fix the bug"]);
        case.wait_for(Draft);
        assert_eq!(case.pane().withdraw_line().expect("an outcome"), Deferral::Draft);
        case.wait_for_text("fix the bug");
        eventually("a person is to know", || {
            case.diagnosis().unsent_line() == UnsentLine::WithWords
        });
        case.human(&["Enter"]);
        case.settle();
        let sent = format!("SUBMIT {nudge} fix the bug");
        assert_eq!(case.events(), ["DENIED", &sent], "{}", provider.name);
    }
}

/// An agent that was just handed its mail looks idle for a moment.
#[test]
fn nothing_is_typed_while_a_turn_begins() {
    for provider in seeing() {
        let (stage, nudge) = (Stage::new(provider), the_nudge(provider.name));
        let case = stage.case("ready", Ready);
        let is_beginning = Arc::new(AtomicBool::new(true));
        let sign = Arc::clone(&is_beginning);
        let sign = TurnSign::new(move || sign.load(Ordering::SeqCst));
        let mut pane = case.pane().with_turn_sign(sign);
        let busy = NudgeOutcome::Refused { deferral: Deferral::Busy };
        assert_eq!(pane.nudge(&nudge).expect("an outcome"), busy, "{}", provider.name);
        assert_eq!(pane.reset_context().expect("an outcome"), busy, "{}", provider.name);
        case.settle();
        assert_eq!(case.received(), "", "{}", provider.name);
        is_beginning.store(false, Ordering::SeqCst);
        assert_eq!(pane.nudge(&nudge).expect("an outcome"), NudgeOutcome::Sent);
        case.settle();
        assert_eq!(case.events(), [format!("SUBMIT {nudge}")], "{}", provider.name);
    }
}

/// A ping whose Enter was held back is ours. Another ping and a nudge take it back, and the same
/// ping submits it. A controller that stops waiting for the answer takes it back.
#[test]
fn a_ping_that_stands_is_no_draft() {
    let ping = |attempt| NudgeText::new(format!("AGENT_TEAM_PING w1 {attempt}")).expect("harmless");
    for provider in seeing() {
        let stage = Stage::new(provider);
        let interrupted = || {
            let case = stage.case("ready", Ready);
            let mut pane = case.pane();
            let TextOutcome::Typed(half) = pane.nudge_text(&ping(1)).expect("an outcome") else {
                panic!("it was not typed");
            };
            case.wait_for_text("AGENT_TEAM_PING w1 1");
            case.human(&["C-^"]);
            case.wait_for(Permission);
            let outcome = pane.nudge_enter(half).expect("an outcome");
            assert!(matches!(outcome, NudgeOutcome::TextOnly { .. }), "{outcome:?}");
            case.human(&["Escape"]);
            // The screen shows a draft, and the pane knows whose it is.
            case.wait_for(Ready);
            case
        };
        let case = interrupted();
        assert_eq!(case.pane().nudge(&ping(1)).expect("an outcome"), NudgeOutcome::Sent);
        case.settle();
        assert_eq!(case.events(), ["DENIED", "SUBMIT AGENT_TEAM_PING w1 1"], "{}", provider.name);
        let case = interrupted();
        assert!(case.pane().withdraw_ping().expect("an outcome"), "{}", provider.name);
        case.wait_for_empty("AGENT_TEAM_PING");
        assert!(!case.pane().withdraw_ping().expect("an outcome"), "{}", provider.name);
        for text in [ping(2), the_nudge(provider.name)] {
            let case = interrupted();
            eventually("it is typed", || {
                case.pane().nudge(&text).expect("an outcome") == NudgeOutcome::Sent
            });
            case.settle();
            assert_eq!(case.events(), ["DENIED", &format!("SUBMIT {text}")], "{}", provider.name);
        }
        // The same words, typed by a person, are a draft.
        let case = stage.case("ready", Ready);
        case.human(&["-l", "AGENT_TEAM_PING w1 1"]);
        case.wait_for(Draft);
        assert_eq!(refused(&case.nudge()), Some(&Deferral::Draft), "{}", provider.name);
        assert!(!case.pane().withdraw_ping().expect("an outcome"), "{}", provider.name);
    }
}

/// Two processes that repeat a nudge share one pace.
#[test]
fn a_repeated_nudge_is_left_out_where_another_process_has_just_typed_it() {
    for provider in seeing() {
        let stage = Stage::new(provider);
        let case = stage.case("ready", Ready);
        let nudge = the_nudge(provider.name);
        assert_eq!(case.nudge(), NudgeOutcome::Sent);
        case.settle();
        let again = case.pane().nudge_again(&nudge).expect("an outcome");
        assert!(matches!(again, TextOutcome::Sent), "{again:?}");
        // What is new is typed.
        assert_eq!(case.nudge(), NudgeOutcome::Sent);
        case.settle();
        assert_eq!(case.events(), vec![format!("SUBMIT {nudge}"); 2], "{}", provider.name);
    }
}
