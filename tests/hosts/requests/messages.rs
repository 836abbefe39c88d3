//! Messages about requests and their recipients, and the effect of messages by other programs.

use ensemble_core::proto::request::Decision;
use ensemble_core::requests::{CorrelationOutcome, SenderEvidence};
use serde_json::Map;

use crate::requests::bed::{Bed, name};

use crate::*;

fn fields(envelope: &Envelope) -> Map<String, Value> {
    ensemble_core::message::yaml::parse(&envelope.body, "body".as_ref()).unwrap()
}

pub(crate) fn a_request_and_its_response_have_the_seeds_fields(bed: &Bed) {
    bed.shutdown("abc");
    let asked = bed.receive("alice").unwrap().envelope;
    assert_eq!((asked.kind.as_str(), asked.from.as_str()), ("shutdown_request", "lead"));
    assert_eq!((asked.correlation_id.as_deref(), asked.priority), (Some("abc"), 1));
    assert_eq!(fields(&asked)["request_id"], "abc");
    assert_eq!(fields(&asked)["reason"], "enough");
    assert!(
        asked.body.starts_with("# Answer with: ensemble request answer abc --approve|--reject")
    );
    bed.requests().respond("abc", &name("alice"), false, "in the middle of it").unwrap();
    let answer = bed.receive("lead").unwrap().envelope;
    assert_eq!((answer.kind.as_str(), answer.from.as_str()), ("shutdown_response", "alice"));
    let said = fields(&answer);
    assert_eq!(
        (&said["approve"], &said["outcome"]),
        (&Value::from(false), &Value::from("rejected"))
    );
    assert_eq!(said["reason"], "in the middle of it");

    let plan = NewRequest::new("plan_approval", name("bob"), name("lead"), "1. think\n2. do\n");
    bed.requests().ask(plan.with_id("xyz").with_source("plan.md")).unwrap();
    let asked = bed.receive("lead").unwrap().envelope;
    assert_eq!(asked.kind.as_str(), "plan_approval_request");
    assert_eq!(fields(&asked)["plan"], "1. think\n2. do\n");
    assert_eq!(fields(&asked)["source"], "plan.md");
    bed.requests().respond("xyz", &name("lead"), true, "go").unwrap();
    let answer = bed.receive("bob").unwrap().envelope;
    assert_eq!(answer.kind.as_str(), "plan_approval_response");
    assert_eq!(fields(&answer)["feedback"], "go");
    assert_eq!(fields(&answer)["approve"], true);
}

pub(crate) fn reminders_are_sent_once_each_and_not_after_the_answer(bed: &Bed) {
    bed.shutdown("abc");
    for nth in [1, 1, 2] {
        bed.requests().remind("abc", nth).unwrap();
    }
    assert_eq!(bed.types("alice"), ["shutdown_request"; 3]);
    bed.requests().respond("abc", &name("alice"), true, "").unwrap();
    bed.requests().remind("abc", 3).unwrap();
    bed.requests().remind("gone", 1).unwrap();
    assert!(bed.types("alice").is_empty());
    assert_eq!(bed.records("request.reminded").len(), 2);
}

pub(crate) fn a_silent_request_ends_at_its_deadline_and_the_conductor_learns_of_an_unreviewed_plan(
    bed: &Bed,
) {
    bed.plan("xyz", "task-1", "a plan");
    let id = name("xyz");
    bed.advance(30 * 60 - 1);
    assert_eq!(bed.requests().expire(&id).unwrap().unwrap().state(), "pending");
    bed.advance(1);
    let entry = bed.requests().expire(&id).unwrap().unwrap();
    assert_eq!((entry.state(), entry.is_closed), ("expired", true));
    let answer = bed.receive("bob").unwrap().envelope;
    assert_eq!(answer.from.as_str(), "ensemble");
    assert_eq!(fields(&answer)["outcome"], "expired");
    assert_eq!(bed.types("conductor"), ["request.expired"]);
    // Too late: what asks for it is not delivered any more, and the answer is refused.
    assert!(bed.receive("lead").is_none());
    let late = bed.requests().respond("xyz", &name("lead"), true, "").unwrap_err();
    assert!(late.to_string().contains("was expired by lead at"), "{late}");
    assert_eq!(bed.records("request.expired")[0]["at_expiry"], "escalate");
}

