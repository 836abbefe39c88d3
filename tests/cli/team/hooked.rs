//! Agents that the team has started with our hooks.

use std::fs;
use std::path::Path;
use std::process::Command;

use ensemble_core::durable::FileLock;
use serde_json::{Value, json};

use super::Team;
use super::starts::{ok, team};
use crate::bed::{JsonMembers as _, Running, SaidText as _, program, write_program};
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
    eval "$line" 3<&- >"$me.out" 2>"$me.err"
    echo $? >"$me.code.new"
    mv "$me.code.new" "$me.code"
done
"#;

pub(super) fn hooked(agents: &[(&str, &str)], config: &str) -> Team {
    let team = team("/bin/sh", agents);
    write_program(team.here("bin/claude"), CLAUDE);
    team.bed.add_config(config);
    ok(&team, &["up"]);
    for (name, _) in agents {
        team.wait_for_puppet(name);
    }
    team
}

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
    // Arguments that the user has set are kept, and so is a command that begins with another program.
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
    allowed.has(["Bash(ensemble recv:*)"]).lacks(["ensemble down"]);
    // The roster keeps what the user wrote.
    team.bed.read_file(".ensemble/roster/own.yaml").has(["command: exec claude --model x\n"]);
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
    said.has(["You are one, role worker of team crew"]);
    // After /clear, and without what the environment says.
    let bare = "env -u ENSEMBLE_AGENT_PASS -u ENSEMBLE_AGENT_ID -u LIZA_AGENT_ID";
    team.order("one", &hook("start", "s2", bare)).stdout.has(["You are one, role worker"]);
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
    team.order("one", &own).stdout.has(["hello", "ensemble settle mine"]);
    eventually("it is held", || team.bed.mailbox("one/cur/mine@one@1.yaml").exists());
}

fn asks(team: &Team, readiness: &str) {
    let yaml = team.bed.project().join("ensemble.yaml");
    let text = fs::read_to_string(&yaml).unwrap();
    let others = text.lines().filter(|line| !line.starts_with("readiness:"));
    let others: String = others.map(|line| format!("{line}\n")).collect();
    fs::write(&yaml, format!("{others}readiness: {readiness}")).unwrap();
}

const INPUT: &str = "printf '{\"session_id\":\"s1\"}'";

fn deaf_waiter(lock: &Path) -> Running {
    let sleeper = Command::new("flock")
        .args(["--no-fork".as_ref(), lock.as_os_str(), "sleep".as_ref(), "60".as_ref()])
        .spawn();
    let sleeper = Running(sleeper.unwrap());
    eventually("it holds the lock", || FileLock::holder(lock).is_some());
    sleeper
}

#[test]
fn a_living_waiter_hands_over_the_ping_and_a_deaf_one_only_delays_it() {
    let team = hooked(&[("one", "claude")], "");
    team.wait_for_evidence("one", "idle", "ready");
    let lock = team.bed.project().join(".ensemble/sessions/one.waiter.lock");
    assert_eq!(team.order("one", &format!("{INPUT} | $E hook start --provider claude")).code, 0);
    team.tell("one", &format!("{INPUT} | $E hook wait --provider claude"));
    eventually("it waits", || FileLock::holder(&lock).is_some());
    let _ = fs::remove_file(team.here("one.code"));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| team.bed.run_with("agent ping one", b""));
        eventually("the waiter ends", || team.here("one.code").exists());
        fs::read_to_string(team.here("one.err")).unwrap().has(["AGENT_TEAM_PING one 1"]);
        assert_eq!(team.order("one", "$E agent pong one 1").code, 0);
        asking.join().unwrap().ends(0).shows(["one is ready (ping 1)"]);
    });
    let pings = team.records("ready.ping");
    pings[0].fits(json!({ "way": "hook", "typed": false }));
    assert_eq!(pings.len(), 1, "nothing was typed: {pings:?}");
    // Of a deaf one, the second attempt is typed.
    let _deaf = deaf_waiter(&lock);
    asks(&team, "{wait: 2, retry: 1, attempts: 2}");
    let asked = team.bed.run("agent ping one");
    asked.ends(1);
    let typed = |ping: &Value| ping["typed"] == true;
    assert!(team.records("ready.ping")[1..].iter().any(typed), "{asked:?}");
}

