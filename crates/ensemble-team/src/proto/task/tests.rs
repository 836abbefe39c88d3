use super::*;
use ensemble_core::proto::testing::{name, pairs};

fn holder(by: &str, epoch: u64) -> TaskHolder {
    TaskHolder { by: name(by), epoch }
}

fn in_review(review: Option<TaskHolder>) -> State {
    State::ReadyForReview { author: name("ann"), commit: "c1".to_owned(), review }
}

fn states() -> Vec<(&'static str, State)> {
    vec![
        ("draft", State::Draft),
        ("unclaimed", State::Unclaimed),
        ("claimed", State::Claimed { holder: holder("ann", 7), from: TaskOrigin::Rejected }),
        ("ready", in_review(None)),
        ("review", in_review(Some(holder("rev", 8)))),
        ("approved", State::Approved),
        ("rejected", State::Rejected { author: Some(name("ann")) }),
        ("merged", State::Merged),
        ("failed", State::IntegrationFailed),
        ("blocked", State::Blocked),
        ("superseded", State::Superseded),
        ("abandoned", State::Abandoned),
    ]
}

fn events() -> Vec<(&'static str, Event)> {
    let commit = |commit: &str| commit.to_owned();
    vec![
        ("Finalize", Event::Finalize),
        ("Claim ann", Event::Claim(holder("ann", 9))),
        ("Claim bob", Event::Claim(holder("bob", 9))),
        ("Iterate", Event::Iterate(holder("ann", 7))),
        ("Iterate old", Event::Iterate(holder("ann", 6))),
        ("Submit", Event::Submit { holder: holder("ann", 7), commit: commit("c2") }),
        ("Submit old", Event::Submit { holder: holder("ann", 6), commit: commit("c2") }),
        ("Expire 7", Event::Expire { epoch: 7 }),
        ("Expire 8", Event::Expire { epoch: 8 }),
        ("Review rev", Event::Review(holder("rev", 9))),
        ("Review ann", Event::Review(holder("ann", 9))),
        ("Approve", Event::Approve { holder: holder("rev", 8), commit: commit("c1") }),
        ("Approve c0", Event::Approve { holder: holder("rev", 8), commit: commit("c0") }),
        ("Approve old", Event::Approve { holder: holder("rev", 7), commit: commit("c1") }),
        ("Reject", Event::Reject { holder: holder("rev", 8), commit: commit("c1") }),
        ("Merge", Event::Merge),
        ("FailIntegr.", Event::FailIntegration),
        ("Block", Event::Block(None)),
        ("Block ann", Event::Block(Some(holder("ann", 7)))),
        ("Block old", Event::Block(Some(holder("ann", 6)))),
        ("Unblock", Event::Unblock),
        ("Supersede", Event::Supersede),
        ("Abandon", Event::Abandon),
    ]
}

fn new(state: State) -> TaskMachine {
    TaskMachine::new(state, TaskCounts::default(), TaskLimits::default())
}

/// Applies an event that must be allowed; returns its effects.
#[track_caller]
fn step(task: &mut TaskMachine, event: Event) -> Vec<Effect> {
    let (next, effects) = task.clone().next(event).unwrap();
    *task = next;
    effects
}

#[track_caller]
fn refused(task: &TaskMachine, event: Event) -> TaskRefusal {
    task.clone().next(event).unwrap_err()
}

/// Two letters of the new state; `!` and the reason if the event was refused.
fn outcome(state: &State, event: &Event) -> String {
    match new(state.clone()).next(event.clone()) {
        Err(refusal) => {
            let why = match refusal {
                TaskRefusal::NotNow { .. } => "",
                TaskRefusal::NotHolder { .. } => "holder",
                TaskRefusal::OldEpoch { .. } => "epoch",
                TaskRefusal::Taken { .. } => "taken",
                TaskRefusal::OwnWork => "own",
                TaskRefusal::OtherCommit { .. } => "commit",
                TaskRefusal::Exhausted { .. } => "exhausted",
                TaskRefusal::HasFailed { .. } => "failed",
            };
            format!("!{why}")
        }
        Ok((task, _)) => states()
            .into_iter()
            .find(|(_, known)| known == task.state())
            .map_or_else(|| task.state().name().to_lowercase(), |(name, _)| name.to_owned()),
    }
}

