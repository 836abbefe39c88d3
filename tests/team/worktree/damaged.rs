//! Worktrees in which git does not work any more, and repositories that are not as they were.

use std::process::Command;

use super::*;

/// A claimed task with a committed file, and one that is not committed.
fn claimed(bed: &Bed, task: &str, coder: &str) -> ClaimedTask {
    bed.task(task);
    let coder = bed.agent(coder, "coder");
    let claimed = bed.trees().claim_task(&name(task), &coder).unwrap();
    commit(&claimed.path, "new", "x");
    std::fs::write(claimed.path.join("draft"), "half").unwrap();
    claimed
}

fn repaired(bed: &Bed) -> Vec<String> {
    let found = bed.trees().recover(true).unwrap();
    assert!(found.iter().all(|finding| finding.repaired || finding.is_note), "{found:?}");
    found.into_iter().filter_map(|finding| finding.task.map(|task| task.to_string())).collect()
}

fn files(path: &Path) -> Vec<String> {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_worktree_without_its_link_is_refused_and_linked_again_with_all_its_files() {
    let bed = Bed::new();
    let claimed = claimed(&bed, "t1", "coder-1");
    let before = files(&claimed.path);
    std::fs::remove_file(claimed.path.join(".git")).unwrap();
    let trees = bed.trees();
    let unfit = trees.verify(&name("coder-1"), None, SystemClock.wall()).unwrap().unwrap_err();
    assert!(
        matches!(&unfit, UnfitReason::Broken(why) if why.contains("git does not work in")),
        "{unfit}"
    );
    let refused = refusal(trees.submit(&name("t1"), &claimed.granted.holder));
    assert!(refused.contains("git does not work in"), "{refused}");

    assert_eq!(repaired(&bed), ["t1"]);
    assert_eq!(files(&claimed.path), before);
    assert_eq!(git(&claimed.path, &["status", "--porcelain"]), "?? draft");
    trees.verify(&name("coder-1"), None, SystemClock.wall()).unwrap().unwrap();
    assert!(repaired(&bed).is_empty());
}

#[test]
fn one_damaged_worktree_does_not_keep_the_others_from_their_repair() {
    let bed = Bed::new();
    let (first, second) = (claimed(&bed, "t1", "coder-1"), claimed(&bed, "t2", "coder-2"));
    // As a power cut leaves it.
    std::fs::write(bed.path().join(".git/worktrees/t1/HEAD"), "").unwrap();
    std::fs::remove_dir_all(&second.path).unwrap();
    std::fs::create_dir(&second.path).unwrap();
    assert_eq!(repaired(&bed), ["t1", "t2"]);
    for ClaimedTask { path, .. } in [&first, &second] {
        assert_eq!(git(path, &["status", "--porcelain"]), "");
        assert_eq!(std::fs::read_to_string(path.join("new")).unwrap(), "x");
    }
    assert_eq!(bed.directories(), [".kept-t1-2", "t1", "t2"]);
    let kept = bed.path().join(".worktrees/.kept-t1-2");
    assert_eq!(std::fs::read_to_string(kept.join("draft")).unwrap(), "half");
}

#[test]
fn a_damaged_worktree_of_a_rejected_task_can_be_claimed_again() {
    let bed = Bed::new();
    let claimed = claimed(&bed, "t1", "coder-1");
    bed.change(|board| board.release(&name("t1"), claimed.granted.holder.epoch, "lost"));
    std::fs::remove_file(claimed.path.join(".git")).unwrap();
    let other = bed.agent("coder-2", "coder");
    let again = bed.trees().claim_task(&name("t1"), &other).unwrap();
    assert_eq!(bed.file_in(&again.salvage.unwrap().commit, "draft"), "half");
    assert_eq!(files(&again.path), [".git", ".gitignore", "README"]);
}

#[test]
fn worktrees_of_a_moved_project_work_again_after_a_repair() {
    let bed = Bed::new();
    let claimed = claimed(&bed, "t1", "coder-1");
    let around = tempfile::tempdir().unwrap();
    let moved = around.path().join("moved");
    std::fs::rename(bed.path(), &moved).unwrap();
    let board = Board::find(&moved, board_options()).unwrap();
    let trees = Worktrees::open(&board, options()).unwrap();
    let refused = refusal(trees.submit(&name("t1"), &claimed.granted.holder));
    assert!(refused.contains("git does not work in"), "{refused}");
    assert!(trees.recover(true).unwrap().iter().all(|finding| finding.repaired));
    let path = moved.canonicalize().unwrap().join(".worktrees/t1");
    std::fs::remove_file(path.join("draft")).unwrap();
    trees.submit(&name("t1"), &claimed.granted.holder).unwrap();
    std::fs::rename(&moved, bed.home.path()).unwrap();
}

#[test]
fn the_worktrees_of_a_copied_project_stay_those_of_the_original() {
    let bed = Bed::new();
    let claimed = claimed(&bed, "t1", "coder-1");
    let around = tempfile::tempdir().unwrap();
    let copy = around.path().join("copy");
    let copied = Command::new("cp").arg("-r").arg(bed.path()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let board = Board::find(&copy, board_options()).unwrap();
    let trees = Worktrees::open(&board, options()).unwrap();
    let refused = refusal(trees.submit(&name("t1"), &claimed.granted.holder));
    assert!(refused.contains("git does not work in"), "{refused}");
    assert!(trees.recover(true).unwrap().iter().all(|finding| !finding.repaired));
    std::fs::remove_file(claimed.path.join("draft")).unwrap();
    bed.trees().submit(&name("t1"), &claimed.granted.holder).unwrap();
    assert_eq!(board.read().unwrap().tasks[0].status, TaskStatus::Claimed);
}

#[test]
fn worktrees_may_be_behind_a_link_to_another_place() {
    let bed = Bed::new();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), bed.path().join(".worktrees")).unwrap();
    // Another project has its worktrees there as well, and merges.
    let (other, scratch) = (Bed::new(), elsewhere.path().join(".merge-t1-1"));
    git(&other.path(), &["worktree", "add", "-q", "--detach", scratch.to_str().unwrap()]);
    let claimed = claimed(&bed, "t1", "coder-1");
    bed.trees().verify(&name("coder-1"), None, SystemClock.wall()).unwrap().unwrap();
    std::fs::remove_file(claimed.path.join("draft")).unwrap();
    bed.trees().submit(&name("t1"), &claimed.granted.holder).unwrap();
    bed.approve("t1");
    done(bed.trees().merge(&name("t1")).unwrap());
    assert!(repaired(&bed).is_empty() && !claimed.path.exists());
    assert!(scratch.join("README").exists());
    // Its tasks may have the same names.
    let theirs = elsewhere.path().join("t2");
    git(&other.path(), &["worktree", "add", "-q", "--detach", theirs.to_str().unwrap()]);
    bed.task("t2");
    let coder = bed.agent("coder-2", "coder");
    let refused = refusal(bed.trees().claim_task(&name("t2"), &coder));
    assert!(refused.contains("a worktree of another repository"), "{refused}");
    assert!(theirs.join("README").exists());
}

