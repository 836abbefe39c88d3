use std::time::Duration;

use super::*;
use crate::env::{Clock, Pane};
use crate::message::Timestamp;
use crate::pane::{Deferral, Key, NudgeOutcome, NudgeText};

#[test]
fn suspend_advances_every_clock_but_the_monotonic_one() {
    let clock = SimClock::new(Timestamp::from_unix_millis(0));
    clock.advance(Duration::from_secs(1));
    clock.suspend(Duration::from_secs(9));
    assert_eq!(clock.monotonic().as_duration(), Duration::from_secs(1));
    assert_eq!(clock.boottime().as_duration(), Duration::from_secs(10));
    assert_eq!(clock.wall(), Timestamp::from_unix_millis(10_000));
}

#[test]
fn pane_refuses_by_its_state_and_by_its_script() {
    let screen = SimPane::default();
    let mut pane = screen.clone();
    screen.show(|state| state.in_mode = true);
    let copy_mode = NudgeOutcome::Refused { deferral: Deferral::CopyMode };
    assert_eq!(pane.press(Key::Escape).unwrap(), copy_mode);
    let half = NudgeOutcome::TextOnly { deferral: Deferral::Moved };
    screen.answer_next(half.clone());
    let text = NudgeText::new("mail").unwrap();
    assert_eq!(pane.nudge(&text).unwrap(), half);
    screen.show(|state| state.in_mode = false);
    pane.open("claude").unwrap();
    let typed = PaneAction::Text { text, submitted: false };
    assert_eq!(screen.presses(), [typed, PaneAction::Open("claude".to_owned())]);
}
