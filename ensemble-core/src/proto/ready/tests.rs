use super::*;
use crate::proto::testing::{at, drain, pairs};

fn worker() -> Name {
    Name::new("frontend-dev-001").unwrap()
}

fn pong(attempt: u8) -> Event {
    Event::Pong(PongToken { worker: worker(), attempt })
}

fn seen(workspace: Workspace, observation: &str) -> WindowDiagnosis {
    WindowDiagnosis {
        session_alive: true,
        workspace,
        obstacle: None,
        observation: observation.to_owned(),
    }
}

/// Plays a worker that never answers, whose window looks as `diagnosis` says in each attempt and
/// whose open command succeeds as `open` says. Returns when the handshake ended, and everything
/// it asked for.
fn silent_worker(
    diagnosis: impl Fn(u8) -> Result<WindowDiagnosis, String>,
    open: bool,
) -> (Monotonic, Vec<(Monotonic, Effect)>) {
    let mut handshake = Handshake::new(worker(), PingTimes::default());
    let (mut now, mut log) = (at(0), Vec::new());
    handshake.handle(now, Event::Started);
    loop {
        while let Some(effect) = handshake.poll_effect() {
            match effect {
                Effect::Inspect { attempt } => {
                    let diagnosis = diagnosis(attempt);
                    handshake.handle(now, Event::Inspected { attempt, diagnosis });
                }
                Effect::SendOpen { attempt } => {
                    handshake.handle(now, Event::OpenDone { attempt, ok: open });
                }
                Effect::SendPing(_)
                | Effect::Ready { .. }
                | Effect::Failed(_)
                | Effect::Record(_) => {}
            }
            log.push((now, effect));
        }
        match handshake.poll_timeout() {
            Some(due) => now = due,
            None => return (now, log),
        }
        handshake.handle_timeout(now);
    }
}

fn failure_of(log: &[(Monotonic, Effect)]) -> &ReadinessFailure {
    match log.last() {
        Some((_, Effect::Failed(failure))) => failure,
        other => panic!("no failure: {other:?}"),
    }
}

fn retry(attempt: u8, error_type: ErrorType, observation: &str, open: bool) -> Effect {
    let observation = observation.to_owned();
    Effect::Record(HandshakeRecord::Retry {
        attempt,
        error_type,
        observation,
        open_command_sent: open,
    })
}

#[test]
fn the_worst_case_is_25_seconds_with_a_diagnosis_on_every_time_out() {
    let (end, log) = silent_worker(
        |attempt| Ok(seen(if attempt == 1 { Workspace::Closed } else { Workspace::Open }, "idle")),
        true,
    );
    let ping = |attempt| Effect::SendPing(Ping { worker: worker(), attempt });
    let inspect = |attempt| Effect::Inspect { attempt };
    let failure = failure_of(&log).clone();
    assert_eq!(
        log,
        [
            (at(0), ping(1)),
            (at(5), inspect(1)),
            (at(5), Effect::SendOpen { attempt: 1 }),
            (at(5), retry(1, ErrorType::WorkspaceNotOpen, "idle", true)),
            (at(10), ping(2)),
            (at(15), inspect(2)),
            (at(15), retry(2, ErrorType::NoPongTimeout, "idle", false)),
            (at(20), ping(3)),
            (at(25), inspect(3)),
            (at(25), Effect::Failed(failure.clone())),
        ]
    );
    assert_eq!(end, at(25));
    assert_eq!((failure.attempt, failure.error_type), (3, ErrorType::NoPongTimeout));
    assert!(failure.window_inspected && failure.open_command_sent);
}

