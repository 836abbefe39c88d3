//! Agents started as users start them: by name, below a shell that waits for them, by a wrapper,
//! by a chain as npx makes one. Also by hand in an interactive shell. `sh` is dash and bash in
//! turn.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{Team, kill, of};
use crate::bed::{Bed, Ran, SaidText as _, is_running, program, ran, words, write_program};
use crate::tmux_support::eventually;

/// Draws what Claude Code shows, answers pings, takes its mail when it is notified, and goes when
/// it is asked to.
const CLAUDE: &str = r#"#!/bin/sh
me=$HERE/$ENSEMBLE_AGENT_ID
draw() { printf '\033[H\033[2J%s\n────────\n❯ \0337\n────────\n  ? for shortcuts\0338' "$1"; }
draw "pid $$"
: >"$me.ready"
while IFS= read -r line; do
    printf '%s\n' "$line" >>"$me.typed"
    case $line in
    "AGENT_TEAM_PING "*) set -- $line; "$E" agent pong "$2" "$3" >/dev/null 2>&1 ;;
    *)
        while mail=$("$E" recv --json 2>/dev/null); do
            id=$(printf '%s\n' "$mail" | sed 's/^{"id":"\([^"]*\)".*/\1/')
            "$E" settle "$id" >/dev/null 2>&1
            case $mail in
            *'"type":"shutdown_request"'*) "$E" request answer "${id%.*}" --approve >/dev/null 2>&1; exit 0 ;;
            esac
            printf '%s\n' "$id" >>"$me.mail"
        done ;;
    esac
    draw "pid $$"
done
"#;

const WRAPPER: &str = "#!/bin/sh\nclaude \"$@\"\necho ended\n";
/// npm runs `sh -c`, which runs the program and is not replaced by it.
const CHAIN: &str = "#!/bin/sh\nsh -c 'claude \"$@\"; exit $?' sh \"$@\"\necho ended\n";
/// A dialog that the true one begins with in a directory it does not know.
const TRUST: &str = r#"#!/bin/sh
printf ' Quick safety check: Is this a project you created or one you trust?\n\n ❯ No, exit'
while IFS= read -r line; do printf '%s\n' "$line" >>"$HERE/$ENSEMBLE_AGENT_ID.typed"; done
"#;

/// Shows no screen that its profile knows until it reads a line from `NAME.go`, which it runs.
const LATE: &str = r#"#!/bin/sh
me=$HERE/$ENSEMBLE_AGENT_ID
[ -p "$me.go" ] || mkfifo "$me.go"
printf 'npm warn deprecated\n'
read -r go <"$me.go"
eval "$go"
"#;
/// Shows the dialog 7 s after its start: later than the first look of `up`.
const SLOW: &str = "#!/bin/sh\nsleep 7\nexec \"$HERE/bin/trust/claude\"\n";

/// Kills the process that `victim` names, and shows the dialog.
const DEADLY: &str = r#"#!/bin/sh
[ ! -f "$HERE/victim" ] || kill -9 "$(cat "$HERE/victim")"
exec "$HERE/bin/trust/claude"
"#;

/// As Codex: with a server that all of one home share, and that the first one starts. What the agent
/// runs, runs there.
const CODEX: &str = r#"#!/bin/sh
case " $* " in *" --no-daemon "*) own=yes ;; *) own= ;; esac
[ "$own" ] || { mkdir "$HERE/server" 2>/dev/null && env >"$HERE/server/env"; }
if [ "$own" ]; then env >"$HERE/$ENSEMBLE_AGENT_ID.env"; else
    while ! [ -s "$HERE/server/env" ]; do sleep 0.1; done
    cp "$HERE/server/env" "$HERE/$ENSEMBLE_AGENT_ID.env"
fi
printf '\342\200\272 Ask Codex to do anything\n\n  model default · ~/p\n'
while read -r line; do :; done
"#;

