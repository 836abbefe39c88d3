use ensemble_core::message::Timestamp;
use ensemble_core::proto::testing::name;
use ensemble_core::requests::{Demand, GateState};

use super::*;

fn gate(state: GateState) -> Option<PlanGate> {
    let demand = Demand::new("t1", name("lead"), Timestamp::from_unix_millis(0));
    let mut gate = PlanGate::needed(&demand, &name("bob"));
    gate.state = state;
    Some(gate)
}

fn control(file: ControlFile) -> Option<ActiveControl> {
    Some(ActiveControl { file, since: Timestamp::from_unix_millis(0), reason: "lunch".to_owned() })
}

fn budget() -> Option<ParkedScope> {
    let parked = r#"{"scope": "team", "limit": {"usd": 5}, "used": {"usd": 5.5, "tokens": 100}, "since": "2026-11-25T10:00:00Z"}"#;
    Some(serde_json::from_str(parked).unwrap())
}

/// What the module's table says, row by row.
#[test]
fn the_table_holds_for_each_act() {
    let plan = |state| TaskCircumstances { plan: gate(state), ..Default::default() };
    let control = |file| TaskCircumstances { control: control(file), ..Default::default() };
    let rows = [
        (TaskCircumstances::default(), true, true),
        (plan(GateState::Open), true, true),
        (plan(GateState::Needed), true, false),
        (plan(GateState::Pending), false, false),
        (plan(GateState::Rejected), false, false),
        (plan(GateState::Expired), false, false),
        (plan(GateState::Unreadable), false, false),
        (control(ControlFile::Pause), false, true),
        (control(ControlFile::Checkpoint), false, true),
        (control(ControlFile::Abort), false, true),
        (TaskCircumstances { leaving: Some(name("bob")), ..Default::default() }, false, true),
        (TaskCircumstances { budget: budget(), ..Default::default() }, false, true),
    ];
    for (circumstances, take_up, hand_in) in rows {
        let acts = [TaskAct::TakeUp, TaskAct::Claim, TaskAct::HandIn];
        let acts = acts.map(|act| circumstances.obstacle(act).is_none());
        // A coder claims the task of a refused plan to plan again.
        let claim = take_up || circumstances.plan.as_ref().is_some_and(PlanGate::is_refused);
        assert_eq!(acts, [take_up, claim, hand_in], "{circumstances:?}");
    }
}

#[test]
fn the_end_of_the_team_is_said_first_and_the_plan_last() {
    let mut all = TaskCircumstances {
        plan: gate(GateState::Pending),
        control: control(ControlFile::Abort),
        leaving: Some(name("bob")),
        budget: budget(),
    };
    let said = |all: &TaskCircumstances| all.obstacle(TaskAct::TakeUp).unwrap().to_string();
    assert!(said(&all).starts_with("ABORT since"), "{}", said(&all));
    all.control = control(ControlFile::Pause);
    assert_eq!(said(&all), "bob is leaving: it begins nothing more");
    all.leaving = None;
    let paused = "PAUSE since 1970-01-01 00:00 UTC (lunch): no agent begins anything now";
    assert_eq!(said(&all), paused);
    all.control = None;
    let used_up = "the budget of the team is used up: $5.50, 100 tokens of $5.00 since 2026-11-25T10:00:00.000Z";
    assert_eq!(said(&all), used_up);
    all.budget = None;
    assert!(said(&all).starts_with("task t1 is gated for bob: plan "), "{}", said(&all));
}
