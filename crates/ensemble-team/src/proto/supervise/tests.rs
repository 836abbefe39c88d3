use std::time::Duration;

use super::Event::{
    Agreed, Asked, Claimed, Contended, Exited, Failed, Fenced, Gated, HandedOver, Left, Nothing,
    Open, Pressed, Registered, SpawnFailed, Spawned, Start, Stop, Terminated, Withdrawn, Woken,
};
use super::*;
use crate::proto::testing::{react, variant, wake};
use ensemble_core::proto::testing::{at, drain, run};

const CLAIMED: Event = Claimed { is_new: true };

fn fed(pace: SupervisePace, events: &[Event]) -> Supervise {
    let mut machine = Supervise::new(pace);
    for event in events {
        react(&mut machine, at(0), *event);
    }
    machine
}

fn coder(events: &[Event]) -> Supervise {
    fed(SupervisePace::coder(), events)
}

const TO_A_RUNNING_AGENT: [Event; 5] = [Start, Registered, CLAIMED, Open, Spawned];

/// A supervisor whose agent runs.
fn running(pace: SupervisePace) -> Supervise {
    fed(pace, &TO_A_RUNNING_AGENT)
}

fn running_then(event: Event) -> Supervise {
    coder(&[&TO_A_RUNNING_AGENT[..], &[event]].concat())
}

fn exit(ending: ProgramEnding, holds: bool) -> AgentExit {
    AgentExit { ending, holds, progress: false, notes: false, drafts: false }
}

fn name(state: State) -> String {
    match state {
        State::Stopping { after } => format!("Stopping>{}", variant(&after)),
        State::Gated { holds: true, .. } | State::Delayed { holds: true, .. } => {
            variant(&state) + "+"
        }
        _ => variant(&state),
    }
}

fn states() -> Vec<(&'static str, Supervise)> {
    let wait = Duration::from_secs(2);
    let closed = Gated(ControlGate::Closed);
    let with_notes = AgentExit { notes: true, ..exit(ProgramEnding::HandOver, true) };
    vec![
        ("New", coder(&[])),
        ("Registering", coder(&[Start])),
        ("Looking", coder(&[Start, Registered])),
        ("Idle", coder(&[Start, Registered, Nothing])),
        ("Idle (contended)", coder(&[Start, Registered, Contended { wait }])),
        ("Checking", coder(&[Start, Registered, CLAIMED])),
        ("Gated", coder(&[Start, Registered, closed])),
        ("Gated+", coder(&[Start, Registered, CLAIMED, closed])),
        ("Spawning", coder(&[Start, Registered, CLAIMED, Open])),
        ("Running", running(SupervisePace::coder())),
        ("Delayed", running_then(Exited(exit(ProgramEnding::HandOver, false)))),
        ("Delayed+", running_then(Exited(with_notes))),
        ("Retrying (register)", coder(&[Start, Failed])),
        ("Retrying (check)", coder(&[Start, Registered, CLAIMED, Failed])),
        ("Retrying (unregister)", coder(&[Start, Registered, Stop, Failed])),
        ("Stopping", running_then(Stop)),
        ("Stopping>Look", running_then(Fenced(SupervisorLoss::Work))),
        ("HandingOver", coder(&[Start, Registered, CLAIMED, Pressed])),
        ("Agreeing", coder(&[Start, Registered, Nothing, Asked])),
        ("Retrying (agree)", coder(&[Start, Registered, Nothing, Asked, Failed])),
        ("Leaving", coder(&[Start, Registered, Stop])),
        ("Ended", coder(&[Stop])),
    ]
}

fn events() -> Vec<(String, Event)> {
    use SupervisorLoss as Loss;
    let wait = Duration::from_secs(1);
    let claims = [Start, Registered, Failed, Nothing, Contended { wait }, CLAIMED, Open];
    let gates = [Gated(ControlGate::Closed), Gated(ControlGate::Abort), Woken];
    let done = exit(ProgramEnding::Done, false);
    let handed_over = exit(ProgramEnding::HandOver, true);
    let exits = [
        ("0", done),
        ("0, unfinished", exit(ProgramEnding::Done, true)),
        ("0, drafts", AgentExit { drafts: true, ..done }),
        ("42", AgentExit { notes: true, ..handed_over }),
        ("42, no notes", handed_over),
        ("1", exit(ProgramEnding::Failed(1), true)),
        ("1, finished", exit(ProgramEnding::Failed(1), false)),
    ];
    let exits = exits.map(|(name, exit)| (format!("Exited({name})"), Exited(exit)));
    let losses = [Loss::Work, Loss::Claim, Loss::Registration, Loss::Lease].map(Fenced);
    let ends = [Stop, Asked, Pressed, Withdrawn, HandedOver, Agreed, Terminated, Left];
    let named = |event: Event| match event {
        Contended { .. } | Claimed { .. } => (variant(&event), event),
        _ => (format!("{event:?}"), event),
    };
    let before = claims.into_iter().chain(gates).chain([Spawned, SpawnFailed]).map(named);
    let after = losses.into_iter().chain(ends).map(named);
    before.chain(exits).chain(after).collect()
}

