//! Agents that work on the board by hand, as seed 001 lets them, and supervisors that cannot do their work.

use std::process::Command;

use ensemble_core::proto::lease::Event;
use ensemble_team::board::{Alarm, AlarmGraces, BoardLease, conditions};
use ensemble_team::proto::goal::GoalEvent;

use super::*;

/// Changes the board's text under its lock, as a script would.
fn edit(bed: &Bed, from: &str, to: &str) {
    let path = bed.board.path();
    let script = r#"flock "$0.lock" perl -0pi -e 's/$ENV{FROM}/$ENV{TO}/' "$0""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(path).env("FROM", from).env("TO", to);
    assert!(shell.status().unwrap().success());
}

fn entry(state: &State, id: &str) -> (agent::State, Option<String>) {
    let entry = &state.agents[&name(id)];
    (entry.status, entry.current_task.as_ref().map(ToString::to_string))
}

#[test]
fn an_agent_that_only_changes_the_status_of_its_task_has_submitted_it() {
    let bed = Bed::new(1, 300);
    let agent = "git commit -q --allow-empty -m work; echo one >> $H/runs; \
                 until [ -e $H/go ]; do sleep 0.05; done";
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, agent);
    bed.lines("runs", 1);
    let claimed = bed.task(1);
    edit(&bed, "status: CLAIMED", "status: READY_FOR_REVIEW");
    edit(&bed, "(coder-1:.*?lease_expires:) [^\\n]*", "$1 null");
    // It is not ended for that, but ends by itself.
    std::fs::write(bed.file("go"), "").unwrap();
    supervisor.hear("agent ended: exit 0");
    wait_until("its entry says that it waits", || {
        entry(&bed.state(), "coder-1") == (agent::State::Waiting, Some("task-1".to_owned()))
    });
    let task = bed.until(1, TaskStatus::ReadyForReview);
    let head = git(&bed.worktrees.path_of(&task), &["rev-parse", "HEAD"]);
    assert_eq!(task.review_commit, Some(head));
    let line = task.history.last().unwrap();
    assert_eq!(
        (line.event.as_str(), line.more["epoch"].as_u64()),
        ("ready_for_review", claimed.lease_epoch)
    );

    let reviewer = "echo one >> $H/reviews; until [ -e $H/stop ]; do sleep 0.05; done";
    let second = bed.supervise("reviewer-1", BoardRole::CodeReviewer, reviewer);
    bed.lines("reviews", 1);
    edit(&bed, "status: READY_FOR_REVIEW", "status: APPROVED");
    std::fs::write(bed.file("stop"), "").unwrap();
    bed.until(1, TaskStatus::Merged);
    for id in ["coder-1", "reviewer-1"] {
        wait_until("both have nothing to do", || {
            entry(&bed.state(), id) == (agent::State::Idle, None)
        });
    }
    assert_eq!(bed.task(1).approved_by, Some(name("reviewer-1")));
    assert!(bed.state().anomalies.is_empty(), "{:?}", bed.state().anomalies);
    supervisor.stop();
    second.stop();
}

#[test]
fn a_claim_that_fails_is_told_and_blocks_the_task_in_the_end() {
    let bed = Bed::new(1, 300);
    git(bed.home(), &["branch", "task"]);
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, "true");
    let told = supervisor.hear("cannot claim `task-1`");
    assert!(told.contains("branch `task` is in the way: `git branch -m task"), "{told}");
    let seen = || {
        let found = conditions(&bed.state(), AlarmGraces::default()).into_iter();
        let keys = found.map(|condition| condition.key.alarm);
        keys.into_iter().any(|alarm| [Alarm::ClaimImpossible, Alarm::Blocked].contains(&alarm))
    };
    assert!(seen());
    let task = bed.until(1, TaskStatus::Blocked);
    let reason = task.blocked_reason.unwrap();
    assert!(reason.starts_with("5 claims failed in a row: "), "{reason}");
    assert_eq!(task.blocked_questions.len(), 1);

    git(bed.home(), &["branch", "-m", "task", "mine"]);
    bed.change(|board| board.unblock(&name("task-1")));
    supervisor.hear("agent started for `task-1`");
    assert_eq!(bed.task(1).claim_error, None);
    supervisor.stop();
}

