//! Promise 4 in a real tmux server: nothing is typed that could run, submit or destroy something.

use ensemble_tmux::tmux::Binding;

use crate::tmux_support::bash_command;

use crate::*;

#[test]
fn a_pane_that_a_person_scrolls_is_left_alone() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    tmux.server.run(&["copy-mode", "-t", "%0"]).expect("copy-mode");
    assert_eq!(refusal(&mut pane), Deferral::CopyMode);
    assert!(pane.inspect().expect("a state").in_mode);
    tmux.human(&["-X", "cancel"]);
    assert_eq!(tmux.received(), [""; 0]);
}

#[test]
fn a_dead_pane_is_left_alone_and_its_server_lives() {
    let tmux = TestServer::bash();
    tmux.server.run(&["set-option", "-g", "remain-on-exit", "on"]).expect("an option");
    let mut pane = tmux.pane("%0", "shell");
    tmux.human(&["exit 7", "Enter"]);
    eventually("the pane is dead", || pane.inspect().expect("a state").dead);
    // tmux 3.3a sometimes loses the status.
    assert!(matches!(pane.inspect().expect("a state").dead_status, None | Some(7)));
    assert_eq!(refusal(&mut pane), Deferral::PaneDead);
    let pressed = pane.press(Key::Enter).expect("an outcome");
    assert_eq!(pressed, NudgeOutcome::Refused { deferral: Deferral::PaneDead });
    assert!(tmux.server.panes().expect("the server lives").iter().any(|p| p.dead));
}

#[test]
fn a_pane_with_its_input_off_is_left_alone() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    tmux.server.run(&["select-pane", "-d", "-t", "%0"]).expect("input off");
    assert_eq!(refusal(&mut pane), Deferral::InputOff);
}

#[test]
fn synchronized_panes_are_left_alone() {
    let tmux = TestServer::reader();
    tmux.server.split("%0", "exec cat").expect("a second pane");
    let mut pane = tmux.pane("%0", "shell");
    tmux.server
        .run(&["set-option", "-w", "-t", "%0", "synchronize-panes", "on"])
        .expect("synchronized");
    assert_eq!(refusal(&mut pane), Deferral::Synchronized);
}

#[test]
fn a_half_written_line_is_never_joined() {
    let tmux = TestServer::bash();
    let mut pane = tmux.pane("%0", "shell");
    for draft in ["rm -rf ./important", "echo x > ", "echo 50 % ", "  "] {
        tmux.human(&["-l", "--", draft]);
        let line = format!("{PROMPT} {draft}");
        eventually(draft, || {
            let state = pane.inspect().expect("a state");
            state.cursor_x as usize == line.len()
        });
        assert_eq!(refusal(&mut pane), Deferral::Draft, "{draft:?}");
        assert_eq!(
            pane.press(Key::Enter).expect("an outcome"),
            NudgeOutcome::Refused { deferral: Deferral::Draft }
        );
        tmux.human(&["C-u"]);
        tmux.wait_for_line(PROMPT);
    }
}

#[test]
fn a_cursor_moved_back_into_a_draft_is_still_a_draft() {
    let tmux = TestServer::bash();
    let mut pane = tmux.pane("%0", "shell");
    tmux.human(&["-l", "echo hello"]);
    tmux.wait_for_line(&format!("{PROMPT} echo hello"));
    tmux.human(&["C-a"]);
    eventually("the cursor is back", || {
        pane.inspect().expect("a state").cursor_x as usize == PROMPT.len() + 1
    });
    assert_eq!(refusal(&mut pane), Deferral::Draft);
}

#[test]
fn an_unfinished_command_is_a_draft() {
    let tmux = TestServer::bash();
    let mut pane = tmux.pane("%0", "shell");
    tmux.human(&["echo 'one", "Enter"]);
    tmux.wait_for_line(">");
    assert_eq!(refusal(&mut pane), Deferral::Draft);
}

#[test]
fn another_program_in_the_foreground_is_left_alone() {
    let tmux = TestServer::bash();
    let mut pane = tmux.pane("%0", "shell");
    tmux.human(&["cat", "Enter"]);
    tmux.wait_for_command("cat");
    assert_eq!(refusal(&mut pane), Deferral::OtherProgram { command: "cat".to_owned() });
}

#[test]
fn an_agent_that_has_gone_back_to_its_shell_is_not_nudged() {
    let tmux = TestServer::bash();
    let profiles = Profiles::embedded().expect("profiles");
    // To the profile `shell` a shell is the agent.
    for profile in profiles.names().filter(|name| *name != "shell") {
        let mut pane = tmux.pane("%0", profile);
        assert_eq!(refusal(&mut pane), Deferral::BareShell { command: "bash".to_owned() });
        let pressed = pane.press(Key::CtrlC).expect("an outcome");
        assert!(matches!(pressed, NudgeOutcome::Refused { .. }), "{pressed:?}");
    }
    tmux.wait_for_line(PROMPT);
}

#[test]
fn unknown_and_respawned_panes_are_noticed() {
    let tmux = TestServer::reader();
    let second = tmux.server.split("%0", bash_command()).expect("a second pane");
    let mut pane = tmux.pane(&second, "shell");
    tmux.server.run(&["respawn-pane", "-k", "-t", &second, "exec cat"]).expect("a respawn");
    assert_eq!(refusal(&mut pane), Deferral::PaneReused);
    tmux.server.kill_pane(&second).expect("killed");
    assert_eq!(refusal(&mut pane), Deferral::PaneGone);
    assert!(!pane.inspect().expect("a state").bound);
}

#[test]
fn an_id_that_a_new_server_has_given_again_is_noticed() {
    let mut tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    let old: Binding = pane.binding().clone();
    tmux.server.kill_server().expect("ended");
    assert_eq!(refusal(&mut pane), Deferral::ServerGone);
    assert_eq!(tmux.server.check(&old).expect("a check"), Some(Deferral::ServerGone));
    let command = tmux.reader_command();
    tmux.new_server(&command);
    assert_eq!(refusal(&mut pane), Deferral::PaneReused);
    assert_eq!(tmux.server.check(&old).expect("a check"), Some(Deferral::PaneReused));
    assert_eq!(tmux.received(), [""; 0]);
}

#[test]
fn targets_are_exact() {
    let tmux = TestServer::reader();
    assert_eq!(tmux.server.bind("=main").expect("a binding").id, "%0");
    assert_eq!(tmux.server.bind("=main:0.0").expect("a binding").id, "%0");
    for target in ["mai", "main", "0", "=mai", "=main:9", "%77", "%", "", "=main\nkill-server"] {
        let error = tmux.server.bind(target).expect_err(target).to_string();
        assert!(error.contains("pane") || error.contains("find"), "{target:?}: {error}");
    }
    assert_eq!(
        tmux.server.bind("%0").expect("a binding"),
        tmux.server.bind("=main:0.0").expect("the same binding")
    );
}
