use std::collections::BTreeSet;

use super::*;
use ensemble_core::proto::testing::{drain, pairs};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn holder(by: &str, epoch: u64) -> Holder {
    Holder { by: name(by), epoch }
}

fn in_review(review: Option<Holder>) -> State {
    State::ReadyForReview { author: name("ann"), commit: "c1".to_owned(), review }
}

fn states() -> Vec<(&'static str, State)> {
    vec![
        ("draft", State::Draft),
        ("unclaimed", State::Unclaimed),
        ("claimed", State::Claimed { holder: holder("ann", 7), from: Origin::Rejected }),
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
        ("GiveUp", Event::GiveUp(holder("ann", 7))),
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

/// Two letters of the new state; `!` and the reason if the event was refused.
fn outcome(state: &State, event: &Event) -> String {
    let mut task = Task::new(state.clone(), Counts::default(), Limits::default());
    task.handle(Monotonic::ZERO, event.clone());
    let effects = drain(&mut task);
    let refused = effects.iter().find_map(|effect| match effect {
        Effect::Refused(refusal) => Some(match refusal {
            Refusal::NotNow { .. } => "",
            Refusal::NotHolder { .. } => "holder",
            Refusal::OldEpoch { .. } => "epoch",
            Refusal::Taken { .. } => "taken",
            Refusal::OwnWork => "own",
            Refusal::OtherCommit { .. } => "commit",
            Refusal::Exhausted { .. } => "exhausted",
            Refusal::HasFailed { .. } => "failed",
        }),
        _ => None,
    });
    match refused {
        Some(why) => {
            assert_eq!(task.state(), state, "a refused event changes nothing");
            assert_eq!(task.counts(), &Counts::default());
            format!("!{why}")
        }
        None => states()
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

/// Every step that the seed's siblings list, and no other, for every event.
#[test]
fn only_steps_of_the_table_are_possible() {
    let allowed = [
        ("DRAFT", "UNCLAIMED"),
        ("UNCLAIMED", "CLAIMED"),
        ("UNCLAIMED", "BLOCKED"),
        ("CLAIMED", "READY_FOR_REVIEW"),
        ("CLAIMED", "BLOCKED"),
        ("CLAIMED", "REJECTED"),
        ("READY_FOR_REVIEW", "APPROVED"),
        ("READY_FOR_REVIEW", "REJECTED"),
        ("APPROVED", "MERGED"),
        ("APPROVED", "INTEGRATION_FAILED"),
        ("REJECTED", "CLAIMED"),
        ("REJECTED", "BLOCKED"),
        ("INTEGRATION_FAILED", "CLAIMED"),
        ("INTEGRATION_FAILED", "BLOCKED"),
        ("BLOCKED", "UNCLAIMED"),
        ("BLOCKED", "SUPERSEDED"),
        ("BLOCKED", "ABANDONED"),
    ];
    let mut taken = BTreeSet::new();
    for (_, state) in states() {
        for (_, event) in events() {
            let mut task = Task::new(state.clone(), Counts::default(), Limits::default());
            task.handle(Monotonic::ZERO, event);
            if task.state().name() != state.name() {
                taken.insert((state.name(), task.state().name()));
            }
        }
    }
    assert_eq!(taken, allowed.into_iter().collect());
}

#[test]
fn task_returns_to_its_origin_when_its_holder_is_gone() {
    for from in [Origin::Unclaimed, Origin::Rejected, Origin::IntegrationFailed] {
        let claimed = State::Claimed { holder: holder("ann", 7), from };
        let mut task = Task::new(claimed, Counts::default(), Limits::default());
        task.handle(Monotonic::ZERO, Event::Expire { epoch: 7 });
        assert_eq!(task.state(), &State::from(from));
        task.handle(
            Monotonic::ZERO,
            Event::Submit { holder: holder("ann", 7), commit: "c".into() },
        );
        assert!(matches!(drain(&mut task)[..], [Effect::Refused(_)]));
    }
}

#[test]
fn iterations_and_rejections_are_limited_and_two_failed_coders_exhaust_a_task() {
    let mut task = Task::new(State::Unclaimed, Counts::default(), Limits::default());
    let at = Monotonic::ZERO;
    task.handle(at, Event::Claim(holder("ann", 1)));
    let mut seen = drain(&mut task);
    for _ in 2..=11 {
        task.handle(at, Event::Iterate(holder("ann", 1)));
        seen.extend(drain(&mut task));
    }
    let given_up =
        |by: &str, limit, is_exhausted| Effect::GivenUp { by: name(by), limit, is_exhausted };
    let iterations = Some(Limit::Iterations);
    let expected = [
        Effect::FreshWorktree,
        Effect::Near(Limit::Iterations),
        given_up("ann", iterations, false),
    ];
    assert_eq!(seen, expected);
    assert_eq!(task.state(), &State::Unclaimed);
    task.handle(at, Event::Claim(holder("ann", 2)));
    assert_eq!(drain(&mut task), [Effect::Refused(Refusal::HasFailed { agent: name("ann") })]);

    for cycle in 1..=5 {
        task.handle(at, Event::Claim(holder("bob", 2 * cycle)));
        let claim = drain(&mut task);
        let kept = if cycle == 1 { Effect::FreshWorktree } else { Effect::KeepWorktree };
        assert_eq!(claim, [kept]);
        let commit = || format!("c{cycle}");
        task.handle(at, Event::Submit { holder: holder("bob", 2 * cycle), commit: commit() });
        task.handle(at, Event::Review(holder("rev", 2 * cycle + 1)));
        task.handle(at, Event::Reject { holder: holder("rev", 2 * cycle + 1), commit: commit() });
        let effects = drain(&mut task);
        match cycle {
            3 => assert_eq!(effects, [Effect::Near(Limit::ReviewCycles)]),
            5 => assert_eq!(effects, [given_up("bob", Some(Limit::ReviewCycles), true)]),
            _ => assert_eq!(effects, []),
        }
    }
    assert_eq!((task.counts().iteration, task.counts().review_cycles_total), (5, 5));
    task.handle(at, Event::Claim(holder("eve", 20)));
    assert!(matches!(drain(&mut task)[..], [Effect::Refused(Refusal::Exhausted { .. })]));
    task.handle(at, Event::Block(None));
    assert_eq!(task.state(), &State::Blocked);
}

#[test]
fn coder_in_a_kept_worktree_has_all_its_iterations() {
    let counts = Counts { iteration: 10, coder: Some(name("ann")), ..Counts::default() };
    for (by, iteration) in [("ann", 11), ("bob", 1)] {
        let mut task = Task::new(State::IntegrationFailed, counts.clone(), Limits::default());
        task.handle(Monotonic::ZERO, Event::Claim(holder(by, 9)));
        assert_eq!(drain(&mut task), [Effect::KeepWorktree]);
        assert_eq!(task.counts().iteration, iteration);
        task.handle(Monotonic::ZERO, Event::Iterate(holder(by, 9)));
        let fails = matches!(drain(&mut task)[..], [Effect::GivenUp { .. }]);
        assert_eq!(fails, by == "ann");
    }
}
