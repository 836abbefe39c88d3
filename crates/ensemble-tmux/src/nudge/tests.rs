use super::*;
use ensemble_core::pane::NudgeOutcome;
use ensemble_core::proto::testing::{at, at_millis, drain, pairs, run};

pub(super) fn bound_with(waiting: u64) -> NudgeSchedule {
    let mut schedule = NudgeSchedule::new();
    schedule.handle(at(0), Event::Bound { binding: 1 });
    schedule.handle(at(0), Event::Mail { waiting, taken: 0 });
    schedule
}

pub(super) fn mail(waiting: u64) -> Event {
    Event::Mail { waiting, taken: 0 }
}

pub(super) fn refused(deferral: Deferral) -> NudgeOutcome {
    NudgeOutcome::Refused { deferral }
}

/// Answers the attempt under way.
pub(super) fn answer(schedule: &mut NudgeSchedule, now: Monotonic, outcome: NudgeOutcome) {
    schedule.handle(now, Event::Outcome { attempt: schedule.attempt, outcome });
}

pub(super) fn nudge(attempt: u64, waiting: u64) -> Effect {
    Effect::Nudge { attempt, waiting, occasion: NudgeOccasion::News }
}

fn again(attempt: u64, waiting: u64) -> Effect {
    Effect::Nudge { attempt, waiting, occasion: NudgeOccasion::Again }
}

fn probe(attempt: u64, waiting: u64) -> Effect {
    Effect::Nudge { attempt, waiting, occasion: NudgeOccasion::Probe }
}

fn deferred(deferral: Deferral, waiting: u64) -> Effect {
    Effect::Record(NudgeRecord::Deferred { deferral, waiting })
}

#[test]
fn a_burst_is_one_line_at_once() {
    let mut schedule = bound_with(1);
    assert_eq!(drain(&mut schedule), [nudge(1, 1)]);
    for waiting in 2..=5 {
        schedule.handle(at_millis(waiting), mail(waiting));
    }
    answer(&mut schedule, at_millis(6), NudgeOutcome::Sent);
    for waiting in 6..=10 {
        schedule.handle(at_millis(waiting), mail(waiting));
    }
    assert_eq!(drain(&mut schedule), []);
    assert_eq!(schedule.status().phase, NudgePhase::Told);
    assert_eq!(schedule.poll_timeout(), Some(at_millis(60_006)));
}

#[test]
fn an_agent_that_reads_nothing_is_told_four_times_and_reported_once() {
    let mut schedule = bound_with(3);
    let mut seen = drain(&mut schedule).into_iter().map(|e| (at(0), e)).collect::<Vec<_>>();
    answer(&mut schedule, at(0), NudgeOutcome::Sent);
    while let Some(due) = schedule.poll_timeout() {
        schedule.handle_timeout(due);
        seen.extend(drain(&mut schedule).into_iter().map(|e| (due, e)));
        answer(&mut schedule, due, NudgeOutcome::Sent);
    }
    let unanswered = Effect::Record(NudgeRecord::Unanswered { waiting: 3, nudges: 4 });
    assert_eq!(
        seen,
        [
            (at(0), nudge(1, 3)),
            (at(60), again(2, 3)),
            (at(180), again(3, 3)),
            (at(420), again(4, 3)),
            (at(660), unanswered),
        ]
    );
    schedule.handle(at(700), mail(9));
    assert_eq!(drain(&mut schedule), []);
    schedule.handle(at(701), Event::Mail { waiting: 8, taken: 1 });
    assert_eq!(schedule.poll_timeout(), Some(at(703)), "it is alive: the rest follows");
    schedule.handle(at(702), mail(0));
    schedule.handle(at(703), mail(1));
    assert_eq!(drain(&mut schedule), [nudge(5, 1)]);
}

#[test]
fn two_lines_keep_their_distance_even_if_drained_between() {
    let mut schedule = bound_with(1);
    answer(&mut schedule, at(0), NudgeOutcome::Sent);
    schedule.handle(at_millis(100), mail(0));
    schedule.handle(at_millis(200), mail(1));
    assert_eq!(drain(&mut schedule), [nudge(1, 1)]);
    assert_eq!(run(&mut schedule, at(5)), [(at_millis(250), nudge(2, 1))]);
}

