//! A process that claims, merges or recovers is killed before, during and after each git command.
//! The next process finishes or reverts the operation. A `git` placed first in the path does the
//! killing, and continues by itself, as git does after its caller's death.
//!
//! In one repository an ordinary run meets every third command, before or after its work. With a remote, it meets each that
//! asks the remote, before and after. With `KILLS=all` all commands are met, before and after.

use std::time::Instant;

use ensemble_core::durable::FileLock;

use crate::support::traced::share;

use super::*;

/// Kills its caller at one of its runs, before or after it has done its work.
const KILLER: &str = r#"#!/bin/sh
here=$(dirname "$0")
printf '%s\n' "$(printf '%s ' "$@" | tr '\n' ' ')" >> "$here/runs"
run=$(wc -l < "$here/runs")
[ "$run" = "$KILL_AT" ] && [ "$KILL_WHEN" = before ] && kill -9 $PPID
PATH=${PATH#*:} git "$@"
code=$?
[ "$run" = "$KILL_AT" ] && [ "$KILL_WHEN" = after ] && kill -9 $PPID
exit $code
"#;

/// In a child: runs the operation, with the git that kills.
pub(crate) fn play(role: &[String]) {
    let [operation, home, agent, epoch, at, when, remote] = role else { panic!("{role:?}") };
    let home = Path::new(home);
    let board = Board::find(home, board_options()).unwrap();
    let trees = Worktrees::open(&board, options()).unwrap();
    drop(trees);
    let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap());
    let mut options: WorktreeOptions = options();
    options.tests =
        Some(MergeTests { command: "test -e new".into(), limit: crate::children::DEADLINE });
    let variables = [("PATH", &path), ("KILL_AT", at), ("KILL_WHEN", when)];
    options.variables.extend(variables.map(|(name, value)| (name.into(), value.into())));
    options.remote = Some(remote.clone()).filter(|remote| !remote.is_empty());
    let trees = Worktrees::open(&board, options).unwrap();
    let holder = TaskHolder { by: name(agent), epoch: epoch.parse().unwrap() };
    match operation.as_str() {
        "claim" => drop(trees.claim_task(&name("t1"), &holder).unwrap()),
        "submit" => drop(trees.submit(&name("t1"), &holder).unwrap()),
        "merge" => drop(trees.merge(&name("t1")).unwrap()),
        "recover" => drop(trees.recover(true).unwrap()),
        other => panic!("there is no operation `{other}`"),
    }
}

