//! Nudges that arrive, in a real tmux server: whole, once, in order of text and Enter.

use ensemble_core::pane::NUDGE_BYTES_MAX;
use ensemble_tmux::provider::AgentObserver;

use crate::*;

#[test]
fn a_nudge_reaches_a_script_byte_for_byte() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    let longest = "Az09 ._:-".repeat(NUDGE_BYTES_MAX).chars().take(NUDGE_BYTES_MAX).collect();
    let texts: Vec<String> = vec![
        text_for("shell").to_string(),
        "Enter".to_owned(),
        "C-c".to_owned(),
        "0x41".to_owned(),
        ": hello".to_owned(),
        longest,
    ];
    for (sent, text) in texts.iter().enumerate() {
        let nudge = NudgeText::new(text).expect("harmless");
        eventually(text, || pane.nudge(&nudge).expect("an outcome") == NudgeOutcome::Sent);
        eventually(text, || tmux.received().len() > sent);
    }
    assert_eq!(tmux.received(), texts);
}

#[test]
fn many_threads_never_mix_their_nudges() {
    const THREADS: usize = 8;
    const NUDGES: usize = 25;
    let tmux = TestServer::reader();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut pane = tmux.pane("%0", "shell");
            scope.spawn(move || {
                for number in 0..NUDGES {
                    let text = NudgeText::new(format!(": from {thread} number {number}"));
                    let text = text.expect("harmless");
                    // Another's line may not have been read yet; that is a reason to wait.
                    eventually("sent", || {
                        pane.nudge(&text).expect("an outcome") == NudgeOutcome::Sent
                    });
                }
            });
        }
    });
    eventually("all are read", || tmux.received().len() >= THREADS * NUDGES);
    let mut received = tmux.received();
    received.sort();
    let mut expected: Vec<String> = (0..THREADS)
        .flat_map(|t| (0..NUDGES).map(move |n| format!(": from {t} number {n}")))
        .collect();
    expected.sort();
    assert_eq!(received, expected);
}

#[test]
fn resizing_does_not_matter() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    for (sent, columns) in [100, 30, 60].into_iter().enumerate() {
        let columns = format!("{columns}");
        tmux.server.run(&["resize-window", "-t", "%0", "-x", &columns]).expect("resized");
        eventually("sent", || {
            pane.nudge(&text_for("shell")).expect("an outcome") == NudgeOutcome::Sent
        });
        eventually("read", || tmux.received().len() == sent + 1);
    }
    assert_eq!(tmux.received(), vec![text_for("shell").to_string(); 3]);
}

/// A profile for the reader script whose Enter comes later.
fn delayed(tmux: &TestServer, milliseconds: u32) -> TmuxPane {
    let mut profiles = Profiles::embedded().expect("profiles");
    let text = format!(
        "name: delayed\nprograms: [sh]\nnudge: ['ensemble: mail for {{mailbox}}']\n\
         enter_delay_ms: {milliseconds}\ncomposer: {{kind: shell-line}}\notherwise: ready\n"
    );
    profiles.add(&text, Path::new("delayed.yaml")).expect("a profile");
    let profile = profiles.get("delayed").expect("a profile");
    let binding = tmux.server.bind("%0").expect("a binding");
    let locks = tmux.dir.path().join("locks");
    TmuxPane::new(tmux.server.clone(), binding, AgentObserver::new(profile), &locks)
        .expect("a pane")
}

fn typed(outcome: TextOutcome) -> ensemble_tmux::tmux::TypedNudge {
    match outcome {
        TextOutcome::Typed(typed) => typed,
        other => panic!("not typed: {other:?}"),
    }
}

#[test]
fn enter_is_not_pressed_when_a_person_scrolls_in_between() {
    let tmux = TestServer::reader();
    let mut pane = delayed(&tmux, 1);
    let text = text_for("generic");
    let half = typed(pane.nudge_text(&text).expect("an outcome"));
    eventually("the text is shown", || tmux.screen("%0") == [text.as_str()]);
    tmux.server.run(&["copy-mode", "-t", "%0"]).expect("copy-mode");
    let outcome = pane.nudge_enter(half).expect("an outcome");
    assert_eq!(outcome, NudgeOutcome::TextOnly { deferral: Deferral::CopyMode });
    assert_eq!(tmux.received(), [""; 0]);
}