/// As Gemini CLI: shows its composer, and the dialog a second later.
const EARLY: &str = r#"#!/bin/sh
printf '────────\n❯ \0337\n────────\n  ? for shortcuts\0338'
sleep 1
printf '\033[H\033[2J'
exec "$HERE/bin/trust/claude"
"#;

/// Agents by name and command, with programs in `here/bin` and `sh` being `shell`.
pub(super) fn team(shell: &str, agents: &[(&str, &str)]) -> Team {
    let bed = Bed::empty();
    bed.ok("init");
    let here = bed.project().join("here");
    let bin = here.join("bin");
    fs::create_dir_all(&bin).unwrap();
    symlink(shell, bin.join("sh")).unwrap();
    for (name, text) in [
        ("claude", CLAUDE),
        ("codex", CODEX),
        ("wrapper", WRAPPER),
        ("chain", CHAIN),
        ("trust/claude", TRUST),
        ("late/claude", LATE),
        ("slow/claude", SLOW),
        ("early/claude", EARLY),
        ("deadly/claude", DEADLY),
    ] {
        write_program(bin.join(name), text);
    }
    let mut text = "durability: process\nteam: {name: crew, tmux_config: /dev/null}\nreadiness: {wait: 60}\nagents:\n".to_owned();
    for (name, command) in agents {
        text += &format!(
            "  {name}: {{provider: claude, command: {command:?}, env: {{HERE: {}, E: {}}}}}\n",
            here.display(),
            program().display()
        );
    }
    bed.write_file("ensemble.yaml", text);
    Team { bed }
}

fn run(team: &Team, arguments: &[&str]) -> Ran {
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", team.here("bin").display());
    ran(team.bed.command(arguments).env("PATH", path).output().unwrap())
}

#[track_caller]
pub(super) fn ok(team: &Team, arguments: &[&str]) -> String {
    let ran = run(team, arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}: {ran:?}");
    ran.stdout
}

const STARTS: [(&str, &str); 4] = [
    ("named", "claude"),
    ("waited-for", "sh -c 'claude; echo ended'"),
    ("wrapped", "wrapper --model x"),
    ("chained", "chain"),
];

#[test]
fn agents_take_part_however_they_are_started() {
    for shell in ["/bin/dash", "/bin/bash"] {
        let team = team(shell, &STARTS);
        ok(&team, &["up"]);
        for (name, command) in STARTS {
            team.wait_for_evidence(name, "idle", "ready");
            let seen = team.bed.object(&format!("agent inspect {name}"));
            assert_eq!(seen["command"], "claude", "{shell}, {command}: {seen}");
            assert_eq!(seen["would"]["open"]["allowed"], false, "{shell}, {command}: {seen}");
            ok(&team, &["send", "--as", "operator", "--to", name, "--id", name, "-m", "work"]);
            let mail = team.here(&format!("{name}.mail"));
            eventually("it takes its mail", || super::holds(&mail, name));
            ok(&team, &["agent", "ping", name]);
            let typed = fs::read_to_string(team.here(&format!("{name}.typed"))).unwrap();
            let is_ours = |line: &str| line.starts_with("ensemble: ") || line.contains("_PING");
            assert!(typed.lines().all(is_ours), "{shell}, {command}: {typed}");
        }
        let task = team.bed.project().join("task.md");
        fs::write(&task, "count the lines\n").unwrap();
        ok(&team, &["assign", "named", "-f", "task.md", "--task", "t1"]);
        let asked = ["request", "shutdown", "chained", "--as", "operator", "--wait", "2m"];
        ok(&team, &asked).has(["chained has gone"]);
        let down = run(&team, &["down", "--deadline", "60s"]);
        down.ends(0).says(["that have not answered in", "will be stopped"]);
        let mark = team.here("bin/claude").display().to_string();
        eventually("no agent is left", || !is_running(&mark));
    }
}

