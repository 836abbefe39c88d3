//! One suite for every place that an agent can run in: tmux, our own terminal, zellij and herdr.
//!
//! Scripted programs imitate the agents and write down every byte that they get. zellij and herdr are tested where
//! they are installed; otherwise the test prints `skipped:` with the reason. A scripted server speaks herdr's protocol
//! everywhere, over panes of tmux.

use ensemble_tmux::nudge::NudgeOccasion;
use ensemble_tmux::terminal::hosted::{HostedActivity, MailCount, bind_surrounding};
use serde_json::json;

use crate::agent::{PlayedAgent, reader_script};
use crate::stage::PaneStage;

use crate::*;

type PanePromise = fn(&dyn PaneStage);

fn run_suite(stage: &dyn PaneStage) {
    let suite: [(&str, PanePromise); 8] = [
        ("an idle agent gets one line", idle_agent_gets_one_line),
        ("a draft is untouched", draft_is_untouched),
        ("a dialog is untouched", dialog_is_untouched),
        ("a working agent is seen", working_agent_is_seen),
        ("a script gets a line", script_gets_a_line),
        ("a half-written command is untouched", half_written_command_is_untouched),
        ("another process is not typed to", other_process_is_not_typed_to),
        ("a closed pane is gone", closed_pane_is_gone),
    ];
    for (what, case) in suite {
        println!("{what}");
        case(stage);
    }
}

fn idle_agent_gets_one_line(stage: &dyn PaneStage) {
    let agent = PlayedAgent::start(stage, "ready");
    let text = text_for("claude");
    agent.wait_for(|seen| seen.objections == [None]);
    assert_eq!(agent.pane().nudge(&text).expect("an outcome"), NudgeOutcome::Sent);
    eventually("it is submitted", || agent.events() == [format!("SUBMIT {text}")]);
    // Each look has a new handle, as another process would.
    let again = agent.pane().nudge_text(&text, NudgeOccasion::Again).expect("an outcome");
    assert!(matches!(again, TextOutcome::Sent), "{again:?}");
    // It is tried again while the screen still moves.
    let is_gone = || agent.pane().withdraw_line().expect("an answer") == Deferral::LineGone;
    eventually("the line is gone", is_gone);
    assert_eq!(agent.received(), " nudge  Enter ");
}

fn draft_is_untouched(stage: &dyn PaneStage) {
    let agent = PlayedAgent::start(stage, "ready");
    agent.wait_for(|seen| seen.objections == [None]);
    stage.type_keys(&agent.binding, "please");
    agent.wait_for(|seen| seen.pane.screen.iter().any(|line| line.contains("please")));
    assert_eq!(agent.refusal(), Deferral::Draft);
    assert_eq!(agent.received(), "please");
}

fn dialog_is_untouched(stage: &dyn PaneStage) {
    let agent = PlayedAgent::start(stage, "permission");
    agent.wait_for(|seen| seen.judgement.diagnosis.state.word() == "permission");
    assert_eq!(agent.refusal().word(), "dialog");
    assert_eq!((agent.received(), agent.events()), (String::new(), Vec::new()));
}

fn working_agent_is_seen(stage: &dyn PaneStage) {
    let agent = PlayedAgent::start(stage, "busy");
    agent.wait_for(|seen| seen.judgement.diagnosis.state.word() == "busy");
    let seen = agent.pane().inspect().expect("a state");
    assert!(seen.bound && !seen.dead, "{seen:?}");
    assert_eq!((seen.pid, seen.command.as_str()), (agent.binding.pid, "claude"));
}

