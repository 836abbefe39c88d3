//! Failed steps with a fixer: its own fix step, and then the failed step again.

use super::*;
use crate::steps::prompt::Leftovers;

over_databases![
    failed_review_is_fixed_by_a_step_of_its_own_and_reviewed_again,
    review_that_fails_too_often_stands_and_is_told,
    fix_of_a_test_may_change_the_source_that_its_error_names,
    plan_may_name_the_files_of_a_fix,
    without_a_fixer_no_prompt_contradicts_itself,
    orders_on_a_failed_step_withdraw_its_fix,
    skipped_fix_hands_the_failed_step_out_again,
    prompt_after_a_lost_lease_names_what_is_left_and_dates_the_older_error,
    many_fixes_find_room_between_neighbouring_steps,
    step_may_need_an_approved_plan,
    stuck_step_of_a_queue_without_an_orchestrator_is_told_to_the_conductor,
];

const TDD: &str = "
task_id: t
policy: tdd
orchestrator: orion
steps:
  - {agent: Tara, goal: Write a failing test, phase: red, files: [tests/l.py]}
  - {agent: Devon, goal: Make it pass, phase: green, files: [src/l.py], context: [tests/l.py]}
  - {agent: Tara, goal: Review, phase: review, context: [src/l.py], fix_by: Devon}
  - {agent: Tara, goal: Write a second test, phase: red, cycle: b, files: [tests/m.py]}
";

fn failed(handed: &ClaimedStep, summary: &str) -> Completion {
    Completion::from_json(&json!({
        "task_id": handed.key.task_id, "step_index": handed.key.step_index,
        "agent": handed.agent, "status": "failure", "summary": summary,
    }))
    .unwrap()
}

impl Bed {
    fn fail(&self, handed: &ClaimedStep, summary: &str) -> SubmittedStep {
        self.store.submit(&failed(handed, summary), &handed.agent, Some(handed.epoch)).unwrap()
    }

    fn prompt(&self, handed: &ClaimedStep) -> String {
        self.store.prompt(handed).unwrap().text
    }

    /// Has the work of the plan [`TDD`] done up to its review.
    fn take_review(&self) -> ClaimedStep {
        self.does("Tara");
        self.does("Devon");
        self.take("Tara").unwrap()
    }

    fn order(&self) -> Vec<u32> {
        self.store.steps("t").unwrap().iter().map(|step| step.key.step_index).collect()
    }

    fn does(&self, agent: &str) -> ClaimedStep {
        let step = self.take(agent).unwrap();
        self.submit(&step, "success").unwrap();
        step
    }

    pub(super) fn notices(&self) -> Vec<(String, i64)> {
        let all = "SELECT type, coalesce(step_index, 0) FROM step_notices ORDER BY number";
        self.store.read(|tx| tx.all(all, &[])).unwrap()
    }

    fn loses(&self, seconds: u64) {
        self.store.observe().unwrap();
        self.clock.advance(Duration::from_secs(seconds));
        assert_eq!(self.store.observe().unwrap().returned.len(), 1);
    }
}

