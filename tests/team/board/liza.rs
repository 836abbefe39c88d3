//! A board as Liza's own scripts and people write it.

use super::*;

const BOARD: &str = include_str!("../../fixtures/liza/state.yaml");

fn lines_that_differ(before: &str, after: &str) -> (Vec<String>, Vec<String>) {
    let gone = before.lines().filter(|line| !after.lines().any(|other| other == *line));
    let new = after.lines().filter(|line| !before.lines().any(|other| other == *line));
    (gone.map(str::to_owned).collect(), new.map(str::to_owned).collect())
}

#[test]
fn it_is_read_with_its_drifted_names() {
    let bed = Bed::with(".liza", BOARD);
    assert!(bed.board.path().ends_with(".liza/state.yaml"));
    let state = bed.state();
    let task = |id: &str| state.task(&name(id)).unwrap();
    assert_eq!(task("task-3").status, TaskStatus::Unclaimed, "READY is UNCLAIMED");
    assert_eq!(task("task-1").history[2].event, "ready_for_review");
    assert_eq!(task("task-1").review_commit.as_deref(), Some("1234567"));
    assert_eq!(task("task-2").base_commit.as_deref(), Some("0012345"));
    assert_eq!(state.config.lease_duration().as_secs(), 1800);
    let claimable = ensemble_team::board::claimable(&state, None);
    let ids: Vec<&str> = claimable.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["task-2", "task-3"]);
}

#[test]
fn only_what_changes_is_touched_and_seed_names_are_written() {
    let bed = Bed::with(".liza", BOARD);
    let coder = bed.agent("coder-2", "coder");
    let before = bed.text();
    let claim = bed.claim("task-3", &coder);
    let after = bed.text();
    let (gone, new) = lines_that_differ(&before, &after);
    let expected = ["revision: 1", "epoch: 1", "  status: READY", "    status: IDLE"];
    assert!(gone.iter().all(|line| expected.contains(&line.as_str())), "{gone:#?}");
    for line in ["  status: CLAIMED", "  assigned_to: coder-2", "  worktree: .worktrees/task-3"] {
        assert!(new.iter().any(|new| new == line), "{line} is not in {new:#?}");
    }
    bed.change(|board| board.submit(&name("task-3"), &claim.holder, "c1"));
    assert!(bed.text().contains("event: ready_for_review"));
    // Everything that people wrote is preserved.
    let comments = BOARD.lines().filter_map(|line| line.split_once("# ").map(|(_, c)| c));
    for comment in
        comments.chain(["estimate: {hours: 3, by: ann}", "event: \"submitted_for_review\""])
    {
        assert!(bed.text().contains(comment), "{comment} is lost");
    }
    assert_eq!(problems(&bed.text()), Vec::<String>::new());
}

#[test]
fn a_rejected_task_is_kept_by_its_coder_and_begun_anew_by_another() {
    let bed = Bed::with(".liza", BOARD);
    let other = bed.agent("coder-2", "coder");
    let plan = bed.plan("task-2", &other).unwrap();
    assert!(!plan.keeps_worktree);
    // The coder of the file was registered by a script that knows no epochs.
    let own = TaskHolder { by: name("coder-1"), epoch: 0 };
    assert!(bed.plan("task-2", &own).unwrap().keeps_worktree);
    let busy = bed.plan("task-3", &own).unwrap_err().to_string();
    assert!(busy.contains("it already has task `task-2` (REJECTED)"), "{busy}");
    bed.change(|board| board.commit_claim(&plan, Some("feed")));
    let state = bed.state();
    let task = state.task(&name("task-2")).unwrap();
    assert_eq!((task.iteration, task.review_cycles_current), (Some(1), Some(0)));
    assert_eq!(task.review_cycles_total, Some(2));
}
