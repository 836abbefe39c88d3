//! One word hands out a task, and what is asked for decides how.

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _};

#[test]
fn a_task_is_mail_a_step_or_a_task_of_the_board() {
    let bed = Bed::new();
    bed.object("task new login --to w1 test").fits(json!({ "kind": "mail", "mailbox": "w1" }));
    bed.object("recv --as w1").fits(json!({ "type": "task", "task_id": "login" }));
    let step = bed.object("task new form --to w1 --files src/form.rs green");
    assert_eq!(step["kind"], "step");
    bed.ok("step list form").has(["w1"]);
    bed.ok("board init");
    bed.write_file("spec.md", "as it is\n");
    let board = bed.object("task new logout --review --files spec.md build");
    board.fits(json!({ "kind": "board", "status": "UNCLAIMED" }));
    bed.ok("task new later --after logout --files spec.md build");
    assert!(bed.ok("task list").contains("later"));
    // What cannot be meant.
    bed.fails(2, "task new x text");
    bed.fails(2, "task new x --review text");
    bed.fails(2, "task new x --to w1 --after logout --files spec.md text");
    assert!(bed.fails(3, "task new x --to absent text").contains("no mailbox"));
}
