//! Merges: the life of a task from APPROVED on.

use ensemble_team::board::{Alarm, AlarmGraces, PlannerWake, conditions, wake};

use super::*;

/// For tests that never end; long enough for a shell to have started something.
const LIMIT_OF_ENDLESS: Duration = Duration::from_secs(1);

fn with_tests(bed: &Bed, command: &str, limit: Duration) -> Worktrees {
    let mut options = bed.options();
    options.tests = Some(MergeTests { command: command.to_owned(), limit });
    Worktrees::open(&bed.board, options).unwrap()
}

#[test]
fn a_merge_moves_the_integration_branch_and_nothing_of_the_user() {
    let bed = Bed::new();
    bed.approved("t1", "new", "x");
    // In the middle of work: staged, changed and untracked files.
    std::fs::write(bed.home.path().join("staged"), "s").unwrap();
    git(bed.home.path(), &["add", "staged"]);
    std::fs::write(bed.home.path().join("README"), "mine").unwrap();
    let look = |bed: &Bed| git(bed.home.path(), &["status", "--porcelain=v2", "--branch"]);
    let before = look(&bed);
    let merge = done(bed.trees().merge(&name("t1")).unwrap());
    assert_eq!(look(&bed), before);
    assert_eq!(git(bed.home.path(), &["rev-parse", "integration"]), merge);
    assert_eq!(bed.file_in("integration", "new"), "x");
    let text = git(bed.home.path(), &["log", "-1", "--format=%B", "integration"]);
    assert!(text.starts_with("Merge task t1: do t1\n") && text.contains("Ensemble-Task: t1"));
    let task = bed.on_board("t1");
    assert_eq!((task.status, task.merge_commit), (TaskStatus::Merged, Some(merge)));
    assert!(bed.directories().is_empty() && bed.refs("refs/heads/task").is_empty());
    assert!(bed.refs("refs/ensemble").is_empty(), "nothing was lost, so nothing is kept");
}

#[test]
fn a_branch_that_is_checked_out_does_not_move() {
    let bed = Bed::new();
    bed.approved("t1", "new", "x");
    git(bed.home.path(), &["switch", "--quiet", "integration"]);
    let before = git(bed.home.path(), &["rev-parse", "integration"]);
    let refused = refusal(bed.trees().merge(&name("t1")));
    assert!(refused.contains("git switch --detach"), "{refused}");
    assert_eq!(git(bed.home.path(), &["rev-parse", "integration"]), before);
    assert_eq!(bed.status("t1"), TaskStatus::Approved);
    // That is on the board, once, for everyone who waits for it.
    assert!(refusal(bed.trees().merge(&name("t1"))).contains("git switch --detach"));
    let state = bed.board.read().unwrap();
    let why = state.task(&name("t1")).unwrap().merge_error.clone().unwrap();
    assert!(why.starts_with("branch `integration` is checked out at /"), "{why}");
    let kinds: Vec<&str> = state.anomalies.iter().map(|anomaly| anomaly.kind.as_str()).collect();
    assert_eq!(kinds, ["merge_impossible"]);
    let found = conditions(&state, AlarmGraces::default());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].key.alarm, found[0].grace), (Alarm::MergeImpossible, Duration::ZERO));
    assert_eq!(wake(&state)[0].wake, PlannerWake::IntegrationFailed);
    assert!(bed.trees().checked_out().unwrap().is_some());
    git(bed.home.path(), &["switch", "--quiet", "--detach"]);
    assert_eq!(bed.trees().checked_out().unwrap(), None);
    // A rebase and a bisection return to the branch.
    git(bed.home.path(), &["switch", "--quiet", "integration"]);
    let stop = ["-c", "sequence.editor=echo break >", "rebase", "--quiet", "-i", "HEAD"];
    git(bed.home.path(), &stop);
    assert!(bed.trees().checked_out().unwrap().is_some());
    git(bed.home.path(), &["rebase", "--abort"]);
    git(bed.home.path(), &["bisect", "start"]);
    git(bed.home.path(), &["switch", "--quiet", "--detach"]);
    assert!(bed.trees().checked_out().unwrap().is_some());
    git(bed.home.path(), &["bisect", "reset", "HEAD"]);
    assert_eq!(bed.trees().checked_out().unwrap(), None);
    // Another name of a branch moves that branch.
    git(bed.home.path(), &["branch", "--quiet", "-m", "integration", "real"]);
    git(bed.home.path(), &["symbolic-ref", "refs/heads/integration", "refs/heads/real"]);
    git(bed.home.path(), &["switch", "--quiet", "real"]);
    assert!(bed.trees().checked_out().unwrap().is_some());
    git(bed.home.path(), &["switch", "--quiet", "--detach"]);
    done(bed.trees().merge(&name("t1")).unwrap());
    let state = bed.board.read().unwrap();
    assert_eq!(state.task(&name("t1")).unwrap().merge_error, None);
    assert!(conditions(&state, AlarmGraces::default()).is_empty() && wake(&state).is_empty());
}

#[test]
fn an_approved_commit_that_is_gone_does_not_wait_in_silence() {
    let bed = Bed::new();
    bed.approved("t1", "new", "x");
    let text = bed.board.read_text().unwrap();
    let commit = bed.on_board("t1").review_commit.unwrap();
    std::fs::write(bed.board.path(), text.replace(&commit, "0123456789abcdef")).unwrap();
    refusal(bed.trees().merge(&name("t1")));
    let why = bed.on_board("t1").merge_error.unwrap();
    assert!(why.contains("no commit `0123456789abcdef`"), "{why}");
}