fn script_gets_a_line(stage: &dyn PaneStage) {
    let (dir, command) = reader_script(stage.directory());
    let binding = stage.open_pane(&command);
    eventually("the script reads", || dir.join("ready").exists());
    let mut pane = agent::bound_pane(stage, &binding, "shell");
    let text = text_for("shell");
    if !stage.shows_cursor() {
        let refused = NudgeOutcome::Refused { deferral: Deferral::Draft };
        assert_eq!(pane.nudge(&text).expect("an outcome"), refused);
        return;
    }
    eventually("it is free", || pane.nudge(&text).expect("an outcome") == NudgeOutcome::Sent);
    let received = || std::fs::read_to_string(dir.join("received")).unwrap_or_default();
    eventually("it has read the line", || received() == format!("{text}\n"));
}

fn half_written_command_is_untouched(stage: &dyn PaneStage) {
    let binding = stage.open_pane(tmux_support::bash_command());
    let mut pane = agent::bound_pane(stage, &binding, "shell");
    let mut shows = |text: &str| {
        let screen = pane.inspect().expect("a state").screen;
        screen.iter().any(|line| line.trim_end() == text)
    };
    eventually("a prompt", || shows(tmux_support::PROMPT));
    stage.type_keys(&binding, "rm -rf ./important");
    let line = format!("{} rm -rf ./important", tmux_support::PROMPT);
    eventually("the command", || shows(&line));
    let refused = NudgeOutcome::Refused { deferral: Deferral::Draft };
    assert_eq!(pane.nudge(&text_for("shell")).expect("an outcome"), refused);
    let screen = pane.inspect().expect("a state").screen;
    assert!(screen.iter().any(|shown| shown.trim_end() == line), "{screen:?}");
}

fn other_process_is_not_typed_to(stage: &dyn PaneStage) {
    let mut agent = PlayedAgent::start(stage, "ready");
    agent.wait_for(|seen| seen.objections == [None]);
    agent.binding.started = agent.binding.started.map(|started| started + 1);
    agent.binding.token = "0".repeat(agent.binding.token.len());
    let refusal = agent.refusal();
    assert!(matches!(refusal, Deferral::PaneReused | Deferral::PaneGone), "{refusal:?}");
    assert_eq!(agent.received(), "");
}

fn closed_pane_is_gone(stage: &dyn PaneStage) {
    let agent = PlayedAgent::start(stage, "ready");
    agent.wait_for(|seen| seen.objections == [None]);
    assert_eq!(agent.pane().check().expect("an answer"), None);
    stage.close_pane(&agent.binding);
    eventually("it is seen gone", || agent.pane().check().is_ok_and(|gone| gone.is_some()));
    let refusal = agent.refusal();
    assert!(
        matches!(
            refusal,
            Deferral::PaneGone | Deferral::PaneDead | Deferral::ServerGone | Deferral::TerminalGone
        ),
        "{refusal:?}"
    );
}

#[test]
fn tmux_keeps_the_rules() {
    run_suite(&hosts::TmuxStage::start());
}

#[test]
fn our_terminal_keeps_the_rules() {
    run_suite(&hosts::TerminalStage::start());
}

#[test]
fn zellij_keeps_the_rules() {
    let Some(stage) = zellij::ZellijStage::start() else { return };
    run_suite(&stage);
    watches_zellij(&stage);
}

#[test]
fn the_scripted_herdr_keeps_the_rules() {
    run_suite(&herdr::HerdrStage::scripted());
}

#[test]
fn the_real_herdr_keeps_the_rules() {
    let Some(stage) = herdr::HerdrStage::real() else { return };
    run_suite(&stage);
}

/// A screen that changes is noticed without a look at the screen itself.
fn watches_zellij(stage: &zellij::ZellijStage) {
    let agent = PlayedAgent::start(stage, "ready");
    agent.wait_for(|seen| seen.objections == [None]);
    let (mut activity, panes) = (HostedActivity::default(), [agent.binding.id.clone()]);
    let mut signs = || activity.poll_signs(&agent.binding.socket, &panes).expect("signs");
    let before = signs();
    stage.type_keys(&agent.binding, "please");
    eventually("the cursor has moved", || signs() != before);
}