#[test]
fn error_types_follow_the_table() {
    let closed = |_| Ok(seen(Workspace::Closed, "$"));
    let (_, log) = silent_worker(closed, true);
    assert_eq!(failure_of(&log).error_type, ErrorType::ProviderLaunchFailed);
    let second = retry(2, ErrorType::ProviderLaunchFailed, "$", true);
    assert!(log.contains(&(at(15), second)), "it was opened before and is closed again");
    let opens = log.iter().filter(|(_, e)| matches!(e, Effect::SendOpen { .. })).count();
    assert_eq!(opens, 2, "once an attempt, and not where no ping follows");

    let (_, log) = silent_worker(closed, false);
    let failure = failure_of(&log);
    assert_eq!(failure.error_type, ErrorType::ProviderLaunchFailed);
    assert!(!failure.open_command_sent);

    let late =
        |attempt| Ok(seen(if attempt < 3 { Workspace::Open } else { Workspace::Closed }, ""));
    assert_eq!(failure_of(&silent_worker(late, true).1).error_type, ErrorType::WorkspaceNotOpen);

    let (_, log) = silent_worker(|_| Err("tmux is gone".to_owned()), true);
    let failure = failure_of(&log);
    assert_eq!(failure.error_type, ErrorType::UnknownWorkerState);
    assert!(!failure.window_inspected);
    assert_eq!(failure.observation, "window not inspected: tmux is gone");

    let dead = |_| Ok(WindowDiagnosis { session_alive: false, ..seen(Workspace::Open, "") });
    assert_eq!(failure_of(&silent_worker(dead, true).1).error_type, ErrorType::UnknownWorkerState);

    let obstacle =
        |obstacle| Ok(WindowDiagnosis { obstacle: Some(obstacle), ..seen(Workspace::Open, "") });
    for (obstacle_seen, expected) in [
        (ReadyObstacle::Busy, ErrorType::NoPongTimeout),
        (ReadyObstacle::Login, ErrorType::NoPongTimeout),
        (ReadyObstacle::Crashed, ErrorType::ProviderLaunchFailed),
    ] {
        let (_, log) = silent_worker(|_| obstacle(obstacle_seen), true);
        assert_eq!(failure_of(&log).error_type, expected, "{obstacle_seen:?}");
    }
}

#[test]
fn only_this_worker_and_this_attempt_count() {
    let mut handshake = Handshake::new(worker(), PingTimes::default());
    handshake.handle(at(0), Event::Started);
    handshake.handle_timeout(at(5));
    handshake.handle(at(5), Event::Inspected { attempt: 1, diagnosis: Err(String::new()) });
    handshake.handle_timeout(at(10));
    drain(&mut handshake);
    let stranger = Name::new("frontend-dev-002").unwrap();
    for (name, attempt) in [(worker(), 1), (worker(), 3), (stranger, 2)] {
        handshake.handle(at(11), Event::Pong(PongToken { worker: name.clone(), attempt }));
        let stray = Effect::Record(HandshakeRecord::StrayPong { worker: name, attempt });
        assert_eq!(drain(&mut handshake), [stray]);
    }
    handshake.handle(at(12), pong(2));
    handshake.handle(at(12), pong(2));
    assert_eq!(drain(&mut handshake), [Effect::Ready { attempt: 2 }]);
}

#[test]
fn a_silent_inspector_or_opener_does_not_stop_it() {
    let mut handshake = Handshake::new(worker(), PingTimes::default());
    handshake.handle(at(0), Event::Started);
    let deferral = Deferral::CopyMode;
    handshake.handle(at(0), Event::SendFailed { attempt: 1, deferral });
    let log = crate::proto::testing::run(&mut handshake, at(1_000));
    let (end, last) = log.last().unwrap();
    assert_eq!(*end, at(25 + 3 * 6));
    assert!(matches!(last, Effect::Failed(f) if f.error_type == ErrorType::UnknownWorkerState));
    let first = "ping not typed: a person is scrolling in the pane; \
                 window not inspected: no answer in 6 s";
    assert_eq!(log[2].1, retry(1, ErrorType::UnknownWorkerState, first, false));
}