#[test]
fn every_pair_of_state_and_event() {
    let table = pairs(&states(), &events(), outcome);
    assert_eq!(table, include_str!("pairs.txt"), "{table}");
}

#[test]
fn task_returns_to_its_origin_when_its_holder_is_gone() {
    for from in [TaskOrigin::Unclaimed, TaskOrigin::Rejected, TaskOrigin::IntegrationFailed] {
        let claimed = State::Claimed { holder: holder("ann", 7), from };
        let mut task = new(claimed);
        step(&mut task, Event::Expire { epoch: 7 });
        assert_eq!(task.state(), &State::from(from));
        let late = Event::Submit { holder: holder("ann", 7), commit: "c".into() };
        assert!(matches!(refused(&task, late), TaskRefusal::NotNow { .. }));
    }
}

#[test]
fn iterations_and_rejections_are_limited_and_two_failed_coders_exhaust_a_task() {
    let mut task = new(State::Unclaimed);
    let mut seen = step(&mut task, Event::Claim(holder("ann", 1)));
    for _ in 2..=11 {
        seen.extend(step(&mut task, Event::Iterate(holder("ann", 1))));
    }
    let given_up =
        |by: &str, limit, is_exhausted| Effect::GivenUp { by: name(by), limit, is_exhausted };
    let expected = [
        Effect::FreshWorktree,
        Effect::Near(LimitKind::Iterations),
        given_up("ann", LimitKind::Iterations, false),
    ];
    assert_eq!(seen, expected);
    assert_eq!(task.state(), &State::Unclaimed);
    let again = refused(&task, Event::Claim(holder("ann", 2)));
    assert_eq!(again, TaskRefusal::HasFailed { agent: name("ann") });

    for cycle in 1..=5 {
        let claim = step(&mut task, Event::Claim(holder("bob", 2 * cycle)));
        let kept = if cycle == 1 { Effect::FreshWorktree } else { Effect::KeepWorktree };
        assert_eq!(claim, [kept]);
        let commit = || format!("c{cycle}");
        step(&mut task, Event::Submit { holder: holder("bob", 2 * cycle), commit: commit() });
        let reviewer = || holder("rev", 2 * cycle + 1);
        step(&mut task, Event::Review(reviewer()));
        let effects = step(&mut task, Event::Reject { holder: reviewer(), commit: commit() });
        match cycle {
            3 => assert_eq!(effects, [Effect::Near(LimitKind::ReviewCycles)]),
            5 => assert_eq!(effects, [given_up("bob", LimitKind::ReviewCycles, true)]),
            _ => assert_eq!(effects, []),
        }
    }
    assert_eq!((task.counts().iteration, task.counts().review_cycles_total), (5, 5));
    let exhausted = refused(&task, Event::Claim(holder("eve", 20)));
    assert!(matches!(exhausted, TaskRefusal::Exhausted { .. }));
    step(&mut task, Event::Block(None));
    assert_eq!(task.state(), &State::Blocked);
}

#[test]
fn coder_in_a_kept_worktree_has_all_its_iterations() {
    let counts = TaskCounts { iteration: 10, coder: Some(name("ann")), ..TaskCounts::default() };
    for (by, iteration) in [("ann", 11), ("bob", 1)] {
        let mut task =
            TaskMachine::new(State::IntegrationFailed, counts.clone(), TaskLimits::default());
        assert_eq!(step(&mut task, Event::Claim(holder(by, 9))), [Effect::KeepWorktree]);
        assert_eq!(task.counts().iteration, iteration);
        let effects = step(&mut task, Event::Iterate(holder(by, 9)));
        let fails = matches!(effects[..], [Effect::GivenUp { .. }]);
        assert_eq!(fails, by == "ann");
    }
}
