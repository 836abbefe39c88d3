//! The blackboard of a team on servers, from host to host, and what stops the team on all of them.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bed::{Bed, SaidText as _, watch};
use crate::nats_server::{Server, fresh_team};
use crate::servers::{bed_on, two_hosts};
use crate::tmux_support::eventually;
use crate::worktrees::commit;

fn host(server: &Server, team: &str) -> Bed {
    let bed = bed_on(server, team);
    bed.begin_repository();
    bed
}

fn hosts(server: &Server) -> (Bed, Bed) {
    let team = fresh_team();
    (host(server, &team), host(server, &team))
}

fn task(bed: &Bed, id: &str) -> Value {
    bed.object(&format!("task show {id}"))
}

#[test]
fn a_board_that_one_host_makes_is_that_of_every_host_and_a_task_is_done_where_its_worktree_is() {
    let server = Server::start();
    let (near, far) = hosts(&server);
    assert!(near.fails(1, "task list").contains("has no team of this name"));
    assert!(near.ok("board init").starts_with("created nats://"));
    assert!(far.fails(1, "board init").contains("exists"));
    near.ok("board goal set g1 -d count --spec s.md");
    near.add_task("t1");
    assert_eq!(far.object("task list")["id"], json!("t1"));
    assert_eq!(far.object("board show")["goal"]["id"], json!("g1"));
    far.ok("board validate");
    far.ok("board edit --editor true");
    far.ok("status").lacks(["cannot be read"]);
    let copy = far.project().join(".ensemble/servers/board/state.yaml");
    assert!(std::fs::read_to_string(copy).unwrap().contains("t1"), "agents may read it");
    assert!(!far.project().join(".ensemble/state.yaml").exists());
    assert_eq!(far.run("admin fsck").code, 0);
    for (bed, name, role) in
        [(&near, "ann", "coder"), (&near, "rob", "code-reviewer"), (&far, "bob", "coder")]
    {
        bed.ok(&format!("agent register --role {role} --as {name}"));
    }
    far.ok("task claim t1 --as bob");
    assert!(near.fails(1, "task claim t1 --as ann").contains("its status is CLAIMED"));
    assert_eq!(task(&near, "t1")["assigned_to"], json!("bob"));
    commit(&far, "t1", "done.txt");
    assert!(near.fails(1, "task submit t1 --as bob").contains("its worktree is on host"));
    far.ok("agent heartbeat --as bob");
    far.ok("task submit t1 --as bob");

    assert!(near.fails(1, "task claim t1 --review --as rob").contains("its worktree is on host"));
    assert!(near.fails(3, "task claim --review --as rob").contains("no task can be reviewed"));
    far.ok("agent register --role code-reviewer --as lea");
    far.ok("task claim --review --as lea");
    far.ok("task verdict t1 --approve --as lea");
    assert!(near.fails(1, "task merge t1").contains("its worktree is on host"));
    assert!(near.fails(3, "task merge").contains("no task is APPROVED"));
    assert_eq!(far.object("task merge")["status"], json!("MERGED"));
    assert_eq!(task(&near, "t1")["status"], json!("MERGED"));
}

#[test]
fn a_supervisor_takes_a_task_of_another_host_and_stops_at_its_pause() {
    let server = Server::start();
    let (near, far) = hosts(&server);
    near.ok("board init");
    near.ok("pause");
    let line = "agent supervise --role coder --name coder-1 --poll 1s -- sleep 600";
    let mut supervisor = far.start(line);
    let agents = || near.object("board show")["agents"].clone();
    eventually("it is registered", || agents().get("coder-1").is_some());
    near.add_task("t1");
    let is_gated = || {
        let logs = far.json("log --type supervise.gated");
        !logs.is_empty()
    };
    eventually("it says that the team is paused", is_gated);
    assert_eq!(task(&near, "t1")["status"], json!("UNCLAIMED"));
    near.ok("resume");
    eventually("it has the task", || task(&near, "t1")["assigned_to"] == json!("coder-1"));
    near.ok("board abort");
    assert_eq!(supervisor.wait().unwrap().code(), Some(0), "it obeys");
    assert_eq!(task(&near, "t1")["status"], json!("UNCLAIMED"));
    assert_eq!(agents(), json!({}));
    // Kill it in any case, so that no process of the test remains.
    let _ = kill_process(Pid::from_child(&supervisor), Signal::KILL);
}

#[test]
fn the_watcher_of_another_host_takes_back_what_a_silent_agent_holds() {
    let server = Server::start();
    let (near, far) = hosts(&server);
    near.ok("board init");
    let edited = ["board", "edit", "--editor", "sed -i s/lease_duration:.*/lease_duration:\\ 1/"];
    assert!(near.command(&edited).status().unwrap().success());
    near.add_task("t1");
    near.ok("agent register --role coder --as bob");
    near.ok("task claim t1 --as bob");
    let _watcher = watch(&far);
    eventually("the task is free again", || task(&near, "t1")["status"] == json!("UNCLAIMED"));
    assert_eq!(near.object("board show")["agents"], json!({}));
}

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