#[test]
fn tokens_are_exact() {
    let ping = Ping { worker: worker(), attempt: 2 };
    assert_eq!(ping.to_string(), "AGENT_TEAM_PING frontend-dev-001 2");
    assert_eq!(ping.pong().to_string(), "AGENT_TEAM_PONG frontend-dev-001 2");
    assert_eq!(Ping::parse(&ping.to_string()), Some(ping.clone()));
    assert_eq!(PongToken::parse(" AGENT_TEAM_PONG frontend-dev-001 2\r\n"), Some(ping.pong()));
    crate::pane::NudgeText::new(
        Ping { worker: Name::new("x".repeat(64)).unwrap(), attempt: 99 }.to_string(),
    )
    .unwrap();
    for line in [
        "AGENT_TEAM_PING frontend-dev-001 2",
        "AGENT_TEAM_PONG frontend-dev-001",
        "AGENT_TEAM_PONG frontend-dev-001 02",
        "AGENT_TEAM_PONG frontend-dev-001 +2",
        "AGENT_TEAM_PONG frontend-dev-001 0",
        "AGENT_TEAM_PONG frontend-dev-001 2 3",
        "AGENT_TEAM_PONG  frontend-dev-001 2",
        "AGENT_TEAM_PONG\tfrontend-dev-001 2",
        "agent_team_pong frontend-dev-001 2",
        "AGENT_TEAM_PONG ../x 2",
        "AGENT_TEAM_PONGfrontend-dev-001 2",
    ] {
        assert_eq!(PongToken::parse(line), None, "{line}");
    }
}

#[test]
fn the_echo_of_a_ping_is_no_pong() {
    let screen = |lines: &[&str]| -> Vec<PongToken> {
        PongToken::on_screen(&lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>()).collect()
    };
    let echo = ["> AGENT_TEAM_PING w 1", "please answer with AGENT_TEAM_PONG w 1", "│ > │"];
    assert_eq!(screen(&echo), []);
    let answered = ["> AGENT_TEAM_PING w 1", "│ ● AGENT_TEAM_PONG w 1  │"];
    assert_eq!(screen(&answered), [PongToken { worker: Name::new("w").unwrap(), attempt: 1 }]);
}

#[test]
fn an_observation_is_one_line_of_printable_text() {
    let hostile = "a\nworker-id: x\r\x1b[2J\u{202e}\u{2028}b\u{9b}31m\t\tc";
    let failure = ReadinessFailure::new(worker(), 3, ErrorType::NoPongTimeout).observed(hostile);
    assert_eq!(failure.observation, "a worker-id: x [2J b 31m c");
    assert_eq!(failure.to_string().lines().count(), 8);
    assert_eq!(failure.observed(&"x".repeat(999)).observation.len(), OBSERVATION_CHARS_MAX);
}

fn states() -> Vec<(&'static str, Handshake)> {
    let idle = Handshake::new(worker(), PingTimes::default());
    let mut waiting = idle.clone();
    waiting.handle(at(0), Event::Started);
    let mut inspecting = waiting.clone();
    inspecting.handle_timeout(at(5));
    let mut opening = inspecting.clone();
    let diagnosis = Ok(seen(Workspace::Closed, "$"));
    opening.handle(at(5), Event::Inspected { attempt: 1, diagnosis });
    let mut pausing = opening.clone();
    pausing.handle(at(5), Event::OpenDone { attempt: 1, ok: true });
    let mut last = inspecting.clone();
    (last.attempt, last.config.attempts_max) = (1, 1);
    let ready = Handshake { state: State::Ready, ..idle.clone() };
    let failed = Handshake { state: State::Failed, ..idle.clone() };
    let mut states = vec![
        ("idle", idle),
        ("waiting", waiting),
        ("inspecting", inspecting),
        ("last", last),
        ("opening", opening),
        ("pausing", pausing),
        ("ready", ready),
        ("failed", failed),
    ];
    for (_, handshake) in &mut states {
        drain(handshake);
    }
    states
}

