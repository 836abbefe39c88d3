//! Nudges that are sent before anybody waits for them, in a real tmux server: as safe as the others.

mod tmux_support;

use ensemble_core::env::Pane as _;
use ensemble_core::pane::{Deferral, NudgeText};
use ensemble_core::provider::Profiles;
use ensemble_core::tmux::{Server, TextOutcome, TmuxPane};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

use tmux_support::{PATIENCE, TestServer, eventually, text_for};

/// Sends a nudge ahead and takes its answer.
fn ahead(pane: &mut TmuxPane, text: &NudgeText) -> Option<TextOutcome> {
    let mut ahead = pane.nudge_ahead(text)?;
    if ahead.is_typed(PATIENCE) {
        return Some(TextOutcome::Sent);
    }
    Some(pane.nudge_answer(text, ahead).expect("an outcome"))
}

fn refusal(pane: &mut TmuxPane) -> Deferral {
    match ahead(pane, &text_for("shell")) {
        Some(TextOutcome::Refused { deferral }) => deferral,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn it_is_typed_before_anybody_asks_for_the_answer() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    let text = text_for("shell");
    let mut sent = pane.nudge_ahead(&text).expect("sent ahead");
    eventually("read", || tmux.received() == [text.as_str()]);
    assert!(sent.is_typed(PATIENCE) && sent.is_typed(Duration::ZERO));
    assert!(matches!(pane.nudge_answer(&text, sent), Ok(TextOutcome::Sent)));
    assert_eq!(tmux.received(), [text.as_str()]);
}

#[test]
fn each_arrives_once_and_whole() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    let texts: Vec<String> = (0..30).map(|number| format!(": number {number}")).collect();
    for (sent, text) in texts.iter().enumerate() {
        let nudge = NudgeText::new(text).expect("harmless");
        // The script may not have read the line before.
        eventually(text, || matches!(ahead(&mut pane, &nudge), Some(TextOutcome::Sent)));
        eventually(text, || tmux.received().len() > sent);
    }
    assert_eq!(tmux.received(), texts);
}

#[test]
fn nothing_is_typed_where_it_may_not_be() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    tmux.server.run(&["copy-mode", "-t", "%0"]).expect("copy-mode");
    assert_eq!(refusal(&mut pane), Deferral::CopyMode);
    tmux.human(&["-X", "cancel"]);
    tmux.human(&["-l", "half a line"]);
    eventually("a draft", || tmux.screen("%0") == ["half a line"]);
    assert_eq!(refusal(&mut pane), Deferral::Draft);
    assert_eq!(tmux.received(), [""; 0]);
}

#[test]
fn whoever_types_is_not_waited_for() {
    let tmux = TestServer::reader();
    let pane = tmux.pane("%0", "shell");
    let text = text_for("shell");
    let mut profiles = Profiles::embedded().expect("profiles");
    let slow = "name: slow\nprograms: [sh]\nnudge: ['ensemble: mail for {mailbox}']\n\
                enter_delay_ms: 3000\ncomposer: {kind: shell-line}\notherwise: ready\n";
    profiles.add(slow, std::path::Path::new("slow.yaml")).expect("a profile");
    let (binding, locks) = (pane.binding().clone(), tmux.dir.path().join("locks"));
    let profile = profiles.get("slow").expect("a profile");
    let mut typist = TmuxPane::new(tmux.server.clone(), binding, profile, locks).expect("a pane");
    let half = typist.nudge_text(&text_for("generic")).expect("an outcome");
    assert!(matches!(half, TextOutcome::Typed(_)), "{half:?}");
    assert!(pane.nudge_ahead(&text).is_none());
    // Where the screen has to be looked at first, nothing is sent either.
    drop(half);
    assert!(typist.nudge_ahead(&text).is_none());
    assert_eq!(tmux.received(), [""; 0]);
}

#[test]
fn nobody_is_connected_for_it_and_a_question_connects() {
    let tmux = TestServer::reader();
    let bound = tmux.pane("%0", "shell");
    for turn in 0..20 {
        let (binding, profile) = (bound.binding().clone(), bound.profile().clone());
        let (server, locks) = (Server::new(tmux.server.socket()), tmux.dir.path().join("locks"));
        let mut pane = TmuxPane::new(server, binding, profile, locks).expect("a pane");
        assert!(pane.nudge_ahead(&text_for("shell")).is_none(), "{turn}");
        // A first question that overtook the attaching would leave us without a connection.
        let _ = pane.inspect().expect("a state");
        assert!(pane.nudge_ahead(&text_for("shell")).is_some(), "{turn}");
    }
}

#[test]
fn a_server_that_hangs_is_not_asked_again_and_types_nothing_late() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    let text = text_for("shell");
    let server = Pid::from_raw(i32::try_from(tmux.pid()).expect("a pid")).expect("a pid");
    kill_process(server, Signal::STOP).expect("stopped");
    let mut sent = pane.nudge_ahead(&text).expect("sent ahead");
    assert!(!sent.is_typed(Duration::from_millis(1)));
    let second = tmux.pane_of_another_lock("shell", pane.binding().clone());
    assert!(second.nudge_ahead(&text).is_none());
    let outcome = pane.nudge_answer(&text, sent);
    assert!(!matches!(outcome, Ok(TextOutcome::Sent | TextOutcome::Typed(_))), "{outcome:?}");
    kill_process(server, Signal::CONT).expect("continued");
    // It answers again, and what it has read meanwhile was too old.
    eventually("it is looked at again", || pane.inspect().is_ok());
    assert_eq!(tmux.received(), [""; 0]);
}