/// The pane of an agent that was killed just before may end only while `up` looks.
#[test]
fn an_agent_that_ends_while_up_looks_is_started_again() {
    let team = team("/bin/dash", &[("cora", "claude"), ("dora", "deadly/claude")]);
    let deadly = team.here("bin/deadly/claude").display().to_string();
    team.bed.change_config(|config| config.replace("\"deadly/claude\"", &deadly));
    let first = crate::bed::objects(&ok(&team, &["up", "--json"]));
    fs::write(team.here("victim"), of(&first, "cora")["pid"].to_string()).unwrap();
    kill(u32::try_from(of(&first, "dora")["pid"].as_u64().unwrap()).unwrap());
    eventually("the pane is dead", || team.pane("dora").dead);
    let second = crate::bed::objects(&ok(&team, &["up", "--json"]));
    for name in ["cora", "dora"] {
        assert_eq!(of(&second, name)["how"], "restarted", "{second:#?}");
    }
}

#[test]
fn a_dialog_at_the_start_is_said() {
    let team = team("/bin/dash", &[("cora", "trust/claude"), ("named", "claude")]);
    let bin = team.here("bin");
    let path = |directory: &Path| directory.display().to_string();
    let trust = path(&bin.join("trust/claude"));
    team.bed.change_config(|config| config.replace("\"trust/claude\"", &trust));
    let up = ok(&team, &["up"]);
    up.has(["cora waits for you: trust; ensemble agent attach cora\n"]).lacks(["named waits"]);
    assert_eq!(team.member("cora")["state"], "blocked");
    let again = crate::bed::objects(&ok(&team, &["up", "--json"]));
    assert_eq!(of(&again, "cora")["waits_for_person"], "trust");
    assert_eq!(of(&again, "named")["waits_for_person"], serde_json::Value::Null);
    let command = path(&bin.join("trust/claude"));
    let spawned =
        ok(&team, &["agent", "start", "carl", "--provider", "claude", "--command", &command]);
    spawned.has(["carl waits for you: trust"]);
    assert!(!team.here("cora.typed").exists(), "a dialog was typed into");
}

