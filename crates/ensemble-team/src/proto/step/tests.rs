use super::*;
use crate::proto::testing::react;
use ensemble_core::proto::testing::{at, name, pairs, run};

fn reported(by: &str, epoch: Option<u64>, report: StepReport) -> Event {
    Event::Reported { by: name(by), epoch, report }
}

fn failure() -> StepReport {
    StepReport::Failure { error: "2 tests fail".to_owned() }
}

fn blocked(reasons: &[&str]) -> StepReport {
    StepReport::Blocked { reasons: reasons.iter().map(|&reason| reason.to_owned()).collect() }
}

/// A step after these events.
fn after(attempts_max: u32, events: impl IntoIterator<Item = Event>) -> StepMachine {
    run_events(StepMachine::new(attempts_max), events)
}

/// A step whose failures another agent fixes, after these events.
fn fixed_by_another(events: impl IntoIterator<Item = Event>) -> StepMachine {
    run_events(StepMachine::new(2).with_fixer(true), events)
}

fn run_events(mut step: StepMachine, events: impl IntoIterator<Item = Event>) -> StepMachine {
    for event in events {
        react(&mut step, at(0), event);
    }
    step
}

fn taken() -> Event {
    Event::Taken { by: name("Devon") }
}

fn word(step: &StepMachine) -> &'static str {
    match step.state() {
        State::Pending => "PENDING",
        State::InProgress { .. } => "IN_PROGRESS",
        State::Completed(StepResolution::Success) => "COMPLETED",
        State::Completed(StepResolution::Skipped) => "skipped",
        State::Completed(StepResolution::Split) => "split",
        State::Blocked { .. } => "BLOCKED",
        State::Failed { fix: FixState::Due, .. } => "FAILED, fix",
        State::Failed { fix: FixState::Ordered, .. } => "FAILED, wait",
        State::Failed { fix: FixState::Exhausted, .. } => "FAILED, end",
    }
}

#[test]
fn every_pair_of_state_and_event() {
    let success = || reported("Devon", Some(1), StepReport::Success);
    let states = [
        ("PENDING", after(2, [])),
        ("IN_PROGRESS", after(2, [taken()])),
        ("its last", after(1, [taken()])),
        ("COMPLETED", after(2, [taken(), success()])),
        ("BLOCKED", after(2, [taken(), reported("Devon", None, blocked(&["why"]))])),
        ("FAILED, fix", after(2, [taken(), reported("Devon", None, failure())])),
        ("FAILED, end", after(1, [taken(), reported("Devon", None, failure())])),
        ("with a fixer", fixed_by_another([taken()])),
        ("FAILED, wait", fixed_by_another([taken(), reported("Devon", None, failure())])),
    ];
    let events = [
        ("Taken", taken()),
        ("success", success()),
        ("success, no epoch", reported("Devon", None, StepReport::Success)),
        ("success of Tara", reported("Tara", Some(1), StepReport::Success)),
        ("success, late", reported("Devon", Some(0), StepReport::Success)),
        ("failure", reported("Devon", Some(1), failure())),
        ("no reason", reported("Devon", Some(1), StepReport::Failure { error: " ".to_owned() })),
        ("blocked", reported("Devon", Some(1), blocked(&["why"]))),
        ("blocked, no why", reported("Devon", Some(1), blocked(&[]))),
        ("Beat", Event::Beat { by: name("Devon"), epoch: Some(1) }),
        ("Beat of Tara", Event::Beat { by: name("Tara"), epoch: Some(1) }),
        ("LeaseEnded", Event::LeaseEnded { epoch: 1 }),
        ("LeaseEnded, old", Event::LeaseEnded { epoch: 0 }),
        ("FixDone", Event::FixDone),
        ("Unblocked", Event::Unblocked),
        ("Retried", Event::Retried),
        ("Skipped", Event::Skipped),
        ("Split", Event::Split),
    ];
    let table = pairs(&states, &events, |state, event| {
        let mut step = state.clone();
        match react(&mut step, at(1), event.clone()).as_slice() {
            [Effect::Refused(_)] => {
                assert_eq!(step.state(), state.state(), "a refused event changed it");
                "refused".to_owned()
            }
            [] => "-".to_owned(),
            _ => word(&step).to_owned(),
        }
    });
    let expected = "
                   PENDING      IN_PROGRESS  its last     COMPLETED  BLOCKED  FAILED, fix  FAILED, end  with a fixer  FAILED, wait
Taken              IN_PROGRESS  refused      refused      refused    refused  IN_PROGRESS  refused      refused       refused
success            refused      COMPLETED    COMPLETED    refused    refused  refused      refused      COMPLETED     refused
success, no epoch  refused      COMPLETED    COMPLETED    refused    refused  refused      refused      COMPLETED     refused
success of Tara    refused      refused      refused      refused    refused  refused      refused      refused       refused
success, late      refused      refused      refused      refused    refused  refused      refused      refused       refused
failure            refused      FAILED, fix  FAILED, end  refused    refused  refused      refused      FAILED, wait  refused
no reason          refused      refused      refused      refused    refused  refused      refused      refused       refused
blocked            refused      BLOCKED      BLOCKED      refused    refused  refused      refused      BLOCKED       refused
blocked, no why    refused      refused      refused      refused    refused  refused      refused      refused       refused
Beat               refused      IN_PROGRESS  IN_PROGRESS  refused    refused  refused      refused      IN_PROGRESS   refused
Beat of Tara       refused      refused      refused      refused    refused  refused      refused      refused       refused
LeaseEnded         -            PENDING      FAILED, end  -          -        -            -            PENDING       -
LeaseEnded, old    -            -            -            -          -        -            -            -             -
FixDone            -            -            -            -          -        -            -            -             FAILED, fix
Unblocked          refused      refused      refused      refused    PENDING  refused      refused      refused       refused
Retried            refused      PENDING      PENDING      refused    refused  PENDING      PENDING      PENDING       PENDING
Skipped            skipped      refused      refused      refused    skipped  skipped      skipped      refused       skipped
Split              split        refused      refused      refused    split    split        split        refused       split
";
    assert_eq!(table, expected, "{table}");
}

