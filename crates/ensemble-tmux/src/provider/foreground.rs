//! Decisions from the processes in the foreground of a pane: whether the agent runs there, and whether a command may
//! be typed that starts it.

use super::screens::pane;
use super::{DiagnosisContext, Profiles, TypingPurpose, diagnose, objection};
use ensemble_core::agent::AgentState;
use ensemble_core::pane::{Deferral, ForegroundProcess, PaneState};

/// A pane with these processes in its foreground, the leader first; `sh` is the leader for tmux.
fn with_foreground(screen: &str, processes: &[&[&str]]) -> PaneState {
    let mut pane = pane("sh", screen);
    for (index, names) in processes.iter().enumerate() {
        pane.foreground.push(ForegroundProcess {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            leads: index == 0,
            shell: matches!(names[0], "sh" | "bash"),
            reads_commands: *names == ["bash"],
            given_command: *names == ["sh"],
            ..ForegroundProcess::default()
        });
    }
    pane
}

#[test]
fn any_member_of_the_foreground_may_be_the_agent() {
    let profiles = Profiles::embedded().expect("profiles");
    let composer = "❯ ▮\n─────\n  ? for shortcuts";
    let state_of = |profile: &str, processes: &[&[&str]]| {
        let pane = with_foreground(composer, processes);
        diagnose(&profiles.get(profile).expect(profile), &pane).state
    };
    for processes in [
        &[&["claude"][..]][..],
        &[&["sh"], &["claude"]],
        &[&["sh", "wrapper"], &["claude"]],
        &[&["npm exec claude", "node"], &["sh"], &["node", "claude"]],
        &[&["sh", "claude"]],
    ] {
        assert_eq!(state_of("claude", processes), AgentState::Ready, "{processes:?}");
    }
    assert_eq!(state_of("claude", &[&["bash"]]), AgentState::Crashed);
    assert_eq!(state_of("claude", &[&["sh"], &["sh"]]), AgentState::Crashed);
    assert_eq!(state_of("claude", &[&["sh"], &["npm exec claude", "node"]]), AgentState::Unknown);
    assert_eq!(state_of("claude", &[&["sh", "x.sh"], &["dd"]]), AgentState::Crashed);
    assert_eq!(state_of("claude", &[&["vim"], &["sh"]]), AgentState::Unknown);
    // A shell below another program is a tool of that program.
    assert_eq!(state_of("shell", &[&["git"], &["sh"], &["vim"]]), AgentState::Unknown);
    // The apparent shell prompt is the composer of the program that the shell waits for.
    assert_eq!(state_of("shell", &[&["sh"], &["claude"]]), AgentState::Draft);
    assert_eq!(state_of("shell", &[&["bash"]]), AgentState::Ready);
}

#[test]
fn a_shell_script_is_an_agent_where_any_program_may_be_one() {
    let profiles = Profiles::embedded().expect("profiles");
    let judge = |profile: &str, screen: &str, processes: &[&[&str]]| {
        diagnose(&profiles.get(profile).expect(profile), &with_foreground(screen, processes))
    };
    for processes in
        [&[&["bash", "agent.sh"][..]][..], &[&["sh", "agent.sh"], &["sleep"]], &[&["sh"]]]
    {
        let judged = judge("generic", "agent ready ▮", processes);
        assert_eq!(judged.state, AgentState::Ready, "{processes:?}");
        assert_eq!(judged.deferral, None, "{processes:?}");
    }
    for processes in [&[&["bash"][..]][..], &[&["bash"], &["git"]]] {
        assert_eq!(judge("generic", "$ ▮", processes).state, AgentState::Crashed, "{processes:?}");
    }
    // A shell has secondary prompts, where a command waits to be completed; its script has none.
    assert_eq!(judge("shell", "> ▮", &[&["bash"]]).state, AgentState::Draft);
    assert_eq!(judge("shell", "> ▮", &[&["bash", "agent.sh"]]).deferral, None);
}

#[test]
fn nothing_is_typed_where_a_supervisor_is_in_the_foreground() {
    let profiles = Profiles::embedded().expect("profiles");
    for (profile, names) in [("shell", "sh"), ("claude", "claude"), ("generic", "python")] {
        let profile = profiles.get(profile).expect(profile);
        let mut pane = with_foreground("user@host:~$ ▮", &[&["sh"], &["ensemble"], &[names]]);
        pane.foreground[1].supervises = true;
        let judged = diagnose(&profile, &pane);
        assert_eq!(judged.deferral, Some(Deferral::Supervised));
        for purpose in [TypingPurpose::Nudge, TypingPurpose::Probe, TypingPurpose::Open] {
            let why = objection(&profile, &pane, &DiagnosisContext::default(), purpose);
            assert_eq!(why, Some(Deferral::Supervised), "{purpose:?}");
        }
    }
}

#[test]
fn a_command_is_typed_only_at_the_prompt_of_a_shell_that_is_alone() {
    let profiles = Profiles::embedded().expect("profiles");
    let claude = profiles.get("claude").expect("claude");
    let may = |pane: &PaneState| {
        objection(&claude, pane, &DiagnosisContext::default(), TypingPurpose::Open)
    };
    for prompt in ["user@host:~$ ▮", "❯ ▮"] {
        assert_eq!(may(&with_foreground(prompt, &[&["bash"]])), None, "{prompt}");
        for others in [
            &[&["sh"][..], &["claude"]][..],
            &[&["bash"], &["bash"]],
            &[&["sh", "worker.sh"]],
            &[&["claude"]],
        ] {
            let why = may(&with_foreground(prompt, others));
            assert!(matches!(why, Some(Deferral::OtherProgram { .. })), "{others:?}: {why:?}");
        }
    }
    assert_eq!(may(&with_foreground("$ make▮", &[&["bash"]])), Some(Deferral::Draft));
    // Without evidence from the process table, what looks like a composer does not count as one.
    assert_eq!(may(&pane("bash", "user@host:~$ ▮")), None);
    assert_eq!(may(&pane("sh", "❯ ▮\n─────\n  ? for shortcuts")), Some(Deferral::Draft));
}