/// Each cause is said, with the line of git that names it, and is on the board.
#[test]
fn a_claim_that_fails_is_told_with_its_cause() {
    for cause in ["the repository has no commit yet", "integration.lock", ".worktrees: File exists"]
    {
        let bed = Bed::new(1, 300);
        match cause {
            "integration.lock" => {
                std::fs::write(bed.file(".git/refs/heads/integration.lock"), "").unwrap();
            }
            ".worktrees: File exists" => std::fs::write(bed.file(".worktrees"), "").unwrap(),
            _ => drop(git(bed.home(), &["update-ref", "-d", "HEAD"])),
        }
        let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, "true");
        let told = supervisor.hear("cannot claim `task-1`");
        assert!(told.contains(cause), "{told}");
        wait_until("the board says why", || {
            let task = bed.task(1);
            let why = task.claim_error.or(task.blocked_reason);
            why.is_some_and(|why| why.contains(cause))
        });
        std::fs::write(bed.file("stop-coder-1"), "").unwrap();
        supervisor.hear("ended: stopped");
        supervisor.stop();
    }
}

#[test]
fn an_agent_whose_worktree_loses_its_link_does_not_write_into_the_checkout() {
    let bed = Bed::new(1, 300);
    std::fs::write(bed.file("mine"), "not committed").unwrap();
    let before = git(bed.home(), &["log", "--format=%H", "-1"]);
    let agent = "rm .git; git add -A && git commit -q -m stray; echo $? >> $H/codes; sleep 600";
    let supervisor = bed.supervise("coder-1", BoardRole::Coder, agent);
    let code = bed.lines("codes", 1)[0].clone();
    assert_ne!(code, "0");
    assert_eq!(git(bed.home(), &["log", "--format=%H", "-1"]), before);
    assert_eq!(git(bed.home(), &["diff", "--cached", "--name-only"]), "");
    supervisor.stop();
}

#[test]
#[ignore = "long"]
fn an_agent_that_hangs_every_time_blocks_its_task_and_the_next_is_told_of_the_last() {
    let bed = Bed::new(1, 2);
    let agent = "cat > $H/prompt-$(ls $H | grep -c ^prompt-); echo half > draft; exec sleep 600";
    let mut supervisor = bed.supervise_with("coder-1", BoardRole::Coder, agent, "two-tries");
    supervisor.hear("the agent was ended: it did nothing until its lease ran out");
    let task = bed.until(1, TaskStatus::Blocked);
    let reason = task.blocked_reason.unwrap();
    assert_eq!(reason, "2 agents hung at it until their lease ran out, without progress");
    let prompt = std::fs::read_to_string(bed.file("prompt-1")).unwrap();
    assert!(prompt.contains("Resume task: task-1"), "{prompt}");
    assert!(prompt.contains("no sign of life until the lease ran out"), "{prompt}");
    assert!(prompt.contains("refs/ensemble/salvage/task-1/"), "{prompt}");
    supervisor.stop();
}

#[test]
fn an_agent_that_loses_its_claim_alone_to_the_lease_hangs_as_well() {
    let bed = Bed::new(1, 300);
    let agent = "echo one >> $H/runs; exec sleep 600";
    let supervisor = bed.supervise_with("coder-1", BoardRole::Coder, agent, "two-tries");
    for run in 1..=2 {
        bed.lines("runs", run);
        let mut locked = bed.board.lock().unwrap();
        let seen = bed.board.scan(locked.state()).unwrap();
        let claim = seen.into_iter().find_map(|event| match event {
            Event::Seen { key: key @ BoardLease::Claim { .. }, sequence, .. } => {
                Some((key, sequence))
            }
            _ => None,
        });
        let (claim, sequence) = claim.unwrap();
        locked.expire(&claim, sequence).unwrap();
        locked.commit().unwrap();
    }
    let task = bed.until(1, TaskStatus::Blocked);
    let reason = task.blocked_reason.unwrap();
    assert_eq!(reason, "2 agents hung at it until their lease ran out, without progress");
    assert!(bed.state().agents.contains_key(&name("coder-1")), "it stays registered");
    supervisor.stop();
}