#[test]
fn hooks_that_report_an_idle_agent_answer_for_it() {
    let agents = ["one", "two", "three"].map(|name| (name, "claude"));
    let team = hooked(&agents, "");
    asks(&team, "{wait: 1, retry: 1, attempts: 1}");
    let hook = |event: &str| format!("{INPUT} | $E hook {event} --provider claude");
    let begins = |name: &str, events: &[&str]| {
        team.wait_for_evidence(name, "idle", "ready");
        for event in events {
            assert_eq!(team.order(name, &hook(event)).code, 0);
        }
        team.tell(name, &hook("wait"));
        let lock = team.bed.project().join(format!(".ensemble/sessions/{name}.waiter.lock"));
        eventually("it waits", || FileLock::holder(&lock).is_some());
    };
    begins("one", &["start"]);
    team.bed.object("assign one count --task t1").fits(json!({ "state": "acked", "id": "t1.1" }));
    assert_eq!((team.records("ready.idle").len(), team.records("ready.ping").len()), (1, 0));
    // In a turn it is asked as others are.
    begins("two", &["start", "prompt"]);
    let refused = team.bed.fails(1, "assign two count --task t2");
    let said = "ensemble: two is not ready: pinged once, and no answer\n\
                hint: `ensemble agent inspect two` shows its screen\n\
                [Assign Readiness Error]\nworker-id: two\n";
    refused.begins(said);
    // One that is to prove that its model answers is asked even so.
    begins("three", &["start"]);
    for asks in ["agent ping three", "assign three count --task t3 --ping"] {
        let pings = team.records("ready.ping").len();
        assert_eq!(team.bed.run(asks).code, 1, "{asks}");
        assert!(team.records("ready.ping").len() > pings, "{asks}");
    }
}

#[test]
fn a_living_waiter_spares_the_keystrokes_and_a_deaf_one_only_delays_them() {
    let team = hooked(&[("one", "claude")], "");
    team.wait_for_evidence("one", "idle", "ready");
    let lock = team.bed.project().join(".ensemble/sessions/one.waiter.lock");
    let row = |team: &Team| -> Value { team.bed.object("team one") };
    assert_eq!(team.order("one", &format!("{INPUT} | $E hook start --provider claude")).code, 0);
    assert_eq!(row(&team)["way_in"], "keystrokes");
    // The waiter below the agent's own process wakes it, and nothing is typed.
    team.tell("one", &format!("{INPUT} | $E hook wait --provider claude"));
    eventually("it waits", || FileLock::holder(&lock).is_some());
    assert_eq!(row(&team)["way_in"], "waiter");
    let _ = fs::remove_file(team.here("one.code"));
    team.bed.ok("send --as operator --to one --id first -m hello");
    eventually("the waiter ends", || team.here("one.code").exists());
    assert_eq!(fs::read_to_string(team.here("one.code")).unwrap().trim(), "2");
    assert!(fs::read_to_string(team.here("one.err")).unwrap().contains("\nhello\n"));
    eventually("status counts the way", || {
        let text = team.bed.ok("status --json");
        text.contains(r#""waiter":1"#) && text.contains(r#""keystrokes":0"#)
    });
    assert!(team.records("nudge.sent").is_empty());
    assert_eq!(team.order("one", "$E settle first").code, 0);
    let _deaf = deaf_waiter(&lock);
    let began = std::time::Instant::now();
    team.bed.ok("send --as operator --to one --id second -m again");
    eventually("keys are typed", || team.records("nudge.sent").len() == 1);
    assert!(began.elapsed() >= std::time::Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn the_watcher_gives_back_what_a_killed_hook_has_received() {
    let team = hooked(&[("one", "claude")], "");
    assert_eq!(team.order("one", &format!("{INPUT} | $E hook start --provider claude")).code, 0);
    team.bed.ok("send --as operator --to one --id mine -m hello");
    assert_eq!(team.order("one", "$E recv").code, 0);
    let file = team.bed.project().join(".ensemble/sessions/one.json");
    let mut session: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    session["carrying"] =
        serde_json::json!([{ "mailbox": "one", "id": "mine", "epoch": 1, "pid": ended.id() }]);
    fs::write(&file, session.to_string()).unwrap();
    eventually("the message waits again", || !team.bed.mailbox("one/cur/mine@one@1.yaml").exists());
    team.order("one", "$E recv --json").stdout.has([r#""id":"mine""#, r#""epoch":2"#]);
}

#[test]
fn hooks_say_why_an_agent_stands_still() {
    let team = hooked(&[("one", "claude")], "");
    team.wait_for_evidence("one", "idle", "ready");
    let hook = |event: &str, input: &str| {
        let line = format!("printf '{input}' | $E hook {event} --provider claude");
        assert_eq!(team.order("one", &line).code, 0, "{line}");
        let row = team.bed.object("team one");
        (row["state"].as_str().unwrap().to_owned(), row["why"].as_str().unwrap().to_owned())
    };
    let (state, why) = hook("failure", r#"{"session_id":"s1","error":"rate_limit"}"#);
    assert!(state == "limited" && why.contains("hooks: rate_limit"), "{state}: {why}");
    // The screen shows a prompt: a person has answered.
    let asked = r#"{"session_id":"s1","tool_name":"Bash"}"#;
    let (state, _) = hook("permission", asked);
    assert_eq!(state, "idle");
    let unknown = "printf '\\033[H\\033[2Jno screen that the profile knows' >/dev/tty;";
    let row = |input: &str| {
        let line = format!("{unknown} printf '{input}' | $E hook permission --provider claude");
        assert_eq!(team.order("one", &line).code, 0);
        team.bed.object("team one")
    };
    let seen = row(asked);
    assert_eq!(seen["state"], "blocked");
    seen["why"].to_string().has(["permission: Bash"]);
}
