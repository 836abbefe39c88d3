use super::*;
use ensemble_core::proto::testing::{at, drain, pairs, run};
use ensemble_core::sim::SimRng;

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn reported(by: &str, epoch: Option<u64>, report: StepReport) -> Event {
    Event::Reported { by: name(by), epoch, report }
}

fn failure() -> StepReport {
    StepReport::Failure { error: "2 tests fail".to_owned() }
}

fn blocked(reasons: &[&str]) -> StepReport {
    StepReport::Blocked { reasons: reasons.iter().map(|&reason| reason.to_owned()).collect() }
}

/// A step after these events, with the effects of the last one.
fn after(attempts_max: u32, events: impl IntoIterator<Item = Event>) -> (StepMachine, Vec<Effect>) {
    let mut step = StepMachine::new(attempts_max);
    let mut effects = Vec::new();
    for event in events {
        step.handle(at(0), event);
        effects = drain(&mut step);
    }
    (step, effects)
}

/// A step whose failures another agent fixes, after these events.
fn fixed_by_another(events: impl IntoIterator<Item = Event>) -> StepMachine {
    let mut step = StepMachine::new(2).with_fixer(true);
    for event in events {
        step.handle(at(0), event);
        drain(&mut step);
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
        ("PENDING", after(2, []).0),
        ("IN_PROGRESS", after(2, [taken()]).0),
        ("its last", after(1, [taken()]).0),
        ("COMPLETED", after(2, [taken(), success()]).0),
        ("BLOCKED", after(2, [taken(), reported("Devon", None, blocked(&["why"]))]).0),
        ("FAILED, fix", after(2, [taken(), reported("Devon", None, failure())]).0),
        ("FAILED, end", after(1, [taken(), reported("Devon", None, failure())]).0),
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
        step.handle(at(1), event.clone());
        match drain(&mut step).as_slice() {
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
fn failed_step_is_retried_with_its_error_and_then_stops() {
    let (mut step, effects) = after(2, [taken(), reported("Devon", Some(1), failure())]);
    let request = Effect::RequestFix { error: "2 tests fail".to_owned(), next_attempt: 2 };
    assert_eq!(effects, [Effect::Free, request]);
    step.handle(at(1), Event::Taken { by: name("Tara") });
    let error = Some("2 tests fail".to_owned());
    let hand = Effect::Hand { to: name("Tara"), attempt: 2, epoch: 2, error };
    assert_eq!(drain(&mut step), [hand]);
    step.handle(at(2), reported("Devon", Some(1), StepReport::Success));
    assert!(matches!(drain(&mut step)[..], [Effect::Refused(StepRefusal::HeldByAnother { .. })]));
    step.handle(at(3), reported("Tara", Some(2), failure()));
    let stop = Effect::Stop { reasons: vec!["2 tests fail".to_owned()] };
    assert_eq!(drain(&mut step), [Effect::Free, stop]);
    step.handle(at(4), Event::Retried);
    step.handle(at(4), taken());
    assert_eq!((step.attempt(), step.epoch()), (1, 3), "attempts are reset, epochs never");
}

#[test]
fn failed_step_with_a_fixer_is_taken_after_its_fix_step_and_stops_after_its_attempts() {
    let mut step = fixed_by_another([taken(), reported("Devon", Some(1), failure())]);
    step.handle(at(1), taken());
    assert_eq!(drain(&mut step), [Effect::Refused(StepRefusal::WaitsForFix)]);
    step.handle(at(2), Event::FixDone);
    assert_eq!(drain(&mut step), [Effect::Advance]);
    step.handle(at(3), taken());
    let error = Some("2 tests fail".to_owned());
    let hand = Effect::Hand { to: name("Devon"), attempt: 2, epoch: 2, error };
    assert_eq!(drain(&mut step), [hand]);
    step.handle(at(4), reported("Devon", Some(2), failure()));
    let stop = Effect::Stop { reasons: vec!["2 tests fail".to_owned()] };
    assert_eq!(drain(&mut step), [Effect::Free, stop], "the second of two attempts");
}

#[test]
fn same_worker_with_an_older_epoch_is_rejected() {
    let (mut step, _) = after(3, [taken(), Event::LeaseEnded { epoch: 1 }, taken()]);
    step.handle(at(1), reported("Devon", Some(1), StepReport::Success));
    let refusal = StepRefusal::Outdated { epoch: 1, current: 2 };
    assert_eq!(drain(&mut step), [Effect::Refused(refusal)]);
    step.handle(at(2), reported("Devon", Some(2), StepReport::Success));
    assert_eq!(step.state(), &State::Completed(StepResolution::Success));
}

#[test]
fn step_that_keeps_losing_workers_stops() {
    let mut step = StepMachine::new(3);
    for epoch in 1..=3 {
        step.handle(at(epoch), taken());
        step.handle(at(epoch), Event::LeaseEnded { epoch });
    }
    assert!(matches!(step.state(), State::Failed { fix: FixState::Exhausted, .. }), "{step:?}");
}

#[test]
fn reminders_repeat_until_an_intervention() {
    let (mut step, _) = after(3, [taken(), reported("Devon", None, blocked(&["no file"]))]);
    let reminders = run(&mut step, at(1_800));
    assert_eq!(reminders, [at(600), at(1_200), at(1_800)].map(|at| (at, Effect::Remind)));
    step.handle(at(1_801), Event::Unblocked);
    assert_eq!(step.poll_timeout(), None);
    let state = State::Failed { error: "x".to_owned(), fix: FixState::Exhausted };
    let restored = StepMachine::restore(state, 3, 3, 3, at(50));
    assert_eq!(restored.poll_timeout(), Some(at(650)));
}

#[test]
fn each_epoch_ends_once_and_no_step_is_done_twice() {
    for seed in 0..2_000 {
        let mut random = SimRng::new(seed);
        let attempts_max = 1 + u32::try_from(random.below(4)).unwrap();
        let mut step = StepMachine::new(attempts_max).with_fixer(random.percent(50));
        let (mut held, mut ended, mut completed) = (None, 0, 0);
        for second in 0..60 {
            let by = if random.below(4) == 0 { "Tara" } else { "Devon" };
            let epoch = match random.below(3) {
                0 => None,
                1 => Some(step.epoch()),
                _ => Some(random.below(4)),
            };
            let event = match random.below(11) {
                0..=2 => Event::Taken { by: name(by) },
                3 => reported(by, epoch, StepReport::Success),
                4 => reported(by, epoch, failure()),
                5 => reported(by, epoch, blocked(&["why"])),
                6 => Event::LeaseEnded { epoch: random.below(5) },
                7 => Event::Unblocked,
                8 => Event::Retried,
                9 => Event::FixDone,
                _ => Event::Beat { by: name(by), epoch },
            };
            let (epoch_before, state_before) = (step.epoch(), step.state().clone());
            step.handle(at(second), event);
            for effect in drain(&mut step) {
                match effect {
                    Effect::Hand { epoch, attempt, .. } => {
                        assert_eq!(held.replace(epoch), None, "seed {seed}: handed out twice");
                        assert_eq!(epoch, epoch_before + 1);
                        assert!(attempt <= attempts_max, "seed {seed}: attempt {attempt}");
                    }
                    Effect::Free => {
                        ended += 1;
                        assert!(held.take().is_some(), "seed {seed}: freed without a holder");
                        completed += u64::from(word(&step) == "COMPLETED");
                    }
                    Effect::Refused(_) => assert_eq!(step.state(), &state_before),
                    Effect::Beaten
                    | Effect::RequestFix { .. }
                    | Effect::OrderFix { .. }
                    | Effect::Stop { .. }
                    | Effect::Remind
                    | Effect::Advance => {}
                }
            }
            assert_eq!(held.is_some(), word(&step) == "IN_PROGRESS", "seed {seed}");
        }
        assert!(completed <= 1, "seed {seed}: completed {completed} times");
        assert_eq!(step.epoch(), ended + u64::from(held.is_some()), "seed {seed}");
    }
}

#[test]
fn the_last_holder_may_still_report_until_the_step_is_handed_out_again() {
    let report =
        |by: &str, epoch| Event::Reported { by: name(by), epoch, report: StepReport::Success };
    for (by, epoch, ends) in [
        ("Devon", Some(2), true),
        ("Devon", None, true),
        ("Devon", Some(1), false),
        ("Ada", None, false),
    ] {
        for state in
            [State::Pending, State::Failed { error: "silent".to_owned(), fix: FixState::Exhausted }]
        {
            let mut step = StepMachine::restore(state.clone(), 2, 2, 3, at(0))
                .with_last_holder(Some(name("Devon")));
            step.handle(at(1), report(by, epoch));
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
