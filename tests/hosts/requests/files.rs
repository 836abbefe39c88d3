//! Requests and decisions, and their files on disk.

use ensemble_core::requests::{CLOSED_KEPT, COMMENT_BYTES_MAX};
use proptest::prelude::*;

use crate::requests::bed::{Bed, name};

use crate::*;

#[track_caller]
fn refused<T: std::fmt::Debug>(result: ensemble_core::Result<T>) -> String {
    match result.unwrap_err().into_area::<DecisionRefusal>() {
        Ok(refusal) => refusal.to_string(),
        Err(other) => panic!("not refused but {other}"),
    }
}

pub(crate) fn an_id_has_eight_characters_as_in_the_seed_and_none_comes_twice(bed: &Bed) {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let ask = NewRequest::new("shutdown", name("lead"), name("alice"), "enough");
        let id = bed.requests().ask(ask).unwrap().request.request_id;
        assert_eq!(id.as_str().len(), 8);
        assert!(id.as_str().bytes().all(|b| b.is_ascii_hexdigit()));
        assert!(seen.insert(id));
    }
    assert_eq!(bed.requests().ids().unwrap().len(), 200);
}

pub(crate) fn a_chosen_id_is_one_request_however_often_it_is_asked(bed: &Bed) {
    let full = "0199aa10-4c5e-7b3a-a1b2-3c4d5e6f7081";
    assert_eq!(bed.shutdown(full), bed.shutdown(full));
    let other = NewRequest::new("shutdown", name("lead"), name("bob"), "enough").with_id(full);
    let said = refused(bed.requests().ask(other));
    assert!(said.contains(&format!("'{full}' is taken")), "{said}");
    bed.requests().respond(full, &name("alice"), true, "").unwrap();
    assert_eq!(bed.shutdown(full).state(), "approved");
    assert_eq!(bed.types("alice"), [""; 0], "its answer has settled the question");
    assert_eq!(bed.records("request.opened").len(), 1);
    for bad in ["../x", "a b", &"x".repeat(49)] {
        let ask = NewRequest::new("shutdown", name("lead"), name("alice"), "").with_id(bad);
        assert!(bed.requests().ask(ask).is_err(), "{bad}");
    }
    for bad in ["", "a\nb", &"x".repeat(257)] {
        let ask = NewRequest::new("shutdown", name("lead"), name("alice"), "").with_task(bad);
        assert!(bed.requests().ask(ask).is_err(), "{bad}");
    }
}

pub(crate) fn the_first_answer_stands_and_later_ones_hear_who_what_and_when(bed: &Bed) {
    bed.shutdown("abc");
    let entry = bed.requests().respond("abc", &name("alice"), false, "not now").unwrap();
    assert_eq!((entry.state(), entry.is_closed), ("rejected", true));
    for approve in [true, false] {
        let said = refused(bed.requests().respond("abc", &name("alice"), approve, ""));
        assert_eq!(
            said,
            "Error: request_id 'abc' was rejected by alice at 2030-03-17T17:46:40.000Z: \
             the first decision counts"
        );
    }
    let said = refused(bed.requests().cancel("abc", &name("lead"), ""));
    assert!(said.contains("was rejected by alice"), "{said}");
    assert_eq!(bed.pages("abc"), ["request", "decision", "closed"]);
    let refusals = bed.records("request.refused");
    assert_eq!(refusals.len(), 3);
    assert_eq!(refusals[0]["why"], "decided");
    assert_eq!(bed.records("request.decided").len(), 1);
}

pub(crate) fn only_the_addressee_decides_and_only_the_requester_takes_it_back(bed: &Bed) {
    bed.shutdown("abc");
    let requests = bed.requests();
    let said = refused(requests.respond("abc", &name("bob"), true, ""));
    assert!(said.contains("addressed to alice: bob may not decide it"), "{said}");
    let said = refused(requests.respond("abc", &name("lead"), true, ""));
    assert!(said.contains("a requester may not decide its own request"), "{said}");
    let said = refused(requests.cancel("abc", &name("alice"), ""));
    assert!(said.contains("alice may not cancel it"), "{said}");
    let said = refused(requests.respond("nope", &name("alice"), true, ""));
    assert_eq!(said, "Error: Unknown request_id 'nope'");
    let said = refused(requests.respond("../../etc", &name("alice"), true, ""));
    assert_eq!(said, "Error: Unknown request_id '../../etc'");
    let own = NewRequest::new("plan_approval", name("lead"), name("lead"), "trust me");
    assert!(
        refused(requests.ask(own)).contains("lead cannot ask itself: a requester may not decide")
    );
    assert_eq!(requests.get("abc").unwrap().state(), "pending");
    assert_eq!(bed.records("request.refused").len(), 6);
}

