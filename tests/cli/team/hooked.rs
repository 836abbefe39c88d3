//! Agents that the team has started with hooks of ours.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use super::Team;
use super::starts::{ok, team};
use crate::bed::program;
use crate::tmux_support::eventually;

/// Notes its arguments, shows what Claude Code shows at rest, and runs what it reads.
const CLAUDE: &str = r#"#!/bin/sh
me=$HERE/$ENSEMBLE_AGENT_ID
printf '%s\n' "$@" >"$me.args"
printf '\033[H\033[2J────────\n❯ \0337\n────────\n  ? for shortcuts\0338'
[ -p "$me.in" ] || mkfifo "$me.in"
exec 3<>"$me.in"
: >"$me.ready"
while IFS= read -r line <&3; do
    (eval "$line") 3<&- >"$me.out" 2>"$me.err"
    echo $? >"$me.code.new"
    mv "$me.code.new" "$me.code"
done
"#;

fn hooked(agents: &[(&str, &str)], config: &str) -> Team {
    let team = team("/bin/sh", agents);
    let claude = team.here("bin/claude");
    fs::write(&claude, CLAUDE).unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    let yaml = team.bed.project().join("ensemble.yaml");
    let text = fs::read_to_string(&yaml).unwrap() + config;
    fs::write(yaml, text).unwrap();
    ok(&team, &["up"]);
    for (name, _) in agents {
        team.wait_for_puppet(name);
    }
    team
}

/// The arguments that the program of an agent was started with.
fn arguments(team: &Team, name: &str) -> Vec<String> {
    let text = fs::read_to_string(team.here(&format!("{name}.args"))).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn claude_is_started_with_hooks_and_tools_and_the_project_stays_as_it_is() {
    let agents = [
        ("plain", "claude"),
        ("own", "exec claude --model x"),
        ("set", "claude --settings mine.json"),
        ("shell", "sh -c 'claude'"),
    ];
    let before = |team: &Team| {
        let entries = fs::read_dir(team.bed.project()).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let team = hooked(&agents, "");
    assert_eq!(before(&team), [".ensemble", "ensemble.yaml", "here", "queue"]);
    let launch = team.bed.project().join(".ensemble/launch/claude");
    let ours = [
        format!("--settings={}", launch.join("settings.json").display()),
        format!("--mcp-config={}", launch.join("mcp.json").display()),
    ];
    assert_eq!(arguments(&team, "plain"), ours);
    assert_eq!(arguments(&team, "own"), [&ours[..], &["--model".into(), "x".into()]].concat());
    // What the user has said himself stands, and so does a command that begins with another program.
    assert_eq!(arguments(&team, "set"), ["--settings", "mine.json"]);
    assert_eq!(arguments(&team, "shell"), [""; 0]);
    let json = |file: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(launch.join(file)).unwrap()).unwrap()
    };
    let (settings, mcp) = (json("settings.json"), json("mcp.json"));
    let stop = settings["hooks"]["Stop"][0]["hooks"].as_array().unwrap();
    let program = program().display().to_string();
    assert_eq!(stop[0]["command"], format!("{program} hook stop --provider claude"));
    assert!(stop[1]["asyncRewake"] == true && stop[1]["async"] == true, "{stop:?}");
    assert_eq!(mcp["mcpServers"]["ensemble"]["command"], program);
    let allowed = settings["permissions"]["allow"].to_string();
    assert!(
        allowed.contains("Bash(ensemble recv:*)") && !allowed.contains("ensemble down"),
        "{allowed}"
    );
    // The roster keeps what the user wrote.
    let recorded =
        fs::read_to_string(team.bed.project().join(".ensemble/roster/own.yaml")).unwrap();
    assert!(recorded.contains("command: exec claude --model x\n"), "{recorded}");
}

#[test]
fn a_project_chooses_which_agents_have_hooks() {
    let team = hooked(&[("plain", "claude")], "hooks: {providers: []}\n");
    assert_eq!(arguments(&team, "plain"), [""; 0]);
    assert!(!team.bed.project().join(".ensemble/launch").exists());
}

#[test]
fn hooks_know_their_agent_by_pass_and_by_pane_and_no_other_program_takes_its_mail() {
    let team = hooked(&[("one", "claude"), ("two", "claude")], "");
    let hook = |event: &str, session: &str, how: &str| {
        format!(
            "printf '{{\"session_id\":\"{session}\"}}' | {how} $E hook {event} --provider claude"
        )
    };
    let said = team.order("one", &hook("start", "s1", "")).stdout;
    assert!(said.contains("You are one, role worker of team crew"), "{said}");
    // After /clear, and without what the environment says.
    let bare = "env -u ENSEMBLE_AGENT_PASS -u ENSEMBLE_AGENT_ID -u LIZA_AGENT_ID";
    let said = team.order("one", &hook("start", "s2", bare)).stdout;
    assert!(said.contains("You are one, role worker"), "{said}");
    // Another's name is refused, silently.
    team.bed.ok("send --as operator --to two --id secret -m secret");
    let other = "env -u ENSEMBLE_AGENT_PASS ENSEMBLE_AGENT_ID=two";
    let ran = team.order("one", &hook("tool", "s2", other));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
    assert_eq!(team.records("hook.failed").len(), 1);
    // A session that the agent has started as a tool is a program below its own.
    let (own, nested) = (hook("tool", "s2", ""), hook("tool", "s9", "timeout 60"));
    let send = "$E send --to one --id mine -m hello >/dev/null";
    let ran = team.order("one", &format!("{own} && {send} && {nested}"));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""), "{ran:?}");
    let said = team.order("one", &own).stdout;
    assert!(said.contains("hello") && said.contains("settle mine --as one"), "{said}");
    eventually("it is held", || team.bed.mailbox("one/cur/mine@one@1.yaml").exists());
}
