//! Two hosts that share branches through a git remote: each verb from each host, races, and a remote that is away.

use ensemble_core::Error;

use crate::worktree::hosts::Hosts;

use super::*;

const INTEGRATION: &str = "refs/heads/integration";
const BRANCH: &str = "refs/heads/task/t1";
const SAVED: &str = "refs/ensemble/salvage/t1";

/// A task that this host has claimed.
fn claimed(bed: &Bed, id: &str) -> ClaimedTask {
    bed.claimed(id, &format!("coder-{id}")).1
}

/// A task that this host has submitted, with one file.
fn submitted(bed: &Bed, id: &str, file: &str, content: &str) -> ClaimedTask {
    let claimed = claimed(bed, id);
    commit(&claimed.path, file, content);
    bed.trees().submit(&name(id), &claimed.granted.holder).unwrap();
    claimed
}

/// An agent under its registration.
fn registered(bed: &Bed, id: &str) -> TaskHolder {
    let epoch = bed.board.read().unwrap().agents[&name(id)].epoch.unwrap();
    TaskHolder { by: name(id), epoch }
}

fn reject(bed: &Bed, id: &str) {
    let review = bed.review(id);
    let verdict = ReviewDecision::Reject("no".to_owned());
    bed.trees().verdict(&name(id), &review.holder, None, &verdict).unwrap();
}

#[test]
fn a_task_is_claimed_on_one_host_and_reviewed_and_merged_on_another() {
    let hosts = Hosts::new();
    let claimed = claimed(&hosts.near, "t1");
    let base = hosts.tip(INTEGRATION);
    assert_eq!(claimed.base_commit, Some(base.clone()), "it was made there");
    assert_eq!(hosts.tip(BRANCH), base);
    commit(&claimed.path, "new", "x");
    let head = hosts.near.trees().submit(&name("t1"), &claimed.granted.holder).unwrap();
    assert_eq!(hosts.tip(BRANCH), head);

    let reviewer = hosts.far.agent("reviewer", "code-reviewer");
    let review = hosts.far.trees().claim_review(&name("t1"), &reviewer).unwrap();
    assert_eq!(review.commit, head);
    assert!(review.path.starts_with(hosts.far.path()) && review.path.join("new").exists());
    assert_eq!(hosts.near.on_board("t1").host.as_deref(), Some("far"));
    let trees = hosts.far.trees();
    trees.verdict(&name("t1"), &review.granted.holder, None, &ReviewDecision::Approve).unwrap();
    let merge = done(trees.merge(&name("t1")).unwrap());
    assert_eq!(hosts.tip(INTEGRATION), merge);
    assert_eq!(hosts.file(INTEGRATION, "new"), "x");
    assert_eq!(hosts.near.status("t1"), TaskStatus::Merged);
    assert_eq!(hosts.refs("refs/heads/task"), Vec::<String>::new());

    // The host of the coder removes its own worktree when it looks.
    assert_eq!(hosts.near.directories(), ["t1"]);
    hosts.near.trees().recover(true).unwrap();
    assert!(hosts.near.directories().is_empty() && hosts.far.directories().is_empty());
    assert!(hosts.near.trees().recover(true).unwrap().is_empty());
    assert_eq!(hosts.refs("refs/ensemble"), Vec::<String>::new(), "nothing was lost");
    for bed in [&hosts.near, &hosts.far] {
        assert_eq!(git(&bed.path(), &["branch", "--list"]), "* main", "no branch stays");
    }
}

#[test]
fn a_base_that_only_this_host_has_is_none() {
    let hosts = Hosts::new();
    claimed(&hosts.near, "t1");
    commit(hosts.far.home.path(), "local", "only here");
    git(hosts.far.home.path(), &["branch", "integration"]);
    let claimed = claimed(&hosts.far, "t2");
    assert_eq!(claimed.base_commit, Some(hosts.tip(INTEGRATION)));
    assert!(!claimed.path.join("local").exists());
    let state = hosts.far.trees().remote_state().unwrap().unwrap();
    assert_eq!(
        (state.remote.as_str(), state.tip, state.unpushed),
        ("origin", claimed.base_commit, 1)
    );
}

#[test]
fn a_verdict_and_a_submission_may_come_from_a_host_that_has_no_worktree() {
    let hosts = Hosts::new();
    let claimed = claimed(&hosts.near, "t1");
    let holder = &claimed.granted.holder;
    let refused = refusal(hosts.far.trees().submit(&name("t1"), holder));
    assert!(refused.contains("its worktree is on host near"), "{refused}");
    // A coder pushes by itself, and the far host submits that.
    commit(&claimed.path, "new", "x");
    git(&claimed.path, &["push", "--quiet", "origin", "HEAD"]);
    let head = hosts.far.trees().submit(&name("t1"), holder).unwrap();
    assert_eq!(Some(head.clone()), hosts.near.on_board("t1").review_commit);
    let review = hosts.near.review("t1");
    let trees = hosts.far.trees();
    let judged = trees.verdict(&name("t1"), &review.holder, None, &ReviewDecision::Approve);
    assert_eq!(judged.unwrap(), head);
}

