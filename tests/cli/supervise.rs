//! Supervisors on the command line: a whole sprint in tmux, and the reports of an agent about
//! itself.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _, is_running, terminate, words};
use crate::tmux_support::eventually;

fn bed() -> Bed {
    let bed = Bed::new();
    bed.begin_repository();
    bed.ok("board init");
    bed.add_task("t1");
    bed
}

#[test]
fn a_sprint_of_three_survives_a_crash_a_hand_over_and_a_rejection() {
    let bed = Bed::empty();
    let dir = bed.project().join("demo");
    let told = bed.object(&format!("demo --scenario sprint --dir {} --timeout 10m", dir.display()));
    told.fits(json!({ "status": "MERGED", "crashes": 1, "hand_overs": 1 }));
    // Planner; crash, hand-over, hand-in, repair; two reviews.
    assert_eq!(told["agents"], 7);
    eventually("no process is left", || !is_running(&dir.display().to_string()));
    let queue = dir.join("queue");
    let task = bed.object(&format!("--queue {} task show greet", queue.display()));
    task.fits(json!({ "status": "MERGED", "review_cycles_total": 1 }));
    bed.ok(&format!("--queue {} log replay --strict", queue.display())).begins("as the log tells");
    // Nothing of seats, prompts, beats and signs is left.
    for place in ["supervise", "leases"] {
        let files = std::fs::read_dir(dir.join(".ensemble").join(place)).unwrap();
        let left: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{place}: {left:?}");
    }
}

#[test]
fn a_supervisor_is_refused_where_one_is_and_leaves_when_told() {
    let bed = bed();
    let line = "agent supervise --role coder --id coder-1 -- sleep 600";
    let first = bed.start(line);
    eventually("the agent runs", || {
        let seat = bed.project().join(".ensemble/supervise/coder-1.yaml");
        std::fs::read_to_string(seat).is_ok_and(|text| text.contains("agent:"))
    });
    let before = bed.board().revision;
    bed.fails(75, line).has(["supervise-coder-1.lock"]);
    assert_eq!(bed.board().revision, before);
    terminate(first);
    let state = bed.board();
    assert!(state.agents.is_empty());
    assert_eq!(state.tasks[0].status.as_str(), "UNCLAIMED");
    bed.fails(2, "agent supervise --role coder --id coder-1");
    bed.fails(2, "agent supervise --role boss --id coder-1 -- true");
    let said = bed.fails(5, "agent supervise --role coder --id coder-1 -- no-such-agent");
    said.has(["no-such-agent: command not found"]);
}

#[test]
fn an_agent_says_that_it_lives_what_comes_next_and_how_it_ends() {
    let bed = bed();
    bed.ok("agent register --role coder --as coder-1");
    bed.ok("task claim t1 --as coder-1");
    let epoch = bed.board().agents.values().next().unwrap().epoch.unwrap();
    bed.object("agent heartbeat --as coder-1").fits(json!({ "sequence": 1, "lease_seconds": 300 }));
    let said = bed.ok("agent heartbeat --long tests --as coder-1");
    assert_eq!(said, "Extended lease for long operation: tests\n");
    let sign = bed.project().join(format!(".ensemble/leases/coder-1@{epoch}.sign"));
    assert!(std::fs::read_to_string(&sign).unwrap().contains("lease_seconds: 900"));

    bed.ok("agent handoff --summary half --next-action rest --file a.rs --as coder-1");
    let handed = bed.board();
    let notes = handed.handoff.values().next().unwrap();
    assert_eq!((&notes["summary"], &notes["next_action"]), (&"half".into(), &"rest".into()));
    assert!(std::fs::read_to_string(&sign).unwrap().contains("code: 42"));

    // A replaced agent is refused, no matter what it reports.
    for verb in ["heartbeat", "verify", "unregister coder-1 --force"] {
        let late = [("ENSEMBLE_AGENT_EPOCH", "1000")];
        bed.run_in(&late, &format!("agent {verb} --as coder-1")).ends(1).says(["has ended"]);
    }

    let ran = bed.run("agent exit 42 --reason full --as coder-1");
    assert_eq!((ran.code, ran.stdout.as_str()), (42, "coder-1 ends with 42: unregistered\n"));
    let after = bed.board();
    assert!(after.agents.is_empty());
    assert_eq!(after.tasks[0].status.as_str(), "UNCLAIMED");
    bed.fails(3, "agent heartbeat --as coder-1");
}