/// One line for each pair that changes something; all other pairs change nothing.
#[test]
fn every_pair_of_state_and_event() {
    let mut table = String::new();
    for (state, machine) in states() {
        table.push_str(&format!("{state}\n"));
        for (event, what) in events() {
            let mut after = machine.clone();
            let effects = react(&mut after, at(1), what);
            let effects: Vec<_> = effects.iter().map(|it| variant(it).to_lowercase()).collect();
            if (after.state, after.loops) != (machine.state, machine.loops) || !effects.is_empty() {
                let line = format!("  {event} -> {} {}", name(after.state), effects.join(" "));
                table.push_str(&format!("{}\n", line.trim_end()));
            }
        }
    }
    assert_eq!(table, include_str!("pairs.txt"), "{table}");
}

#[test]
fn delays_are_those_of_the_seed() {
    let due = |exit: AgentExit| {
        let mut machine = running(SupervisePace::coder());
        machine.handle(at(100), Exited(exit));
        machine.poll_timeout().map(|due| due.since(at(100)).as_secs())
    };
    assert_eq!(due(exit(ProgramEnding::HandOver, true)), Some(2));
    assert_eq!(due(exit(ProgramEnding::Failed(1), true)), Some(5));
    assert_eq!(due(exit(ProgramEnding::Killed(9), true)), Some(5));
    assert_eq!(due(exit(ProgramEnding::Done, true)), Some(5));
    assert_eq!(due(AgentExit { drafts: true, ..exit(ProgramEnding::Done, false) }), Some(30));
    // Finished work is followed by the next at once.
    assert_eq!(due(exit(ProgramEnding::Done, false)), None);
}

fn spawn_again(machine: &mut Supervise, now: Monotonic) {
    for event in [Claimed { is_new: false }, Open, Spawned] {
        machine.handle(now, event);
    }
    drain(machine);
}

/// Ends agents in the same way, one after another; returns the effects at the end of each.
fn again(machine: &mut Supervise, exit: AgentExit, times: usize) -> Vec<Vec<Effect>> {
    let mut now = at(0);
    let mut seen = Vec::new();
    for _ in 0..times {
        machine.handle(now, Exited(exit));
        seen.push(drain(machine));
        let Some(due) = machine.poll_timeout() else { break };
        now = due;
        machine.handle_timeout(now);
        spawn_again(machine, now);
    }
    seen
}

#[test]
fn tenth_agent_without_progress_blocks_the_task() {
    for ending in [ProgramEnding::Done, ProgramEnding::HandOver] {
        let mut machine = running(SupervisePace::coder());
        let exit = AgentExit { notes: true, ..exit(ending, true) };
        let seen = again(&mut machine, exit, 10);
        assert!(!seen[..9].iter().flatten().any(|e| matches!(e, Effect::Block(_))), "{seen:?}");
        assert_eq!(seen[9].last(), Some(&Effect::Block(WorkTrouble::Spins(10))));
    }
}

#[test]
fn an_agent_that_hangs_counts_like_one_that_crashes() {
    let mut machine = running(SupervisePace::coder());
    again(&mut machine, exit(ProgramEnding::Failed(1), true), 3);
    for (count, last, lost) in [(4, false, SupervisorLoss::Claim), (5, true, SupervisorLoss::Lease)]
    {
        machine.handle(at(50), Fenced(lost));
        let mut effects = vec![Effect::Note(SuperviseAnomaly::Hung { count })];
        effects.extend(last.then_some(Effect::Block(WorkTrouble::Crashes(5))));
        effects.push(Effect::Terminate);
        assert_eq!(drain(&mut machine), effects);
        machine.handle(at(51), Terminated);
        if lost == SupervisorLoss::Lease {
            machine.handle(at(51), Registered);
        }
        spawn_again(&mut machine, at(51));
    }
    assert_eq!(machine.loops, FailureCounts::default());

    let mut reviewer = running(SupervisePace { crashes_max: 1, ..SupervisePace::reviewer() });
    reviewer.handle(at(1), Fenced(SupervisorLoss::Lease));
    reviewer.handle(at(2), Terminated);
    assert_eq!(react(&mut reviewer, at(2), Left).last(), Some(&Effect::Ended(EndReason::GaveUp)));
}