#[test]
fn herdr_says_who_is_blocked_and_shows_mail() {
    let stage = herdr::HerdrStage::scripted();
    let agent = PlayedAgent::start(&stage, "ready");
    agent.wait_for(|seen| seen.objections == [None]);

    let (mut activity, panes) = (HostedActivity::default(), [agent.binding.id.clone()]);
    let mut signs = || activity.poll_signs(&agent.binding.socket, &panes).expect("signs");
    let before = signs();
    eventually("it is subscribed", || stage.double().has_subscriber());
    stage
        .double()
        .set_agent(&agent.binding, json!({ "agent": "claude", "agent_status": "blocked" }));
    eventually("its state is pushed", || signs() != before);
    assert_eq!(agent.refusal(), Deferral::Dialog { name: "blocked".to_owned() });
    assert_eq!(agent.received(), "");

    // No person can be typing into a pane without the focus, so herdr itself submits the line.
    stage.double().set_agent(&agent.binding, json!({ "agent": "claude", "agent_status": "idle" }));
    let text = text_for("claude");
    assert_eq!(agent.pane().nudge(&text).expect("an outcome"), NudgeOutcome::Sent);
    eventually("it is submitted", || agent.events() == [format!("SUBMIT {text}")]);
    assert!(stage.double().asked().iter().any(|(method, _)| method == "agent.prompt"));

    agent.binding.show_mail(MailCount { unread: 3, held: 1 }).expect("shown");
    let (method, report) = stage.double().asked().pop().expect("a report");
    assert_eq!(method, "pane.report_metadata");
    assert_eq!(report["tokens"], json!({ "unread": "3", "held": "1" }));
    assert_eq!(report["state_labels"]["idle"], "idle, 3 unread, 1 held");
    agent.binding.show_mail(MailCount::default()).expect("shown");
    let (_, report) = stage.double().asked().pop().expect("a report");
    assert_eq!(report["tokens"], json!({ "unread": null, "held": null }));
    assert_eq!(report["clear_state_labels"], true);
}

#[test]
fn a_state_that_herdr_does_not_know_is_reported_to_it() {
    let stage = herdr::HerdrStage::scripted();
    let agent = PlayedAgent::start(&stage, "permission");
    let (name, state) = (Name::new("w1").expect("a name"), agent.pane().diagnose());
    agent.binding.report_state(&name, state.expect("a state").diagnosis.state).expect("reported");
    let (method, report) = stage.double().asked().pop().expect("a report");
    assert_eq!((method.as_str(), &report["agent"]), ("pane.report_agent", &json!("w1@ensemble")));
    assert_eq!(report["state"], "blocked");
    // The agent that herdr recognizes by itself is left to it.
    stage.double().set_agent(&agent.binding, json!({ "agent": "claude", "agent_status": "idle" }));
    let asked = stage.double().asked().len();
    let state = agent.pane().diagnose().expect("a state").diagnosis.state;
    agent.binding.report_state(&name, state).expect("left alone");
    let since = stage.double().asked().split_off(asked);
    assert!(!since.iter().any(|(method, _)| method == "pane.report_agent"), "{since:?}");
}

#[test]
fn the_environment_does_not_prove_in_which_pane_a_process_runs() {
    let stage = herdr::HerdrStage::scripted();
    let agent = PlayedAgent::start(&stage, "ready");
    let socket = agent.binding.socket.display().to_string();
    let variable = |name: &str| match name {
        "HERDR_SOCKET_PATH" => Some(socket.clone()),
        "HERDR_PANE_ID" => Some(agent.binding.id.replace("herdr:", "")),
        _ => None,
    };
    assert_eq!(bind_surrounding(&variable), None, "its first process is not above this one");
    let own = std::process::id();
    stage.double().set_agent(&agent.binding, json!({ "shell_pid": own }));
    let (between, binding) = bind_surrounding(&variable).expect("the pane around this process");
    assert_eq!((between, binding.pid, binding.id), (0, own, agent.binding.id.clone()));
}