#[test]
fn failing_tests_move_no_branch_and_are_reported() {
    let bed = Bed::new();
    let claimed = bed.approved("t1", "new", "x");
    let before = git(bed.home.path(), &["rev-parse", "integration"]);
    let log = bed.path().join(".ensemble/merges/t1.log");
    std::fs::create_dir(log.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(bed.path().join("README"), &log).unwrap();
    let trees = with_tests(&bed, "echo to the log; cat new; exit 7", Duration::from_secs(60));
    let MergeOutcome::Failed { reason } = trees.merge(&name("t1")).unwrap() else {
        panic!("merged")
    };
    assert!(reason.contains("exit status: 7") && reason.contains("to the log\nx"), "{reason}");
    assert_eq!(std::fs::read_to_string(bed.path().join("README")).unwrap(), "one\n");
    assert_eq!(git(bed.home.path(), &["rev-parse", "integration"]), before);
    assert_eq!(bed.status("t1"), TaskStatus::IntegrationFailed);
    assert_eq!(bed.directories(), ["t1"], "the worktree stays for the repair");

    // Repaired by another coder, in the existing worktree.
    let fixer = bed.agent("fixer", "coder");
    let again = trees.claim_task(&name("t1"), &fixer).unwrap();
    assert!(again.is_integration_fix && again.path == claimed.path);
    commit(&again.path, "new", "repaired");
    trees.submit(&name("t1"), &again.granted.holder).unwrap();
    bed.approve("t1");
    done(
        with_tests(&bed, "grep repaired new", Duration::from_secs(60)).merge(&name("t1")).unwrap(),
    );
    assert_eq!(bed.status("t1"), TaskStatus::Merged);
}

#[test]
fn tests_that_do_not_end_are_ended() {
    let bed = Bed::new();
    bed.approved("t1", "new", "x");
    let elsewhere = tempfile::tempdir().unwrap();
    let note = elsewhere.path().join("pid");
    let command = format!("sleep 1000 & echo $! > '{}'; wait", note.display());
    let trees = with_tests(&bed, &command, LIMIT_OF_ENDLESS);
    let MergeOutcome::Failed { reason } = trees.merge(&name("t1")).unwrap() else {
        panic!("merged")
    };
    assert!(reason.contains("did not end within 1 s"), "{reason}");
    let child = std::fs::read_to_string(note).unwrap();
    wait_until("what the tests had started is gone", || {
        std::fs::read_to_string(format!("/proc/{}/stat", child.trim()))
            .map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn a_conflict_is_reported_with_its_files() {
    let bed = Bed::new();
    bed.approved("t1", "README", "first\n");
    bed.approved("t2", "README", "second\n");
    let merge = done(bed.trees().merge(&name("t1")).unwrap());
    let MergeOutcome::Failed { reason } = bed.trees().merge(&name("t2")).unwrap() else {
        panic!("merged")
    };
    assert!(reason.ends_with("has conflicts in README"), "{reason}");
    assert_eq!(git(bed.home.path(), &["rev-parse", "integration"]), merge);
    assert_eq!(bed.directories(), ["t2"]);
}

#[test]
fn a_branch_that_moved_during_the_tests_is_merged_into_again() {
    let bed = Bed::new();
    bed.approved("t1", "new", "x");
    let mine = bed.home.path().join("mine");
    git(
        bed.home.path(),
        &["worktree", "add", "--quiet", "--detach", mine.to_str().unwrap(), "integration"],
    );
    commit(&mine, "by-hand", "y");
    let by_hand = git(&mine, &["rev-parse", "HEAD"]);
    let command = format!("test -e by-hand || git update-ref refs/heads/integration {by_hand}");
    done(with_tests(&bed, &command, Duration::from_secs(60)).merge(&name("t1")).unwrap());
    assert_eq!(bed.file_in("integration", "new"), "x");
    assert_eq!(bed.file_in("integration", "by-hand"), "y");
}

#[test]
fn work_after_the_approval_is_salvaged() {
    let bed = Bed::new();
    let claimed = bed.approved("t1", "new", "x");
    std::fs::write(claimed.path.join("late"), "z").unwrap();
    done(bed.trees().merge(&name("t1")).unwrap());
    let salvaged = bed.refs("refs/ensemble/salvage/t1");
    assert_eq!(salvaged.len(), 1);
    assert_eq!(bed.file_in(&salvaged[0], "late"), "z");
    assert!(bed.directories().is_empty());
}

#[test]
fn a_task_is_merged_also_if_its_branch_cannot_go() {
    let bed = Bed::new();
    let claimed = bed.approved("t1", "new", "x");
    // Another checkout has the branch.
    git(&claimed.path, &["switch", "--quiet", "--detach"]);
    git(bed.home.path(), &["switch", "--quiet", "task/t1"]);
    let MergeOutcome::Done { retired, .. } = bed.trees().merge(&name("t1")).unwrap() else {
        panic!("failed")
    };
    assert!(retired.kept.unwrap().1.contains("is checked out at"));
    assert_eq!(bed.status("t1"), TaskStatus::Merged);
    git(bed.home.path(), &["switch", "--quiet", "main"]);
    assert!(bed.trees().recover(true).unwrap()[0].repaired);
    assert!(bed.directories().is_empty() && bed.refs("refs/heads/task").is_empty());
}