#[test]
fn reminders_repeat_until_an_intervention() {
    let mut step = after(3, [taken(), reported("Devon", None, blocked(&["no file"]))]);
    let reminders = run(&mut step, at(1_800));
    assert_eq!(reminders, [at(600), at(1_200), at(1_800)].map(|at| (at, Effect::Remind)));
    step.handle(at(1_801), Event::Unblocked);
    assert_eq!(step.poll_timeout(), None);
    let state = State::Failed { error: "x".to_owned(), fix: FixState::Exhausted };
    let restored = StepMachine::restore(state, 3, 3, 3, at(50));
    assert_eq!(restored.poll_timeout(), Some(at(650)));
}

#[test]
fn the_last_holder_may_still_report_until_the_step_is_handed_out_again() {
    let silent = State::Failed { error: "silent".to_owned(), fix: FixState::Exhausted };
    let (last, outdated) = (("Devon", Some(2), true), ("Devon", Some(1), false));
    for (by, epoch, ends) in [last, outdated, ("Devon", None, true), ("Ada", None, false)] {
        for state in [State::Pending, silent.clone()] {
            let mut step = StepMachine::restore(state.clone(), 2, 2, 3, at(0))
                .with_last_holder(Some(name("Devon")));
            step.handle(at(1), reported(by, epoch, StepReport::Success));
            let wanted = if ends { State::Completed(StepResolution::Success) } else { state };
            assert_eq!(*step.state(), wanted, "{by}, {epoch:?}");
        }
    }
}

#[test]
fn refusals_state_a_remedy() {
    for refusal in [
        StepRefusal::NotTaken,
        StepRefusal::HeldByAnother { holder: name("Devon") },
        StepRefusal::Outdated { epoch: 1, current: 2 },
        StepRefusal::Completed { resolution: StepResolution::Split },
        StepRefusal::Blocked,
        StepRefusal::Failed { fix_due: true },
        StepRefusal::Failed { fix_due: false },
        StepRefusal::WaitsForFix,
        StepRefusal::NoReasons,
        StepRefusal::NoError,
    ] {
        let text = refusal.to_string();
        assert!(text.contains(": ") && text.len() > 30, "{text}");
    }
}