#[test]
fn a_coder_on_another_host_repairs_a_failed_merge_and_each_round_is_seen_by_the_other() {
    let hosts = Hosts::new();
    submitted(&hosts.near, "t1", "README", "two");
    submitted(&hosts.near, "t2", "README", "zwei");
    hosts.far.approve("t2");
    hosts.far.approve("t1");
    done(hosts.far.trees().merge(&name("t2")).unwrap());
    let MergeOutcome::Failed { reason } = hosts.far.trees().merge(&name("t1")).unwrap() else {
        panic!("merged")
    };
    assert!(reason.contains("into origin/integration at ") && reason.contains("README"));

    // The host of the coder is dead. Another one repairs that.
    let fixer = hosts.far.agent("fixer", "coder");
    let fix = hosts.far.trees().claim_task(&name("t1"), &fixer).unwrap();
    assert!(fix.is_integration_fix);
    git(&fix.path, &["merge", "--quiet", "-s", "ours", "-m", "repair", "origin/integration"]);
    commit(&fix.path, "repaired", "x");
    hosts.far.trees().submit(&name("t1"), &fix.granted.holder).unwrap();
    // The coder's host comes back, and reviews what was repaired, in its own worktree.
    reject(&hosts.near, "t1");
    assert!(hosts.near.path().join(".worktrees/t1/repaired").exists());
    let again = hosts.far.trees().claim_task(&name("t1"), &registered(&hosts.far, "fixer"));
    let again = again.unwrap();
    assert_eq!(again.path, fix.path);
    commit(&again.path, "rejected", "y");
    hosts.far.trees().submit(&name("t1"), &again.granted.holder).unwrap();
    hosts.near.approve("t1");
    done(hosts.near.trees().merge(&name("t1")).unwrap());
    assert_eq!(hosts.file(INTEGRATION, "rejected"), "y");
}

#[test]
fn what_a_dead_agent_left_is_seen_on_the_host_that_goes_on() {
    let hosts = Hosts::new();
    let dead = claimed(&hosts.near, "t1");
    commit(&dead.path, "committed", "1");
    std::fs::write(dead.path.join("uncommitted"), "2").unwrap();
    hosts.far.change(|board| board.release(&name("t1"), dead.granted.holder.epoch, "silent"));
    // Another host continues at once, before the dead agent's host has noticed.
    let coder = hosts.far.agent("coder-2", "coder");
    let next = hosts.far.trees().claim_task(&name("t1"), &coder).unwrap();
    assert_eq!(next.salvage, None);
    let found = hosts.near.trees().recover(true).unwrap();
    assert!(found[0].problem.contains("host far works on this task"), "{found:?}");
    assert!(hosts.near.trees().recover(true).unwrap().is_empty());
    let saved = hosts.refs(SAVED);
    assert_eq!(saved.len(), 1, "{saved:?}");
    assert_eq!(hosts.file(&saved[0], "committed"), "1");
    assert_eq!(hosts.file(&saved[0], "uncommitted"), "2");
    // It is in the task's history, and the next look of the other host fetches it.
    let history = hosts.far.on_board("t1").history;
    let told = history.iter().find(|line| line.event == "salvaged").unwrap();
    assert_eq!(told.more["ref"].as_str(), Some(&*saved[0]));
    commit(&next.path, "new", "x");
    hosts.far.trees().submit(&name("t1"), &next.granted.holder).unwrap();
    assert_eq!(hosts.far.file_in(&saved[0], "uncommitted"), "2");
}

#[test]
fn what_was_submitted_and_given_up_is_saved_on_the_remote_by_the_next_claim() {
    let hosts = Hosts::new();
    submitted(&hosts.near, "t1", "first", "1");
    reject(&hosts.near, "t1");
    let coder = hosts.far.agent("coder-2", "coder");
    let next = hosts.far.trees().claim_task(&name("t1"), &coder).unwrap();
    let saved = hosts.refs(SAVED);
    assert_eq!(Some(&saved[0]), next.salvage.as_ref().map(|salvage| &salvage.reference));
    assert_eq!(hosts.file(&saved[0], "first"), "1");
    assert_eq!(Some(hosts.tip(BRANCH)), next.base_commit);
    // The former coder's host has the same commit, and saves it no second time.
    hosts.near.trees().recover(true).unwrap();
    assert_eq!(hosts.refs(SAVED), saved);
}

