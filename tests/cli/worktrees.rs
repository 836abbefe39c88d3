//! Claims, hand-ins, verdicts and merges on the command line, and their messages to an agent.

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, Running, SaidText as _, git};
use crate::tmux_support::eventually;

fn bed(config: &str) -> Bed {
    let bed = Bed::new();
    bed.configure(config);
    bed.begin_repository();
    bed.ok("board init");
    bed.add_task("t1");
    bed.ok("agent register --role coder --as coder-1");
    bed.ok("agent register --role code-reviewer --as reviewer-1");
    bed
}

pub(crate) fn commit(bed: &Bed, task: &str, file: &str) {
    let tree = bed.project().join(".worktrees").join(task);
    std::fs::write(tree.join(file), "x").unwrap();
    git(&tree, "add .");
    git(&tree, "commit --quiet -m work");
}

#[test]
fn a_task_goes_from_claim_to_merge() {
    let bed = bed("worktrees:\n  tests: test -e done.txt\n");
    assert!(bed.fails(3, "agent verify --as stranger").contains("is not registered"));
    assert!(bed.fails(3, "agent verify --as coder-1").contains("has no task"));
    assert!(bed.fails(3, "task claim --as stranger").contains("agent register"));
    bed.fails(3, "task claim --review --as reviewer-1").has(["no task can be reviewed"]);
    let claimed = bed.object("task claim --as coder-1");
    claimed.fits(json!({
        "task": "t1", "branch": "task/t1",
        "path": bed.project().canonicalize().unwrap().join(".worktrees/t1").to_str().unwrap(),
    }));
    assert!(bed.ok("agent verify --as coder-1").contains("work on t1"));
    assert!(bed.fails(1, "task claim t1 --as reviewer-1").contains("its status is CLAIMED"));
    assert!(bed.fails(1, "task submit t1 --as coder-1").contains("nothing was committed"));
    commit(&bed, "t1", "done.txt");
    assert!(bed.fails(1, "task submit t1 --as coder-1 --epoch 1").contains("Stop working on it"));
    let handed_in = bed.object("task submit t1 --as coder-1");
    assert!(bed.fails(3, "agent verify --as coder-1").contains("waits for its verdict"));

    let review = bed.object("task claim --review --as reviewer-1");
    review.fits(json!({ "commit": handed_in["commit"], "author": "coder-1" }));
    assert!(bed.fails(1, "task merge t1").contains("its status is READY_FOR_REVIEW"));
    bed.fails(2, "task verdict t1 --as reviewer-1");
    assert!(bed.fails(1, "task verdict t1 --approve --as coder-1").contains("does not hold it"));
    bed.ok("task verdict t1 --approve --as reviewer-1");
    bed.ok("board checkpoint");
    bed.fails(1, "task merge --as reviewer-1").has(["no agent begins anything now"]);
    let merged = bed.object("task merge");
    bed.ok("resume");
    assert_eq!(merged["commit"], git(&bed.project(), "rev-parse integration"));
    assert!(bed.fails(3, "task merge").contains("no task is APPROVED"));
    for line in ["merge tt1", "verdict tt1 --approve --as reviewer-1", "show tt1", "finalize tt1"] {
        let said = bed.fails(3, &format!("task {line}"));
        said.has(["no task `tt1` on the blackboard: did you mean t1?"]);
        said.has(["hint: `ensemble task list` shows all"]);
    }
    assert!(bed.fails(3, "agent unregister coder-9").contains("did you mean coder-1?"));
    assert_eq!(git(&bed.project(), "branch --show-current"), "main");
    assert_eq!(bed.ok("admin fsck"), "clean\n");
}

#[test]
fn an_old_number_in_the_environment_is_refused() {
    let bed = bed("");
    bed.ok("task claim --as coder-1");
    let verify =
        |epoch: &str| bed.run_in(&[("ENSEMBLE_TASK_EPOCH", epoch)], "agent verify --as coder-1");
    assert_eq!((verify("3").code, verify("2").code, verify("x").code), (0, 1, 2));
    std::fs::remove_dir_all(bed.project().join(".worktrees")).unwrap();
    verify("3").ends(4).says(["there is no worktree"]);
    bed.run("admin fsck").ends(4).shows(["is missing"]);
    assert!(bed.ok("admin fsck --repair").contains("repaired"));
    assert_eq!(verify("3").code, 0);
}

#[test]
fn a_merge_that_fails_says_why_and_moves_nothing() {
    let bed = bed("worktrees:\n  tests: echo it is red; exit 1\n  integration_branch: next\n");
    bed.add_task("t2");
    for task in ["t1", "t2"] {
        bed.ok(&format!("task claim {task} --as coder-1"));
        commit(&bed, task, "done.txt");
        bed.ok(&format!("task submit {task} --as coder-1"));
        bed.ok(&format!("task claim {task} --review --as reviewer-1"));
        bed.ok(&format!("task verdict {task} --approve --as reviewer-1"));
    }
    // One whose commit is missing keeps no other from its merge.
    let board = bed.read_file(".ensemble/state.yaml");
    let board = board.replacen("review_commit: ", "review_commit: not-", 1);
    bed.write_file(".ensemble/state.yaml", board);
    let before = git(&bed.project(), "rev-parse next");
    bed.run("task merge --json").ends(1).shows(["it is red", "INTEGRATION_FAILED"]);
    assert_eq!(git(&bed.project(), "rev-parse next"), before);
}

#[test]
fn a_project_in_a_subdirectory_of_its_repository_is_worked_on_in_that_subdirectory() {
    let bed = Bed::new();
    let repository = bed.project().parent().unwrap().canonicalize().unwrap();
    git(&repository, "init --quiet -b main");
    bed.write_file(".gitignore", "*\n");
    git(&repository, "add --force project/.gitignore");
    git(&repository, "commit --quiet -m begin");
    bed.ok("board init");
    bed.add_task("t1");
    let _supervisor = Running(bed.start("agent supervise --role coder --id coder-1 -- touch here"));
    let place = repository.join("project/.worktrees/t1/project");
    eventually("the agent works in its project", || place.join("here").exists());
    bed.ok("board prompt --task t1").has([&format!("WORKTREE: {}\n", place.display())]);
}

#[test]
fn without_a_repository_there_is_a_hint() {
    let bed = Bed::new();
    bed.ok("board init");
    bed.add_task("t1");
    bed.ok("agent register --role coder --as coder-1");
    assert!(bed.fails(1, "task claim --as coder-1").contains("git init"));
    assert_eq!(bed.ok("admin fsck"), "clean\n");
}