#[test]
fn a_coder_plans_first_where_a_plan_is_demanded() {
    let bed = bed();
    bed.ok("task block t1 --reason later --question when? --as lead");
    bed.ok("mailbox add lead");
    bed.ok("task add t2 -d auth --spec s.md --done-when works --needs-plan --as lead");
    // What the prompt says, by a program that follows it.
    let script = r#"cat > ../../prompt
grep -q 'lead demands a plan for this task' ../../prompt || exit 9
echo 'step by step' > ../../plan.md
set -- "$ENSEMBLE" request plan ../../plan.md --task t2 --to lead --wait 60s
"$ENSEMBLE" agent heartbeat --long plan
"$@" --id plan-1 && exit 8
"$ENSEMBLE" task submit t2 2> ../../early && exit 7
"$@" --id plan-2 || exit 6
echo x > done.txt; git add done.txt
git -c user.name=c -c user.email=c@c commit --quiet -m work
exec "$ENSEMBLE" task submit t2"#;
    let line = "agent supervise --role coder --id coder-1 -- sh -c";
    let mut command = bed.command(&[words(line), vec![script]].concat());
    command.env("ENSEMBLE", crate::bed::program()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut supervisor = command.spawn().unwrap();
    let reviewed = |answer: &str| bed.run(&format!("request answer {answer} --as lead")).code == 0;
    eventually("the first plan is rejected", || reviewed("plan-1 --reject --feedback more"));
    eventually("the second is approved", || reviewed("plan-2 --approve"));
    eventually("the work is submitted", || {
        bed.board().task(&"t2".parse().unwrap()).unwrap().status.as_str() == "READY_FOR_REVIEW"
    });
    bed.read_file("early").has(["was rejected by lead"]);
    kill_process(Pid::from_child(&supervisor), Signal::TERM).unwrap();
    supervisor.wait().unwrap();
}

#[test]
fn the_exit_that_an_agent_has_announced_counts_for_programs_that_always_end_with_0() {
    let bed = bed();
    let script = "\"$ENSEMBLE\" agent handoff --summary a --next-action b >/dev/null; echo x >> ../../runs; exit 0";
    let line = "agent supervise --role coder --id coder-1 --hand-over-delay 10ms --spins 3 --restart-delay 1h -- sh -c";
    let mut command = bed.command(&[words(line), vec![script]].concat());
    command.env("ENSEMBLE", crate::bed::program()).stdin(Stdio::null()).stderr(Stdio::null());
    let supervisor = command.spawn().unwrap();
    // Three hand-overs, in milliseconds and not hours; then it is seen that nothing comes of it.
    eventually("the task is blocked", || bed.board().tasks[0].status.as_str() == "BLOCKED");
    assert_eq!(bed.read_file("runs").lines().count(), 3);
    let kinds: Vec<String> = bed.board().anomalies.into_iter().map(|noted| noted.kind).collect();
    assert_eq!(kinds, ["task_blocked"]);
    terminate(supervisor);
}

#[test]
fn an_agent_that_was_replaced_cannot_block_its_task() {
    let bed = bed();
    bed.ok("agent register --role coder --as coder-1");
    bed.ok("task claim t1 --as coder-1");
    let epoch = bed.board().tasks[0].lease_epoch.unwrap();
    let block = |number: u64| {
        let held = [("ENSEMBLE_TASK_ID", "t1"), ("ENSEMBLE_TASK_EPOCH", &number.to_string())];
        bed.run_in(&held, "task block t1 --reason stuck --question why? --as coder-1")
    };
    block(epoch - 1).ends(1).says(["does not hold it"]);
    assert_eq!(bed.board().tasks[0].status.as_str(), "CLAIMED");
    bed.ok("agent register --role coder --as coder-2");
    let other = bed.fails(1, "task block t1 --reason mine --question why? --as coder-2");
    other.has(["`coder-1` (epoch"]);
    block(epoch).ends(0);
    let state = bed.board();
    let line = state.tasks[0].history.last().unwrap();
    assert_eq!((line.event.as_str(), line.more["epoch"].as_u64()), ("blocked", Some(epoch)));
    // Its planner decides, and not the coder.
    bed.fails(1, "task unblock t1 --as coder-1").has(["`coder-1` is not a planner"]);
    bed.ok("agent register --role planner --as planner-1");
    assert_eq!(bed.ok("task unblock t1 --as planner-1"), "t1 UNCLAIMED\n");
    // A planner that was replaced decides nothing more.
    let add = "task add t9 -d x --spec s.md --done-when works";
    let defer = "board discover defer d-1";
    for verb in ["board goal set g -d x", "board sprint start s", defer, add] {
        let late = [("ENSEMBLE_AGENT_EPOCH", "1000")];
        bed.run_in(&late, &format!("{verb} --as planner-1")).says(["has ended"]);
    }
    for verb in ["board goal set g -d x", defer] {
        bed.fails(1, &format!("{verb} --as coder-1")).has(["is not a planner"]);
    }
}