/// A board on which the operation can be done, and by whom.
fn prepare(operation: &str, has_remote: bool) -> (Bed, TaskHolder) {
    let bed = if has_remote { hosts::alone() } else { Bed::new() };
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

fn run(bed: &Bed, operation: &str, by: &TaskHolder, at: usize, when: &str) -> bool {
    let (home, epoch) = (bed.path(), by.epoch.to_string());
    let remote = if bed.has_remote { "origin" } else { "" };
    let (home, at) = (home.to_str().unwrap(), at.to_string());
    let operation = format!("worktree::{operation}");
    let role = [&operation, home, by.by.as_str(), &epoch, &at, when, remote];
    Child::spawn(&role).was_killed()
}

/// Checks that everything can be completed, exactly once, and that nothing is left over or lost.
fn judge(bed: &Bed, operation: &str, by: &TaskHolder, what: &str) {
    let trees = bed.trees();
    // A git that outlives its caller for a moment keeps the lock of merges, which are left alone until then.
    let lock = bed.path().join(".git/ensemble-merge.lock");
    drop(FileLock::acquire(&lock, Duration::from_secs(60)).unwrap());
    trees.recover(true).unwrap();
    let again = trees.recover(true).unwrap();
    assert!(again.is_empty(), "{what}: recovered at once: {again:?}");
    if matches!(operation, "claim" | "recover") {
        let salvaged = bed.refs("refs/ensemble/salvage/t1");
        assert_eq!(salvaged.len(), 1, "{what}: put aside once: {salvaged:?}");
        assert_eq!(bed.file_in(&salvaged[0], "committed"), "1", "{what}");
        assert_eq!(bed.file_in(&salvaged[0], "uncommitted"), "2", "{what}");
        if bed.status("t1") == TaskStatus::Unclaimed {
            assert!(bed.directories().is_empty(), "{what}: {:?}", bed.directories());
            trees.claim_task(&name("t1"), by).unwrap();
        }
        let path = bed.home.path().join(".worktrees/t1");
        assert!(git(&path, &["status", "--porcelain"]).is_empty(), "{what}");
        commit(&path, "new", "x");
    }
    if bed.status("t1") == TaskStatus::Claimed {
        let epoch = bed.on_board("t1").lease_epoch.unwrap();
        trees.submit(&name("t1"), &TaskHolder { epoch, ..by.clone() }).unwrap();
    }
    if bed.status("t1") == TaskStatus::ReadyForReview {
        bed.approve("t1");
    }
    if bed.status("t1") == TaskStatus::Approved {
        trees.merge(&name("t1")).unwrap();
    }
    let task = bed.on_board("t1");
    assert_eq!(task.status, TaskStatus::Merged, "{what}");
    let integration = if bed.has_remote { "origin/integration" } else { "integration" };
    let merges = git(bed.home.path(), &["rev-list", "--merges", integration]);
    assert_eq!(Some(merges), task.merge_commit, "{what}: merged once");
    assert!(bed.directories().is_empty(), "{what}: {:?}", bed.directories());
    assert!(bed.refs("refs/heads/task").is_empty(), "{what}");
    let user = git(bed.home.path(), &["status", "--porcelain", "--branch"]);
    let branch = if bed.has_remote { "## main...origin/main" } else { "## main" };
    assert_eq!(user, format!("{branch}\n?? bin/"), "{what}: the checkout of the user");
    if bed.has_remote {
        judge_remote(bed, &task.merge_commit.unwrap(), what);
    }
}

/// The remote has the merge, the saved work, and nothing else.
fn judge_remote(bed: &Bed, merge: &str, what: &str) {
    let remote = git(bed.home.path(), &["ls-remote", "origin"]);
    let mut there: Vec<&str> = remote.lines().filter(|line| !line.ends_with("\tHEAD")).collect();
    there.retain(|line| !line.ends_with("\trefs/heads/main"));
    let mut expected = vec![format!("{merge}\trefs/heads/integration")];
    for saved in bed.refs("refs/ensemble/salvage") {
        let commit = git(bed.home.path(), &["rev-parse", &saved]);
        expected.push(format!("{commit}\t{saved}"));
    }
    expected.sort_by_key(|line| line.split('\t').nth(1).unwrap().to_owned());
    there.sort_by_key(|line| line.split('\t').nth(1).unwrap().to_owned());
    assert_eq!(there, expected, "{what}: the remote");
}

fn is_finished_after_any_kill(operation: &str, has_remote: bool) {
    let start = Instant::now();
    let (bed, by) = prepare(operation, has_remote);
    assert!(!run(&bed, operation, &by, 0, "never"), "{operation} succeeds without a kill");
    let runs = std::fs::read_to_string(bed.home.path().join("bin/runs")).unwrap();
    let count = runs.lines().count();
    judge(&bed, operation, &by, operation);
    let all = std::env::var("KILLS").is_ok_and(|kills| kills == "all");
    let mut kills = 0;
    // The first one finds the repository.
    let met: Vec<_> = (1..).zip(runs.lines()).skip(1).collect();
    // Few ask the remote.
    for (at, run_of) in if has_remote { met } else { share(met) } {
        let asks = [" ls-remote ", " fetch ", " push "].iter().any(|verb| run_of.contains(verb));
        let both = ["before", "after"];
        let whens = match has_remote {
            _ if all => &both[..],
            true if asks => &both[..],
            true => &[],
            false => &both[at % 2..=at % 2],
        };
        for when in whens {
            let (bed, by) = prepare(operation, has_remote);
            let what = format!("{operation} killed {when} git command {at} of {count}: {run_of}");
            assert!(run(&bed, operation, &by, at, when), "{what}: no process was killed");
            judge(&bed, operation, &by, &what);
            kills += 1;
        }
    }
    assert!(kills > 0, "{operation}: {runs}");
    let seconds = start.elapsed().as_secs_f64();
    println!("{operation}: killed {kills} times at {count} git commands, {seconds:.1} s");
}

#[test]
fn a_hand_in_is_finished_or_never_was_after_any_kill() {
    is_finished_after_any_kill("submit", false);
}

/// Side by side, each in the repository alone, and with a remote.
#[test]
#[ignore = "long"]
fn claims_merges_and_recoveries_are_finished_or_taken_back_after_any_kill() {
    std::thread::scope(|scope| {
        for operation in ["claim", "merge", "recover"] {
            scope.spawn(move || is_finished_after_any_kill(operation, false));
        }
        for operation in ["claim", "submit", "merge", "recover"] {
            scope.spawn(move || is_finished_after_any_kill(operation, true));
        }
    });
}
