//! May it begin? Each door in each circumstance, against one table: by commands, by the tools of the MCP server,
//! and by both with mailboxes on servers.

use serde_json::{Value, json};

use crate::bed::{Bed, Ran, SaidText as _, git};
use crate::mcp_client::Mcp;

/// What an agent does with a task that it has not taken up.
const TAKE_UP: [&str; 4] = ["recv", "task claim", "step next", "assign"];
/// What an agent does with a task that it holds.
const HAND_IN: [&str; 4] = ["settle", "report", "task submit", "step submit"];

/// The doors that have no tool: steps come by mail there.
const WITHOUT_TOOL: [&str; 1] = ["step next"];
#[cfg(feature = "nats")]
const STEPS: [&str; 2] = ["step next", "step submit"];

/// A circumstance, and what holds in it: may work be taken up, may it be handed in, and what is said if not.
type Row = (&'static str, bool, bool, &'static str);

const TABLE: [Row; 9] = [
    ("free", true, true, ""),
    ("plan demanded", true, false, "lead demands a plan first"),
    ("plan pending", false, false, "waits for lead"),
    ("plan rejected", false, false, "was rejected by lead"),
    ("plan approved", true, true, ""),
    ("paused", false, true, "PAUSE since"),
    ("aborted", false, true, "ABORT since"),
    ("shutdown agreed", false, true, "bob is leaving"),
    ("budget used up", false, true, "the budget of agent bob is used up"),
];

/// A project of `bob` with a task at each of these doors: those of [`HAND_IN`] are in its hands, the others wait.
fn project(doors: &[&str]) -> Bed {
    project_with(doors, "")
}

/// The same with more of a configuration.
fn project_with(doors: &[&str], more: &str) -> Bed {
    let bed = Bed::new();
    bed.configure(&format!("identity: {{outsiders: allow}}\n{more}"));
    bed.begin_repository();
    bed.add_mailboxes(&["bob", "lead"]);
    bed.ok("board init");
    bed.ok("agent register --role coder --as bob");
    if doors.contains(&"task claim") {
        add_task(&bed, "task-claim", "");
        if doors.contains(&"step next") {
            add_step(&bed, "step-next");
        }
        return bed;
    }
    add_task(&bed, "task-submit", "");
    claim(&bed, "task-submit");
    if doors.contains(&"step submit") {
        add_step(&bed, "step-submit");
        bed.ok("step next --as bob");
    }
    bed.ok("send --to bob --as lead --type task --task settle --id held --priority 9 -m work");
    assert!(bed.ok("recv --as bob").contains("held"));
    bed
}

fn add_task(bed: &Bed, task: &str, more: &str) {
    bed.ok(&format!("task add {task} -d work --spec s.md --done-when works --as lead {more}"));
}

fn claim(bed: &Bed, task: &str) {
    bed.ok(&format!("task claim {task} --as bob"));
    let tree = bed.project().join(".worktrees").join(task);
    std::fs::write(tree.join("done.txt"), "x").unwrap();
    git(&tree, "add .");
    git(&tree, "commit --quiet -m work");
}

fn add_step(bed: &Bed, task: &str) {
    let plan = format!("task_id: {task}\nsteps:\n  - {{agent: bob, goal: work}}\n");
    bed.write_file("plan.yaml", plan);
    bed.ok("step add -f plan.yaml");
}

fn task(door: &str) -> String {
    door.replace(' ', "-")
}

#[derive(Debug)]
struct Tried {
    is_allowed: bool,
    said: String,
}

type Way = fn(&Bed, &str) -> Tried;

/// By command. A refusal has the exit code of its verb.
fn by_command(bed: &Bed, door: &str) -> Tried {
    let tried = try_door(bed, door);
    let refusal = match door {
        "recv" | "step next" => 3,
        "assign" => 75,
        _ => 1,
    };
    assert!([0, refusal].contains(&tried.code), "{door}: {tried:?}");
    Tried { is_allowed: tried.code == 0, said: format!("{}{}", tried.stdout, tried.stderr) }
}

fn by_tool(bed: &Bed, door: &str) -> Tried {
    let (agent, tool, arguments) = tool(door);
    let (is_refused, said) = Mcp::of(bed, agent).ask(tool, &arguments);
    Tried { is_allowed: !is_refused, said }
}

