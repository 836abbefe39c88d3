use super::*;
use crate::proto::testing::{at, drain, pairs};
use proptest::prelude::*;

fn ack(attempt: u32) -> Event {
    Event::Ack { task: "t".to_owned(), attempt }
}

fn started(config: LadderSettings) -> Ladder {
    let mut ladder = Ladder::new("t", 1, config);
    ladder.handle(at(0), Event::Started);
    ladder
}

/// Runs until the ladder ends or `end`; the worker looks as `worker` says at each time.
fn play(
    ladder: &mut Ladder,
    end: Monotonic,
    worker: impl Fn(Monotonic) -> WorkerActivity,
) -> Vec<(Monotonic, Effect)> {
    let (mut now, mut log) = (at(0), Vec::new());
    loop {
        while let Some(effect) = ladder.poll_effect() {
            if effect == Effect::Inspect {
                ladder.handle(now, Event::Seen(worker(now)));
            } else {
                log.push((now, effect));
            }
        }
        match ladder.poll_timeout() {
            Some(due) if due <= end => now = due,
            Some(_) | None => return log,
        }
        ladder.handle_timeout(now);
    }
}

fn without_records(log: Vec<(Monotonic, Effect)>) -> Vec<(Monotonic, Effect)> {
    log.into_iter().filter(|(_, effect)| !matches!(effect, Effect::Record(_))).collect()
}

fn escalation(attempt: u32, phase: Phase, reason: EscalationReason, waited: u64) -> Effect {
    let (task, waited) = ("t".to_owned(), Duration::from_secs(waited));
    Effect::Escalate(LadderEscalation { task, attempt, phase, reason, waited })
}

#[test]
fn what_cannot_be_told_is_pressed_only_by_the_generic_profile() {
    let generic =
        play(&mut started(LadderSettings::generic()), at(9_999), |_| WorkerActivity::Unknown);
    let idle = play(&mut started(LadderSettings::default()), at(9_999), |_| WorkerActivity::Idle);
    assert_eq!(generic, idle);

    let log = play(&mut started(LadderSettings::default()), at(9_999), |_| WorkerActivity::Unknown);
    let skipped = |phase| Effect::Record(LadderRecord::Skipped { phase });
    assert_eq!(
        log,
        [
            (at(0), Effect::Deliver { attempt: 1 }),
            (at(60), Effect::Record(LadderRecord::Entered { phase: Phase::Nudge })),
            (at(60), Effect::Nudge),
            (at(120), skipped(Phase::LeaveInputMode)),
            (at(180), skipped(Phase::ResetContext)),
            (at(240), escalation(1, Phase::ResetContext, EscalationReason::Unanswered, 240)),
        ]
    );
}

#[test]
fn only_the_ceiling_ends_waiting_and_each_reason_is_recorded_once() {
    let worker =
        |now| if now < at(600) { WorkerActivity::Busy } else { WorkerActivity::HumanOccupied };
    let log = play(&mut started(LadderSettings::default()), at(99_999), worker);
    let waiting = |worker| Effect::Record(LadderRecord::Waiting { worker });
    let reason = EscalationReason::NotPressable(WorkerActivity::HumanOccupied);
    assert_eq!(
        log[1..],
        [
            (at(60), waiting(WorkerActivity::Busy)),
            (at(600), waiting(WorkerActivity::HumanOccupied)),
            (at(2_040), escalation(1, Phase::Deliver, reason, 2_040)),
        ]
    );
}

#[test]
fn a_limit_whose_end_is_known_is_parked_for() {
    let reset = at(4 * 3_600);
    let limited = WorkerActivity::Limited { until: Some(reset) };
    let worker = move |now| if now < reset { limited } else { WorkerActivity::Idle };
    let log = play(&mut started(LadderSettings::default()), reset, worker);
    assert_eq!(log.last(), Some(&(reset, Effect::Nudge)));

    let never = WorkerActivity::Limited { until: Some(at(1_000_000)) };
    let log = play(&mut started(LadderSettings::default()), at(1_000_000), |_| never);
    let end = PARK_MAX.as_secs() + 60;
    assert_eq!(
        log.last(),
        Some(&(at(end), escalation(1, Phase::Deliver, EscalationReason::NotPressable(never), end)))
    );
}