#[test]
fn refusals_back_off_and_each_reason_is_recorded_once() {
    let mut schedule = bound_with(1);
    let (mut tries, mut records) = (Vec::new(), Vec::new());
    let mut now = at(0);
    while now < at(120) {
        for effect in drain(&mut schedule) {
            match effect {
                Effect::Nudge { .. } | Effect::Submit { .. } | Effect::Withdraw { .. } => {
                    tries.push(now);
                }
                Effect::Record(record) => records.push(record),
            }
        }
        let later = if now < at(10) { Deferral::Draft } else { Deferral::Moved };
        let deferral = if now < at(3) { Deferral::Busy } else { later };
        answer(&mut schedule, now, refused(deferral));
        now = schedule.poll_timeout().unwrap();
        schedule.handle_timeout(now);
    }
    let gaps: Vec<_> = tries.windows(2).map(|t| (t[1] - t[0]).as_millis()).collect();
    let (turn, person) =
        ([100, 200, 400, 500, 500, 500, 500, 500], [500, 1_000, 2_000, 2_000, 2_000]);
    let other = [2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
    assert_eq!(gaps, [&turn[..], &person, &other].concat());
    let reasons = [Deferral::Busy, Deferral::Draft, Deferral::Moved];
    assert_eq!(records, reasons.map(|deferral| NudgeRecord::Deferred { deferral, waiting: 1 }));
}

#[test]
fn a_changed_pane_is_tried_at_once_but_never_in_a_spin() {
    let mut schedule = bound_with(1);
    for _ in 0..8 {
        answer(&mut schedule, at(0), refused(Deferral::Busy));
        schedule.handle_timeout(schedule.poll_timeout().unwrap());
    }
    answer(&mut schedule, at(60), refused(Deferral::Busy));
    drain(&mut schedule);
    schedule.handle(at_millis(60_010), Event::PaneChanged);
    assert_eq!(drain(&mut schedule), []);
    assert_eq!(schedule.poll_timeout(), Some(at_millis(60_100)));
    schedule.handle_timeout(at_millis(60_100));
    assert_eq!(drain(&mut schedule), [nudge(10, 1)]);
}

#[test]
fn a_line_that_was_typed_is_submitted_not_typed_again() {
    let mut schedule = bound_with(1);
    let dialog = Deferral::Dialog { name: "permission".to_owned() };
    answer(&mut schedule, at(0), NudgeOutcome::TextOnly { deferral: dialog.clone() });
    assert_eq!(drain(&mut schedule), [nudge(1, 1), deferred(dialog.clone(), 1)]);
    schedule.handle_timeout(at(1));
    assert_eq!(drain(&mut schedule), [Effect::Submit { attempt: 2, typed: 1 }]);
    answer(&mut schedule, at(1), refused(dialog));
    schedule.handle_timeout(at(2));
    assert_eq!(drain(&mut schedule), [Effect::Submit { attempt: 3, typed: 1 }]);
    answer(&mut schedule, at(2), NudgeOutcome::Sent);
    assert_eq!((schedule.status().phase, schedule.status().nudges), (NudgePhase::Told, 1));
}

#[test]
fn a_line_that_a_person_sent_changed_or_deleted_is_over() {
    for over in [Deferral::Draft, Deferral::LineGone] {
        let mut schedule = bound_with(1);
        answer(&mut schedule, at(0), NudgeOutcome::TextOnly { deferral: Deferral::Moved });
        schedule.handle_timeout(at(1));
        assert_eq!(drain(&mut schedule).last(), Some(&Effect::Submit { attempt: 2, typed: 1 }));
        answer(&mut schedule, at(1), refused(over));
        drain(&mut schedule);
        schedule.handle_timeout(at(2));
        let anew = [nudge(3, 1)];
        assert_eq!(drain(&mut schedule), anew, "under the guard, so not before they are done");
        assert_eq!(schedule.status().nudges, 0, "no line was submitted");
    }
}

#[test]
fn an_outcome_that_never_comes_is_a_refusal_and_may_still_come() {
    let mut schedule = bound_with(1);
    drain(&mut schedule);
    schedule.handle_timeout(at(15));
    assert_eq!(drain(&mut schedule), [deferred(Deferral::Timeout, 1)]);
    answer(&mut schedule, at_millis(15_100), NudgeOutcome::Sent);
    assert_eq!((schedule.status().phase, schedule.status().nudges), (NudgePhase::Told, 1));
    answer(&mut schedule, at_millis(15_200), NudgeOutcome::Sent);
    assert_eq!(schedule.status().nudges, 1, "doubled");
}

#[test]
fn a_limit_whose_end_is_known_is_waited_for_and_then_looked_at() {
    let limited = Deferral::NotReady { state: "rate_limited".to_owned() };
    let mut schedule = bound_with(1);
    schedule.handle(at(0), Event::Parked { until: at(3_600) });
    answer(&mut schedule, at(0), refused(limited.clone()));
    assert_eq!(drain(&mut schedule), [nudge(1, 1), deferred(limited.clone(), 1)]);
    assert_eq!(schedule.poll_timeout(), Some(at(3_600)));
    for event in [mail(2), Event::PaneChanged, mail(0), mail(1), Event::PaneChanged] {
        schedule.handle(at(60), event);
        schedule.handle_timeout(at(60));
    }
    assert_eq!(drain(&mut schedule), [], "not before the reset");
    assert_eq!(run(&mut schedule, at(3_600)), [(at(3_600), nudge(2, 1))]);
    // The screen still shows the same limit, so nothing is recorded.
    answer(&mut schedule, at(3_600), refused(limited));
    assert_eq!(schedule.poll_timeout(), Some(at_millis(3_600_100)));
    // A misread one costs hours, not days.
    schedule.handle(at(3_600), Event::Parked { until: at(9_999_999) });
    assert_eq!(schedule.poll_timeout(), Some(at(3_600) + PARK_MAX));
    schedule.handle(at(3_700), Event::Bound { binding: 2 });
    assert_eq!(drain(&mut schedule).last(), Some(&nudge(3, 1)), "another process, another account");
}

/// Attempts at an agent with a limit that does not say when it ends, and when they were made.
fn attempts_at_a_limited_agent(
    until: Monotonic,
    submits: impl Fn(&Effect) -> bool,
) -> Vec<(u64, NudgeOccasion)> {
    let limited = Deferral::NotReady { state: "rate_limited".to_owned() };
    let mut schedule = bound_with(1);
    let (mut now, mut sent) = (at(0), Vec::new());
    while now < until {
        for effect in drain(&mut schedule) {
            let Effect::Nudge { occasion, .. } = effect else { continue };
            schedule.handle(now, Event::Limited);
            let outcome = match submits(&effect) {
                true => NudgeOutcome::Sent,
                false => refused(limited.clone()),
            };
            if outcome == NudgeOutcome::Sent {
                sent.push((now.as_duration().as_secs(), occasion));
            }
            answer(&mut schedule, now, outcome);
        }
        now = schedule.poll_timeout().expect("it goes on");
        schedule.handle_timeout(now);
    }
    sent
}

#[test]
fn a_limit_without_an_end_is_probed_after_1_2_4_8_and_then_every_15_minutes() {
    let probes =
        |effect: &Effect| matches!(effect, Effect::Nudge { occasion: NudgeOccasion::Probe, .. });
    let minutes: Vec<_> = attempts_at_a_limited_agent(at(4_000), probes)
        .into_iter()
        .map(|(seconds, occasion)| (seconds / 60, occasion))
        .collect();
    let expected = [1, 3, 7, 15, 30, 45, 60].map(|minute| (minute, NudgeOccasion::Probe));
    assert_eq!(minutes, expected, "and never given up");
    // An agent that is idle below an old error is nudged at once, and then probed as well.
    let seconds = attempts_at_a_limited_agent(at(500), |_| true);
    let first = (0, NudgeOccasion::News);
    assert_eq!(
        seconds,
        [
            first,
            (60, NudgeOccasion::Probe),
            (180, NudgeOccasion::Probe),
            (420, NudgeOccasion::Probe)
        ]
    );
}

#[test]
fn a_limit_that_is_over_is_forgotten() {
    let limited = refused(Deferral::NotReady { state: "rate_limited".to_owned() });
    let met = || {
        let mut schedule = bound_with(2);
        schedule.handle(at(0), Event::Limited);
        answer(&mut schedule, at(0), limited.clone());
        drain(&mut schedule);
        schedule
    };
    // It can be typed to again before the probe is due.
    let mut schedule = met();
    schedule.handle(at(30), Event::PaneChanged);
    assert_eq!(drain(&mut schedule), [nudge(2, 2)]);
    answer(&mut schedule, at(30), NudgeOutcome::Sent);
    assert_eq!((schedule.status().nudges, schedule.poll_timeout()), (1, Some(at(90))));
    // The line was the retry, and the agent has read.
    let mut schedule = met();
    schedule.handle_timeout(at(60));
    assert_eq!(drain(&mut schedule), [probe(2, 2)]);
    schedule.handle(at(60), Event::Limited);
    answer(&mut schedule, at(60), NudgeOutcome::Sent);
    assert_eq!((schedule.status().nudges, schedule.poll_timeout()), (0, Some(at(180))));
    schedule.handle(at(61), Event::Mail { waiting: 1, taken: 1 });
    assert_eq!(schedule.poll_timeout(), Some(at(63)), "the rest follows");
    // It says when it ends.
    let mut schedule = met();
    schedule.handle(at(1), Event::Parked { until: at(3_600) });
    assert_eq!(run(&mut schedule, at(3_600)), [(at(3_600), nudge(2, 2))]);
}

/// An agent that takes one message a turn: each turn is followed by a line, not each minute.
#[test]
fn what_an_agent_has_taken_resets_the_pace_of_the_rest() {
    let mut schedule = bound_with(51);
    let (mut now, mut left) = (at(0), 51);
    while left > 0 {
        assert_eq!(drain(&mut schedule).len(), 1, "{left} left");
        answer(&mut schedule, now, NudgeOutcome::Sent);
        left -= 1;
        schedule.handle(now, Event::Mail { waiting: left, taken: 1 });
        assert_eq!(drain(&mut schedule), [], "it may take more by itself");
        now = schedule.poll_timeout().unwrap_or(now);
        schedule.handle_timeout(now);
    }
    assert_eq!(now, at(100), "2 s for each");
}

fn states() -> Vec<(&'static str, NudgeSchedule)> {
    let quiet = bound_with(0);
    let flight = bound_with(2);
    let mut told = flight.clone();
    answer(&mut told, at(0), NudgeOutcome::Sent);
    let mut due = told.clone();
    due.handle(at(0), mail(0));
    due.handle(at(0), mail(2));
    let mut deferred = flight.clone();
    answer(&mut deferred, at(0), refused(Deferral::Busy));
    let mut half = flight.clone();
    answer(&mut half, at(0), NudgeOutcome::TextOnly { deferral: Deferral::Moved });
    let mut left = half.clone();
    left.handle(at(0), mail(0));
    let mut withdrawing = quiet.clone();
    withdrawing.handle(at(0), Event::LineLeft);
    let unanswered = NudgeSchedule { state: State::Unanswered, nudges: NUDGES_MAX, ..told.clone() };
    let unbound = NudgeSchedule { state: State::Unbound, binding: None, ..told.clone() };
    let mut states = vec![
        ("unbound", unbound),
        ("quiet", quiet),
        ("due", due),
        ("in_flight", flight),
        ("deferred", deferred),
        ("half", half),
        ("left", left),
        ("withdrawing", withdrawing),
        ("told", told),
        ("unanswered", unanswered),
    ];
    for (_, schedule) in &mut states {
        drain(schedule);
    }
    states
}

fn show(schedule: &NudgeSchedule, now: Monotonic, event: Option<&Event>) -> String {
    let mut schedule = schedule.clone();
    match event {
        Some(event) => schedule.handle(now, event.clone()),
        None => schedule.handle_timeout(now),
    }
    let mut cell = schedule.status().phase.word().to_owned();
    for effect in drain(&mut schedule) {
        cell.push_str(match effect {
            Effect::Nudge { .. } => " N",
            Effect::Submit { .. } => " S",
            Effect::Withdraw { .. } => " W",
            Effect::Record(_) => " R",
        });
    }
    cell
}

#[test]
fn every_pair_of_state_and_event() {
    let outcome = |attempt, outcome| Some(Event::Outcome { attempt, outcome });
    let half = NudgeOutcome::TextOnly { deferral: Deferral::Moved };
    let events = [
        ("drained", Some(mail(0))),
        ("same", Some(mail(2))),
        ("more", Some(mail(3))),
        ("fewer", Some(mail(1))),
        ("others", Some(Event::Mail { waiting: 2, taken: 2 })),
        ("bound", Some(Event::Bound { binding: 1 })),
        ("rebound", Some(Event::Bound { binding: 2 })),
        ("unbound", Some(Event::Unbound)),
        ("sent", outcome(1, NudgeOutcome::Sent)),
        ("half", outcome(1, half)),
        ("refused", outcome(1, refused(Deferral::Draft))),
        ("gone", outcome(1, refused(Deferral::PaneGone))),
        ("stale", outcome(0, NudgeOutcome::Sent)),
        ("changed", Some(Event::PaneChanged)),
        ("over", outcome(1, refused(Deferral::LineGone))),
        ("parked", Some(Event::Parked { until: at(800) })),
        ("limited", Some(Event::Limited)),
        ("paced", Some(Event::Laddered(true))),
        ("prompt", Some(Event::Prompt(WantedLine::new(NUDGE_INTERVAL_MIN, true)))),
        ("left", Some(Event::LineLeft)),
        ("time", None),
    ];
    let table =
        pairs(&states(), &events, |schedule, event| show(schedule, at(700), event.as_ref()));
    assert_eq!(
        table,
        "
         unbound      quiet        due          in_flight    deferred     half         left         withdrawing  told         unanswered
drained  unbound      quiet        quiet        in_flight    quiet        deferred     deferred     in_flight    quiet        quiet
same     unbound      in_flight N  due          in_flight    deferred     deferred     deferred     in_flight    told         unanswered
more     unbound      in_flight N  due          in_flight    deferred     deferred     deferred     in_flight    told         unanswered
fewer    unbound      in_flight N  due          in_flight    deferred     deferred     deferred     in_flight    told         told
others   unbound      in_flight N  due          in_flight    deferred     deferred     deferred     in_flight    in_flight N  in_flight N
bound    in_flight N  quiet        due          in_flight    deferred     deferred     deferred     in_flight    told         unanswered
rebound  in_flight N  quiet        in_flight N  in_flight N  in_flight N  in_flight N  quiet        quiet        in_flight N  in_flight N
unbound  unbound      unbound      unbound      unbound      unbound      unbound      unbound      unbound      unbound      unbound
sent     unbound      quiet        due          told         deferred     deferred     deferred     quiet        told         unanswered
half     unbound      quiet        due          deferred R   deferred     deferred     deferred     deferred     told         unanswered
refused  unbound      quiet        due          deferred R   deferred     deferred     deferred     quiet        told         unanswered
gone     unbound      quiet        due          unbound R    deferred     deferred     deferred     unbound      told         unanswered
stale    unbound      quiet        due          in_flight    deferred     deferred     deferred     in_flight    told         unanswered
changed  unbound      quiet        due          in_flight    in_flight N  in_flight S  in_flight W  in_flight    told         unanswered
over     unbound      quiet        due          deferred R   deferred     deferred     deferred     quiet        told         unanswered
parked   unbound      quiet        due          in_flight    deferred     deferred     deferred     in_flight    told         unanswered
limited  unbound      quiet        due          in_flight    deferred     deferred     deferred     in_flight    told         unanswered
paced    unbound      quiet        due          in_flight    deferred     deferred     deferred     in_flight    told         unanswered
prompt   unbound      quiet        due          in_flight    deferred     deferred     deferred     in_flight    in_flight N  in_flight N
left     unbound      in_flight W  due          in_flight    deferred     deferred     deferred     in_flight    in_flight N  unanswered
time     unbound      quiet        in_flight N  deferred R   in_flight N  in_flight S  in_flight W  deferred     in_flight N  unanswered
"
    );
}

#[test]
fn early_and_doubled_timeouts_do_nothing() {
    for (name, schedule) in states() {
        let before = schedule.status();
        let mut schedule = schedule;
        schedule.handle_timeout(at(0));
        schedule.handle_timeout(at(0));
        assert_eq!((drain(&mut schedule), schedule.status()), (vec![], before), "{name}");
    }
}
