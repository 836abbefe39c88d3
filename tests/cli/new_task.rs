//! One word hands out a task, and what is asked for decides how.

use serde_json::json;

use crate::bed::Bed;

#[test]
fn a_task_is_mail_a_step_or_a_task_of_the_board() {
    let bed = Bed::new();
    let mailed = bed.object("task new login --to w1 test");
    assert_eq!((&mailed["kind"], &mailed["mailbox"]), (&json!("mail"), &json!("w1")));
    let taken = bed.object("recv --as w1");
    assert_eq!(taken["type"], "task");
    assert_eq!(taken["task_id"], "login");
    let step = bed.object("task new form --to w1 --files src/form.rs green");
    assert_eq!(step["kind"], "step");
    let shown = bed.ok("step list form");
    assert!(shown.contains("w1"), "{shown}");
    bed.ok("board init");
    bed.write_file("spec.md", "as it is\n");
    let board = bed.object("task new logout --review --files spec.md build");
    assert_eq!((&board["kind"], &board["status"]), (&json!("board"), &json!("UNCLAIMED")));
    bed.ok("task new later --after logout --files spec.md build");
    assert!(bed.ok("task list").contains("later"));
    // What cannot be meant.
    bed.fails(2, "task new x text");
    bed.fails(2, "task new x --review text");
    bed.fails(2, "task new x --to w1 --after logout --files spec.md text");
    assert!(bed.fails(3, "task new x --to absent text").contains("no mailbox"));
}