#[test]
fn a_parked_worker_is_not_nudged_before_the_reset_and_looked_at_then() {
    let reset = at(4 * 3_600 + 7);
    let limited = WorkerActivity::Limited { until: Some(reset) };
    // A person has cleared its screen in the meantime.
    let worker = move |now| if now < at(600) { limited } else { WorkerActivity::Idle };
    let mut ladder = started(LadderSettings::default());
    let log = without_records(play(&mut ladder, at(5 * 3_600), worker));
    let pressed: Vec<_> = log.into_iter().filter(|(_, e)| *e == Effect::Nudge).collect();
    assert_eq!(pressed[0], (reset, Effect::Nudge), "at the reset, to the second");
    // For a worker that works, the limit has passed.
    let worker = move |now| match now {
        now if now < at(600) => limited,
        now if now < at(900) => WorkerActivity::Busy,
        _ => WorkerActivity::Idle,
    };
    let log = play(&mut started(LadderSettings::default()), at(905), worker);
    assert_eq!(log.last(), Some(&(at(900), Effect::Nudge)));
}

#[test]
fn an_ack_that_crossed_the_reset_counts_for_nothing() {
    let mut ladder = started(LadderSettings::default());
    play(&mut ladder, at(180), |_| WorkerActivity::Idle);
    ladder.handle(at(181), ack(1));
    ladder.handle(at(182), Event::Ack { task: "u".to_owned(), attempt: 2 });
    let stale = |task: &str, attempt| {
        Effect::Record(LadderRecord::StaleAck { task: task.to_owned(), attempt })
    };
    assert_eq!(drain(&mut ladder), [stale("t", 1), stale("u", 2)]);
    ladder.handle(at(183), ack(2));
    ladder.handle(at(184), ack(2));
    assert_eq!(drain(&mut ladder), [Effect::Acked { phase: Phase::ResetContext }]);
}

#[test]
fn a_look_that_never_comes_back_is_unknown() {
    let mut ladder = started(LadderSettings::default());
    let log = crate::proto::testing::run(&mut ladder, at(9_999));
    let (end, last) = log.last().unwrap();
    assert_eq!(*end, at(4 * 66));
    assert!(matches!(last, Effect::Escalate(_)));
}

fn states() -> Vec<(&'static str, Ladder)> {
    let idle = Ladder::new("t", 1, LadderSettings::default());
    let phase = started(LadderSettings::default());
    let mut looking = phase.clone();
    looking.handle_timeout(at(60));
    let mut last = looking.clone();
    last.phase = Phase::ResetContext;
    let mut waiting = looking.clone();
    waiting.handle(at(60), Event::Seen(WorkerActivity::Busy));
    let mut parked = looking.clone();
    parked.handle(at(60), Event::Seen(WorkerActivity::Limited { until: Some(at(800)) }));
    let over = |state| Ladder { state, ..phase.clone() };
    let mut states = vec![
        ("idle", idle),
        ("acked", over(State::Acked)),
        ("escalated", over(State::Escalated)),
        ("expired", over(State::Expired)),
        ("phase", phase),
        ("looking", looking),
        ("last", last),
        ("waiting", waiting),
        ("parked", parked),
    ];
    for (_, ladder) in &mut states {
        drain(ladder);
    }
    states
}

fn show(ladder: &Ladder, event: Option<&Event>) -> String {
    let mut ladder = ladder.clone();
    match event {
        Some(event) => ladder.handle(at(70), event.clone()),
        None => ladder.handle_timeout(at(70)),
    }
    let mut cell = match ladder.state {
        State::Idle => "idle".to_owned(),
        State::Phase { .. } => format!("phase{}", ladder.phase.number()),
        State::Looking { .. } => "looking".to_owned(),
        State::Waiting { .. } => "waiting".to_owned(),
        State::Acked => "acked".to_owned(),
        State::Escalated => "escalated".to_owned(),
        State::Expired => "expired".to_owned(),
    };
    for effect in drain(&mut ladder) {
        cell.push_str(match effect {
            Effect::Deliver { .. } => " D",
            Effect::Inspect => " I",
            Effect::Nudge => " N",
            Effect::LeaveInputMode => " L",
            Effect::ResetContext => " C",
            Effect::Acked { .. } => " A",
            Effect::Escalate(_) => " E",
            Effect::Record(_) => " r",
        });
    }
    cell
}

