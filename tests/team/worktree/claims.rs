//! The life of a task from the claim to the verdict.

use super::*;

/// A task in the hands of `coder-1`.
fn claimed() -> (Bed, Worktrees, TaskHolder, ClaimedTask) {
    let bed = Bed::new();
    let (coder, claimed) = bed.claimed("t1", "coder-1");
    let trees = bed.trees();
    (bed, trees, coder, claimed)
}

#[test]
fn a_fresh_worktree_begins_at_the_integration_branch_and_leaves_the_checkout_unchanged() {
    let bed = Bed::new();
    bed.task("t1");
    let before = git(bed.home.path(), &["status", "--porcelain", "--branch"]);
    let coder = bed.agent("coder-1", "coder");
    let claimed = bed.trees().claim_task(&name("t1"), &coder).unwrap();
    assert_eq!(claimed.path, bed.path().join(".worktrees/t1"));
    let head = git(bed.home.path(), &["rev-parse", "integration"]);
    assert_eq!(claimed.base_commit.as_deref(), Some(&*head));
    assert_eq!(git(&claimed.path, &["branch", "--show-current"]), "task/t1");
    let task = bed.on_board("t1");
    assert_eq!(task.status, TaskStatus::Claimed);
    assert_eq!(task.base_commit.as_deref(), Some(&*head));
    assert_eq!(task.worktree.as_deref(), Some(".worktrees/t1"));
    assert_eq!(task.lease_epoch, Some(claimed.granted.holder.epoch));
    assert_eq!(git(bed.home.path(), &["status", "--porcelain", "--branch"]), before);
}

#[test]
fn worktrees_are_not_made_among_the_files_of_the_project() {
    let bed = Bed::new();
    bed.task("t1");
    let coder = bed.agent("coder-1", "coder");
    std::fs::create_dir(bed.path().join("src")).unwrap();
    commit(&bed.path(), "src/a.rs", "x");
    for directory in ["src", bed.path().to_str().unwrap()] {
        let mut options = board_options();
        options.worktrees = Some(directory.to_owned());
        let board = Board::at(bed.board.path(), options);
        let trees = Worktrees::open(&board, bed.options()).unwrap();
        let refused = trees.claim_task(&name("t1"), &coder).unwrap_err().to_string();
        assert!(refused.contains("worktrees.directory: has files"), "{refused}");
    }
    assert!(!bed.path().join("src/.gitignore").exists());
}

#[test]
fn a_checkout_without_a_commit_is_not_an_empty_repository() {
    let bed = Bed::new();
    bed.task("t1");
    let coder = bed.agent("coder-1", "coder");
    git(bed.home.path(), &["symbolic-ref", "HEAD", "refs/heads/unborn"]);
    let refused = refusal(bed.trees().claim_task(&name("t1"), &coder));
    assert!(refused.contains("unborn has no commit that can be read: `git switch`"), "{refused}");
}

#[test]
fn only_committed_work_of_the_holder_is_handed_in() {
    let (bed, trees, _, claimed) = claimed();
    let holder = claimed.granted.holder;
    assert!(refusal(trees.submit(&name("t1"), &holder)).contains("nothing was committed"));
    std::fs::write(claimed.path.join("new"), "x").unwrap();
    let refused = refusal(trees.submit(&name("t1"), &holder));
    assert!(refused.contains("not committed in the worktree: new"), "{refused}");
    commit(&claimed.path, "new", "x");
    git(&claimed.path, &["switch", "--quiet", "-c", "mine"]);
    let refused = refusal(trees.submit(&name("t1"), &holder));
    assert!(refused.contains("git switch -C task/t1"), "{refused}");
    git(&claimed.path, &["switch", "--quiet", "-C", "task/t1"]);
    git(&claimed.path, &["switch", "--quiet", "--detach", "HEAD~"]);
    commit(&claimed.path, "other", "x");
    let refused = refusal(trees.submit(&name("t1"), &holder));
    assert!(refused.contains("`git switch task/t1 && git merge "), "{refused}");
    git(&claimed.path, &["switch", "--quiet", "task/t1"]);
    let mut other = holder.clone();
    other.epoch -= 1;
    assert!(is_fenced(&trees.submit(&name("t1"), &other).unwrap_err()));
    // Ignored files are not work.
    std::fs::write(claimed.path.join("build.log"), "x").unwrap();
    let head = trees.submit(&name("t1"), &holder).unwrap();
    assert_eq!(head, git(&claimed.path, &["rev-parse", "HEAD"]));
    assert_eq!(bed.on_board("t1").review_commit.as_deref(), Some(&*head));
}