#[test]
fn a_holder_that_lost_its_claim_replaces_nothing_on_the_remote() {
    let hosts = Hosts::new();
    let old = claimed(&hosts.near, "t1");
    commit(&old.path, "old", "1");
    hosts.far.change(|board| board.release(&name("t1"), old.granted.holder.epoch, "silent"));
    let coder = hosts.far.agent("coder-2", "coder");
    let next = hosts.far.trees().claim_task(&name("t1"), &coder).unwrap();
    let base = hosts.tip(BRANCH);
    refusal(hosts.near.trees().submit(&name("t1"), &old.granted.holder));
    assert_eq!(hosts.tip(BRANCH), base);
    // The old holder has pushed by hand over the branch, and that work is not lost.
    git(&old.path, &["push", "--quiet", "--force", "origin", "HEAD"]);
    commit(&next.path, "new", "x");
    let head = hosts.far.trees().submit(&name("t1"), &next.granted.holder).unwrap();
    assert_eq!(hosts.tip(BRANCH), head);
    assert_eq!(hosts.file(&hosts.refs(SAVED)[0], "old"), "1");
}

#[test]
fn what_a_person_pushes_while_the_tests_run_is_in_the_merge() {
    let hosts = Hosts::new();
    submitted(&hosts.near, "t1", "new", "x");
    hosts.far.approve("t1");
    // The tests push in a person's name, once.
    let person = hosts.remote().with_file_name("person");
    let at = hosts.remote();
    git(at.parent().unwrap(), &["clone", "--quiet", at.to_str().unwrap(), "person"]);
    git(&person, &["switch", "--quiet", "integration"]);
    commit(&person, "by-hand", "1");
    let command = format!("git -C {} push --quiet origin integration; true", person.display());
    let mut options = hosts.far.options();
    options.tests = Some(MergeTests { command, limit: crate::children::DEADLINE });
    let trees = Worktrees::open(&hosts.far.board, options).unwrap();
    let merge = done(trees.merge(&name("t1")).unwrap());
    assert_eq!(hosts.tip(INTEGRATION), merge);
    let log = git(&at, &["log", "--first-parent", "--format=%s", "integration"]);
    assert_eq!(log, "Merge task t1: do t1\nwrite by-hand\nbegin");
}

#[test]
fn a_push_of_a_person_before_a_claim_or_a_merge_is_honoured() {
    let hosts = Hosts::new();
    submitted(&hosts.near, "t1", "new", "x");
    hosts.near.approve("t1");
    hosts.by_a_person("theirs");
    let second = claimed(&hosts.near, "t2");
    assert!(second.path.join("theirs").exists());
    // The integration branch of the repository may be checked out: it is not moved.
    git(hosts.near.home.path(), &["switch", "--quiet", "-c", "integration", "origin/integration"]);
    let own = git(hosts.near.home.path(), &["rev-parse", "integration"]);
    assert_eq!(hosts.near.trees().checked_out().unwrap(), None);
    done(hosts.near.trees().merge(&name("t1")).unwrap());
    assert_eq!(hosts.file(INTEGRATION, "theirs"), "by a person");
    assert_eq!(git(hosts.near.home.path(), &["rev-parse", "integration"]), own);
}

#[test]
fn without_its_remote_a_verb_ends_as_busy_and_changes_nothing() {
    let hosts = Hosts::new();
    let begun = claimed(&hosts.near, "t1");
    hosts.near.task("t2");
    commit(&begun.path, "new", "x");
    let before = hosts.near.board.read_text().unwrap();
    let refs = git(hosts.near.home.path(), &["for-each-ref"]);
    hosts.take_away(true);
    let second = hosts.far.agent("coder-2", "coder");
    let before_far = hosts.far.board.read_text().unwrap();
    let errors = [
        hosts.near.trees().submit(&name("t1"), &begun.granted.holder).map(drop).unwrap_err(),
        hosts.far.trees().claim_task(&name("t2"), &second).map(drop).unwrap_err(),
        hosts.far.trees().merge(&name("t1")).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_transient(), "{error}");
        assert!(error.to_string().contains("at the git remote `origin`"), "{error}");
    }
    assert_ne!(before, before_far, "an agent was registered");
    assert_eq!(hosts.far.board.read_text().unwrap(), before_far);
    assert_eq!(git(hosts.near.home.path(), &["for-each-ref"]), refs);
    assert!(hosts.far.directories().is_empty());
    hosts.take_away(false);
    hosts.near.trees().submit(&name("t1"), &begun.granted.holder).unwrap();
}

