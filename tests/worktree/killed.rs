//! A process that claims, merges or recovers is killed before, during and after each git command.
//! The next process finishes or reverts the operation. A `git` placed first in the path does the
//! killing, and continues by itself, as git does after its caller's death.
//!
//! Each command is met once; with `ENSEMBLE_KILL_ALL=1` both before and after its work.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use ensemble_team::board::{Board, Status};
use ensemble_team::proto::task::Holder;
use ensemble_team::worktree::{Options, Tests, Worktrees};

use crate::bed::{Bed, board_options, commit, git, name, options};
use crate::children::Child;

/// Kills its caller at one of its runs, before or after it has done its work.
const KILLER: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo >> "$here/runs"
run=$(wc -l < "$here/runs")
[ "$run" = "$KILL_AT" ] && [ "$KILL_WHEN" = before ] && kill -9 $PPID
PATH=${PATH#*:} git "$@"
code=$?
[ "$run" = "$KILL_AT" ] && [ "$KILL_WHEN" = after ] && kill -9 $PPID
exit $code
"#;

/// In a child: runs the operation, with the git that kills.
pub(crate) fn play(role: &[String]) {
    let [operation, home, agent, epoch, at, when] = role else { panic!("{role:?}") };
    let home = Path::new(home);
    let board = Board::find(home, board_options()).unwrap();
    let trees = Worktrees::open(&board, options()).unwrap();
    drop(trees);
    let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap());
    let options: Options = options()
        .with_tests(Tests { command: "test -e new".into(), limit: crate::children::DEADLINE })
        .with_variable("PATH", path)
        .with_variable("KILL_AT", at)
        .with_variable("KILL_WHEN", when);
    let trees = Worktrees::open(&board, options).unwrap();
    let holder = Holder { by: name(agent), epoch: epoch.parse().unwrap() };
    match operation.as_str() {
        "claim" => drop(trees.claim_task(&name("t1"), &holder).unwrap()),
        "submit" => drop(trees.submit(&name("t1"), &holder).unwrap()),
        "merge" => drop(trees.merge(&name("t1")).unwrap()),
        "recover" => drop(trees.recover(true).unwrap()),
        other => panic!("there is no operation `{other}`"),
    }
}

/// A board on which the operation can be done, and by whom.
fn prepare(operation: &str) -> (Bed, Holder) {
    let bed = Bed::new();
    bed.task("t1");
    let bin = bed.home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("git"), KILLER).unwrap();
    std::fs::set_permissions(bin.join("git"), PermissionsExt::from_mode(0o755)).unwrap();
    let first = bed.agent("coder-1", "coder");
    let claimed = bed.trees().claim_task(&name("t1"), &first).unwrap();
    let holder = claimed.granted.holder.clone();
    match operation {
        "claim" | "recover" => {
            // An earlier coder left work behind, committed and not.
            commit(&claimed.path, "committed", "1");
            std::fs::write(claimed.path.join("uncommitted"), "2").unwrap();
            bed.change(|board| board.release(&name("t1"), holder.epoch, "the lease ran out"));
            let next = bed.agent("coder-2", "coder");
            (bed, next)
        }
        "submit" => {
            commit(&claimed.path, "new", "x");
            (bed, holder)
        }
        _ => {
            commit(&claimed.path, "new", "x");
            bed.trees().submit(&name("t1"), &holder).unwrap();
            bed.approve("t1");
            (bed, holder)
        }
    }
}

fn run(bed: &Bed, operation: &str, by: &Holder, at: usize, when: &str) -> bool {
    let (home, epoch) = (bed.path(), by.epoch.to_string());
    let role = [operation, home.to_str().unwrap(), by.by.as_str(), &epoch, &at.to_string(), when];
    Child::spawn(&role).was_killed()
}

/// Everything can go on to its end, once, and nothing is left or lost.
fn judge(bed: &Bed, operation: &str, by: &Holder, what: &str) {
    let trees = bed.trees();
    trees.recover(true).unwrap();
    let again = trees.recover(true).unwrap();
    assert!(again.is_empty(), "{what}: recovered at once: {again:?}");
    if matches!(operation, "claim" | "recover") {
        let salvaged = bed.refs("refs/ensemble/salvage/t1");
        assert_eq!(salvaged.len(), 1, "{what}: put aside once: {salvaged:?}");
        assert_eq!(bed.file_in(&salvaged[0], "committed"), "1", "{what}");
        assert_eq!(bed.file_in(&salvaged[0], "uncommitted"), "2", "{what}");
        if bed.status("t1") == Status::Unclaimed {
            assert!(bed.directories().is_empty(), "{what}: {:?}", bed.directories());
            trees.claim_task(&name("t1"), by).unwrap();
        }
        let path = bed.home.path().join(".worktrees/t1");
        assert!(git(&path, &["status", "--porcelain"]).is_empty(), "{what}");
        commit(&path, "new", "x");
    }
    if bed.status("t1") == Status::Claimed {
        let epoch = bed.on_board("t1").lease_epoch.unwrap();
        trees.submit(&name("t1"), &Holder { epoch, ..by.clone() }).unwrap();
    }
    if bed.status("t1") == Status::ReadyForReview {
        bed.approve("t1");
    }
    if bed.status("t1") == Status::Approved {
        trees.merge(&name("t1")).unwrap();
    }
    let task = bed.on_board("t1");
    assert_eq!(task.status, Status::Merged, "{what}");
    let merges = git(bed.home.path(), &["rev-list", "--merges", "integration"]);
    assert_eq!(Some(merges), task.merge_commit, "{what}: merged once");
    assert!(bed.directories().is_empty(), "{what}: {:?}", bed.directories());
    assert!(bed.refs("refs/heads/task").is_empty(), "{what}");
    let user = git(bed.home.path(), &["status", "--porcelain", "--branch"]);
    assert_eq!(user, "## main\n?? bin/", "{what}: the checkout of the user");
}

fn is_finished_after_any_kill(operation: &str) {
    let start = Instant::now();
    let (bed, by) = prepare(operation);
    assert!(!run(&bed, operation, &by, 0, "never"), "{operation} succeeds without a kill");
    let runs = std::fs::read_to_string(bed.home.path().join("bin/runs")).unwrap();
    let count = runs.lines().count();
    judge(&bed, operation, &by, operation);
    // The first one finds the repository.
    for at in 2..=count {
        let both = ["before", "after"];
        let all = std::env::var_os("ENSEMBLE_KILL_ALL").is_some();
        for when in both.iter().skip(if all { 0 } else { at % 2 }).take(if all { 2 } else { 1 }) {
            let (bed, by) = prepare(operation);
            let what = format!("{operation} killed {when} git command {at} of {count}");
            assert!(run(&bed, operation, &by, at, when), "{what}: no process was killed");
            judge(&bed, operation, &by, &what);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{operation}: killed at {count} git commands, {seconds:.1} s");
}

// One test each, so that they run side by side.

#[test]
fn a_claim_is_finished_or_taken_back_after_any_kill() {
    is_finished_after_any_kill("claim");
}

#[test]
fn a_hand_in_is_finished_or_never_was_after_any_kill() {
    is_finished_after_any_kill("submit");
}

#[test]
fn a_merge_is_finished_once_after_any_kill() {
    is_finished_after_any_kill("merge");
}

#[test]
fn a_recovery_is_finished_after_any_kill() {
    is_finished_after_any_kill("recover");
}