#[test]
fn progress_resets_the_counters() {
    let mut machine = running(SupervisePace::coder());
    let crash = exit(ProgramEnding::Failed(1), true);
    again(&mut machine, crash, 4);
    again(&mut machine, AgentExit { progress: true, ..crash }, 1);
    assert_eq!(machine.loops, FailureCounts { crashes: 1, hangs: 0, spins: 1 });
    let mut other = running(SupervisePace::coder());
    again(&mut other, crash, 4);
    other.handle(at(50), Fenced(SupervisorLoss::Work));
    other.handle(at(51), Terminated);
    assert_eq!(other.loops.crashes, 4, "losing a claim is not progress");
    other.handle(at(52), CLAIMED);
    assert_eq!(other.loops, FailureCounts::default(), "another task starts at zero");
}

#[test]
fn supervisor_ends_if_its_work_cannot_be_blocked() {
    for pace in [SupervisePace::planner(), SupervisePace::reviewer()] {
        let mut machine = running(pace);
        let seen = again(&mut machine, exit(ProgramEnding::Failed(1), false), 5);
        assert_eq!(seen[4].last(), Some(&Effect::Unregister));
        assert_eq!(react(&mut machine, at(99), Left), [Effect::Ended(EndReason::GaveUp)]);
    }
}

#[test]
fn contended_claims_are_tried_three_times() {
    let mut machine = coder(&[Start, Registered]);
    let contended = Contended { wait: Duration::from_secs(3) };
    for now in [0, 3] {
        machine.handle(at(now), contended);
        assert_eq!(machine.poll_timeout(), Some(at(now + 3)));
        // The competitor's write does not wake it.
        assert_eq!(react(&mut machine, at(now), Woken), []);
        assert_eq!(wake(&mut machine, at(now + 3)), [Effect::Look]);
    }
    machine.handle(at(6), contended);
    assert_eq!(machine.poll_timeout(), Some(at(36)));
}

#[test]
fn supervisor_leaves_when_its_patience_is_over() {
    let mut pace = SupervisePace::coder();
    pace.patience = Some(Duration::from_secs(70));
    let mut machine = fed(pace, &[Start, Registered, Nothing]);
    for due in [30, 60, 70] {
        assert_eq!(machine.poll_timeout(), Some(at(due)));
        assert_eq!(wake(&mut machine, at(due)), [Effect::Look]);
        machine.handle(at(due), Nothing);
    }
    assert_eq!(drain(&mut machine), [Effect::Unregister]);
    assert_eq!(react(&mut machine, at(70), Left), [Effect::Ended(EndReason::NoWork)]);
}

#[test]
fn supervisor_whose_board_does_not_answer_leaves_all_the_same() {
    let mut machine = coder(&[Start, Registered, Stop]);
    let mut now = at(1);
    for _ in 1..FAREWELLS_MAX {
        machine.handle(now, Failed);
        now = machine.poll_timeout().unwrap();
        assert_eq!(wake(&mut machine, now), [Effect::Unregister]);
    }
    assert_eq!(react(&mut machine, now, Failed), [Effect::Ended(EndReason::Stopped)]);
}

#[test]
fn failed_actions_are_retried_and_stopping_continues() {
    let mut machine = coder(&[Start, Registered, Stop, Failed]);
    assert_eq!(run(&mut machine, at(5)), [(at(5), Effect::Unregister)]);
    // Another supervisor has replaced the registration, so there is nothing left to release.
    machine.handle(at(5), Fenced(SupervisorLoss::Registration));
    assert_eq!(drain(&mut machine), [Effect::Ended(EndReason::Stopped)]);
    let mut machine = running(SupervisePace::coder());
    machine.handle(at(1), Fenced(SupervisorLoss::Registration));
    machine.handle(at(1), Stop);
    assert_eq!(react(&mut machine, at(2), Terminated), [Effect::Terminate, Effect::Unregister]);
}

#[test]
fn a_withdrawn_request_changes_nothing() {
    let mut machine = running(SupervisePace::coder());
    machine.handle(at(1), Asked);
    machine.handle(at(2), Withdrawn);
    machine.handle(at(3), Exited(exit(ProgramEnding::Done, false)));
    assert_eq!(drain(&mut machine), [Effect::Look]);
}