#[test]
fn the_last_holder_hands_in_what_it_has_committed_after_its_lease() {
    let (bed, trees, _, claimed) = claimed();
    let late = claimed.granted.holder;
    commit(&claimed.path, "new", "x");
    let release = |task, epoch| {
        let mut locked = bed.board.lock().unwrap();
        locked.release(&name(task), epoch, "the lease ran out").unwrap();
        locked.commit().unwrap();
    };
    release("t1", late.epoch);
    let head = trees.submit(&name("t1"), &late).unwrap();
    assert_eq!(bed.on_board("t1").review_commit.as_deref(), Some(&*head));
    assert_eq!(bed.on_board("t1").status, TaskStatus::ReadyForReview);
    trees.recover(true).unwrap();
    assert!(claimed.path.exists(), "the reviewer needs the worktree");

    // Another coder has it now.
    bed.task("t2");
    let (slow, quick) = (bed.agent("coder-2", "coder"), bed.agent("coder-3", "coder"));
    let lost = trees.claim_task(&name("t2"), &slow).unwrap();
    commit(&lost.path, "new", "y");
    release("t2", lost.granted.holder.epoch);
    trees.claim_task(&name("t2"), &quick).unwrap();
    assert!(is_fenced(&trees.submit(&name("t2"), &lost.granted.holder).unwrap_err()));
}

#[test]
fn a_verdict_is_the_lease_holders_about_the_commit_in_a_clean_tree() {
    let (bed, trees, _, claimed) = claimed();
    commit(&claimed.path, "new", "x");
    let head = trees.submit(&name("t1"), &claimed.granted.holder).unwrap();
    let reviewer = bed.agent("reviewer-1", "code-reviewer");
    let review = trees.claim_review(&name("t1"), &reviewer).unwrap();
    assert_eq!((review.commit.as_str(), review.author), (&*head, Some(name("coder-1"))));
    let holder = review.granted.holder;
    let approve = |holder| trees.verdict(&name("t1"), holder, None, &ReviewDecision::Approve);

    let error = approve(&claimed.granted.holder).unwrap_err();
    assert!(is_fenced(&error), "{error}");
    let other = trees.verdict(&name("t1"), &holder, Some("main"), &ReviewDecision::Approve);
    assert!(refusal(other).contains("was submitted"));
    std::fs::write(claimed.path.join("left"), "x").unwrap();
    assert!(refusal(approve(&holder)).contains("left"));
    std::fs::remove_file(claimed.path.join("left")).unwrap();
    commit(&claimed.path, "late", "x");
    assert!(refusal(approve(&holder)).contains("the worktree is at"));
    git(&claimed.path, &["reset", "--quiet", "--hard", &head]);
    assert_eq!(approve(&holder).unwrap(), head);
    assert_eq!(bed.status("t1"), TaskStatus::Approved);
}

#[test]
fn what_was_submitted_is_reviewed_although_its_agent_went_on() {
    let (bed, trees, _, claimed) = claimed();
    commit(&claimed.path, "new", "x");
    let submitted = trees.submit(&name("t1"), &claimed.granted.holder).unwrap();
    commit(&claimed.path, "late", "x");
    let late = git(&claimed.path, &["rev-parse", "HEAD"]);
    let reviewer = bed.agent("reviewer-1", "code-reviewer");
    let review = trees.claim_review(&name("t1"), &reviewer).unwrap();
    assert_eq!(review.commit, submitted);
    assert_eq!(git(&claimed.path, &["rev-parse", "task/t1"]), submitted);
    let salvage = bed.refs("refs/ensemble/salvage");
    assert_eq!(salvage.len(), 1, "{salvage:?}");
    assert_eq!(git(&claimed.path, &["rev-parse", "refs/ensemble/salvage/t1/2"]), late);
    let history = bed.on_board("t1").history;
    assert!(history.iter().any(|line| line.event == "salvaged"), "{history:?}");
    let verdict =
        trees.verdict(&name("t1"), &review.granted.holder, None, &ReviewDecision::Approve);
    assert_eq!(verdict.unwrap(), submitted);
}

