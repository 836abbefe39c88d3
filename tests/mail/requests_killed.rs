//! A process is killed at every system call of asking, deciding and taking back, and the next start
//! finishes it. Needs `strace`; skipped with a printed reason where there is none.

use ensemble_core::requests::{PlanGates, RequestEntry};

use crate::support::traced::{run_traced, survives_kill};
use crate::support::{name, traced};

use crate::*;

/// How a process says that its operation was refused with an error.
const EXIT_REFUSED: i32 = 3;
const ID: &str = "the-plan";
const TASK: &str = "task-1";

fn power() -> SpoolOptions {
    let mut options = SpoolOptions::default().with_admission(Arc::new(PlanGates));
    options.durability = Durability::Power;
    options
}

fn ask(operation: &str) -> NewRequest {
    let (worker, lead) = (name("worker"), name("lead"));
    if operation == "shut-down" {
        NewRequest::new("shutdown", lead, worker, "enough").with_id(ID)
    } else {
        NewRequest::new("plan_approval", worker, lead, "1. think\n").with_id(ID).with_task(TASK)
    }
}

/// `by-hand` finishes what a script has decided with `ln`; `shut-down` agrees to leave.
fn operate(spool: &Spool, operation: &str) -> ensemble_core::Result<RequestEntry> {
    let requests = Requests::new(spool);
    match operation {
        "ask" => requests.ask(ask(operation)),
        "approve" => requests.respond(ID, &name("lead"), true, "go"),
        "reject" => requests.respond(ID, &name("lead"), false, "no"),
        "cancel" => requests.cancel(ID, &name("worker"), ""),
        "by-hand" => requests.resume(ID).map(|entry| entry.expect("the request")),
        "shut-down" => requests.respond(ID, &name("worker"), true, ""),
        other => panic!("there is no operation `{other}`"),
    }
}

#[test]
fn a_child_process_plays_its_role() {
    if let Some(operation) = support::role() {
        let spool = Spool::open(given("QUEUE").as_ref(), power()).unwrap();
        let worker = name("worker");
        let result = match operation.as_str() {
            "receive" => between_marks(|| spool.receive(&worker, &worker)).map(drop),
            "settle" => {
                let held = spool.receive(&worker, &worker).unwrap().unwrap().lease;
                between_marks(|| spool.settle(&held))
            }
            operation => between_marks(|| operate(&spool, operation)).map(drop),
        };
        std::process::exit(if result.is_ok() { 0 } else { EXIT_REFUSED });
    }
}

fn prepare(operation: &str) -> Bed {
    let bed = Bed::new();
    let spool = bed.spool();
    for mailbox in ["worker", "lead"] {
        spool.add_mailbox(&name(mailbox), &Settings::default()).unwrap();
    }
    spool.publish(&Envelope::new(name("worker"), "the work").with_task(TASK)).unwrap();
    if operation != "ask" {
        Requests::new(&spool).ask(ask(operation)).unwrap();
    }
    if operation == "by-hand" {
        let decision = "approve: true\nby: lead\n";
        bed.land(&format!("requests/{ID}/decision.yaml"), decision);
    }
    bed
}

fn mail(spool: &Spool, agent: &str) -> Vec<Delivery> {
    let (mailbox, holder) = (name(agent), name(agent));
    std::iter::from_fn(|| spool.receive(&mailbox, &holder).unwrap()).collect()
}