#[test]
fn a_dialog_after_the_table_is_said_and_so_is_an_agent_that_stays_unknown() {
    let team = team("/bin/dash", &[("late", "$HERE/bin/late/claude"), ("named", "claude")]);
    let file = team.bed.project().join("ensemble.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let here = team.here("");
    let stuck = format!(
        "  stuck: {{provider: claude, command: '$HERE/bin/late/claude', env: {{HERE: {}}}}}\n",
        here.display()
    );
    let script = "  script: {command: 'echo unknown; exec cat'}\n";
    fs::write(file, text + &stuck + script).unwrap();
    let (mut up, lines) = started(&team, &["up"]);
    let mut said = lines.map(Result::unwrap);
    let table: Vec<String> = said.by_ref().take(6).collect();
    assert!(table[1].starts_with("agent "), "{table:?}");
    let rows = ["late", "named", "script", "stuck"];
    assert!(rows.iter().all(|name| table.iter().any(|row| row.starts_with(name))), "{table:?}");
    // Only now does the dialog open.
    fs::write(team.here("late.go"), "exec $HERE/bin/trust/claude\n").unwrap();
    assert_eq!(
        said.collect::<Vec<String>>(),
        [
            "late waits for you: trust; ensemble agent attach late",
            "stuck is still starting; `ensemble team` shows its state"
        ]
    );
    assert!(up.wait().unwrap().success());
    // One that ran before is not starting.
    ok(&team, &["up"]).has(["late waits for you: trust"]).lacks(["still"]);
}

#[test]
fn a_dialog_behind_a_composer_is_said() {
    let team = team("/bin/dash", &[("cora", "$HERE/bin/early/claude")]);
    ok(&team, &["up"]).finishes("cora waits for you: trust; ensemble agent attach cora\n");
    assert!(!team.here("cora.typed").exists(), "a dialog was typed into");
}

#[test]
fn the_dialog_of_an_agent_that_is_asked_and_of_one_that_joins_is_said() {
    let team = team("/bin/dash", &[("cora", "$HERE/bin/trust/claude")]);
    ok(&team, &["up"]);
    let asked = run(&team, &["request", "shutdown", "cora", "--as", "operator", "--wait", "5s"]);
    asked.ends(3);
    let said = "cora waits for you: trust; ensemble agent attach cora";
    assert_eq!(asked.stderr.matches(said).count(), 1, "{asked:?}");
    let here = team.here("").display().to_string();
    let command = format!("env HERE={here} ENSEMBLE_AGENT_ID=hand {here}/bin/trust/claude");
    let pane = team.open_window(&command);
    team.wait_for_screen(&pane, "trust");
    let joined = ok(&team, &words(&join(&team, "hand", &pane, "claude")));
    joined.finishes("hand waits for you: trust; ensemble agent attach hand\n");
}

fn join(team: &Team, name: &str, pane: &str, provider: &str) -> String {
    let socket = team.server().socket().display().to_string();
    format!("agent join {name} --pane {pane} --tmux-socket {socket} --provider {provider}")
}

#[test]
fn an_agent_that_ends_after_the_table_is_an_error() {
    let team = team("/bin/dash", &[("late", "$HERE/bin/late/claude")]);
    let (mut up, lines) = started(&team, &["up"]);
    let mut said = lines.map(Result::unwrap);
    let row = said.find(|line| line.starts_with("late "));
    assert!(row.as_ref().is_some_and(|row| row.contains("started")), "{row:?}");
    fs::write(team.here("late.go"), "exit 3\n").unwrap();
    assert_eq!(said.collect::<Vec<String>>(), Vec::<String>::new());
    let mut error = String::new();
    up.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    error.has(["late has ended at once (exit 3)"]);
    assert_eq!(up.wait().unwrap().code(), Some(1));
}

#[test]
fn a_late_dialog_stands_in_the_document() {
    let team = team("/bin/dash", &[("cora", "$HERE/bin/slow/claude")]);
    let document = crate::bed::objects(&ok(&team, &["up", "--json"]));
    let agents: Vec<_> = document.iter().filter(|object| object["agent"].is_string()).collect();
    assert_eq!(agents.len(), 1, "{document:?}");
    assert_eq!(agents[0]["waits_for_person"], "trust", "{document:?}");
    assert_eq!(agents[0]["still_starting"], false, "{document:?}");
}

#[test]
fn two_codex_of_one_home_are_two_agents() {
    let team = team("/bin/dash", &[]);
    let here = team.here("").display().to_string();
    let agent = |name| format!("  {name}: {{provider: codex, env: {{HERE: {here}}}}}\n");
    let text = format!(
        "team: {{name: crew, tmux_config: /dev/null}}\nagents:\n{}{}",
        agent("one"),
        agent("two")
    );
    team.bed.write_file("ensemble.yaml", text);
    ok(&team, &["up"]);
    for name in ["one", "two"] {
        let file = team.here(&format!("{name}.env"));
        let own = format!("ENSEMBLE_AGENT_ID={name}");
        eventually("it has started", || file.exists());
        eventually("its commands have its own name", || super::holds(&file, &own));
    }
}

const WARNED: &str = "was not started as `codex --no-daemon`";

#[test]
fn a_codex_that_joins_with_a_shared_server_is_warned_of() {
    let team = team("/bin/dash", &[("named", "claude")]);
    ok(&team, &["up"]);
    let here = team.here("").display().to_string();
    let started = |name: &str, options: &str| {
        let command = format!("env HERE={here} ENSEMBLE_AGENT_ID={name} {here}/bin/codex{options}");
        let pane = team.open_window(&command);
        let file = team.here(&format!("{name}.env"));
        eventually("it has started", || file.exists());
        pane
    };
    for (name, options, warned) in [("shares", "", true), ("own", " --no-daemon", false)] {
        let pane = started(name, options);
        let joined = run(&team, &words(&join(&team, name, &pane, "codex")));
        joined.ends(0);
        assert_eq!(joined.stderr.contains(WARNED), warned, "{name}: {joined:?}");
    }
    let socket = team.server().socket().display().to_string();
    let pane = started("taken", "");
    run(&team, &["agent", "adopt", &pane, "--tmux-socket", &socket]).ends(0).says([WARNED]);
}

fn started(team: &Team, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", team.here("bin").display());
    let mut command = team.bed.command(arguments);
    command.env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

#[test]
fn a_program_that_is_not_there_is_said_before_anything_starts() {
    let team = team("/bin/dash", &[("named", "claude"), ("lost", "no-such-agent --model x")]);
    let up = run(&team, &["up"]);
    assert_eq!((up.code, up.stdout.as_str()), (5, ""), "{up:?}");
    up.says(["no-such-agent: command not found"]);
    assert!(!team.server().socket().exists(), "the session was started");
    assert!(!team.here("named.ready").exists());
    // The agent's own PATH counts, and its own directory.
    ok(&team, &["up", "named"]);
    for (extra, code) in [
        (&["--command", "hidden"][..], 5),
        (&["--command", "./here/hidden/hidden"], 0),
        (&["--command", "exec no-such-agent"], 5),
        (&["--command", "test -n x && sleep 1000"], 0),
    ] {
        write_program(team.here("hidden/hidden"), "#!/bin/sh\nexec sleep 1000\n");
        let name = format!("s{}", extra[1].len());
        let ran = run(&team, &[&["agent", "start", &name][..], extra].concat());
        assert_eq!(ran.code, code, "{extra:?}: {ran:?}");
    }
    let path = format!("PATH={}:/usr/bin:/bin", team.here("hidden").display());
    ok(&team, &["agent", "start", "own-path", "--command", "hidden", "--env", &path]);
    // An error that only the shell can find is reported after it has tried.
    let late = run(
        &team,
        &["agent", "start", "late", "--provider", "claude", "--command", "(no-such-agent)"],
    );
    late.ends(1).says(["exit 127", "command not found"]);
}

#[test]
fn an_interactive_shell_is_the_agent_once_it_runs_there() {
    let team = team("/bin/dash", &[("named", "claude")]);
    ok(&team, &["up"]);
    let (server, here) = (team.server(), team.here(""));
    let shell = format!(
        "env HERE={} E={} ENSEMBLE_AGENT_ID=hand PS1='❯ ' PATH={}:/usr/bin:/bin bash --norc --noprofile -i",
        here.display(),
        program().display(),
        team.here("bin").display()
    );
    let pane = team.open_window(&shell);
    let socket = server.socket().display().to_string();
    team.wait_for_screen(&pane, "❯");
    let at = format!("--pane {pane} --tmux-socket {socket} --provider claude");
    let joined = run(&team, &words(&format!("agent join hand {at}")));
    joined.ends(0).says(["warning: no claude runs in pane"]);
    ok(&team, &["mailbox", "add", "other"]);
    let bound = run(&team, &words(&format!("mailbox bind other {at}")));
    bound.ends(0).says(["no claude runs in pane"]);
    team.wait_for_state("hand", "gone");
    assert_eq!(team.bed.object("agent inspect hand")["would"]["open"]["allowed"], true);
    // A person starts it.
    server.run(&["send-keys", "-t", &pane, "claude", "Enter"]).unwrap();
    team.wait_for_evidence("hand", "idle", "ready");
    let open = &team.bed.object("agent inspect hand")["would"]["open"];
    assert_eq!(open["reason"], "other_program", "its composer is no shell's prompt");
    // Stopped, it is in the background of the shell, which has the keys.
    server.run(&["send-keys", "-t", &pane, "C-z"]).unwrap();
    team.wait_for_state("hand", "gone");
}

/// The tests here start `sh` under both names, so both shells must be installed.
#[test]
fn both_shells_are_installed() {
    for shell in ["/bin/dash", "/bin/bash"] {
        let version = Command::new(shell).args(["-c", "echo shell"]).output().expect(shell);
        assert_eq!(version.stdout, b"shell\n");
    }
}