/// A repository with a submodule `inner`, which is initialised in the worktree of a claimed task.
fn with_submodule(bed: &Bed) -> ClaimedTask {
    let inner = bed.path().join(".ensemble/inner");
    git(&bed.path(), &["init", "-q", "-b", "main", inner.to_str().unwrap()]);
    commit(&inner, "part", "1");
    let allow = "protocol.file.allow=always";
    git(
        &bed.path(),
        &["-c", allow, "submodule", "--quiet", "add", inner.to_str().unwrap(), "inner"],
    );
    git(&bed.path(), &["commit", "-q", "-m", "add inner"]);
    let (_, claimed) = bed.claimed("t1", "coder-1");
    git(&claimed.path, &["-c", allow, "submodule", "--quiet", "update", "--init"]);
    assert!(claimed.path.join("inner/part").exists());
    claimed
}

#[test]
fn a_worktree_with_a_submodule_goes_with_its_merge() {
    let bed = Bed::new();
    let claimed = with_submodule(&bed);
    commit(&claimed.path, "new", "x");
    bed.trees().submit(&name("t1"), &claimed.granted.holder).unwrap();
    bed.approve("t1");
    done(bed.trees().merge(&name("t1")).unwrap());
    assert!(bed.directories().is_empty(), "{:?}", bed.directories());
    assert!(repaired(&bed).is_empty());
}