pub(crate) fn a_cancelled_request_is_taken_out_of_the_mailbox_or_taken_back(bed: &Bed) {
    bed.shutdown("unread");
    bed.requests().cancel("unread", &name("lead"), "never mind").unwrap();
    let id = MessageId::new("unread.request").unwrap();
    assert_eq!(bed.queue().broker().state(&name("alice"), &id).unwrap(), Some(State::Dead));
    bed.types("alice");
    bed.shutdown("read");
    bed.receive("alice").unwrap();
    bed.requests().cancel("read", &name("lead"), "never mind").unwrap();
    let told = bed.receive("alice").unwrap().envelope;
    assert_eq!(fields(&told)["outcome"], "cancelled");
    assert_eq!(bed.records("request.cancelled").len(), 2);
}

pub(crate) fn a_request_without_a_meaning_ends_and_an_expiry_before_its_time_is_not_written(
    bed: &Bed,
) {
    bed.shutdown("abc");
    let at = bed.requests().get("abc").unwrap().request.created_at;
    let early = Decision::new(Outcome::Expired, name("alice"), at);
    assert!(bed.requests().propose("abc", &early).unwrap_err().to_string().contains("not over"));
    let foreign = Decision::new(Outcome::Approved, name("bob"), at);
    assert!(bed.requests().propose("abc", &foreign).is_err());
    assert_eq!(bed.pages("abc"), ["request"]);
    let entry = bed.requests().moot("abc", "alice has gone").unwrap().unwrap();
    assert_eq!((entry.state(), entry.is_closed), ("cancelled", true));
    assert_eq!(bed.types("lead"), ["shutdown_response"]);
    assert_eq!(bed.requests().moot("abc", "again").unwrap().unwrap().state(), "cancelled");
    assert!(bed.requests().moot("nope", "").unwrap().is_none());
}

#[test]
fn a_full_mailbox_does_not_undo_a_decision_and_hears_of_it_later() {
    let bed = Bed::new();
    bed.shutdown("abc");
    let settings = bed.spool().settings(&name("lead")).unwrap();
    bed.spool().publish(&Envelope::new(name("lead"), "x")).unwrap();
    bed.spool().configure_mailbox(&name("lead"), &settings.clone().with_capacity(1)).unwrap();
    let entry = bed.requests().respond("abc", &name("alice"), false, "").unwrap();
    assert!(entry.untold.unwrap().contains("is full"));
    assert_eq!(bed.requests().get("abc").unwrap().state(), "rejected");
    assert!(bed.requests().resume("abc").is_err());
    // One that is carried out does not wait for room.
    bed.shutdown("def");
    bed.requests().respond("def", &name("alice"), true, "").unwrap();
    let entry = bed.requests().resume("def").unwrap().unwrap();
    assert!(entry.is_to_be_carried_out() && entry.untold.is_some());
    bed.requests().close("def").unwrap();
    assert!(!bed.requests().get("def").unwrap().is_closed, "the answer is not sent yet");
    bed.spool().configure_mailbox(&name("lead"), &settings).unwrap();
    assert!(bed.requests().resume("abc").unwrap().unwrap().is_closed);
    bed.requests().close("def").unwrap();
    assert!(bed.requests().get("def").unwrap().is_closed);
    assert_eq!(bed.types("lead"), ["shutdown_response", "shutdown_response", "message"]);
}

/// A message as seed 004's agents send them.
fn raw(from: &str, to: &str, kind: &str, body: &str) -> Envelope {
    Envelope::new(name(to), body).with_kind(name(kind)).from(name(from))
}

pub(crate) fn messages_of_other_programs_ask_and_answer_in_either_spelling(bed: &Bed) {
    let requests = bed.requests();
    let asked = raw("lead", "alice", "shutdown_request", "requestId: k1\ncontent: enough\n");
    let CorrelationOutcome::Asked(entry) =
        requests.correlate(&asked, SenderEvidence::Proven).unwrap()
    else {
        panic!()
    };
    assert_eq!((entry.request.content.as_str(), entry.state()), ("enough", "pending"));
    assert!(matches!(
        requests.correlate(&asked, SenderEvidence::Proven).unwrap(),
        CorrelationOutcome::Known(_)
    ));
    assert!(bed.types("alice").is_empty(), "it was told of by that message");
    requests.resume("k1").unwrap();
    assert_eq!(bed.records("request.opened").len(), 1);

    let stranger = raw("bob", "lead", "shutdown_response", "```\nrequest_id: k1\napprove: 1\n```");
    let told = requests.correlate(&stranger, SenderEvidence::Proven).unwrap();
    assert!(
        matches!(told, CorrelationOutcome::Refused(DecisionRefusal::NotAddressee { .. })),
        "{told:?}"
    );
    let unread = raw("alice", "lead", "shutdown_response", "request_id: k1\napprove: perhaps\n");
    for _ in 0..2 {
        requests.correlate(&unread, SenderEvidence::Stated).unwrap();
    }
    assert_eq!(bed.types("alice"), ["request.rejected"], "its author is notified once");
    let json = r#"{"request_id": "k1", "approve": "Yes", "reason": "fine"}"#;
    let answer = raw("alice", "lead", "shutdown_response", json);
    let CorrelationOutcome::Decided(entry) =
        requests.correlate(&answer, SenderEvidence::Proven).unwrap()
    else {
        panic!()
    };
    assert_eq!(entry.decision.unwrap().comment, "fine");
    assert!(
        matches!(
            requests.correlate(&answer, SenderEvidence::Proven).unwrap(),
            CorrelationOutcome::Known(_)
        ),
        "doubled"
    );
    let no = raw("alice", "lead", "shutdown_response", "Request ID: k1\nApproved: No\n");
    let told = requests.correlate(&no, SenderEvidence::Proven).unwrap();
    assert!(
        matches!(told, CorrelationOutcome::Refused(DecisionRefusal::Decided { .. })),
        "{told:?}"
    );
    assert_eq!(bed.records("request.refused").len(), 2);
}

