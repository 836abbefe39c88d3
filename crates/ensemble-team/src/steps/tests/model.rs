//! Runs any plan, with workers that succeed, fail, block and die in any order. Each step ends as COMPLETED, or its
//! queue is stuck for a reason that was reported. A failed step is handed out again after its fix step.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;
use crate::proto::step::TddPhase;

const AGENTS: u8 = 3;
const LEASE_SECONDS: u64 = 60;
/// More actions than any plan of these sizes needs to the end.
const ACTIONS_MAX: usize = 2_000;

#[derive(Clone, Debug)]
struct Shape {
    steps: Vec<(u8, Option<u8>, u8)>,
    is_tdd: bool,
    parallel: u32,
    pauses_queue: bool,
    attempts_max: u32,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Take,
    Succeed,
    Fail,
    Block,
    Die,
    Beat,
}

fn shape() -> impl Strategy<Value = Shape> {
    let step = (0..AGENTS, proptest::option::of(0..AGENTS), 0..4_u8);
    (proptest::collection::vec(step, 1..5), any::<bool>(), 1..4_u32, any::<bool>(), 1..4_u32)
        .prop_map(|(mut steps, is_tdd, parallel, pauses_queue, attempts_max)| {
            steps.sort_by_key(|step| step.2);
            steps[0].2 = 0;
            Shape { steps, is_tdd, parallel, pauses_queue, attempts_max }
        })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => Just(Act::Take),
        4 => Just(Act::Succeed),
        4 => Just(Act::Fail),
        1 => Just(Act::Block),
        1 => Just(Act::Die),
        1 => Just(Act::Beat),
    ]
}

fn agent(number: u8) -> Name {
    name(&format!("w{number}"))
}

fn plan(shape: &Shape) -> StepPlan {
    let step = |&(by, fixer, rank): &(u8, Option<u8>, u8)| {
        let file = FilePath::new(&format!("f{by}")).unwrap();
        let mut step = PlannedStep::new(agent(by), "g").with_files([file]);
        step.fix_by = fixer.map(agent);
        step.phase = shape.is_tdd.then_some(TddPhase::ALL[usize::from(rank)]);
        step
    };
    let mut plan = StepPlan::new("t", shape.steps.iter().map(step).collect());
    plan.orchestrator = Some(name("orion"));
    plan.policy = if shape.is_tdd { Policy::Tdd } else { Policy::None };
    plan.parallel = shape.parallel;
    plan.blocked_pauses = if shape.pauses_queue { PauseScope::Queue } else { PauseScope::Step };
    plan.attempts_max = shape.attempts_max;
    plan.lease_seconds = LEASE_SECONDS;
    plan
}

/// A queue, and what its workers hold.
struct Game {
    bed: Bed,
    shape: Shape,
    held: Vec<ClaimedStep>,
    /// Failed steps whose fix steps are done: they have to come again.
    due: Vec<u32>,
}

impl Game {
    fn new(shape: Shape) -> Self {
        let bed = Bed::new(&[]);
        bed.store.add(&plan(&shape)).unwrap();
        Self { bed, shape, held: Vec::new(), due: Vec::new() }
    }

    fn steps(&self) -> Vec<StepView> {
        self.bed.store.steps("t").unwrap()
    }

    fn play(&mut self, by: u8, act: Act) -> Result<(), TestCaseError> {
        let held = self.held.iter().position(|step| step.agent == agent(by));
        match (act, held) {
            (Act::Take, None) | (_, None) => self.take(by)?,
            (Act::Take | Act::Beat, Some(at)) => {
                let step = &self.held[at];
                self.bed.store.beat(&step.key, &step.agent, Some(step.epoch)).unwrap();
            }
            (Act::Die, Some(at)) => self.die(at)?,
            (Act::Succeed, Some(at)) => self.report(at, "success")?,
            (Act::Fail, Some(at)) => self.report(at, "failure")?,
            (Act::Block, Some(at)) => self.report(at, "blocked")?,
        }
        self.check()
    }

    fn take(&mut self, by: u8) -> Result<(), TestCaseError> {
        let Some(step) = self.bed.take(agent(by).as_str()) else { return Ok(()) };
        let view = self.bed.store.step(&step.key).unwrap();
        prop_assert_eq!(&view.agent, &agent(by), "a step belongs to its agent");
        let fixes = self.steps().into_iter().filter(|fix| fix.fixes == Some(step.key.step_index));
        prop_assert!(fixes.clone().all(|fix| fix.status == "COMPLETED"), "its fix is not done");
        let prompt = self.bed.store.prompt(&step).unwrap().text;
        let changes_nothing = prompt.contains("change nothing");
        prop_assert!(!(changes_nothing && prompt.contains("Remove its cause")), "{}", prompt);
        prop_assert!(!(changes_nothing && step.fixes.is_some()), "{}", prompt);
        self.due.retain(|due| *due != step.key.step_index);
        self.held.push(step);
        Ok(())
    }

    fn die(&mut self, at: usize) -> Result<(), TestCaseError> {
        let dead = self.held.remove(at);
        // Its last beat may have been some time ago: then its lease ends before the others have beaten again.
        let mut returned = self.bed.store.observe().unwrap().returned;
        self.bed.clock.advance(Duration::from_secs(LEASE_SECONDS / 2));
        for step in &self.held {
            self.bed.store.beat(&step.key, &step.agent, Some(step.epoch)).unwrap();
        }
        returned.extend(self.bed.store.observe().unwrap().returned);
        self.bed.clock.advance(Duration::from_secs(LEASE_SECONDS / 2 + 1));
        returned.extend(self.bed.store.observe().unwrap().returned);
        prop_assert_eq!(returned, [dead.key]);
        Ok(())
    }

