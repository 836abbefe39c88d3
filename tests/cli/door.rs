//! The front door: what is beside the verbs themselves. Places, short words, content, ids, failures for
//! programs, and the first commands.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::bed::{Bed, Ran, SaidText as _, git, objects, program, ran, write_program};

fn programs(bed: &Bed, names: &[&str]) -> String {
    let bin = bed.project().parent().unwrap().join("bin");
    fs::create_dir_all(&bin).unwrap();
    for name in names {
        write_program(bin.join(name), "#!/bin/sh\necho 7.8.9\n");
    }
    format!("{}:/usr/bin:/bin", bin.display())
}

fn with_path(bed: &Bed, path: &str, line: &[&str]) -> Ran {
    ran(bed.command(line).env("PATH", path).env("TMUX_TMPDIR", bed.project()).output().unwrap())
}

#[test]
fn init_says_the_next_commands_for_what_is_there() {
    let bed = Bed::empty();
    with_path(&bed, "/usr/bin:/bin", &["init"]).stdout.has(["  ensemble mailbox add worker-1 "]);
    let path = programs(&bed, &["codex"]);
    let found = with_path(&bed, &path, &["init"]).stdout;
    found.has(["  ensemble codex ", "--to codex"]);
    assert_eq!(found.split_once("Next:\n").unwrap().1.lines().count(), 3, "{found}");
    assert!(found.lines().all(|line| line.len() <= 80 || line.contains('/')), "{found}");
}