#[test]
fn enter_is_not_pressed_when_a_person_types_in_between() {
    let tmux = TestServer::reader();
    let mut pane = delayed(&tmux, 1);
    let text = text_for("generic");
    let half = typed(pane.nudge_text(&text).expect("an outcome"));
    tmux.human(&["-l", " and more"]);
    let line = format!("{text} and more");
    tmux.wait_for_line(&line);
    let outcome = pane.nudge_enter(half).expect("an outcome");
    assert_eq!(outcome, NudgeOutcome::TextOnly { deferral: Deferral::Draft });
    assert_eq!(tmux.received(), [""; 0]);
}

#[test]
fn no_process_types_between_text_and_enter() {
    let tmux = TestServer::reader();
    let mut first = delayed(&tmux, 100);
    let mut second = tmux.pane("%0", "shell");
    let text = text_for("generic");
    let half = typed(first.nudge_text(&text).expect("an outcome"));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let hint = text_for("shell");
            eventually("sent", || second.nudge(&hint).expect("an outcome") == NudgeOutcome::Sent);
        });
        assert_eq!(first.nudge_enter(half).expect("an outcome"), NudgeOutcome::Sent);
    });
    eventually("both are read", || tmux.received().len() == 2);
    assert_eq!(tmux.received(), [text.to_string(), text_for("shell").to_string()]);
}

#[test]
fn a_dropped_half_gives_the_lock_back() {
    let tmux = TestServer::reader();
    let mut pane = delayed(&tmux, 1);
    drop(typed(pane.nudge_text(&text_for("generic")).expect("an outcome")));
    // The text is still in the composer, and is recognised as a draft.
    eventually("a draft", || {
        pane.nudge_text(&text_for("generic")).is_ok_and(|outcome| {
            matches!(outcome, TextOutcome::Refused { deferral: Deferral::Draft })
        })
    });
}

#[test]
fn keys_are_pressed_where_the_profile_allows_it() {
    let tmux = TestServer::bash();
    let mut pane = tmux.pane("%0", "shell");
    assert_eq!(pane.press(Key::Enter).expect("an outcome"), NudgeOutcome::Sent);
    eventually("a second prompt", || tmux.screen("%0").len() == 2);
    // Ctrl-C would drop what a person has typed.
    tmux.human(&["-l", "half a line"]);
    let draft = format!("{PROMPT} half a line");
    tmux.wait_for_line(&draft);
    let refused = NudgeOutcome::Refused { deferral: Deferral::Draft };
    assert_eq!(pane.press(Key::CtrlC).expect("an outcome"), refused);
    tmux.wait_for_line(&draft);
}

#[test]
fn an_agent_is_opened_at_a_bare_prompt_only() {
    let tmux = TestServer::bash();
    let mut pane = tmux.pane("%0", "generic");
    assert_eq!(
        pane.open("cat # it's; \"$HOME\" #{pane_id};").expect("an outcome"),
        NudgeOutcome::Sent
    );
    tmux.wait_for_command("cat");
    assert!(tmux.screen("%0")[0].ends_with("cat # it's; \"$HOME\" #{pane_id};"));
    assert_eq!(
        pane.open("cat").expect("an outcome"),
        NudgeOutcome::Refused { deferral: Deferral::OtherProgram { command: "cat".to_owned() } }
    );
    for command in ["", "a\nb", "\u{1b}[201~"] {
        assert!(pane.open(command).is_err(), "{command:?}");
    }
}

#[test]
fn an_agent_is_not_opened_in_a_script_that_reads_lines() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "generic");
    let outcome = pane.open("cat").expect("an outcome");
    assert_eq!(
        outcome,
        NudgeOutcome::Refused {
            deferral: Deferral::OtherProgram { command: "reader.sh".to_owned() }
        }
    );
}

#[test]
fn an_agent_is_opened_in_a_dead_pane_and_the_binding_follows() {
    let tmux = TestServer::bash();
    tmux.server.run(&["set-option", "-g", "remain-on-exit", "on"]).expect("an option");
    let mut pane = tmux.pane("%0", "shell");
    let before = pane.binding().clone();
    tmux.human(&["exit", "Enter"]);
    eventually("the pane is dead", || pane.inspect().expect("a state").dead);
    assert_eq!(pane.open(&tmux.reader_command()).expect("an outcome"), NudgeOutcome::Sent);
    tmux.wait_for_reader();
    assert_ne!(pane.binding().pid, before.pid);
    eventually("sent", || {
        pane.nudge(&text_for("shell")).expect("an outcome") == NudgeOutcome::Sent
    });
    eventually("read", || tmux.received() == [text_for("shell").as_str()]);
}