    fn report(&mut self, at: usize, status: &str) -> Result<(), TestCaseError> {
        let step = self.held.remove(at);
        let before = self.bed.store.step(&step.key).unwrap();
        let submitted = self.bed.submit(&step, status).unwrap();
        let is_left = step.attempt < self.shape.attempts_max;
        let has_fix = status == "failure" && before.fix_by.is_some() && is_left;
        prop_assert_eq!(submitted.fix_step.is_some(), has_fix);
        if let Some(index) = submitted.fix_step {
            let fix = self.bed.store.step(&StepKey::new("t", index)).unwrap();
            prop_assert_eq!(fix.fixes, Some(step.key.step_index));
            prop_assert_eq!(Some(fix.agent), before.fix_by);
        }
        if let (Some(failed), "success") = (step.fixes, status) {
            self.due.push(failed);
        }
        Ok(())
    }

    /// An order of the orchestrator for any step; refused ones change nothing.
    fn order(&mut self, number: u8, which: u8) -> Result<(), TestCaseError> {
        let steps = self.steps();
        let key = &steps[usize::from(number) % steps.len()].key;
        let orion = name("orion");
        let _ = match which % 3 {
            0 => self.bed.store.retry(key, &orion, ""),
            1 => self.bed.store.unblock(key, &orion, ""),
            _ => self.bed.store.skip(key, &orion, ""),
        };
        // Workers learn by a refusal that they have lost a step.
        let still = |step: &ClaimedStep| {
            let now = self.bed.store.step(&step.key).unwrap();
            now.holder.is_some() && now.epoch == step.epoch
        };
        self.held.retain(still);
        self.due.clear();
        self.check()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let steps = self.steps();
        for (at, step) in steps.iter().enumerate() {
            let index = step.key.step_index;
            let is_open = |fix: &&StepView| fix.fixes == Some(index) && fix.status != "COMPLETED";
            let has_open_fix = steps.iter().any(|fix| is_open(&fix));
            prop_assert_eq!(step.waits_for_fix, has_open_fix, "step {}", index);
            prop_assert!(!step.waits_for_fix || step.status == "FAILED", "step {}", index);
            if let Some(failed) = step.fixes {
                let before = &steps[at - 1];
                let follows = before.key.step_index == failed || before.fixes == Some(failed);
                prop_assert!(follows, "fix {} stands behind {:?}", index, before.key);
            }
        }
        let held: Vec<_> = self.held.iter().map(|step| &step.key).collect();
        let stored = steps.iter().filter(|step| step.holder.is_some()).count();
        prop_assert_eq!(stored, held.len(), "{:?}", held);
        Ok(())
    }

    /// Whether a worker holds a step or can get one.
    fn goes_on(&mut self) -> Result<bool, TestCaseError> {
        for by in 0..AGENTS {
            if !self.held.iter().any(|step| step.agent == agent(by)) {
                self.take(by)?;
            }
        }
        Ok(!self.held.is_empty())
    }

    fn check_end(&self) -> Result<(), TestCaseError> {
        let (steps, standing) = (self.steps(), self.bed.store.standing().unwrap());
        let is_done = steps.iter().all(|step| step.status == "COMPLETED");
        prop_assert!(is_done || !standing.is_empty(), "it ended in silence: {:?}", steps);
        prop_assert_eq!(is_done, self.bed.store.queue("t").unwrap().is_done());
        prop_assert!(self.due.is_empty() || !is_done, "{:?} did not come again", self.due);
        let told = self.bed.notices();
        for stands in &standing {
            prop_assert!(!stands.reason.trim().is_empty(), "{:?}", stands);
            let index = i64::from(stands.key.step_index);
            prop_assert!(told.iter().any(|(_, step)| *step == index), "{:?}: {:?}", stands, told);
        }
        if !self.shape.pauses_queue {
            // Only what waits for a stuck step is left: the failed step that it fixes, or a later phase.
            let left = steps.iter().filter(|step| step.status == "PENDING" || step.fix_due);
            for step in left {
                let is_waiting = step.waits_for_fix || self.shape.is_tdd;
                prop_assert!(is_waiting, "it can be taken: {:?}", step);
            }
        }
        Ok(())
    }
}

/// Plays these actions again and again until no worker can continue.
fn play_to_the_end(game: &mut Game, acts: &[(u8, Act)]) -> Result<(), TestCaseError> {
    let mut actions = 0;
    while game.goes_on()? {
        for (by, act) in acts.iter().chain([&(0, Act::Fail), &(1, Act::Fail), &(2, Act::Fail)]) {
            game.play(*by, *act)?;
            actions += 1;
        }
        prop_assert!(actions < ACTIONS_MAX, "it has no end: {:?}", game.steps());
    }
    game.check_end()
}

over_databases![
    each_step_is_completed_or_its_queue_stands_with_a_reason,
    orders_at_any_time_leave_no_step_that_waits_for_nothing,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: fewer(64), ..ProptestConfig::default() })]

    fn each_step_is_completed_or_its_queue_stands_with_a_reason(
        shape in shape(),
        acts in proptest::collection::vec((0..AGENTS, act()), 1..40),
    ) {
        play_to_the_end(&mut Game::new(shape), &acts)?;
    }

    fn orders_at_any_time_leave_no_step_that_waits_for_nothing(
        shape in shape(),
        acts in proptest::collection::vec((0..AGENTS, act(), any::<u8>(), any::<u8>()), 1..40),
    ) {
        let mut game = Game::new(shape);
        for (by, act, number, which) in acts {
            game.play(by, act)?;
            if which % 4 == 0 {
                game.order(number, which / 4)?;
            }
        }
        play_to_the_end(&mut game, &[(0, Act::Succeed), (1, Act::Succeed), (2, Act::Succeed)])?;
    }
}
