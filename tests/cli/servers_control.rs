//! What stops a team on servers stops it on all hosts.

use serde_json::json;

use crate::bed::{SaidText as _, watch};
use crate::servers::two_hosts;
use crate::tmux_support::eventually;

#[test]
fn a_pause_is_obeyed_on_all_hosts_without_a_watcher_and_a_file_on_its_own_alone() {
    let (_server, [near, far]) = two_hosts();
    near.ok("mailbox add bob");
    assert!(far.fails(3, "resume").contains("nothing stops the team"));
    assert!(near.ok("pause --reason lunch").starts_with("PAUSE since"));
    assert!(far.ok("pause --reason dinner").contains("already in force"), "the first counts");
    near.ok("send --to bob --type task --task t1 --id m1 -m work");
    near.ok("send --to bob --id m2 -m hello");
    for bed in [&near, &far] {
        bed.ok("status").has(["-  PAUSE since", "lunch"]);
    }
    assert_eq!(far.object("recv --as bob")["id"], json!("m2"), "what is no work may be received");
    assert!(far.fails(3, "recv --as bob").contains("(lunch): no agent begins anything now"));
    assert_eq!(far.ok("resume"), "resumed: PAUSE removed\n");
    assert_eq!(near.object("recv --as bob")["id"], json!("m1"));
    near.write_file(".ensemble/PAUSE", "");
    near.ok("send --to bob --type task --task t3 --id m3 -m work");
    near.fails(3, "recv --as bob");
    assert_eq!(far.object("recv --as bob")["id"], json!("m3"));
    assert_eq!(near.ok("resume"), "resumed: PAUSE removed\n");
    assert!(!near.project().join(".ensemble/PAUSE").exists());
}

#[test]
fn an_abort_reaches_the_copy_of_a_host_with_a_watcher_and_is_lifted_from_there() {
    let (_server, [near, far]) = two_hosts();
    near.ok("mailbox add w1");
    let _watcher = watch(&far);
    near.ok("board abort --reason over");
    near.ok("board checkpoint");
    let copy = |name: &str| far.project().join(".ensemble/servers/board").join(name).exists();
    eventually("the copy has both", || copy("ABORT") && copy("CHECKPOINT"));
    far.fails(1, "resume");
    near.ok("resume --lift-abort");
    eventually("the copy has neither", || !copy("ABORT") && !copy("CHECKPOINT"));
    assert!(far.fails(3, "resume").contains("nothing stops the team"));
}