fn tool(door: &str) -> (&'static str, &'static str, Value) {
    let (tool, arguments) = match door {
        "recv" => ("recv", json!({})),
        "assign" => {
            let arguments = json!({ "worker": "bob", "instruction": "work", "task_id": "assign" });
            return ("lead", "assign", arguments);
        }
        "task claim" => ("claim_task", json!({ "task_id": "task-claim" })),
        "settle" => ("settle", json!({ "id": "held" })),
        "report" => {
            let summary = "did 1 of 1 (100%), see ensemble.yaml:1";
            let report = json!({ "task_id": "report", "status": "success", "summary": summary });
            ("report", report)
        }
        "task submit" => ("submit_task", json!({ "task_id": "task-submit" })),
        "step submit" => {
            let step = json!({
                "task_id": "step-submit", "step_index": 1, "agent": "bob", "status": "success",
            });
            ("submit_step_completion", step)
        }
        other => panic!("no tool {other}"),
    };
    ("bob", tool, arguments)
}

fn try_door(bed: &Bed, door: &str) -> Ran {
    match door {
        "recv" => bed.run("recv --as bob"),
        "assign" => bed.run("assign bob --task assign --as lead --wait 1ms -f ensemble.yaml"),
        "task claim" => bed.run("task claim task-claim --as bob"),
        "step next" => bed.run("step next --task step-next --as bob"),
        "settle" => bed.run("settle held --as bob"),
        "report" => bed.run("report report --status success --as bob --summary done --lint warn"),
        "task submit" => bed.run("task submit task-submit --as bob"),
        "step submit" => {
            let report = r#"{"task_id": "step-submit", "step_index": 1, "agent": "bob", "status": "success"}"#;
            bed.run_with("step submit - --as bob", report.as_bytes())
        }
        other => panic!("no door {other}"),
    }
}

fn arrange(bed: &Bed, circumstance: &str) {
    let doors = || TAKE_UP.iter().chain(&HAND_IN).map(|door| task(door));
    let submit = |task: &str| {
        let id =
            bed.object(&format!("request plan ensemble.yaml --to lead --task {task} --as bob"));
        id["request_id"].as_str().unwrap().to_owned()
    };
    let review = |answer: &str| {
        for task in doors() {
            bed.ok(&format!("request answer {} {answer} --as lead", submit(&task)));
        }
    };
    match circumstance {
        "free" => {}
        "plan demanded" => demand(bed, doors()),
        "plan pending" => doors().for_each(|task| drop(submit(&task))),
        "plan rejected" => review("--reject --reason again"),
        "plan approved" => {
            demand(bed, doors());
            review("--approve");
        }
        "paused" => assert_eq!(bed.run("pause").code, 0),
        "aborted" => bed.write_file(".ensemble/ABORT", ""),
        "shutdown agreed" => leave(bed),
        "budget used up" => park(bed),
        other => panic!("no circumstance {other}"),
    }
}

/// What the watcher writes once bob has used more than it may.
fn park(bed: &Bed) {
    let overrun = json!({
        "scope": "agent", "name": "bob", "limit": { "usd": 5 }, "used": { "usd": 5.5 },
        "since": "2026-11-25T10:00:00Z",
    });
    let content = json!({ "version": 1, "parked": [overrun] }).to_string();
    bed.write_file(".ensemble/budget.json", content);
}

fn demand(bed: &Bed, tasks: impl Iterator<Item = String>) {
    bed.ok("mailbox add elsewhere");
    for task in tasks {
        bed.ok(&format!("send --to elsewhere --as lead --task {task} --plan -m plan"));
    }
}

/// Bob agrees to its shutdown, and no watcher runs that could end it.
fn leave(bed: &Bed) {
    row_of_bob(bed);
    let asked = bed.object("request shutdown bob --as lead");
    bed.ok(&format!("request answer {} --approve --as bob", asked["request_id"].as_str().unwrap()));
}

/// Bob's row, as `up` would have written it.
fn row_of_bob(bed: &Bed) {
    let roster = bed.project().join(".ensemble/roster");
    std::fs::create_dir_all(&roster).unwrap();
    let row = "version: 1\nname: bob\nrole: worker\nprovider: shell\nmailbox: bob\nstate: up\n\
               since: \"2026-01-01T00:00:00.000Z\"\n";
    std::fs::write(roster.join("bob.yaml"), row).unwrap();
}