#[test]
fn every_pair_of_state_and_event() {
    let events = [
        ("started", Some(Event::Started)),
        ("ack", Some(ack(1))),
        ("stale", Some(ack(7))),
        ("unknown", Some(Event::Seen(WorkerActivity::Unknown))),
        ("idle", Some(Event::Seen(WorkerActivity::Idle))),
        ("busy", Some(Event::Seen(WorkerActivity::Busy))),
        ("asking", Some(Event::Seen(WorkerActivity::Asking))),
        ("limited", Some(Event::Seen(WorkerActivity::Limited { until: None }))),
        ("human", Some(Event::Seen(WorkerActivity::HumanOccupied))),
        ("crashed", Some(Event::Seen(WorkerActivity::Crashed))),
        ("refused", Some(Event::Undeliverable)),
        ("expired", Some(Event::Expired)),
        ("time", None),
    ];
    let table = pairs(&states(), &events, |ladder, event| show(ladder, event.as_ref()));
    assert_eq!(
        table,
        "
         idle      acked  escalated    expired  phase        looking      last         waiting      parked
started  phase0 D  acked  escalated    expired  phase0       looking      looking      waiting      waiting
ack      idle      acked  acked r      expired  acked A      acked A      acked A      acked A      acked A
stale    idle      acked  escalated r  expired  phase0 r     looking r    looking r    waiting r    waiting r
unknown  idle      acked  escalated    expired  phase0       phase1 r N   escalated E  phase1 r N   waiting
idle     idle      acked  escalated    expired  phase0       phase1 r N   escalated E  phase1 r N   waiting
busy     idle      acked  escalated    expired  phase0       waiting r    waiting r    waiting      waiting r
asking   idle      acked  escalated    expired  phase0       waiting r    waiting r    waiting r    waiting r
limited  idle      acked  escalated    expired  phase0       waiting r    waiting r    waiting r    waiting
human    idle      acked  escalated    expired  phase0       waiting r    waiting r    waiting r    waiting r
crashed  idle      acked  escalated    expired  phase0       escalated E  escalated E  escalated E  escalated E
refused  idle      acked  escalated    expired  escalated E  escalated E  escalated E  escalated E  escalated E
expired  expired   acked  escalated    expired  expired      expired      expired      expired      expired
time     idle      acked  escalated    expired  looking I    phase1 r N   escalated E  waiting I    waiting I
"
    );
}

fn any_worker() -> impl Strategy<Value = WorkerActivity> {
    prop_oneof![
        Just(WorkerActivity::Unknown),
        Just(WorkerActivity::Idle),
        Just(WorkerActivity::Busy),
        Just(WorkerActivity::Asking),
        (0..40_000_u64).prop_map(|until| WorkerActivity::Limited { until: Some(at(until)) }),
        Just(WorkerActivity::HumanOccupied),
        Just(WorkerActivity::Crashed),
    ]
}

proptest! {
    /// The worker may do anything and be seen doing it at any time. It is pressed only if it was
    /// just seen pressable, the conductor is notified at most once, and there is an end.
    #[test]
    fn never_pressed_while_busy(
        seen in prop::collection::vec((any_worker(), 0..120_u64, any::<bool>()), 1..60),
        press_unknown in any::<bool>(),
    ) {
        let mut ladder = started(LadderSettings { press_unknown, ..LadderSettings::default() });
        drain(&mut ladder);
        let (mut now, mut escalations) = (at(0), 0);
        for (worker, wait, asked) in seen.into_iter().cycle().take(2_000) {
            let due = ladder.poll_timeout();
            if asked {
                now = due.unwrap_or(now).max(now);
                ladder.handle_timeout(now);
            } else {
                let later = now + Duration::from_secs(wait);
                now = due.map_or(later, |due| due.max(now).min(later));
            }
            let silent = drain(&mut ladder);
            ladder.handle(now, Event::Seen(worker));
            let mut effects = drain(&mut ladder);
            let press = |e: &Effect| {
                matches!(e, Effect::Nudge | Effect::LeaveInputMode | Effect::ResetContext)
            };
            prop_assert!(worker.is_pressable() || !effects.iter().any(press));
            prop_assert!(
                worker == WorkerActivity::Idle || press_unknown
                    || !effects.iter().any(|e| press(e) && *e != Effect::Nudge)
            );
            effects.extend(silent);
            escalations +=
                effects.iter().filter(|e| matches!(e, Effect::Escalate(_))).count();
        }
        prop_assert!(escalations <= 1);
        prop_assert_eq!(ladder.is_over(), ladder.poll_timeout().is_none());
        let latest = at(0) + PARK_MAX + 2 * PHASE_TIMEOUT * PHASES;
        prop_assert!(ladder.is_over() || now <= latest, "it ends");
    }
}

#[test]
fn the_last_phase_can_be_an_earlier_one() {
    let config = LadderSettings { phase_last: Phase::Nudge, ..LadderSettings::default() };
    let mut ladder = started(config);
    for phase in 1..=2 {
        let now = Monotonic::ZERO + PHASE_TIMEOUT * phase;
        ladder.handle_timeout(now);
        ladder.handle(now, Event::Seen(WorkerActivity::Idle));
    }
    let told = std::iter::from_fn(|| ladder.poll_effect())
        .filter(|effect| matches!(effect, Effect::Escalate(e) if e.phase == Phase::Nudge));
    assert_eq!(told.count(), 1);
}