pub(crate) fn who_is_asked_must_have_a_mailbox_and_who_asks_need_not(bed: &Bed) {
    let ask = NewRequest::new("shutdown", name("lead"), name("alise"), "");
    let error = bed.requests().ask(ask).unwrap_err();
    assert!(error.to_string().contains("did you mean alice?"), "{error}");
    assert!(bed.requests().ids().unwrap().is_empty());
    let ask = NewRequest::new("shutdown", name("operator"), name("alice"), "").with_id("op");
    bed.requests().ask(ask).unwrap();
    let entry = bed.requests().respond("op", &name("alice"), true, "").unwrap();
    assert_eq!((entry.state(), entry.untold), ("approved", None));
    bed.requests().resume("op").unwrap();
    bed.requests().resume("op").unwrap();
    assert_eq!(bed.records("request.decided").len(), 1);
}

#[test]
fn a_shutdown_is_closed_by_the_process_that_carries_it_out() {
    let bed = Bed::new();
    bed.shutdown("abc");
    let entry = bed.requests().respond("abc", &name("alice"), true, "").unwrap();
    assert!(entry.is_to_be_carried_out() && !entry.is_closed);
    assert!(bed.requests().resume("abc").unwrap().unwrap().is_to_be_carried_out());
    bed.requests().close("abc").unwrap();
    bed.requests().close("abc").unwrap();
    let entry = bed.requests().get("abc").unwrap();
    assert!(entry.is_closed && !entry.is_to_be_carried_out());
    bed.shutdown("def");
    let error = bed.requests().close("def").unwrap_err();
    assert!(matches!(error.area(), Some(DecisionRefusal::Unknown { .. })));
    let entry = bed.requests().respond("def", &name("alice"), false, "no").unwrap();
    assert!(entry.is_closed && !entry.is_to_be_carried_out());
}

#[test]
fn a_decision_by_hand_counts_and_what_is_malformed_or_foreign_is_put_aside() {
    let bed = Bed::new();
    bed.shutdown("abc");
    let bad = [
        "approve: [",
        "by: alice\n",
        "approve: maybe\nby: alice\n",
        "approve: true\nby: bob\n",
        "approve: true\nby: lead\n",
        "outcome: cancelled\nby: alice\n",
        "outcome: expired\nby: alice\nat: \"2000-01-01T00:00:00Z\"\n",
        "outcome: approved\napprove: false\nby: alice\n",
        "approve: true\nby: alice\nrequest_id: other\n",
        &format!("approve: true\nby: alice\nrequest_sha256: {}\n", "0".repeat(64)),
    ];
    for (n, text) in bad.iter().enumerate() {
        bed.decide_by_hand("abc", &format!("{text}\n...\n"));
        let entry = bed.requests().get("abc").unwrap();
        assert_eq!(entry.state(), "pending", "{text}");
        assert_eq!(bed.names("requests/abc"), ["request.yaml"], "{text}");
        assert_eq!(bed.names("rejected").len(), 2 * (n + 1), "{text}");
    }
    assert_eq!(bed.records("request.rejected_file").len(), bad.len());
    // One without the end mark may be written in steps, for as long as a report may.
    bed.decide_by_hand("abc", "by: alice\n");
    assert_eq!(bed.requests().get("abc").unwrap().state(), "pending");
    assert_eq!(bed.names("requests/abc"), ["decision.yaml", "request.yaml"]);
    bed.advance(10);
    assert_eq!(bed.requests().get("abc").unwrap().state(), "pending");
    assert_eq!(bed.names("requests/abc"), ["request.yaml"]);
    bed.decide_by_hand("abc", "requestId: abc\nappr");
    assert_eq!(bed.requests().get("abc").unwrap().state(), "pending");
    let whole = "```yaml\nrequestId: abc\napproved: 'yes'\nby: alice\nat: 2026-01-15 12:05\nreason: gladly\n```\n";
    std::fs::write(bed.path("requests/abc/decision.yaml"), whole).unwrap();
    let entry = bed.requests().resume("abc").unwrap().unwrap();
    let decision = entry.decision.unwrap();
    assert_eq!((decision.outcome, decision.comment.as_str()), (Outcome::Approved, "gladly"));
    assert_eq!(bed.types("lead"), ["shutdown_response", "request.rejected"]);
    assert_eq!(bed.types("bob"), ["request.rejected"]);
}

#[test]
fn a_decision_in_the_way_that_counts_for_nothing_does_not_keep_the_addressee_from_deciding() {
    let bed = Bed::new();
    bed.shutdown("abc");
    bed.decide_by_hand("abc", "approve: true\nby: mallory\n");
    assert_eq!(
        bed.requests().respond("abc", &name("alice"), false, "").unwrap().state(),
        "rejected"
    );
    // A decision is bound to the request's digest.
    let file = bed.path("requests/abc/request.yaml");
    let altered = std::fs::read_to_string(&file).unwrap().replace("enough", "rm -rf");
    std::fs::write(&file, altered).unwrap();
    assert_eq!(bed.requests().get("abc").unwrap().state(), "pending");
}