/// What was interrupted is finished by the next start, and done once.
fn judge(bed: &Bed, operation: &str, what: &str) {
    let spool = Spool::open(&bed.queue(), power()).unwrap();
    let requests = Requests::new(&spool);
    let before = requests.find(ID).unwrap();
    assert!(before.is_some() || operation == "ask", "{what}: a request is lost");
    if let Some(entry) = &before {
        assert_eq!(entry.request.content, ask_content(operation), "{what}: it is whole");
    }
    let decided = before.as_ref().is_some_and(|entry| entry.decision.is_some());
    // The watcher's work at its start.
    requests.resume(ID).unwrap();
    requests.resume(ID).unwrap();
    // The killed process tries again.
    let again = operate(&spool, operation);
    assert!(again.is_ok() || decided, "{what}: {again:?}");
    let entry = requests.get(ID).unwrap();
    let expected = match operation {
        "ask" => "pending",
        "approve" | "by-hand" | "shut-down" => "approved",
        "reject" => "rejected",
        _ => "cancelled",
    };
    assert_eq!(entry.state(), expected, "{what}");
    assert_eq!(entry.is_closed, !matches!(operation, "ask" | "shut-down"), "{what}");
    assert_eq!(entry.is_to_be_carried_out(), operation == "shut-down", "{what}");
    let gate = requests.gate(TASK, &name("worker")).unwrap();
    let closed = matches!(operation, "ask" | "reject");
    assert_eq!(gate.is_some_and(|gate| gate.is_closed()), closed, "{what}: the gate");
    judge_mail(&spool, operation, what);
    spool.sweep().unwrap();
    requests.sweep().unwrap();
    bed.assert_clean();
}

fn ask_content(operation: &str) -> &'static str {
    if operation == "shut-down" { "enough" } else { "1. think\n" }
}

/// Each message was stored once, and the task is received if nothing is in its way.
fn judge_mail(spool: &Spool, operation: &str, what: &str) {
    let types = |mail: &[Delivery]| -> Vec<String> {
        mail.iter().map(|d| d.envelope.kind.to_string()).collect()
    };
    let (lead, worker) = (mail(spool, "lead"), mail(spool, "worker"));
    let (lead_types, worker_types) = (types(&lead), types(&worker));
    let (for_lead, for_worker): (&[&str], &[&str]) = match operation {
        "ask" => (&["plan_approval_request"], &[]),
        // A decision settles the question.
        "approve" | "by-hand" => (&[], &["plan_approval_response", "message"]),
        "reject" => (&[], &["plan_approval_response"]),
        // The question was removed from the mailbox before an agent read it.
        "cancel" => (&[], &["plan_approval_response", "message"]),
        _ => (&["shutdown_response"], &["message"]),
    };
    assert_eq!(lead_types, for_lead, "{what}: the lead's mail");
    assert_eq!(worker_types, for_worker, "{what}: the worker's mail");
    for Delivery { lease, envelope, .. } in lead.into_iter().chain(worker) {
        let is_open_question = operation == "ask" && envelope.kind.as_str().ends_with("_request");
        assert_eq!(spool.settle(&lease).is_err(), is_open_question, "{what}: {}", envelope.kind);
    }
}

fn is_finished_after_any_kill(operation: &str) {
    if !has_strace() {
        return;
    }
    let start = Instant::now();
    let role = format!("requests_killed::{operation}");
    let calls = calls(&prepare(operation), &role);
    let (mut points, mut survived) = (0, 0);
    for (call, number) in traced::share(traced::points(&calls)) {
        let bed = prepare(operation);
        let what = format!("{operation} killed at {call} {number}");
        points += 1;
        survived += u64::from(survives_kill(&bed, &role, call, number));
        judge(&bed, operation, &what);
    }
    assert!(points > 5 && survived < points / 2, "{operation}: {survived} of {points} survived");
    let seconds = start.elapsed().as_secs_f64();
    println!("{operation}: killed at {points} system calls, {survived} survived, {seconds:.1} s");
}

const OPERATIONS: [&str; 6] = ["ask", "approve", "reject", "cancel", "by-hand", "shut-down"];

#[test]
#[ignore = "long"]
fn every_operation_is_finished_after_any_kill() {
    std::thread::scope(|scope| {
        for operation in OPERATIONS {
            scope.spawn(move || is_finished_after_any_kill(operation));
        }
    });
}

/// A queue without gates pays one look for them.
#[test]
fn receiving_and_settling_cost_one_look_where_there_are_no_gates() {
    if !has_strace() {
        return;
    }
    for operation in ["receive", "settle"] {
        let role = format!("requests_killed::{operation}");
        let trace = run_traced(&prepare("ask"), &role, &[]).trace;
        let looks = trace.lines().filter(|line| line.contains("\"gates\"")).count();
        assert_eq!(looks, if operation == "receive" { 1 } else { 2 }, "{operation}: {trace}");
    }
}