fn hold_to_the_table(way: Way, without: &[&str], more: impl Fn() -> String) {
    for (circumstance, take_up, hand_in, why) in TABLE {
        for (doors, is_allowed) in [(TAKE_UP, take_up), (HAND_IN, hand_in)] {
            let doors: Vec<&str> =
                doors.into_iter().filter(|door| !without.contains(door)).collect();
            let bed = project_with(&doors, &more());
            arrange(&bed, circumstance);
            bed.ok("send --to bob --as lead --type task --task recv --id waiting -m work");
            for door in doors {
                // A coder claims the task of a refused plan to plan again.
                let is_allowed =
                    is_allowed || (door == "task claim" && circumstance == "plan rejected");
                // What assigning does where it is allowed, a handshake of seconds, has its own tests.
                if door == "assign" && is_allowed {
                    continue;
                }
                // Answers to plans, and questions, wait before the task.
                while door == "recv" && !is_allowed && receive_answer(&bed) {}
                let tried = way(&bed, door);
                let place = format!("{circumstance}, {door}: {tried:?}");
                assert_eq!(tried.is_allowed, is_allowed, "{place}");
                assert!(is_allowed || tried.said.contains(why), "{place}");
            }
        }
    }
}

#[test]
#[ignore = "long"]
fn each_door_says_what_the_table_says() {
    hold_to_the_table(by_command, &[], String::new);
    hold_to_the_table(by_tool, &WITHOUT_TOOL, String::new);
}

/// Step queues of hosts are in PostgreSQL, and have their own tests.
#[cfg(feature = "nats")]
#[test]
#[ignore = "long"]
fn each_door_says_what_the_table_says_with_mailboxes_on_servers() {
    let server = crate::nats_server::Server::start();
    for way in [by_command as Way, by_tool] {
        hold_to_the_table(way, &STEPS, || {
            let team = crate::nats_server::fresh_team();
            format!("transport: {}\nnats: {{team: {team}, patience: 120}}\n", server.url())
        });
    }
}

/// Receives an answer to one of bob's plans, or a question to bob; `false` once there is none.
fn receive_answer(bed: &Bed) -> bool {
    let answer = bed.run("recv --as bob --json");
    let is_answer = ["plan_approval_response", "shutdown_request"]
        .iter()
        .any(|kind| answer.stdout.contains(kind));
    assert!(is_answer || answer.code != 0, "{answer:?}");
    is_answer
}

#[test]
fn a_task_that_demands_a_plan_says_so_and_opens_with_its_approval_alone() {
    let bed = project(&TAKE_UP);
    bed.ok("send --to bob --as lead --type task --task auth --plan --id m1 -m 'refactor-auth'");
    let received = bed.ok("recv --as bob");
    received.has(["`ensemble request plan -f FILE --task auth --to lead --as bob`"]);
    received.has(["refactor-auth"]);
    let refused = bed.fails(1, "settle m1 --as bob");
    refused.has(["lead demands a plan first", "--task auth --to lead --as bob` submits a plan"]);
    let failed = "report auth --status failed --reason no-time --as bob --summary none --lint warn";
    assert_eq!(bed.run(failed).code, 0, "a failure is always reported");
    let plan = bed.object("request plan ensemble.yaml --task auth --as bob");
    assert_eq!(plan["to"], "lead", "it goes to the one who demands it");
    let id = plan["request_id"].as_str().unwrap();
    assert!(bed.fails(1, "settle m1 --as bob").contains(id));
    bed.ok(&format!("request answer {id} --approve --as lead"));
    bed.ok("settle m1 --as bob");
    // A plan that was cancelled, and another question, do not fulfil the demand.
    add_task(&bed, "late", "--needs-plan");
    claim(&bed, "late");
    bed.ok("request ask permission lead may-I --id q1 --task late --as bob");
    bed.ok("request answer q1 --approve --as lead");
    assert!(bed.fails(1, "task submit late --as bob").contains("lead demands a plan first"));
    bed.ok("request plan ensemble.yaml --id p1 --to lead --task late --as bob");
    bed.ok("request cancel p1 --as bob");
    assert!(bed.fails(1, "task submit late --as bob").contains("lead demands a plan first"));
    bed.ok("request plan ensemble.yaml --id p2 --to lead --task late --as bob");
    bed.ok("request answer p2 --approve --as lead");
    bed.ok("request ask permission lead may-I-now --id q2 --task late --as bob");
    bed.ok("request cancel q2 --as bob");
    bed.ok("task submit late --as bob");
}

