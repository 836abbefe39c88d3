//! Remains of dead agents, and the checks of an agent at its start.

use ensemble_core::message::Timestamp;
use ensemble_team::worktree::{AgentDuty, VerifiedAgent};

use super::*;

fn problems(bed: &Bed, repair: bool) -> Vec<(Option<String>, bool)> {
    let found = bed.trees().recover(repair).unwrap();
    found.into_iter().map(|f| (f.task.map(|task| task.to_string()), f.repaired)).collect()
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let bed = Bed::new();
    bed.task("t1");
    assert!(problems(&bed, true).is_empty());
    bed.approved("t1", "new", "x");
    assert!(problems(&bed, true).is_empty());
    done(bed.trees().merge(&name("t1")).unwrap());
    assert!(problems(&bed, true).is_empty());
}

#[test]
fn an_orphaned_worktree_is_removed_and_its_work_is_salvaged() {
    let bed = Bed::new();
    let (_, claimed) = bed.claimed("t1", "coder-1");
    // Git is set to show what a program says of the signature of each commit.
    let signature = "-----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----";
    let commit = git(&claimed.path, &["cat-file", "commit", "HEAD"]);
    let commit = commit.replacen("\n\n", &format!("\ngpgsig {signature}\n\n"), 1);
    let file = bed.home.path().join(".git/signed");
    std::fs::write(&file, commit + "\n").unwrap();
    let commit = git(&claimed.path, &["hash-object", "-wt", "commit", file.to_str().unwrap()]);
    git(&claimed.path, &["reset", "--quiet", "--hard", &commit]);
    git(&claimed.path, &["config", "log.showSignature", "true"]);
    git(&claimed.path, &["config", "gpg.program", "git"]);
    std::fs::write(claimed.path.join("new"), "untracked").unwrap();
    bed.change(|board| board.release(&name("t1"), claimed.granted.holder.epoch, "lost"));
    assert_eq!(problems(&bed, false), [(Some("t1".to_owned()), false)]);
    assert_eq!(bed.directories(), ["t1"], "only looked at");
    assert_eq!(problems(&bed, true), [(Some("t1".to_owned()), true)]);
    assert!(bed.directories().is_empty() && bed.refs("refs/heads/task").is_empty());
    let salvaged = bed.refs("refs/ensemble/salvage/t1");
    assert_eq!(bed.file_in(&salvaged[0], "new"), "untracked");
    let task = bed.on_board("t1");
    assert_eq!((task.status, task.worktree), (TaskStatus::Unclaimed, None));
    assert!(task.history.iter().any(|line| line.event == "salvaged"));
    assert!(problems(&bed, true).is_empty());
}

#[test]
fn a_claim_without_its_worktree_gets_it_back() {
    let bed = Bed::new();
    let (_, claimed) = bed.claimed("t1", "coder-1");
    commit(&claimed.path, "new", "x");
    std::fs::remove_dir_all(&claimed.path).unwrap();
    assert_eq!(problems(&bed, true), [(Some("t1".to_owned()), true)]);
    assert!(claimed.path.join("new").exists());
    // Nothing is left at all: the claim has ended.
    git(bed.home.path(), &["worktree", "remove", "--force", claimed.path.to_str().unwrap()]);
    git(bed.home.path(), &["branch", "-D", "task/t1"]);
    assert_eq!(problems(&bed, true), [(Some("t1".to_owned()), true)]);
    assert_eq!(bed.status("t1"), TaskStatus::Unclaimed);
}

#[test]
fn an_unrecorded_merge_is_reported() {
    let bed = Bed::new();
    let (_, first) = bed.claimed("t0", "coder-t0");
    commit(&first.path, "earlier", "x");
    let earlier = git(&first.path, &["rev-parse", "HEAD"]);
    commit(&first.path, "later", "x");
    bed.trees().submit(&name("t0"), &first.granted.holder).unwrap();
    bed.approve("t0");
    let claimed = bed.approved("t1", "new", "x");
    let scratch = bed.home.path().join(".worktrees/.merge-t1-1");
    git(
        bed.home.path(),
        &["worktree", "add", "-q", "--detach", scratch.to_str().unwrap(), "integration"],
    );
    git(&scratch, &["merge", "-q", "--no-ff", "-m", "by hand", "task/t1"]);
    git(&scratch, &["update-ref", "refs/heads/integration", "HEAD"]);
    let merge = git(&scratch, &["rev-parse", "HEAD"]);
    // A task whose history is damaged keeps no other from its repair.
    let damaged = bed.home.path().join(".git/objects").join(&earlier[..2]).join(&earlier[2..]);
    std::fs::remove_file(&damaged).unwrap();
    std::fs::write(&damaged, "").unwrap();
    assert_eq!(problems(&bed, true).len(), 3, "also the merge, and where it was made");
    let task = bed.on_board("t1");
    assert_eq!((task.status, task.merge_commit), (TaskStatus::Merged, Some(merge)));
    assert!(bed.directories() == ["t0"] && !claimed.path.exists());
}