#[test]
fn a_push_that_the_remote_refuses_is_on_the_board_and_moves_nothing() {
    let hosts = Hosts::new();
    submitted(&hosts.near, "t1", "new", "x");
    hosts.near.approve("t1");
    let before = hosts.tip(INTEGRATION);
    let hook = hosts.remote().join("hooks/pre-receive");
    std::fs::write(&hook, "#!/bin/sh\necho frozen >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    let refused = hosts.far.trees().merge(&name("t1")).unwrap_err();
    assert!(!refused.is_transient() && refused.to_string().contains("frozen"), "{refused}");
    assert_eq!(hosts.tip(INTEGRATION), before);
    let why = hosts.near.on_board("t1").merge_error.unwrap();
    assert!(why.contains("frozen"), "{why}");
    std::fs::remove_file(hook).unwrap();
    done(hosts.far.trees().merge(&name("t1")).unwrap());
}

#[test]
fn a_copy_with_changes_is_saved_before_another_hosts_work_takes_its_place() {
    let hosts = Hosts::new();
    submitted(&hosts.near, "t1", "new", "1");
    let reviewer = hosts.far.agent("reviewer", "code-reviewer");
    let review = hosts.far.trees().claim_review(&name("t1"), &reviewer).unwrap();
    let verdict = ReviewDecision::Reject("no".to_owned());
    let holder = &review.granted.holder;
    hosts.far.trees().verdict(&name("t1"), holder, None, &verdict).unwrap();
    std::fs::write(review.path.join("note"), "of the reviewer").unwrap();
    let coder = registered(&hosts.near, "coder-t1");
    let again = hosts.near.trees().claim_task(&name("t1"), &coder).unwrap();
    commit(&again.path, "new", "2");
    hosts.near.trees().submit(&name("t1"), &again.granted.holder).unwrap();
    hosts.far.approve("t1");
    assert_eq!(std::fs::read_to_string(review.path.join("new")).unwrap(), "2");
    assert_eq!(hosts.file(&hosts.refs(SAVED)[0], "note"), "of the reviewer");
}

#[test]
fn an_integration_branch_with_a_hostile_name_is_refused() {
    let hosts = Hosts::new();
    hosts.near.task("t1");
    let coder = hosts.near.agent("coder-1", "coder");
    let branches = ["x:refs/heads/main", "--mirror", "../x", "*", "refs/heads/main"];
    for (branch, is_shared) in branches.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let mut options = hosts.near.options();
        options.integration = Some(branch.to_owned());
        options.remote = options.remote.filter(|_| is_shared);
        let trees = Worktrees::open(&hosts.near.board, options).unwrap();
        let refused = refusal(trees.claim_task(&name("t1"), &coder));
        assert!(refused.contains("git allows no branch of this name"), "{refused}");
    }
    assert_eq!(hosts.refs("refs/heads"), ["refs/heads/main"]);
}

#[test]
fn a_remote_that_is_not_there_or_is_no_name_is_refused() {
    let hosts = Hosts::new();
    hosts.near.task("t1");
    let coder = hosts.near.agent("coder-1", "coder");
    for remote in ["elsewhere", "--upload-pack=x", "../team.git"] {
        let mut options = hosts.near.options();
        options.remote = Some(remote.to_owned());
        let trees = Worktrees::open(&hosts.near.board, options).unwrap();
        let refused = refusal(trees.claim_task(&name("t1"), &coder));
        assert!(refused.contains("there is no git remote"), "{refused}");
    }
    assert!(hosts.near.directories().is_empty());
}

#[test]
fn a_remote_that_asks_for_a_password_or_does_not_answer_holds_no_verb_up() {
    let hosts = Hosts::new();
    hosts.near.task("t1");
    let coder = hosts.near.agent("coder-1", "coder");
    let home = hosts.near.path();
    git(&home, &["remote", "set-url", "origin", "ssh://nowhere.invalid/x"]);
    // A client of ssh that notes how it was called, and never ends.
    let ssh = home.join("ssh");
    std::fs::write(&ssh, "#!/bin/sh\necho \"$@\" >> \"$0.called\"\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).unwrap();
    git(&home, &["config", "core.sshCommand", ssh.to_str().unwrap()]);
    let mut options = hosts.near.options();
    options.remote_limit = std::time::Duration::from_secs(1);
    let trees = Worktrees::open(&hosts.near.board, options).unwrap();
    let late = trees.claim_task(&name("t1"), &coder).unwrap_err();
    assert!(matches!(late, Error::Server { unreachable: true, .. }), "{late}");
    assert!(late.to_string().contains("did not end within 1 s"), "{late}");
    let called = std::fs::read_to_string(ssh.with_extension("called")).unwrap();
    assert!(called.contains("-o BatchMode=yes"), "{called}");
}