#[test]
fn a_step_with_a_plan_is_handed_out_to_be_planned() {
    let bed = project(&TAKE_UP);
    let plan =
        "task_id: planned\norchestrator: lead\nsteps:\n  - {agent: bob, goal: work, plan: true}\n";
    bed.write_file("plan.yaml", plan);
    bed.ok("step add -f plan.yaml");
    let prompt = bed.ok("step next --task planned --as bob");
    prompt.has(["First submit a plan for the task `planned/1`"]);
    let report = br#"{"task_id": "planned", "step_index": 1, "agent": "bob", "status": "success"}"#;
    bed.run_with("step submit - --as bob", report).ends(1).says(["lead demands a plan first"]);
    let plan = bed.object("request plan ensemble.yaml --to lead --task planned/1 --as bob");
    bed.ok(&format!("request answer {} --approve --as lead", plan["request_id"].as_str().unwrap()));
    assert_eq!(bed.run_with("step submit - --as bob", report).code, 0);
    // A plan never goes to its author.
    let alone =
        "task_id: alone\norchestrator: bob\nsteps: [{agent: bob, goal: work, plan: true}]\n";
    bed.write_file("alone.yaml", alone);
    bed.ok("step add -f alone.yaml");
    bed.ok("step next --task alone --as bob");
    add_task(&bed, "own", "--needs-plan");
    bed.ok("task add mine -d work --spec s.md --done-when works --needs-plan --as bob");
    for (task, to) in [("alone/1", "operator"), ("own", "lead"), ("mine", "conductor")] {
        let plan = bed.object(&format!("request plan ensemble.yaml --task {task} --as bob"));
        assert_eq!(plan["to"], to, "{task}");
    }
}

#[test]
fn a_team_without_a_blackboard_can_be_paused() {
    let bed = Bed::new();
    bed.ok("mailbox add bob");
    assert!(bed.fails(3, "resume").contains("nothing stops the team"));
    bed.ok("pause --reason lunch");
    bed.ok("send --to bob --type task --task t1 --id m1 -m work");
    assert!(bed.fails(3, "recv --as bob").contains("(lunch): no agent begins anything now"));
    let status = bed.ok("status");
    status.has(["-  PAUSE since", "`ensemble resume` continues the team's work"]);
    // What is done can be handed in, also before it was received.
    bed.ok("send --to bob --type task --task t2 --id m2 -m more");
    bed.ok("report t2 --status success --as bob --summary none --lint off");
    assert_eq!(bed.ok("resume"), "resumed: PAUSE removed\n");
    bed.ok("recv --as bob");
    assert_eq!(bed.json("inbox bob").len(), 1, "what was reported is settled");
    // A blackboard that cannot be read keeps no agent paused.
    bed.ok("board init");
    bed.ok("pause");
    bed.write_file(".ensemble/state.yaml", "tasks: [");
    bed.run("resume").ends(0).says(["the circuit breaker stay as they are"]);
}

/// No watcher runs that could begin its departure.
#[test]
fn an_agent_that_agrees_to_its_shutdown_takes_up_nothing_however_it_answers() {
    for way in ["respond", "a message", "a tool"] {
        let bed = project(&TAKE_UP);
        row_of_bob(&bed);
        bed.ok("request shutdown bob --as lead --id r1");
        bed.ok("send --to bob --as lead --type task --task t1 -m work");
        match way {
            "respond" => drop(bed.ok("request answer r1 --approve --as bob")),
            "a tool" => {
                let agree = json!({ "request_id": "r1", "approve": true });
                let (is_refused, said) = Mcp::of(&bed, "bob").ask("shutdown_response", &agree);
                assert!(!is_refused, "{said}");
            }
            _ => {
                let send = "send --to lead --as bob --type shutdown_response --correlation r1 -";
                bed.run_with(send, b"approve: true\n").ends(0);
            }
        }
        assert_eq!(bed.object("request list r1")["state"], "approved", "{way}");
        while receive_answer(&bed) {}
        for (code, line) in [(3, "recv --as bob"), (1, "task claim task-claim --as bob")] {
            let refused = bed.fails(code, line);
            assert!(refused.contains("bob is leaving: it begins nothing more"), "{way}: {refused}");
        }
    }
}