fn failed_review_is_fixed_by_a_step_of_its_own_and_reviewed_again() {
    let bed = Bed::new(&[TDD]);
    let review = bed.take_review();
    let submitted = bed.fail(&review, "src/l.py:1 leaks the token");
    assert_eq!((submitted.fix_step, submitted.fix_by), (Some(5), Some(name("Devon"))));
    assert_eq!((submitted.next_attempt, submitted.paused), (Some(2), false));
    assert!(matches!(bed.why("Tara"), NoStep::Others { agent, .. } if agent == name("Devon")));

    let fix = bed.take("Devon").unwrap();
    assert_eq!((fix.key.step_index, fix.fixes, fix.attempt), (5, Some(3), 1));
    let prompt = bed.prompt(&fix);
    for part in [
        "ROLE: Devon\nGOAL: Fix what made step 3 fail: Review\n",
        "1. Tara reported that step 3 failed (attempt 1 of 3), with this error:\n```\nsrc/l.py:1 leaks",
        "- Strict TDD, green: make the smallest change that removes the error",
        "No other step works on src/l.py until then.",
        "- src/l.py: ",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert!(!prompt.contains("change nothing"), "{prompt}");
    assert!(bed.take("Tara").is_none(), "neither the review nor the next step overtakes the fix");

    bed.submit(&fix, "success").unwrap();
    let again = bed.take("Tara").unwrap();
    assert_eq!((&again.key, again.attempt), (&review.key, 2), "it is reviewed again");
    let prompt = bed.prompt(&again);
    let told = "1. The last attempt failed with this error. Since then Devon has reported step 5, which \
                fixes it. Do the step again, and check whether the error is gone (this is attempt 2 of 3):";
    assert!(prompt.contains(told) && prompt.contains("review: change nothing"), "{prompt}");
    bed.submit(&again, "success").unwrap();
    assert_eq!(bed.take("Tara").unwrap().key.step_index, 4, "the queue keeps its order");
    assert_eq!(bed.order(), [1, 2, 3, 5, 4]);
}

fn review_that_fails_too_often_stands_and_is_told() {
    let bed = Bed::new(&[TDD]);
    let mut review = bed.take_review();
    for attempt in 1..=3 {
        assert_eq!((review.key.step_index, review.attempt), (3, attempt));
        let submitted = bed.fail(&review, &format!("round {attempt}"));
        assert_eq!(submitted.paused, attempt == 3, "{submitted:?}");
        if attempt < 3 {
            assert!(bed.does("Devon").fixes == Some(3));
            review = bed.take("Tara").unwrap();
        }
    }
    assert!(matches!(bed.why("Tara"), NoStep::Paused { step_index: 3, .. }));
    let standing = bed.store.standing().unwrap();
    let [stands] = &standing[..] else { panic!("{standing:?}") };
    assert_eq!((stands.key.step_index, stands.reason.as_str()), (3, "round 3"));
    assert!(stands.stops_queue && stands.remedy == "retry" && stands.since.starts_with("1970-"));
    assert_eq!(bed.notices(), [("step.failed".to_owned(), 3)]);
    // After an order, the last failure has no fix, and no prompt says that it had one.
    bed.store.retry(&stands.key, &name("orion"), "I have repaired it").unwrap();
    assert_eq!(bed.store.standing().unwrap(), []);
    let prompt = bed.prompt(&bed.take("Tara").unwrap());
    assert!(prompt.contains("I have repaired it"), "{prompt}");
    assert!(!prompt.contains("which fixes it"), "{prompt}");
}

fn fix_of_a_test_may_change_the_source_that_its_error_names() {
    let plan = "{task_id: t, steps: [{agent: Tara, goal: test it, files: [tests/login.py], \
                 fix_by: Devon}]}";
    let bed = Bed::new(&[plan]);
    std::fs::create_dir(bed.home.path().join("src")).unwrap();
    std::fs::write(bed.home.path().join("src/login.py"), "assert False\n").unwrap();
    let error = "File \"src/login.py\", line 1: AssertionError. See /etc/passwd:1";
    bed.fail(&bed.take("Tara").unwrap(), error);
    let fix = bed.take("Devon").unwrap();
    let prompt = bed.prompt(&fix);
    assert!(prompt.contains("2. The error names: src/login.py.\n"), "{prompt}");
    assert!(prompt.contains("- src/login.py: (13 bytes"), "its content is shown: {prompt}");
    assert!(prompt.contains("No other step works on src/login.py until then."), "{prompt}");
    assert!(!prompt.contains("Change only these files"), "{prompt}");
    let other = "{task_id: o, steps: [{agent: Eve, goal: g, files: [src/login.py]}]}";
    bed.store.add(&parse(other)).unwrap();
    assert!(matches!(bed.why("Eve"), NoStep::FileHeld { .. }), "it is locked for the fix");
    // The last attempt of the fix itself ends in the usual way.
    let again = bed.fail(&fix, "I cannot");
    assert_eq!((again.fix_step, again.next_attempt), (None, Some(2)));
}

fn plan_may_name_the_files_of_a_fix() {
    let plan = "{task_id: t, steps: [{agent: Tara, goal: test it, files: [tests/a], \
                 fix_by: Devon, fix_files: [src/a, src/b]}]}";
    let bed = Bed::new(&[plan]);
    bed.fail(&bed.take("Tara").unwrap(), "src/c is wrong");
    let fix = bed.take("Devon").unwrap();
    assert!(bed.prompt(&fix).contains("- Change only these files: src/a, src/b.\n"));
    // Its parts are fixes, too, with their own files.
    bed.submit(&fix, "blocked").unwrap();
    let part = |file: &str| {
        let files = [FilePath::new(file).unwrap()];
        SplitPart::new(name("Devon"), "half").with_files(files)
    };
    bed.store.split(&fix.key, &name("orion"), &[part("src/a"), part("src/b")]).unwrap();
    assert!(bed.take("Tara").is_none());
    let half = bed.take("Devon").unwrap();
    assert!(bed.prompt(&half).contains("- Change only these files: src/a.\n"));
    bed.submit(&half, "success").unwrap();
    assert!(bed.take("Tara").is_none(), "one part is left");
    bed.does("Devon");
    assert_eq!(bed.take("Tara").unwrap().attempt, 2);
}

fn without_a_fixer_no_prompt_contradicts_itself() {
    let bed = Bed::new(&[&TDD.replace(", fix_by: Devon", "")]);
    let review = bed.take_review();
    bed.fail(&review, "src/l.py:1 leaks the token");
    let again = bed.take("Tara").unwrap();
    assert_eq!((&again.key, again.attempt), (&review.key, 2));
    let prompt = bed.prompt(&again);
    let told = "1. The last attempt failed with this error. Check whether it is still there (this is \
                attempt 2 of 3):\n```\nsrc/l.py:1 leaks the token\n```\n";
    assert!(prompt.contains(told) && prompt.contains("change nothing"), "{prompt}");
    assert!(!prompt.contains("ix it") && !prompt.contains("Remove its cause"), "{prompt}");
}

fn orders_on_a_failed_step_withdraw_its_fix() {
    type Order = fn(&Bed, &StepKey);
    let orders: [(&str, Order); 3] = [
        ("retry", |bed, key| bed.store.retry(key, &name("orion"), "").unwrap()),
        ("skip", |bed, key| bed.store.skip(key, &name("orion"), "").unwrap()),
        ("split", |bed, key| drop(bed.split(key, "Tara", &["a", "b"]).unwrap())),
    ];
    for (word, order) in orders {
        for is_held in [false, true] {
            let plan = "{task_id: t, steps: [{agent: Tara, goal: g, fix_by: Devon, \
                         fix_files: [src/a]}]}";
            let bed = Bed::new(&[plan]);
            let step = bed.take("Tara").unwrap();
            bed.fail(&step, "it fails");
            let held = is_held.then(|| bed.take("Devon").unwrap());
            order(&bed, &step.key);
            let fix = bed.store.step(&StepKey::new("t", 2)).unwrap();
            let is_withdrawn = fix.resolution.as_deref() == Some("skipped") && fix.holder.is_none();
            assert!(is_withdrawn, "{word}: {fix:?}");
            assert!(bed.take("Devon").is_none(), "{word}");
            assert_eq!(bed.take("Tara").is_some(), word != "skip");
            if let Some(held) = held {
                let error = bed.submit(&held, "success").unwrap_err().to_string();
                assert!(error.contains("it was skipped"), "{word}: {error}");
                let runs = bed.store.runs(&held.key).unwrap();
                assert_eq!(runs[0].outcome.as_deref(), Some("taken_away"), "{word}");
            }
        }
    }
}

fn skipped_fix_hands_the_failed_step_out_again() {
    let bed = Bed::new(&["{task_id: t, steps: [{agent: Tara, goal: g, fix_by: Devon}]}"]);
    bed.fail(&bed.take("Tara").unwrap(), "it fails");
    let fix = bed.take("Devon").unwrap();
    bed.submit(&fix, "blocked").unwrap();
    assert!(matches!(bed.why("Tara"), NoStep::Paused { step_index: 2, .. }));
    bed.store.skip(&fix.key, &name("orion"), "the server was down").unwrap();
    let again = bed.take("Tara").unwrap();
    let prompt = bed.prompt(&again);
    let told = "Step 2, which was to fix it, was not done (the server was down).";
    assert!(prompt.contains(told), "{prompt}");
}

fn prompt_after_a_lost_lease_names_what_is_left_and_dates_the_older_error() {
    let home = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimClock::new(Timestamp::from_unix_millis(0)));
    let leftovers = |agent: &Name| {
        let files = vec![" M src/a.rs".to_owned(), "?? src/half.rs".to_owned()];
        (agent.as_str() == "A").then(|| Leftovers { directory: "srv-a".into(), files })
    };
    let options = StepOptions {
        leftovers: Some(Arc::new(leftovers)),
        ..StepOptions::new(home.path()).with_clock(Arc::<SimClock>::clone(&clock))
    };
    let store = open_with(home.path(), options);
    let bed = Bed { home, clock, store };
    let plan = "{task_id: t, lease_seconds: 60, attempts_max: 9, steps: [{agent: A, goal: g}]}";
    bed.store.add(&parse(plan)).unwrap();

    let first = bed.take("A").unwrap();
    assert!(!bed.prompt(&first).contains("attempt failed"));
    bed.loses(61);
    let second = bed.take("A").unwrap();
    let prompt = bed.prompt(&second);
    let lost = "1. The last attempt (epoch 1, by A) ended without a report: it gave no sign of life. \
                Check first what it left half done. Changed files in srv-a (git status): \
                M src/a.rs, ?? src/half.rs.\n";
    assert!(prompt.contains(lost) && !prompt.contains("attempt failed"), "{prompt}");

    bed.fail(&second, "2 tests fail");
    let third = bed.take("A").unwrap();
    let prompt = bed.prompt(&third);
    assert!(prompt.contains("1. The last attempt failed with this error."), "{prompt}");
    assert!(!prompt.contains("without a report"), "that was the one before: {prompt}");
    bed.loses(61);
    let prompt = bed.prompt(&bed.take("A").unwrap());
    assert!(prompt.contains("1. The last attempt (epoch 3, by A) ended without"), "{prompt}");
    assert!(prompt.contains("2. An earlier attempt failed with this error."), "{prompt}");
    assert!(!prompt.contains("The last attempt failed"), "{prompt}");
}

