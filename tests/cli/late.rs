//! Submitted after the lease: by the last holder, unless the work is in other hands by now.

use ensemble_core::message::Name;
use ensemble_team::board::{Board, BoardOptions};
use ensemble_team::steps::{StepOptions, StepStore};

use crate::bed::{Bed, git};

fn bed() -> Bed {
    let bed = Bed::new();
    git(&bed.project(), "init --quiet -b main");
    git(&bed.project(), "commit --quiet --allow-empty -m begin");
    bed.ok("board init");
    for coder in ["bob", "ann"] {
        bed.ok(&format!("agent register --role coder --as {coder}"));
    }
    bed
}

/// Bob claims a task, commits its work, and its lease expires.
fn work_late(bed: &Bed, task: &str) {
    bed.ok(&format!("task add {task} -d work --spec s.md --done-when works"));
    bed.ok(&format!("task claim {task} --as bob"));
    let tree = bed.project().join(".worktrees").join(task);
    git(&tree, "commit --quiet --allow-empty -m work");
    let board = Board::find(&bed.project(), BoardOptions::new("test")).unwrap();
    let (mut locked, task) = (board.lock().unwrap(), Name::new(task).unwrap());
    let epoch = locked.state().task(&task).unwrap().lease_epoch.unwrap();
    locked.release(&task, epoch, "the lease ran out").unwrap();
    locked.commit().unwrap();
}

#[test]
fn a_task_is_submitted_by_its_last_coder_unless_it_was_claimed_since() {
    let bed = bed();
    work_late(&bed, "t1");
    let stranger = bed.fails(1, "task submit t1 --as ann");
    assert!(stranger.contains("t1"), "{stranger}");
    bed.ok("task submit t1 --as bob");
    assert_eq!(bed.object("task show t1")["status"], "READY_FOR_REVIEW");

    let bed = self::bed();
    work_late(&bed, "t2");
    bed.ok("task claim t2 --as ann");
    let claimed = bed.object("task show t2");
    for epoch in ["", " --epoch 1", " --epoch 2", " --epoch 3"] {
        let refused = bed.fails(1, &format!("task submit t2 --as bob{epoch}"));
        assert!(refused.contains("bob"), "{refused}");
    }
    assert_eq!((&claimed["status"], &claimed["assigned_to"]), (&"CLAIMED".into(), &"ann".into()));
    assert_eq!(bed.object("task show t2"), claimed);
}

#[test]
fn a_step_is_submitted_by_its_last_worker_unless_it_was_handed_out_since() {
    let bed = bed();
    let plan = "task_id: late\nsteps: [{agent: bob, goal: g}, {agent: bob, goal: h}]\n";
    std::fs::write(bed.project().join("plan.yaml"), plan).unwrap();
    bed.ok("step add -f plan.yaml");
    let path = bed.project().join(".ensemble/steps.db");
    let store = StepStore::open(&path, StepOptions::new(&bed.project())).unwrap();
    let end_lease = || assert_eq!(store.take_back(&Name::new("bob").unwrap()).unwrap().len(), 1);
    let submit = |step: u32, epoch: &str| {
        let report = format!(
            "{{\"task_id\": \"late\", \"step_index\": {step}, \"agent\": \"bob\", \"status\": \"success\"}}"
        );
        bed.run_with(&format!("step submit - --as bob{epoch}"), report.as_bytes())
    };
    bed.ok("step next --as bob");
    end_lease();
    let late = submit(1, " --epoch 1");
    assert_eq!(late.code, 0, "{late:?}");
    assert_eq!(bed.object("step show late 1")["status"], "COMPLETED");

    bed.ok("step next --as bob");
    end_lease();
    bed.ok("step next --as bob");
    let fenced = submit(2, " --epoch 1");
    assert!(fenced.code == 1 && fenced.stderr.contains("handed out again since"), "{fenced:?}");
    assert_eq!(bed.object("step show late 2")["status"], "IN_PROGRESS");
    assert_eq!(submit(2, " --epoch 2").code, 0);
}
