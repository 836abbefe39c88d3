//! Worktrees of a team on servers whose hosts share branches through a git remote.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bed::{Bed, SaidText as _, end, git, words, write_program};
use crate::mcp_client::Mcp;
use crate::nats_server::{Server, fresh_team};
use crate::servers::bed_on;
use crate::tmux_support::eventually;
use crate::worktrees::commit;

const INTEGRATION: &str = "refs/heads/integration";

/// Kills its caller once git has pushed to this branch.
const KILLER: &str = r#"#!/bin/sh
/usr/bin/git "$@"
code=$?
case " $* " in *" push "*"$KILL_BRANCH"*) kill -9 $PPID ;; esac
exit $code
"#;

struct Team {
    home: tempfile::TempDir,
    near: Bed,
    far: Bed,
    _server: Server,
}

impl Team {
    fn new() -> Self {
        let (home, server, team) = (tempfile::tempdir().unwrap(), Server::start(), fresh_team());
        git(home.path(), "init --quiet -b main first");
        let first = home.path().join("first");
        std::fs::write(first.join(".gitignore"), "*\n!*.txt\n").unwrap();
        git(&first, "add --force .gitignore");
        git(&first, "commit --quiet -m begin");
        git(home.path(), "clone --quiet --bare first team.git");
        let remote = home.path().join("team.git");
        let [near, far] = [(); 2].map(|()| {
            let bed = bed_on(&server, &team);
            bed.add_config("worktrees:\n  remote: origin\n");
            git(&bed.project(), "init --quiet -b main");
            git(&bed.project(), &format!("remote add origin {}", remote.display()));
            git(&bed.project(), "pull --quiet origin main");
            bed
        });
        near.ok("board init");
        for (bed, name, role) in [
            (&near, "ann", "coder"),
            (&far, "bob", "coder"),
            (&near, "rob", "code-reviewer"),
            (&far, "lea", "code-reviewer"),
        ] {
            bed.ok(&format!("agent register --role {role} --as {name}"));
        }
        Self { home, near, far, _server: server }
    }

    fn remote(&self) -> PathBuf {
        self.home.path().join("team.git")
    }

    fn tip(&self, reference: &str) -> String {
        git(&self.remote(), &format!("for-each-ref --format=%(objectname) {reference}"))
    }

    fn add(&self, task: &str) {
        self.near.ok(&format!("task add {task} -d work --spec s.md --done-when works"));
    }

    fn task(&self, id: &str) -> Value {
        self.near.object(&format!("task show {id}"))
    }
}

fn submit(bed: &Bed, task: &str, coder: &str) {
    bed.ok(&format!("task claim {task} --as {coder}"));
    commit(bed, task, &format!("{task}.txt"));
    bed.ok(&format!("task submit {task} --as {coder}"));
}

fn approve(bed: &Bed, task: &str, reviewer: &str) {
    bed.ok(&format!("task claim {task} --review --as {reviewer}"));
    bed.ok(&format!("task verdict {task} --approve --as {reviewer}"));
}

/// Repairs what is left of worktrees. A note says that the servers check their own store.
fn repair(bed: &Bed) {
    bed.run("admin fsck --repair").ends(0);
}

fn killed_after_push(team: &Team, bed: &Bed, line: &str, branch: &str) {
    let bin = team.home.path().join("bin");
    write_program(bin.join("git"), KILLER);
    let mut command = bed.command(&words(line));
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("KILL_BRANCH", branch);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), None, "{output:?}");
}

#[test]
fn a_verb_that_is_killed_between_its_push_and_its_record_is_completed_by_a_rerun() {
    let team = Team::new();
    let Team { near, far, .. } = &team;
    team.add("t1");
    killed_after_push(&team, near, "task claim t1 --as ann", "task/t1");
    assert_eq!(team.task("t1")["status"], json!("UNCLAIMED"));
    far.ok("task claim t1 --as bob");
    commit(far, "t1", "t1.txt");
    killed_after_push(&team, far, "task submit t1 --as bob", "task/t1");
    assert_eq!(team.task("t1")["status"], json!("CLAIMED"));
    far.ok("task submit t1 --as bob");
    approve(near, "t1", "rob");
    killed_after_push(&team, near, "task merge t1", INTEGRATION);
    assert_eq!(team.task("t1")["status"], json!("APPROVED"));
    // Another host finds the merge on the remote.
    assert_eq!(far.object("task merge t1")["commit"], json!(team.tip(INTEGRATION)));
    let merges = git(&team.remote(), "rev-list --merges --count integration");
    assert_eq!(merges, "1");
    repair(far);
    repair(near);
    assert_eq!(team.tip("refs/heads/task"), "");
}