fn many_fixes_find_room_between_neighbouring_steps() {
    let plan = "{task_id: t, attempts_max: 99, steps: [{agent: A, goal: g, fix_by: B}, \
                 {agent: A, goal: h}, {agent: A, goal: i}]}";
    let bed = Bed::new(&[plan]);
    // Neighbours as parts of a split step have them.
    let step = bed.take("A").unwrap();
    bed.submit(&step, "blocked").unwrap();
    bed.split(&step.key, "A", &["a", "b"]).unwrap();
    for _ in 0..5 {
        bed.fail(&bed.take("A").unwrap(), "no");
        assert_eq!(bed.does("B").fixes, Some(4));
    }
    assert_eq!(bed.order(), [4, 6, 7, 8, 9, 10, 5, 1, 2, 3]);
}

fn step_may_need_an_approved_plan() {
    let bed = Bed::new(&["{task_id: t, steps: [{agent: A, goal: g, plan: true}]}"]);
    assert!(bed.take("A").unwrap().needs_plan);
    let step = serde_json::to_value(bed.store.step(&StepKey::new("t", 1)).unwrap()).unwrap();
    assert_eq!(step["needs_plan"], true);
}

fn stuck_step_of_a_queue_without_an_orchestrator_is_told_to_the_conductor() {
    let plan = "{task_id: t, attempts_max: 1, steps: [{agent: A, goal: g}, {agent: A, goal: h}]}";
    let mut bed = Bed::new(&[plan]);
    bed.store.options.orchestrator = Some(name("conductor"));
    bed.fail(&bed.take("A").unwrap(), "no");
    bed.store.skip(&StepKey::new("t", 1), &name("o"), "").unwrap();
    bed.does("A");
    assert_eq!(bed.notices(), [("step.failed".to_owned(), 1)], "the end of the queue is not");
}
