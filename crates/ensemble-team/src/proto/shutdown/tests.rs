use super::*;
use crate::proto::testing::{react, variant, wake};
use ensemble_core::proto::testing::{at, drain, pairs, run};

fn with(grace: Duration, events: &[Event]) -> AgentShutdown {
    let mut machine = AgentShutdown::new(grace);
    for event in events {
        react(&mut machine, at(0), *event);
    }
    machine
}

fn forced_until(rounds: u32) -> AgentShutdown {
    let mut machine = with(GRACE, &[Event::Begin(ShutdownConsent::Forced)]);
    for _ in 0..rounds {
        machine.handle(at(0), Event::Found(2));
        react(&mut machine, at(0), Event::Exited);
    }
    machine
}

fn name(state: State) -> String {
    match state {
        State::Ending { round } | State::Waiting { round, .. } => {
            format!("{} {round}", variant(&state))
        }
        _ => variant(&state),
    }
}

fn states() -> Vec<(&'static str, AgentShutdown)> {
    use Event::{Begin, Done, Found};
    let forced = Begin(ShutdownConsent::Forced);
    let steps = [ShutdownStep::Close, ShutdownStep::Return, ShutdownStep::Record].map(Done);
    let swept = |steps: &[Event]| with(GRACE, &[&[forced, Found(0)][..], steps].concat());
    let mut waiting_last = forced_until(KILL_ROUNDS);
    waiting_last.handle(at(0), Found(1));
    vec![
        ("New", with(GRACE, &[])),
        ("Finishing", with(GRACE, &[Begin(ShutdownConsent::Approved)])),
        ("Ending 0", with(GRACE, &[forced])),
        ("Waiting 0", with(GRACE, &[forced, Found(3)])),
        ("Ending 1", forced_until(1)),
        ("Waiting 5", waiting_last),
        ("Closing", swept(&[])),
        ("Returning", swept(&steps[..1])),
        ("Recording", swept(&steps[..2])),
        ("Ended", swept(&steps)),
    ]
}

fn events() -> Vec<Event> {
    use ShutdownStep::{Close, Record, Return, Sweep};
    let begun = [ShutdownConsent::Approved, ShutdownConsent::Forced].map(Event::Begin);
    let seen = [WorkerPresence::Gone, WorkerPresence::Idle, WorkerPresence::Busy].map(Event::Seen);
    let swept = [Event::Found(0), Event::Found(2), Event::Exited];
    let steps = [Sweep, Close, Return, Record];
    let ended = steps.map(Event::Done).into_iter().chain(steps.map(Event::Failed));
    begun.into_iter().chain(seen).chain(swept).chain(ended).collect()
}

#[test]
fn every_pair_of_state_and_event() {
    let names: Vec<String> = events().iter().map(|event| format!("{event:?}")).collect();
    let events: Vec<_> = names.iter().map(String::as_str).zip(events()).collect();
    let table = pairs(&states(), &events, |machine, event| {
        let mut machine = machine.clone();
        let before = machine.state;
        machine.handle(at(1), *event);
        let effects: Vec<String> =
            drain(&mut machine).iter().map(|e| format!("{e:?}").replace(' ', "")).collect();
        let to = if machine.state == before { "=".to_owned() } else { name(machine.state) };
        let again = if machine.retry.is_some() { "~" } else { "" };
        format!("{to}{again} {}", effects.join("+")).trim().to_owned()
    });
    assert_eq!(table.trim_start(), include_str!("pairs.txt").trim_start());
}

#[test]
fn missing_observation_does_not_block_the_shutdown() {
    let mut machine = with(GRACE, &[Event::Begin(ShutdownConsent::Approved)]);
    let seen = run(&mut machine, at(600));
    assert_eq!(seen, [(at(60), Effect::Sweep(Signal::Terminate))]);
}

#[test]
fn stubborn_processes_are_killed_and_survivors_are_reported() {
    let mut machine = AgentShutdown::new(GRACE);
    machine.handle(at(0), Event::Begin(ShutdownConsent::Forced));
    let mut now = at(0);
    let mut signals = Vec::new();
    loop {
        match machine.poll_effect() {
            Some(Effect::Sweep(signal)) => {
                signals.push((now, signal));
                machine.handle(now, Event::Found(1));
            }
            Some(Effect::Close) => break,
            other => {
                assert_eq!(other, None);
                now = machine.poll_timeout().expect("it waits for something");
                machine.handle_timeout(now);
            }
        }
    }
    let kills = (0..u64::from(KILL_ROUNDS)).map(|n| (at(5 + 2 * n), Signal::Kill));
    let expected: Vec<_> = std::iter::once((at(0), Signal::Terminate)).chain(kills).collect();
    assert_eq!(signals, expected);
    for step in [ShutdownStep::Close, ShutdownStep::Return] {
        machine.handle(now, Event::Done(step));
    }
    assert_eq!(drain(&mut machine), [Effect::Return, Effect::Record { survivors: 1 }]);
    machine.handle(now, Event::Done(ShutdownStep::Record));
    assert_eq!(drain(&mut machine), [Effect::Ended { survivors: 1 }]);
    assert_eq!(machine.state, State::Ended);
}

#[test]
fn failed_step_is_retried_with_backoff() {
    let mut machine = with(GRACE, &[Event::Begin(ShutdownConsent::Forced), Event::Found(0)]);
    let mut waits = Vec::new();
    let mut now = at(0);
    for _ in 0..7 {
        machine.handle(now, Event::Failed(ShutdownStep::Close));
        let due = machine.poll_timeout().expect("it tries again");
        waits.push((due - now).as_secs());
        now = due;
        assert_eq!(wake(&mut machine, now), [Effect::Close]);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    machine.handle(now, Event::Done(ShutdownStep::Close));
    // Another step starts with the shortest wait.
    machine.handle(now, Event::Failed(ShutdownStep::Return));
    assert_eq!(machine.poll_timeout(), Some(now + RETRY_MIN));
}
