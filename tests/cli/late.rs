//! Submitted after the lease: by the last holder, unless the work is in other hands by now.

use crate::bed::{Bed, git};

fn bed() -> Bed {
    let bed = Bed::new();
    bed.begin_repository();
    bed.ok("board init");
    for coder in ["bob", "ann"] {
        bed.ok(&format!("agent register --role coder --as {coder}"));
    }
    bed
}

/// Bob claims a task, commits its work, and its lease expires.
fn work_late(bed: &Bed, task: &str) {
    bed.add_task(task);
    bed.ok(&format!("task claim {task} --as bob"));
    let tree = bed.project().join(".worktrees").join(task);
    git(&tree, "commit --quiet --allow-empty -m work");
    bed.end_lease(task);
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