#[test]
fn files_of_newer_versions_are_left_and_requests_that_cannot_be_read_are_put_aside() {
    let bed = Bed::new();
    bed.shutdown("abc");
    bed.decide_by_hand("abc", "version: 2\napprove: true\nby: alice\n");
    let error = bed.requests().respond("abc", &name("alice"), false, "").unwrap_err();
    assert!(error.to_string().contains("newer than 1: update ensemble"), "{error}");
    assert_eq!(bed.names("requests/abc"), ["decision.yaml", "request.yaml"]);
    std::fs::create_dir(bed.path("requests/bad")).unwrap();
    assert_eq!(bed.requests().find("bad").unwrap(), None, "its maker may still be at it");
    std::fs::write(bed.path("requests/bad/request.yaml"), "request_id: good\n").unwrap();
    let (entries, errors) = bed.requests().list().unwrap();
    assert_eq!((entries.len(), errors.len()), (0, 2));
    assert!(
        bed.requests().reject(&name("bad")).unwrap().unwrap().starts_with("rejected/requests.bad")
    );
    assert!(bed.requests().reject(&name("abc")).unwrap().is_none());
    assert_eq!(bed.names("requests"), ["abc"]);
}

#[test]
fn a_request_by_hand_needs_no_configuration() {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("tmp/x")).unwrap();
    let text = "request_id: r1\nkind: tea\nfrom: lead\nto: alice\ncreated_at: \"2030-03-17T17:46:40Z\"\n\
                deadline_seconds: 60\ncontent: green?\nflavour: unknown to us\n";
    std::fs::write(bed.path("tmp/x/request.yaml"), text).unwrap();
    std::fs::rename(bed.path("tmp/x"), bed.path("requests/r1")).unwrap();
    bed.requests().resume("r1").unwrap().unwrap();
    let asked = bed.receive("alice").unwrap().envelope;
    assert_eq!((asked.kind.as_str(), asked.id.as_str()), ("tea_request", "r1.request"));
    bed.requests().respond("r1", &name("alice"), true, "please").unwrap();
    assert_eq!(bed.types("lead"), ["tea_response"]);
}

#[test]
fn long_content_is_attached_and_long_comments_are_refused() {
    let bed = Bed::new();
    for content in [vec![b'x'; 100_000], vec![0xff; 10], vec![1; 30_000]] {
        let ask = NewRequest::new("plan_approval", name("bob"), name("lead"), content.clone());
        let entry = bed.requests().ask(ask).unwrap();
        let envelope = bed.receive("lead").unwrap().envelope;
        assert!(envelope.body.len() <= BODY_BYTES_MAX);
        assert_eq!(envelope.attachment, entry.request.attachment);
        assert_eq!(bed.spool().read_attachment(&envelope.attachment.unwrap()).unwrap(), content);
    }
    bed.shutdown("abc");
    let long = "é".repeat(COMMENT_BYTES_MAX);
    let error = bed.requests().respond("abc", &name("alice"), true, &long).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    // There is no such check on files made by hand, and the response must be sent anyway.
    bed.decide_by_hand("abc", &format!("approve: true\nby: alice\nreason: \"{long}\"\n"));
    bed.requests().resume("abc").unwrap();
    let response = bed.receive("lead").unwrap().envelope;
    assert!(response.body.len() < BODY_BYTES_MAX && response.body.contains("ééé"));
}

#[test]
fn closed_requests_are_forgotten_after_their_time_and_only_they() {
    let bed = Bed::new();
    for id in ["open", "told", "done"] {
        bed.shutdown(id);
    }
    bed.requests().respond("told", &name("alice"), true, "").unwrap();
    bed.requests().respond("done", &name("alice"), false, "").unwrap();
    bed.plan("r1", "task-1", "first");
    bed.requests().respond("r1", &name("lead"), false, "no").unwrap();
    // The files have the time of the machine, which the clock of this test is ahead of.
    let stat = std::fs::metadata(bed.path("requests/done/closed.yaml")).unwrap();
    let age = stat.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(age.as_secs() < 1_900_000_000, "the clock of this test must be ahead");
    // So their ages count from the first sweep.
    assert_eq!(bed.requests().sweep().unwrap(), 0);
    bed.advance(CLOSED_KEPT.as_secs() + 1);
    assert_eq!(bed.requests().sweep().unwrap(), 1);
    assert_eq!(bed.names("requests"), ["open", "r1", "told"], "a gate names r1");
    assert_eq!(refused(bed.requests().get("done")), "Error: Unknown request_id 'done'");
    assert!(bed.names("tmp").is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_asked_and_answered_reads_back(content in "\\PC{0,200}|[\\x00-\\x7f]{0,80}", comment in "\\PC{0,100}|[ -~\\n]{0,80}") {
        let bed = Bed::new();
        let ask = NewRequest::new("plan_approval", name("bob"), name("lead"), content.clone());
        let id: Name = bed.requests().ask(ask).unwrap().request.request_id;
        prop_assert_eq!(bed.requests().get(id.as_str()).unwrap().request.content, content);
        bed.requests().respond(id.as_str(), &name("lead"), true, &comment).unwrap();
        let decision = bed.requests().get(id.as_str()).unwrap().decision.unwrap();
        prop_assert_eq!(decision.comment, comment);
    }
}