#[test]
fn work_inside_a_submodule_is_not_lost_with_its_worktree() {
    for is_committed in [true, false] {
        let bed = Bed::new();
        let claimed = with_submodule(&bed);
        let inner = claimed.path.join("inner");
        match is_committed {
            true => commit(&inner, "mine", "x"),
            false => std::fs::write(inner.join("mine"), "x").unwrap(),
        }
        bed.change(|board| board.release(&name("t1"), claimed.granted.holder.epoch, "lost"));
        let other = bed.agent("coder-2", "coder");
        bed.trees().claim_task(&name("t1"), &other).unwrap();
        assert_eq!(bed.directories(), [".kept-t1-2", "t1"]);
        let kept = bed.path().join(".worktrees/.kept-t1-2");
        assert_eq!(std::fs::read_to_string(kept.join("inner/mine")).unwrap(), "x");
        assert_eq!(git(&kept, &["rev-parse", "--is-inside-work-tree"]), "true");
    }
}

#[test]
fn a_repository_that_was_committed_as_one_file_is_not_lost_with_its_worktree() {
    let bed = Bed::new();
    let (_, claimed) = bed.claimed("t1", "coder-1");
    let inner = claimed.path.join("inner");
    git(&claimed.path, &["init", "-q", "-b", "main", inner.to_str().unwrap()]);
    commit(&inner, "mine", "x");
    git(&claimed.path, &["add", "--all"]);
    git(&claimed.path, &["commit", "-q", "-m", "add inner"]);
    bed.trees().submit(&name("t1"), &claimed.granted.holder).unwrap();
    bed.approve("t1");
    done(bed.trees().merge(&name("t1")).unwrap());
    let [kept] = &bed.directories()[..] else { panic!("{:?}", bed.directories()) };
    let kept = bed.path().join(".worktrees").join(kept);
    assert_eq!(std::fs::read_to_string(kept.join("inner/mine")).unwrap(), "x");
}

fn put_hook(bed: &Bed, hook: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = bed.path().join(".git/hooks").join(hook);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_checkout_hook_that_fails_is_reported_and_the_worktree_is_there() {
    let bed = Bed::new();
    put_hook(&bed, "post-checkout", "echo \"cannot install for $3\" >&2; exit 1");
    let (_, claimed) = bed.claimed("t1", "coder-1");
    assert_eq!(claimed.hook_failure.as_deref(), Some("cannot install for 1"));
    assert_eq!(bed.memory.of("worktree.hook_failed").len(), 1);
    commit(&claimed.path, "new", "x");
    bed.trees().submit(&name("t1"), &claimed.granted.holder).unwrap();
    bed.approve("t1");
    done(bed.trees().merge(&name("t1")).unwrap());
}

#[test]
fn no_other_hook_of_the_repository_stops_a_task() {
    const HOOKS: [&str; 4] =
        ["reference-transaction", "commit-msg", "pre-merge-commit", "post-merge"];
    let bed = Bed::new();
    bed.approved("t2", "two", "2");
    HOOKS.iter().for_each(|hook| put_hook(&bed, hook, "exit 1"));
    let (_, claimed) = bed.claimed("t1", "coder-1");
    done(bed.trees().merge(&name("t2")).unwrap());
    std::fs::remove_dir_all(bed.path().join(".git/hooks")).unwrap();
    commit(&claimed.path, "one", "1");
    HOOKS.iter().for_each(|hook| put_hook(&bed, hook, "exit 1"));
    bed.trees().submit(&name("t1"), &claimed.granted.holder).unwrap();
    bed.approve("t1");
    done(bed.trees().merge(&name("t1")).unwrap());
}

#[test]
fn a_checkout_hook_that_does_not_end_keeps_no_other_claim_waiting() {
    let bed = Bed::new();
    let (begun, go) = (bed.path().join(".ensemble/begun"), bed.path().join(".ensemble/go"));
    let wait = format!(
        "case $PWD in */t1) touch {}; until [ -e {} ]; do sleep 0.05; done;; esac",
        begun.display(),
        go.display()
    );
    put_hook(&bed, "post-checkout", &wait);
    for task in ["t1", "t2"] {
        bed.task(task);
    }
    let (slow, quick) = (bed.agent("coder-1", "coder"), bed.agent("coder-2", "coder"));
    let mut options = bed.options();
    options.patience = Duration::from_millis(200);
    let trees = Worktrees::open(&bed.board, options).unwrap();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| trees.claim_task(&name("t1"), &slow));
        wait_until("the hook runs", || begun.exists());
        let claimed = trees.claim_task(&name("t2"), &quick);
        std::fs::write(&go, "").unwrap();
        held.join().unwrap().unwrap();
        claimed.unwrap();
    });
}

