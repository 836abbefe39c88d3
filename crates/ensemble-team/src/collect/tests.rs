//! A batch from its beginning to its summary, and every pair of state and event.

use super::*;
use crate::proto::testing::{react, wake};
use ensemble_core::proto::testing::{at, drain};

fn reported(task: &str, status: Status) -> Event {
    Event::Reported { task: task.to_owned(), status }
}

fn reviewed(task: &str, reviewer: &str, verdict: Verdict) -> Event {
    Event::Reviewed { task: task.to_owned(), reviewer: reviewer.to_owned(), verdict }
}

fn batch() -> Collect {
    Collect::new(at(0), ["a", "b"], BatchLimits::default())
}

fn with_reviews(rule: &str, reviewers: usize) -> Collect {
    let accept = Some(rule.parse().unwrap());
    Collect::new(at(0), ["a"], BatchLimits { accept, reviewers, ..BatchLimits::default() })
}

const COMPLETE: Effect = Effect::Write { is_complete: true };
const PARTIAL: Effect = Effect::Write { is_complete: false };

#[test]
fn the_last_report_completes_it_and_twice_the_same_does_not() {
    let mut batch = batch();
    batch.handle(at(1), reported("a", Status::Success));
    batch.handle(at(2), reported("a", Status::Success));
    assert_eq!(react(&mut batch, at(3), reported("stranger", Status::Success)), []);
    assert_eq!(react(&mut batch, at(4), reported("b", Status::Blocked)), [COMPLETE]);
    batch.handle(at(5), reported("b", Status::Success));
    batch.handle(at(6), Event::Written);
    assert!(matches!(batch.state, State::Done));
    batch.handle(at(7), reported("b", Status::Success));
    batch.handle_timeout(at(9_999));
    assert_eq!((drain(&mut batch), batch.poll_timeout()), (vec![], None));
    assert_eq!(batch.tasks()["b"], TaskProgress::Ended { status: Status::Blocked });
}

#[test]
fn a_summary_that_cannot_be_written_is_tried_again_until_it_is() {
    let mut batch = batch();
    assert_eq!(wake(&mut batch, at(29 * 60)), [Effect::Look, PARTIAL]);
    let mut now = at(29 * 60);
    for _ in 0..5 {
        batch.handle(now, Event::WriteFailed);
        assert_eq!(batch.poll_timeout(), Some(now + RETRY));
        now = now + RETRY;
        assert_eq!(wake(&mut batch, now), [PARTIAL]);
    }
    batch.handle(now, Event::Written);
    assert!(matches!(batch.state, State::Done));
}

#[test]
fn needs_fix_waits_for_a_new_report_and_forgets_the_old_verdicts() {
    let mut batch = with_reviews("all(\"approved\")", 1);
    batch.handle(at(1), reviewed("a", "x", Verdict::Approved));
    batch.handle(at(1), reported("a", Status::Success));
    assert_eq!(drain(&mut batch), [], "a review from before the report does not count");
    batch.handle(at(2), reviewed("a", "x", Verdict::NeedsFix));
    assert_eq!(batch.tasks()["a"], TaskProgress::NeedsFix);
    batch.handle(at(3), reported("a", Status::Success));
    assert_eq!(react(&mut batch, at(4), reviewed("a", "x", Verdict::Approved)), [COMPLETE]);
}

#[test]
fn a_failed_task_needs_no_review_and_a_stopped_one_no_report() {
    let mut batch = with_reviews("all(\"approved\")", 1);
    assert_eq!(react(&mut batch, at(1), reported("a", Status::Failed)), [COMPLETE]);
    let mut batch = with_reviews("all(\"approved\")", 1);
    batch.handle(at(1), reported("a", Status::Success));
    batch.handle(at(2), Event::Stopped { task: "a".to_owned() });
    assert_eq!(react(&mut batch, at(2), Event::Stopped { task: "a".to_owned() }), [COMPLETE]);
    assert_eq!(batch.tasks()["a"], TaskProgress::Stopped);
}

/// A task that a review stops while the summary cannot be written is listed as stopped.
#[test]
fn a_stop_counts_until_the_summary_is_written() {
    let mut batch = with_reviews("all(\"approved\")", 1);
    assert_eq!(react(&mut batch, at(1), reported("a", Status::Failed)), [COMPLETE]);
    batch.handle(at(1), Event::WriteFailed);
    batch.handle(at(2), Event::Stopped { task: "a".to_owned() });
    assert_eq!(wake(&mut batch, at(1) + RETRY), [COMPLETE]);
    assert_eq!(batch.tasks()["a"], TaskProgress::Stopped);
}

#[test]
fn an_empty_batch_is_complete_at_once() {
    let mut batch = Collect::new(at(0), [] as [&str; 0], BatchLimits::default());
    assert_eq!(drain(&mut batch), [COMPLETE]);
}

#[test]
fn every_pair_of_state_and_event() {
    let gathering = State::Gathering { look_at: at(180), was_patient: false };
    let writing = State::Writing { is_complete: false, retry_at: None };
    let events = [
        reported("a", Status::Success),
        reviewed("a", "x", Verdict::NeedsFix),
        Event::Stopped { task: "a".to_owned() },
        Event::Written,
        Event::WriteFailed,
    ];
    let retry = State::Writing { is_complete: false, retry_at: Some(at(2)) };
    let expected = [
        (gathering, [gathering, gathering, gathering, State::Done, gathering]),
        (writing, [writing, writing, writing, State::Done, retry]),
        (State::Done, [State::Done; 5]),
    ];
    for (state, row) in expected {
        for (event, expected) in events.iter().zip(row) {
            let mut machine = Collect { state, ..batch() };
            machine.handle(at(0), event.clone());
            assert_eq!(machine.state, expected, "{state:?} {event:?}");
            assert_eq!(drain(&mut machine), [], "{state:?} {event:?}");
        }
    }
}