fn show(handshake: &Handshake, event: Option<&Event>) -> String {
    let mut handshake = handshake.clone();
    match event {
        Some(event) => handshake.handle(at(20), event.clone()),
        None => handshake.handle_timeout(at(20)),
    }
    let mut cell = match &handshake.state {
        State::Idle => "idle",
        State::Waiting { .. } => "waiting",
        State::Inspecting { .. } => "inspect",
        State::Opening { .. } => "opening",
        State::Pausing { .. } => "pausing",
        State::Ready => "ready",
        State::Failed => "failed",
    }
    .to_owned();
    for effect in drain(&mut handshake) {
        cell.push_str(match effect {
            Effect::SendPing(_) => " P",
            Effect::Inspect { .. } => " I",
            Effect::SendOpen { .. } => " O",
            Effect::Ready { .. } => " Y",
            Effect::Failed(_) => " F",
            Effect::Record(_) => " R",
        });
    }
    cell
}

#[test]
fn every_pair_of_state_and_event() {
    let inspected =
        |attempt, workspace| Some(Event::Inspected { attempt, diagnosis: Ok(seen(workspace, "")) });
    let send_failed = |attempt| Some(Event::SendFailed { attempt, deferral: Deferral::Busy });
    let failed = Err("gone".to_owned());
    let events = [
        ("started", Some(Event::Started)),
        ("pong", Some(pong(1))),
        ("stray", Some(pong(2))),
        ("unsent", send_failed(1)),
        ("open", inspected(1, Workspace::Open)),
        ("closed", inspected(1, Workspace::Closed)),
        ("unseen", Some(Event::Inspected { attempt: 1, diagnosis: failed })),
        ("stale", inspected(2, Workspace::Closed)),
        ("opened", Some(Event::OpenDone { attempt: 1, ok: true })),
        ("refused", Some(Event::OpenDone { attempt: 1, ok: false })),
        ("stale", Some(Event::OpenDone { attempt: 2, ok: true })),
        ("time", None),
    ];
    let table = pairs(&states(), &events, |handshake, event| show(handshake, event.as_ref()));
    assert_eq!(
        table,
        "
         idle       waiting    inspecting  last       opening    pausing    ready  failed
started  waiting P  waiting    inspect     inspect    opening    pausing    ready  failed
pong     idle       ready Y    ready Y     ready Y    ready Y    ready Y    ready  failed
stray    idle       waiting R  inspect R   inspect R  opening R  pausing R  ready  failed
unsent   idle       waiting    inspect     inspect    opening    pausing    ready  failed
open     idle       waiting    pausing R   failed F   opening    pausing    ready  failed
closed   idle       waiting    opening O   failed F   opening    pausing    ready  failed
unseen   idle       waiting    pausing R   failed F   opening    pausing    ready  failed
stale    idle       waiting    inspect     inspect    opening    pausing    ready  failed
opened   idle       waiting    inspect     inspect    pausing R  pausing    ready  failed
refused  idle       waiting    inspect     inspect    pausing R  pausing    ready  failed
stale    idle       waiting    inspect     inspect    opening    pausing    ready  failed
time     idle       inspect I  pausing R   failed F   pausing R  waiting P  ready  failed
"
    );
}

#[test]
fn a_pong_that_came_too_late_is_named_in_the_failure() {
    let mut handshake =
        Handshake::new(worker(), PingTimes { attempts_max: 2, ..PingTimes::default() });
    handshake.handle(at(0), Event::Started);
    let inspected =
        |attempt| Event::Inspected { attempt, diagnosis: Ok(seen(Workspace::Open, "idle")) };
    handshake.handle_timeout(at(5));
    handshake.handle(at(5), inspected(1));
    handshake.handle_timeout(at(10));
    handshake.handle(at(11), pong(1));
    handshake.handle_timeout(at(15));
    handshake.handle(at(15), inspected(2));
    let Some(Effect::Failed(failure)) = drain(&mut handshake).pop() else { panic!("it failed") };
    let named = "answered ping 1 after 11 s (set `readiness.wait`); idle";
    assert_eq!(failure.observation, named);
}