#[test]
fn worktrees_made_by_people_are_left_alone() {
    let bed = Bed::new();
    bed.approved("t1", "new", "x");
    let mine = bed.home.path().join(".worktrees/mine");
    git(
        bed.home.path(),
        &["worktree", "add", "-q", "-b", "task/of-my-own", mine.to_str().unwrap()],
    );
    std::fs::create_dir(bed.home.path().join(".worktrees/notes")).unwrap();
    let found = bed.trees().recover(true).unwrap();
    assert!(found.iter().all(|finding| finding.is_note) && found.len() == 1, "{found:?}");
    done(bed.trees().merge(&name("t1")).unwrap());
    assert_eq!(bed.directories(), ["mine", "notes"]);
    // A person's branch has the name of a task's branch as well.
    git(bed.home.path(), &["symbolic-ref", "refs/heads/task/t2", "refs/heads/main"]);
    bed.claimed("t2", "coder-2");
    assert_eq!(bed.refs("refs/heads/main"), ["refs/heads/main"]);
}

#[test]
fn a_directory_that_the_board_names_by_mistake_is_neither_moved_nor_removed() {
    let bed = Bed::new();
    let [first, second] = ["t1", "t2"].map(|task| {
        bed.task(task);
        let coder = bed.agent(&format!("coder-{task}"), "coder");
        (bed.trees().claim_task(&name(task), &coder).unwrap(), coder)
    });
    let mine = bed.home.path().join("src/mine");
    std::fs::create_dir(bed.home.path().join("src")).unwrap();
    std::fs::write(&mine, "x").unwrap();
    let text = std::fs::read_to_string(bed.board.path()).unwrap();
    let wrong = text.replace(".worktrees/t1\n", "src\n").replace(".worktrees/t2\n", "'.'\n");
    std::fs::write(bed.board.path(), wrong).unwrap();
    assert_eq!(bed.on_board("t1").worktree.as_deref(), Some("src"));
    assert!(problems(&bed, true).is_empty());
    let (claimed, coder) = first;
    commit(&claimed.path, "new", "x");
    bed.trees().submit(&name("t1"), &claimed.granted.holder).unwrap();
    let (review, no) = (bed.review("t1").holder, ReviewDecision::Reject("no".to_owned()));
    bed.trees().verdict(&name("t1"), &review, None, &no).unwrap();
    // The claim that continues there corrects the board.
    assert_eq!(bed.trees().claim_task(&name("t1"), &coder).unwrap().path, claimed.path);
    assert_eq!(bed.on_board("t1").worktree.as_deref(), Some(".worktrees/t1"));

    bed.change(|board| board.release(&name("t2"), second.0.granted.holder.epoch, "lost"));
    assert_eq!(problems(&bed, true), [(Some("t2".to_owned()), true)]);
    assert_eq!(git(bed.home.path(), &["branch", "--show-current"]), "main");
    assert!(mine.exists());
    assert_eq!(bed.directories(), ["t1"]);
}

fn verify(bed: &Bed, agent: &str, epoch: Option<u64>) -> Result<VerifiedAgent, UnfitReason> {
    bed.trees().verify(&name(agent), epoch, SystemClock.wall()).unwrap()
}

#[test]
fn an_agent_learns_whether_it_may_begin() {
    let bed = Bed::new();
    bed.task("t1");
    assert!(matches!(verify(&bed, "coder-1", None), Err(UnfitReason::NothingAssigned(_))));
    let coder = bed.agent("coder-1", "coder");
    assert!(matches!(verify(&bed, "coder-1", None), Err(UnfitReason::NothingAssigned(_))));
    bed.agent("planner-1", "planner");
    assert_eq!(verify(&bed, "planner-1", None).unwrap().duty, AgentDuty::None);

    let claimed = bed.trees().claim_task(&name("t1"), &coder).unwrap();
    let epoch = claimed.granted.holder.epoch;
    let path = claimed.path.clone();
    let duty = AgentDuty::Work { task: name("t1"), epoch, path };
    assert_eq!(verify(&bed, "coder-1", Some(epoch)).unwrap().duty, duty);
    let old = verify(&bed, "coder-1", Some(epoch - 1)).unwrap_err();
    assert!(matches!(&old, UnfitReason::Over(_)) && old.to_string().contains("has ended"), "{old}");
    let never = Timestamp::from_unix_millis(i64::MAX / 2);
    let late = bed.trees().verify(&name("coder-1"), None, never).unwrap().unwrap_err();
    assert!(late.to_string().contains("expired at"), "{late}");

    commit(&claimed.path, "new", "x");
    bed.trees().submit(&name("t1"), &claimed.granted.holder).unwrap();
    assert!(matches!(verify(&bed, "coder-1", None), Err(UnfitReason::NothingAssigned(_))));
    let review = bed.review("t1").holder;
    let seen = verify(&bed, review.by.as_str(), Some(review.epoch)).unwrap();
    assert!(matches!(seen.duty, AgentDuty::Review { .. }), "{seen:?}");
    commit(&claimed.path, "late", "x");
    let moved = verify(&bed, review.by.as_str(), None).unwrap_err();
    assert!(matches!(moved, UnfitReason::Broken(_)), "{moved}");
    bed.change(|board| board.release(&name("t1"), review.epoch, "the lease ran out"));
    assert!(matches!(verify(&bed, review.by.as_str(), None), Err(UnfitReason::NothingAssigned(_))));
    assert!(matches!(
        verify(&bed, review.by.as_str(), Some(review.epoch)),
        Err(UnfitReason::Over(_))
    ));
}