#[test]
fn the_same_coder_goes_on_where_it_was_and_another_one_begins_anew() {
    let (bed, trees, coder, first) = claimed();
    commit(&first.path, "new", "x");
    trees.submit(&name("t1"), &first.granted.holder).unwrap();
    let review = bed.review("t1");
    let no = ReviewDecision::Reject("more".to_owned());
    trees.verdict(&name("t1"), &review.holder, None, &no).unwrap();

    let again = trees.claim_task(&name("t1"), &coder).unwrap();
    assert_eq!((again.base_commit, again.salvage), (None, None));
    assert!(again.path.join("new").exists());
    commit(&again.path, "more", "y");
    let head = trees.submit(&name("t1"), &again.granted.holder).unwrap();
    let review = bed.review("t1");
    trees.verdict(&name("t1"), &review.holder, None, &no).unwrap();

    let other = bed.agent("coder-2", "coder");
    let fresh = trees.claim_task(&name("t1"), &other).unwrap();
    assert!(fresh.base_commit.is_some() && !fresh.path.join("new").exists());
    let salvage = fresh.salvage.unwrap();
    assert_eq!(salvage.commit, head);
    assert_eq!(bed.refs("refs/ensemble/salvage/t1"), std::slice::from_ref(&salvage.reference));
    let last = bed.on_board("t1").history;
    let told = last.iter().find(|line| line.event == "salvaged").unwrap();
    assert_eq!(told.more["ref"], *salvage.reference);
}

#[test]
fn uncommitted_work_of_a_lost_lease_is_salvaged_and_its_writes_are_refused() {
    let (bed, trees, _, first) = claimed();
    commit(&first.path, "done", "committed");
    std::fs::write(first.path.join("README"), "staged").unwrap();
    git(&first.path, &["add", "README"]);
    std::fs::write(first.path.join("README"), "changed").unwrap();
    std::fs::write(first.path.join("new"), "untracked").unwrap();
    std::fs::write(first.path.join("build.log"), "ignored").unwrap();
    let epoch = first.granted.holder.epoch;
    bed.change(|board| board.release(&name("t1"), epoch, "the lease ran out"));

    let other = bed.agent("coder-2", "coder");
    let second = trees.claim_task(&name("t1"), &other).unwrap();
    let salvage = second.salvage.unwrap();
    assert_eq!(salvage.reference, format!("refs/ensemble/salvage/t1/{epoch}"));
    for (file, content) in [("done", "committed"), ("README", "changed"), ("new", "untracked")] {
        assert_eq!(bed.file_in(&salvage.commit, file), content);
    }
    assert_eq!(bed.file_in(&format!("{}^2", salvage.commit), "README"), "staged");
    let told = &bed.memory.of("worktree.salvaged")[0];
    assert_eq!(told["ignored"][0], "build.log");
    assert!(git(&second.path, &["status", "--porcelain"]).is_empty());
    let error = trees.submit(&name("t1"), &first.granted.holder).unwrap_err();
    assert!(is_fenced(&error), "{error}");
}

#[test]
fn a_repository_inside_a_worktree_is_not_thrown_away() {
    let (bed, trees, _, first) = claimed();
    let inner = first.path.join("vendored");
    std::fs::create_dir(&inner).unwrap();
    crate::worktree::bed::make_repository(&inner);
    bed.change(|board| board.release(&name("t1"), first.granted.holder.epoch, "gone"));
    let other = bed.agent("coder-2", "coder");
    let second = trees.claim_task(&name("t1"), &other).unwrap();
    assert!(second.base_commit.is_some());
    let kept = format!(".kept-t1-{}", first.granted.holder.epoch);
    assert_eq!(bed.directories(), [kept.clone(), "t1".to_owned()]);
    assert!(bed.home.path().join(".worktrees").join(&kept).join("vendored/README").exists());
    let told = &bed.memory.of("worktree.kept")[0];
    assert!(told["why"].as_str().unwrap().contains("vendored"), "{told}");
    let notes = trees.recover(true).unwrap();
    assert!(notes.iter().any(|note| note.is_note && note.path.ends_with(&kept)), "{notes:?}");
}

#[test]
fn a_claim_that_is_refused_leaves_nothing_and_is_recorded() {
    let bed = Bed::new();
    bed.task("t1");
    let coder = bed.agent("coder-1", "coder");
    let trees = bed.trees();
    trees.claim_task(&name("t1"), &coder).unwrap();
    let other = bed.agent("coder-2", "coder");
    let refused = refusal(trees.claim_task(&name("t1"), &other));
    assert!(refused.contains("its status is CLAIMED"), "{refused}");
    assert_eq!(bed.memory.of("task.claim_failed")[0]["tries"], 1);
    bed.task("a..b");
    assert!(refusal(trees.claim_task(&name("a..b"), &other)).contains("git allows no branch"));
    assert_eq!(bed.directories(), ["t1"]);

    // The branch is checked out: it is not moved under that checkout.
    bed.task("t2");
    let elsewhere = bed.home.path().join("elsewhere");
    let place = elsewhere.to_str().unwrap();
    git(bed.home.path(), &["worktree", "add", "--quiet", "-b", "task/t2", place]);
    let refused = refusal(trees.claim_task(&name("t2"), &other));
    assert!(refused.contains("checked out at"), "{refused}");
    assert_eq!(bed.status("t2"), TaskStatus::Unclaimed);
}
