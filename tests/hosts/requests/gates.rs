//! The plan gate: what was not approved is not begun.

use ensemble_core::requests::{GatedTask, UndecidedRequest};

use crate::requests::bed::{Bed, name};

use crate::*;

fn task(bed: &Bed, task: &str) -> MessageId {
    let envelope = Envelope::new(name("bob"), "work\n").with_task(task);
    bed.queue().broker().publish(&envelope).unwrap();
    envelope.id
}

fn received(bed: &Bed) -> Option<(Option<String>, Lease)> {
    bed.receive("bob").map(|d| (d.envelope.task_id, d.lease))
}

fn tasks(bed: &Bed) -> Vec<String> {
    std::iter::from_fn(|| received(bed)).filter_map(|(task, _)| task).collect()
}

pub(crate) fn a_gated_task_is_passed_over_until_its_plan_is_approved(bed: &Bed) {
    task(bed, "risky");
    task(bed, "other");
    bed.plan("p1", "risky", "1. drop the table");
    assert_eq!(bed.requests().gates().unwrap().len(), 1);
    assert_eq!(tasks(bed), ["other"], "later messages are not blocked");
    let gated = bed.queue().gated(&name("bob"), &name("bob")).unwrap();
    assert_eq!((gated.len(), gated[0].state), (1, GateState::Pending));
    assert!(gated[0].advice().contains("plan p1 (round 1) waits for lead since 2030-"));
    assert_eq!(bed.queue().broker().scan(&name("bob")).unwrap().queued, 1);
    assert!(bed.due_ids("bob").is_empty());
    bed.requests().respond("p1", &name("lead"), true, "").unwrap();
    assert!(bed.requests().gates().unwrap().is_empty());
    assert_eq!(bed.due_ids("bob").len(), 2);
    assert_eq!(bed.types("bob"), ["plan_approval_response", "message"]);
}

pub(crate) fn a_gate_keeps_only_its_own_agent_from_its_own_task(bed: &Bed) {
    task(bed, "risky");
    bed.plan("p1", "risky", "a plan");
    let alice = bed.queue().broker().receive(&name("bob"), &name("alice")).unwrap();
    assert_eq!(alice.unwrap().envelope.task_id.as_deref(), Some("risky"));
}

pub(crate) fn a_rejection_opens_the_next_round_with_its_feedback(bed: &Bed) {
    task(bed, "risky");
    bed.plan("p1", "risky", "first");
    bed.requests().respond("p1", &name("lead"), false, "too large").unwrap();
    assert_eq!(bed.types("bob"), ["plan_approval_response"]);
    assert!(received(bed).is_none(), "rejected is not approved");
    let gate = bed.requests().gate("risky", &name("bob")).unwrap().unwrap();
    assert!(gate.needs_plan() && gate.advice().ends_with("Submit another"), "{}", gate.advice());
    let second = bed.plan("p2", "risky", "second").request;
    assert_eq!((second.round, second.previous), (Some(2), Some(name("p1"))));
    assert_eq!(second.previous_comment.as_deref(), Some("too large"));
    bed.advance(30 * 60);
    bed.requests().expire(&name("p2")).unwrap();
    bed.types("bob");
    assert!(received(bed).is_none(), "silence is not approved");
    assert_eq!(bed.plan("p3", "risky", "third").request.round, Some(3));
    assert!(received(bed).is_none());
    bed.requests().respond("p3", &name("lead"), true, "go").unwrap();
    assert_eq!(tasks(bed).last().map(String::as_str), Some("risky"));
}

pub(crate) fn a_question_is_not_settled_before_it_is_decided(bed: &Bed) {
    bed.shutdown("abc");
    let lease = bed.receive("alice").unwrap().lease;
    let refused = bed.queue().broker().settle(&lease).unwrap_err();
    assert!(refused.area::<UndecidedRequest>().is_some(), "{refused}");
    bed.requests().respond("abc", &name("alice"), true, "").unwrap();
    assert!(bed.types("alice").is_empty(), "the answer settles it");
}

pub(crate) fn a_held_gated_task_is_not_settled_but_extended_and_given_back(bed: &Bed) {
    task(bed, "risky");
    let (_, lease) = received(bed).unwrap();
    bed.plan("p1", "risky", "a plan");
    let error = bed.queue().broker().settle(&lease).unwrap_err().to_string();
    assert!(error.contains("risky is gated for bob: plan p1 (round 1) waits for lead"), "{error}");
    assert!(bed.queue().gate_of(&lease).unwrap().is_some());
    bed.queue().broker().extend(&lease, std::time::Duration::from_secs(60)).unwrap();
    bed.requests().respond("p1", &name("lead"), true, "").unwrap();
    bed.queue().broker().settle(&lease).unwrap();

    task(bed, "other");
    bed.types("bob");
    bed.plan("p2", "other", "a plan");
    let held = bed.queue().broker().observe(&name("bob")).unwrap();
    let lease =
        held.into_iter().map(|o| o.lease).find(|l| bed.queue().gate_of(l).unwrap().is_some());
    bed.queue().broker().release(&lease.unwrap(), std::time::Duration::ZERO).unwrap();
    assert!(received(bed).is_none());
    bed.requests().cancel("p2", &name("bob"), "").unwrap();
    assert!(tasks(bed).contains(&"other".to_owned()), "no plan, no gate");
}