#[test]
fn a_repository_of_another_owner_needs_only_what_git_itself_asks_for() {
    let bed = Bed::new();
    let config = bed.path().join(".ensemble/gitconfig");
    let tree = bed.path().join(".worktrees/t1");
    let text = format!(
        "[safe]\n\tdirectory = {}\n\tdirectory = {}\n",
        bed.path().display(),
        tree.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut options = bed.options();
    let config = config.display().to_string();
    let variables = [("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1"), ("GIT_CONFIG_GLOBAL", &config)];
    options.variables.extend(variables.map(|(name, value)| (name.into(), value.into())));
    let trees = Worktrees::open(&bed.board, options).unwrap();
    bed.task("t1");
    let coder = bed.agent("coder-1", "coder");
    trees.claim_task(&name("t1"), &coder).unwrap();
}

#[test]
fn an_integration_branch_without_the_merged_work_is_refused_and_named() {
    let bed = Bed::new();
    bed.task("t3");
    bed.approved("t1", "one", "x");
    done(bed.trees().merge(&name("t1")).unwrap());
    bed.approved("t2", "two", "x");
    let merge = done(bed.trees().merge(&name("t2")).unwrap());
    git(&bed.path(), &["branch", "-q", "-D", "integration"]);
    let coder = bed.agent("coder-3", "coder");
    let refused = refusal(bed.trees().claim_task(&name("t3"), &coder));
    let restore = format!("`git branch integration {merge}` restores it");
    assert!(refused.contains("task `t2`") && refused.contains(&restore), "{refused}");
    let found = bed.trees().recover(true).unwrap();
    assert!(found.iter().any(|finding| finding.problem.contains(&restore)), "{found:?}");
    assert!(bed.refs("refs/heads/integration").is_empty(), "it was not made again");

    git(&bed.path(), &["branch", "-q", "integration", "main"]);
    let refused = refusal(bed.trees().claim_task(&name("t3"), &coder));
    assert!(refused.contains(&format!("`git branch -f integration {merge}`")), "{refused}");
    git(&bed.path(), &["branch", "-q", "-f", "integration", &merge]);
    bed.trees().claim_task(&name("t3"), &coder).unwrap();
    assert!(repaired(&bed).is_empty());

    // A person has merged it elsewhere, so nothing is missing.
    git(&bed.path(), &["merge", "-q", "--ff-only", "integration"]);
    git(&bed.path(), &["branch", "-q", "-D", "integration"]);
    assert!(repaired(&bed).is_empty());
    bed.claimed("t4", "coder-4");
}

#[test]
fn a_branch_in_the_way_is_named_with_the_command_that_helps() {
    for (other, made) in [("task", "task/t1"), ("integration/next", "integration")] {
        let bed = Bed::new();
        git(&bed.path(), &["branch", other]);
        bed.task("t1");
        let coder = bed.agent("coder-1", "coder");
        let refused = refusal(bed.trees().claim_task(&name("t1"), &coder));
        let expected = format!("cannot make branch `{made}`: branch `{other}` is in the way");
        assert!(refused.starts_with(&expected), "{refused}");
        assert!(refused.contains(&format!("`git branch -m {other}")), "{refused}");
        git(&bed.path(), &["branch", "-m", other, "mine"]);
        bed.trees().claim_task(&name("t1"), &coder).unwrap();
    }
}