#[test]
fn a_restarted_agent_is_told_what_happened_before() {
    let bed = Bed::new(1, 300);
    let agent = "cat > $H/prompt-$(ls $H | grep -c ^prompt-); echo one >> $H/runs; \
                 [ -e draft ] && sleep 600; echo half > draft; exit 7";
    let supervisor = bed.supervise("coder-1", BoardRole::Coder, agent);
    bed.lines("runs", 2);
    let read =
        |number: u32| std::fs::read_to_string(bed.file(&format!("prompt-{number}"))).unwrap();
    assert!(!read(0).contains("Resume task"), "{}", read(0));
    let second = read(1);
    assert!(second.starts_with("Mode: Liza coder\nResume task: task-1\n"), "{second}");
    assert!(second.contains("error_pattern: exit 7"), "{second}");
    assert!(second.contains("not committed in the worktree: draft."), "{second}");
    supervisor.stop();
}

#[test]
fn a_planner_is_asked_once_whether_the_goal_is_reached() {
    let bed = Bed::new(1, 300);
    bed.change(|board| {
        board.set_goal(&goal())?;
        board.goal_event(GoalEvent::Begin)
    });
    bed.approve(1);
    bed.worktrees.merge(&name("task-1")).unwrap();
    let agent = "cat > $H/prompt; echo one >> $H/runs";
    let mut supervisor = bed.supervise("planner-1", BoardRole::Planner, agent);
    supervisor.hear("agent ended: exit 0");
    let prompt = std::fs::read_to_string(bed.file("prompt")).unwrap();
    assert!(prompt.contains("WAKE TRIGGER: GOAL_ASSESSMENT"), "{prompt}");
    assert!(prompt.contains("`ensemble board goal complete`"), "{prompt}");
    let is_left_open = || {
        let found = conditions(&bed.state(), AlarmGraces::default());
        found.iter().any(|condition| condition.key.alarm == Alarm::GoalLeftOpen)
    };
    assert!(is_left_open(), "a person sees that it is open");
    bed.change(|board| board.goal_event(GoalEvent::Complete));
    assert!(!is_left_open());
    assert_eq!(supervisor.stop(), "result Stopped");
    assert_eq!(bed.lines("runs", 1).len(), 1);
}

#[test]
fn a_planner_that_has_answered_is_not_called_again_when_another_reason_goes_away() {
    let bed = Bed::new(2, 300);
    let block = |n: usize| {
        let (task, question) = (name(&format!("task-{n}")), ["which?".to_owned()]);
        bed.change(|board| board.block(&task, None, "unclear", &question));
    };
    let unblock = |n: usize| {
        bed.change(|board| board.unblock(&name(&format!("task-{n}"))));
    };
    block(1);
    let agent =
        "grep -o 'task-[12] is blocked' > $H/last; cat $H/last >> $H/all; echo . >> $H/runs";
    let mut supervisor = bed.supervise("planner-1", BoardRole::Planner, agent);
    supervisor.hear("agent ended: exit 0");
    block(2);
    supervisor.hear("agent ended: exit 0");
    // One reason goes away; the other one was answered.
    unblock(2);
    // A task that was blocked again is a new reason, and shows that the planner still looks.
    unblock(1);
    block(1);
    supervisor.hear("agent ended: exit 0");
    supervisor.stop();
    let all = bed.lines("all", 4);
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(bed.lines("runs", 3).len(), 3);
}

fn goal() -> ensemble_team::board::NewGoal {
    ensemble_team::board::NewGoal {
        id: name("goal-1"),
        description: "all of it".to_owned(),
        spec_ref: None,
    }
}