#[test]
fn a_merge_waits_for_the_merge_of_another_host_and_both_are_in_the_history() {
    let team = Team::new();
    let Team { near, far, .. } = &team;
    let turn = "test ! -e busy && touch busy && sleep 2 && rm busy";
    for bed in [near, far] {
        bed.add_config(&format!("  tests: cd {} && {turn}\n", team.home.path().display()));
    }
    for (bed, task, coder, reviewer) in [(near, "t1", "ann", "lea"), (far, "t2", "bob", "rob")] {
        team.add(task);
        submit(bed, task, coder);
        approve(if coder == "ann" { far } else { near }, task, reviewer);
    }
    let first = near.start("task merge t1");
    let second = far.start("task merge t2");
    for merge in [first, second] {
        end(merge).ends(0);
    }
    git(&team.remote(), "ls-tree --name-only integration").has(["t1.txt", "t2.txt"]);
}

#[test]
fn while_the_remote_is_away_verbs_end_with_75_and_long_tests_hold_no_merge_up() {
    let team = Team::new();
    let Team { near, far, .. } = &team;
    for task in ["t1", "t2"] {
        team.add(task);
    }
    submit(near, "t1", "ann");
    let away = team.home.path().join("away");
    std::fs::rename(team.remote(), &away).unwrap();
    for line in ["task claim t2 --as bob", "task claim t1 --review --as lea"] {
        far.fails(75, line).has(["at the git remote `origin`", "doctor"]);
    }
    assert!(far.run("doctor").stdout.contains("the git remote `origin`"));
    assert!(far.run("status").stdout.contains(SILENT));
    assert_eq!(team.task("t2")["status"], json!("UNCLAIMED"));
    std::fs::rename(away, team.remote()).unwrap();
    far.ok("task claim t2 --as bob");
    assert!(!far.run("status").stdout.contains(SILENT));
    // Tests that take longer than the patience for servers hold no merge up.
    approve(near, "t1", "rob");
    // Each host merges in its own repository.
    near.change_config(|config| {
        config.replace("patience: 120", "patience: 5").replace("remote: origin", "tests: sleep 6")
    });
    assert_eq!(near.object("task merge t1")["status"], json!("MERGED"));
}

const SILENT: &str = "the git remote `origin` gives no answer since";

#[test]
fn the_tools_and_the_supervisor_of_another_host_go_on_with_a_task() {
    let team = Team::new();
    let Team { near, far, .. } = &team;
    team.add("t1");
    assert!(near.run("doctor").stdout.contains("the first claim makes `integration` there"));
    near.ok("mailbox add ann");
    let mut ann = Mcp::of(near, "ann");
    assert!(ann.call("claim_task", &json!({ "task_id": "t1" })).contains("task/t1"));
    commit(near, "t1", "t1.txt");
    assert!(ann.call("submit_task", &json!({ "task_id": "t1" })).contains("READY_FOR_REVIEW"));
    let review = far.object("task claim --review --as lea");
    assert_eq!(review["commit"], json!(team.tip("refs/heads/task/t1")));
    assert!(far.ok("agent verify --as lea").contains("review t1"));
    far.ok("task verdict t1 --approve --as lea");
    // The supervisor of a reviewer merges what was approved.
    let line = "agent supervise --role code-reviewer --name rev --poll 1s -- true";
    let mut supervisor = far.start(line);
    eventually("it is merged", || team.task("t1")["status"] == json!("MERGED"));
    far.ok("board abort");
    assert_eq!(supervisor.wait().unwrap().code(), Some(0));
    assert_eq!(json!(team.tip(INTEGRATION)), team.task("t1")["merge_commit"]);
    assert!(near.run("doctor").stdout.contains("go to `integration` of `origin`, which answers"));
}