pub(crate) fn an_answer_before_its_question_and_what_is_no_answer_change_nothing(bed: &Bed) {
    let requests = bed.requests();
    let early = raw("lead", "bob", "plan_approval_response", "approve: true\n");
    assert_eq!(
        requests.correlate(&early.clone(), SenderEvidence::Proven).unwrap(),
        CorrelationOutcome::Unrelated
    );
    let early = early.with_correlation("p1");
    let told = requests.correlate(&early, SenderEvidence::Proven).unwrap();
    assert!(
        matches!(told, CorrelationOutcome::Refused(DecisionRefusal::Unknown { .. })),
        "{told:?}"
    );
    let plan = raw("bob", "lead", "plan_approval_request", "just do it").with_correlation("p1");
    let CorrelationOutcome::Asked(entry) =
        requests.correlate(&plan, SenderEvidence::Proven).unwrap()
    else {
        panic!()
    };
    assert_eq!(entry.request.content, "just do it");
    assert!(matches!(
        requests.correlate(&early, SenderEvidence::Proven).unwrap(),
        CorrelationOutcome::Decided(_)
    ));
    let other = raw("lead", "bob", "message", "request_id: p1\napprove: false\n");
    assert_eq!(
        requests.correlate(&other, SenderEvidence::Proven).unwrap(),
        CorrelationOutcome::Unrelated
    );
    let own = raw("bob", "bob", "plan_approval_request", "trust me");
    assert!(matches!(
        requests.correlate(&own, SenderEvidence::Proven).unwrap(),
        CorrelationOutcome::Refused(_)
    ));
}

pub(crate) fn our_own_messages_are_not_taken_for_new_ones(bed: &Bed) {
    bed.shutdown("abc");
    bed.requests().remind("abc", 1).unwrap();
    for _ in 0..2 {
        let asked = bed.receive("alice").unwrap().envelope;
        assert_eq!(
            bed.requests().correlate(&asked, SenderEvidence::Proven).unwrap(),
            CorrelationOutcome::Unrelated
        );
    }
    bed.advance(120);
    bed.requests().expire(&name("abc")).unwrap();
    let answer = bed.receive("lead").unwrap().envelope;
    assert_eq!(
        bed.requests().correlate(&answer, SenderEvidence::Proven).unwrap(),
        CorrelationOutcome::Unrelated
    );
    assert!(bed.records("request.refused").is_empty());
}

pub(crate) fn an_answer_whose_sender_is_only_stated_decides_nothing_and_is_recorded(bed: &Bed) {
    let requests = bed.requests();
    requests
        .ask(
            NewRequest::new("plan_approval", name("bob"), name("lead"), "drop it all")
                .with_id("p2"),
        )
        .unwrap();
    let body = "request_id: p2\napprove: true\n";
    let forged = raw("lead", "bob", "plan_approval_response", body);
    let told = requests.correlate(&forged, SenderEvidence::Stated).unwrap();
    let CorrelationOutcome::Unproven(entry) = told else { panic!("{told:?}") };
    assert_eq!(entry.request.request_id.as_str(), "p2");
    assert_eq!(requests.get("p2").unwrap().state(), "pending");
    let records = bed.records("request.unproven");
    assert_eq!((records.len(), &records[0]["stated"]), (1, &"lead".into()));
    // The same answer, sent by an agent that is known, decides.
    assert!(matches!(
        requests.correlate(&forged, SenderEvidence::Proven).unwrap(),
        CorrelationOutcome::Decided(_)
    ));
    assert!(matches!(
        requests.correlate(&forged, SenderEvidence::Stated).unwrap(),
        CorrelationOutcome::Known(_)
    ));
}