pub(crate) fn the_same_plan_is_submitted_once_and_another_one_waits_for_the_answer(bed: &Bed) {
    let submit = |plan: &str| {
        let ask =
            NewRequest::new("plan_approval", name("bob"), name("lead"), plan).with_task("risky");
        bed.requests().ask(ask)
    };
    let first = submit("a plan").unwrap().request.request_id;
    assert_eq!(submit("a plan").unwrap().request.request_id, first);
    let error = submit("another").unwrap_err();
    assert!(matches!(error.area(), Some(DecisionRefusal::PlanPending { .. })), "{error}");
    assert!(error.to_string().contains(&format!("'{first}': wait for lead")), "{error}");
    assert_eq!(bed.types("lead"), ["plan_approval_request"]);
    bed.requests().cancel(first.as_str(), &name("bob"), "").unwrap();
    assert_eq!(submit("another").unwrap().request.round, Some(1));
}

#[test]
fn a_gate_without_its_request_is_open_and_one_that_cannot_be_read_is_closed() {
    let bed = Bed::new();
    task(&bed, "risky");
    std::fs::create_dir(bed.path("gates")).unwrap();
    let gate = "version: 1\ntask_id: risky\nagent: bob\nrequest_id: never\nround: 1\n";
    std::fs::write(bed.path("gates/risky@bob.yaml"), gate).unwrap();
    assert!(!bed.requests().gate("risky", &name("bob")).unwrap().unwrap().is_closed());
    // Its time begins with the first look at it.
    bed.requests().sweep().unwrap();
    bed.advance(2 * 3_600);
    bed.requests().sweep().unwrap();
    assert!(bed.names("gates").is_empty(), "its maker has died");
    std::fs::create_dir_all(bed.path("gates")).unwrap();
    let gate = bed.path("gates/risky@bob.yaml");
    std::fs::write(&gate, "round: [").unwrap();
    assert!(received(&bed).is_none());
    std::fs::remove_file(&gate).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &gate).unwrap();
    task(&bed, "other");
    assert_eq!(tasks(&bed), ["other"], "it keeps no other task back");
    bed.plan("p1", "risky", "a plan");
    bed.requests().respond("p1", &name("lead"), true, "").unwrap();
    assert_eq!(tasks(&bed), ["risky", "risky"], "the response, and the task");
}

pub(crate) fn tasks_whose_ids_are_no_names_have_gates_too(bed: &Bed) {
    let id = format!("über uns/../../{}", "etc".repeat(50));
    let id = id.as_str();
    task(bed, id);
    bed.plan("p1", id, "a plan");
    assert_eq!(bed.receive("lead").unwrap().envelope.task_id.as_deref(), Some(id));
    assert!(received(bed).is_none());
    assert_eq!(bed.requests().gates().unwrap()[0].task_id, id);
    bed.requests().respond("p1", &name("lead"), true, "").unwrap();
    assert_eq!(tasks(bed).len(), 2);
}

#[test]
fn a_gated_task_is_not_received_by_its_id_and_its_file_is_a_digest_if_it_is_no_name() {
    let bed = Bed::new();
    let odd = "über uns/../../etc";
    let id = task(&bed, odd);
    bed.plan("p1", odd, "a plan");
    let error = bed.spool().receive_id(&name("bob"), &id, &name("bob")).unwrap_err();
    assert!(matches!(error.area(), Some(GatedTask(gate)) if gate.round == 1));
    assert!(bed.names("gates")[0].starts_with("t-"));
    bed.requests().cancel("p1", &name("bob"), "").unwrap();
    assert!(!bed.path("gates").exists());
}

/// Dispatch reads the report of a task of which a plan is demanded, and has no plan itself.
#[test]
fn what_only_tells_of_a_gated_task_is_received_and_settled() {
    let bed = Bed::new();
    bed.plan("p1", "risky", "a plan");
    let report = Envelope::new(name("bob"), "status: failed\n").with_task("risky");
    let report = report.with_kind(name("report.completed"));
    bed.queue().broker().publish(&report).unwrap();
    let (task, lease) = received(&bed).unwrap();
    assert_eq!(task.as_deref(), Some("risky"));
    bed.queue().broker().settle(&lease).unwrap();
}