#[test]
fn doctor_names_agents_programs_and_what_the_team_lacks() {
    let bed = Bed::new();
    let path = programs(&bed, &["codex"]);
    let agents = "agents:\n  w1: {provider: claude, command: claude-of-mine --fast}\n";
    bed.write_file("ensemble.yaml", agents);
    let told = with_path(&bed, &path, &["doctor"]);
    told.ends(1);
    let newer = "ok    agents       codex 7.8.9, newer than the tried 0.171.0";
    told.shows([newer, "fail  agents       w1: `claude-of-mine` is not on PATH"]);
    let install = "-> `ensemble admin hooks install --provider codex`";
    told.shows([install]);
    told.stdout.lacks(["trust"]);
    bed.ok("admin hooks install --provider codex");
    let told = with_path(&bed, &path, &["doctor"]).stdout;
    for part in [
        "codex: a server and tools; own sessions: those of the project",
        "warn  trust        codex will ask a person whether it trusts this directory",
        "warn  trust        codex runs the hooks only after a person has reviewed them",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let home = bed.project().parent().unwrap().join(".codex");
    fs::create_dir_all(&home).unwrap();
    let trusted = format!(
        "[projects.{:?}]\ntrust_level = \"trusted\"\ntrusted_hash = \"x\"\n",
        bed.project()
    );
    fs::write(home.join("config.toml"), trusted).unwrap();
    let told = with_path(&bed, &path, &["doctor"]).stdout;
    told.has(["ok    trust        codex trusts this directory"]).lacks(["warn  trust"]);
    let wide = told.lines().filter(|line| line.chars().count() > 80 && !line.contains("/tmp"));
    assert_eq!(wide.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn doctor_says_what_an_old_tmux_lacks_and_that_no_watcher_runs() {
    let bed = Bed::new();
    let path = programs(&bed, &["tmux"]);
    let bin = bed.project().parent().unwrap().join("bin/tmux");
    for (said, expected) in [
        ("tmux 3.1c", "fail  tmux         tmux 3.1c is too old"),
        ("tmux 3.2", "ok    tmux         tmux 3.2"),
    ] {
        fs::write(&bin, format!("#!/bin/sh\necho '{said}'\n")).unwrap();
        let told = with_path(&bed, &path, &["doctor"]).stdout;
        told.has([expected, "warn  watcher      not running", "-> `ensemble admin watch &`"]);
    }
    // `status` says the same.
    bed.ok("status").has(["watcher not running: `ensemble admin watch &`"]);
}

#[test]
fn doctor_sees_what_git_sees() {
    let bed = Bed::new();
    git(&bed.project(), "init -q");
    // As within a git hook of another repository.
    let asked = bed.command(&["doctor"]).env("GIT_DIR", "/nonexistent").output().unwrap();
    assert!(ran(asked).stdout.contains("ok    git          ignores the queue"));
    let (queue, below) = (bed.project().join("queue"), bed.project().join("src"));
    fs::remove_file(queue.join(".gitignore")).unwrap();
    fs::set_permissions(&queue, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&below).unwrap();
    // A remedy works in the directory in which it was printed.
    for check in ["git", "permissions"] {
        let found = |level: &str| {
            let doctor = bed.command(&["doctor", "--json"]).current_dir(&below).output().unwrap();
            let mut all = objects(&ran(doctor).stdout).into_iter();
            all.find(|it| it["check"] == check && it["level"] == level)
        };
        let remedy = found("warn").unwrap()["remedy"].to_string();
        let line = remedy.split('`').nth(1).unwrap();
        let line = line.replace("ensemble -", &format!("{} -", program().display()));
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(&below).env_clear().env("PATH", "/usr/bin:/bin");
        shell.env("HOME", bed.project().parent().unwrap());
        assert_eq!(ran(shell.output().unwrap()).code, 0, "{remedy}");
        assert!(found("ok").is_some(), "{remedy}");
    }
}

#[test]
fn doctor_and_status_agree_on_what_needs_a_person() {
    let bed = Bed::new();
    assert!(bed.run("doctor").stdout.contains("ok    needs you    nothing"));
    bed.ok("send --to w1 --expires 1ms late");
    bed.fails(3, "recv --as w1");
    bed.run("doctor").stdout.has(["warn  needs you"]);
    assert_ne!(bed.json("status").pop().unwrap()["needs"], json!([]));
}

#[test]
fn a_text_is_a_word_of_the_line_and_an_id_may_be_shortened_while_it_is_unique() {
    let bed = Bed::new();
    bed.write_file("task.md", "from the file");
    bed.fails(2, "send --to w1 task.md").has(["`-f task.md`"]);
    bed.ok("send --to w1 -f task.md");
    bed.ok("send --to w1 word");
    bed.ok("send --to w1 -m former");
    for body in ["from the file", "word", "former"] {
        assert_eq!(bed.object("recv --as w1")["body"], body);
    }
    for id in ["task-one", "task-two", "other"] {
        bed.ok(&format!("send --to w1 --id {id} x"));
        bed.ok("recv --as w1");
    }
    bed.fails(1, "settle task --as w1").has(["2 ids begin with `task`: task-one, task-two"]);
    assert_eq!(bed.ok("settle task-o --as w1"), "settled task-one\n");
    assert_eq!(bed.ok("mailbox release oth --as w1"), "released other\n");
    bed.ok("why task-o").has(["w1 finished \"x\""]);
    bed.fails(3, "settle nothing --as w1").has(["nothing"]);
}

#[test]
fn the_project_is_found_from_below() {
    let bed = Bed::new();
    bed.ok("send --to w1 --id m1 x");
    let below = bed.project().join("src/deep");
    fs::create_dir_all(&below).unwrap();
    let at = |line: &[&str]| ran(bed.command(line).current_dir(&below).output().unwrap());
    assert!(at(&["recv", "--as", "w1", "--json"]).stdout.contains("\"id\":\"m1\""));
    // `init` makes a project where it is run.
    assert_eq!(at(&["init"]).code, 0);
    assert!(below.join("queue/mailbox").is_dir());
    assert_eq!(at(&["recv", "--as", "w1"]).code, 3, "the nearer one has no such mailbox");
}

#[test]
fn a_failure_under_json_is_one_line_with_a_code_and_short_words_run_their_commands() {
    let bed = Bed::new();
    let error = |code: i32, line: &str| -> Value {
        let said = bed.fails(code, line);
        assert_eq!(said.lines().count(), 1, "{said}");
        serde_json::from_str::<Value>(&said).unwrap()["error"].take()
    };
    let missing = error(3, "send --to absent --json x");
    assert_eq!((&missing["code"], &missing["exit"]), (&json!("no_mailbox"), &json!(3)));
    assert_eq!(missing["hint"], "there are conductor, dispatch, operator, w1");
    assert_eq!(error(3, "settle gone --as w1 --json")["code"], "no_message");
    assert_eq!(error(2, "send --json --nonsense")["code"], "usage");
    assert_eq!(error(2, "--json dead")["message"], "`ensemble dead` lacks its command");
    assert_eq!(error(2, "--json ack m1")["hint"], "`ensemble settle` does that");
    assert_eq!(error(3, "recv --as w1 --json")["code"], "nothing");
    assert_eq!(bed.ok("tmux-status"), bed.ok("admin tmux-status"));
    bed.ok("watch --help").has(["Usage: ensemble admin watch"]);
    bed.fails(2, "release m1").has(["`ensemble mailbox release` does that"]);
}
