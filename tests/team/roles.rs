//! Dispatch and Conductor with real files and a clock that is moved by hand. The tests show what
//! they wait for, how often they look, and what they say when the time has passed.

use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::durable::Durability;
use ensemble_core::env::Clock as _;
use ensemble_core::event_log::EventLog;
use ensemble_core::message::Envelope;
use ensemble_core::sim::SimClock;
use ensemble_core::spool::{Settings, Spool};
use ensemble_reports::contract::{self, Instruction, Reading, Summary, SummaryStatus, WorkerTask};
use ensemble_team::collect::BatchLimits;
use ensemble_team::driver::{
    Batches, Conductor, Dispatcher, INSTRUCTION_TYPE, ReviewCounts, SUMMARY_PATH, SummaryOutcome,
    TaskBatch, TaskEnds,
};

use crate::queue::hand_clock;
use crate::support::{Bed, name};

struct Stage {
    bed: Bed,
    spool: Spool,
    log: EventLog,
    clock: SimClock,
}

impl Stage {
    fn new() -> Self {
        let bed = Bed::new();
        let spool = bed.spool();
        spool.add_mailbox(&name("worker-1"), &Settings::default()).unwrap();
        let logs = bed.state().join("logs");
        std::fs::create_dir_all(&logs).unwrap();
        let log = EventLog::open(&logs).unwrap();
        Self { bed, spool, log, clock: hand_clock() }
    }

    fn seconds(&self) -> u64 {
        self.clock.monotonic().as_duration().as_secs()
    }

    fn batches(&self) -> Batches {
        Batches::new(&self.bed.queue(), &self.bed.state(), Durability::Process)
    }

    fn conductor(&self) -> Conductor<'_> {
        Conductor {
            spool: &self.spool,
            queue: &self.spool,
            batches: self.batches(),
            clock: &self.clock,
            recorder: &self.log,
            actor: name("conductor").into(),
        }
    }

    fn reviews(&self) -> ReviewCounts {
        ReviewCounts::new(&self.bed.queue(), &self.bed.state(), None)
    }

    fn dispatcher(&self) -> Dispatcher<'_> {
        Dispatcher {
            spool: &self.spool,
            batches: self.batches(),
            reviews: self.reviews(),
            ends: TaskEnds::new(&self.bed.queue(), &self.bed.state(), self.reviews()),
            clock: &self.clock,
            recorder: &self.log,
            actor: name("dispatch"),
            review_dirs: Vec::new(),
        }
    }

    fn report(&self, task: &str, more: &str) {
        let report = format!("task_id: {task}\nworker_id: worker-1\n{more}\n...\n");
        self.bed.land(&format!("reports/{task}-completed.yaml"), report);
    }

    fn review(&self, file: &str, reviewer: &str, status: &str) {
        let review = format!("task_id: t-1\nreviewer: {reviewer}\nstatus: {status}\n...\n");
        self.bed.land(&format!("reports/{file}-review.yaml"), review);
    }
}

fn instruction(created_at: &str) -> Instruction {
    let tasks = vec![WorkerTask::new("t-1", "Count the lines"), WorkerTask::new("t-2", "Sum them")];
    let mut instruction = Instruction::new(tasks);
    instruction.created_at = Some(created_at.to_owned());
    instruction
}

fn batch(tasks: &[&str]) -> TaskBatch {
    TaskBatch { id: name("batch"), tasks: tasks.iter().map(|task| (*task).to_owned()).collect() }
}

#[test]
fn an_instruction_is_sent_once_and_collected_as_the_same_batch() {
    let stage = Stage::new();
    let conductor = stage.conductor();
    let sent = conductor.instruct(&instruction("monday")).unwrap();
    assert_eq!(conductor.instruct(&instruction("monday")).unwrap(), sent);
    let mut reworded = instruction("monday");
    reworded.tasks[0].instruction = "Count the words".to_owned();
    assert!(matches!(conductor.instruct(&reworded), Err(Error::Conflict { .. })));
    let delivery = stage.spool.receive(&name("dispatch"), &name("dispatch")).unwrap().unwrap();
    assert_eq!(delivery.envelope.kind.as_str(), INSTRUCTION_TYPE);
    assert_eq!(stage.bed.total("dispatch"), 1, "sent once");
    let read = contract::read_as::<Instruction>(&delivery.envelope.body, "body".as_ref());
    let Ok(Reading::Whole(read)) = read else { panic!("{read:?}") };
    assert_eq!(TaskBatch::of(&read).unwrap(), sent, "the collector sees the same batch");
    assert_ne!(TaskBatch::of(&instruction("tuesday")).unwrap().id, sent.id);
    // From here on to the summary that Conductor reads.
    let mut rests = 0;
    let told = stage.dispatcher().collect(&sent, BatchLimits::default(), &mut |longest| {
        rests += 1;
        stage.clock.advance(longest.min(Duration::from_secs(1)));
        stage.report(&format!("t-{rests}"), "status: success\nsummary: 3 of 3 (100%)");
        Ok(())
    });
    let Ok(SummaryOutcome::Now(summary)) = told else { panic!("{told:?}") };
    assert_eq!((rests, summary.completed_tasks), (2, 2));
    let mut no_rest = |_| -> ensemble_core::Result<()> { panic!("it has been told of") };
    let heard = conductor.await_summary(&sent, None, &mut |_| (), &mut no_rest).unwrap();
    assert_eq!(heard, Some(summary));
}

fn permutations<'t>(tasks: &[&'t str]) -> Vec<Vec<&'t str>> {
    if tasks.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in tasks.iter().enumerate() {
        let rest = [&tasks[..at], &tasks[at + 1..]].concat();
        all.extend(permutations(&rest).into_iter().map(|rest| [&[*first][..], &rest].concat()));
    }
    all
}

#[test]
fn a_summary_is_the_same_in_every_order_of_its_tasks_and_a_stopped_one_is_no_success() {
    for tasks in permutations(&["t-1", "t-2", "t-3", "t-4"]) {
        let stage = Stage::new();
        // What a review stopped has a report of success; the last of its reviews has not been counted yet.
        stage.report("t-1", "status: success\nsummary: 3 of 3 (100%)");
        for round in 1..=3 {
            let file = format!("reports/t-1.w-{round}-review.yaml");
            let review = format!("task_id: t-1\nreviewer: w-{round}\nstatus: needs_fix\n");
            stage.bed.land(&file, review);
        }
        stage.report("t-2", "status: failed\nreason: 0 of 3 keys (0%) are there");
        stage.report("t-3", "status: success\nsummary: 3 of 3 (100%)");
        stage.report("t-4", "status: blocked\nreason: 0 of 3 keys (0%) are there");
        let mut no_rest = |_| -> ensemble_core::Result<()> { panic!("all reports are there") };
        let told = stage.dispatcher().collect(&batch(&tasks), BatchLimits::default(), &mut no_rest);
        let Ok(SummaryOutcome::Now(summary)) = told else { panic!("{told:?}") };
        assert_eq!((summary.completed_tasks, summary.failed_tasks), (1, 3), "{tasks:?}");
        let results: Vec<_> =
            summary.task_results.iter().map(|r| (r.task_id.as_str(), r.status.as_str())).collect();
        let expected =
            [("t-1", "stopped"), ("t-2", "failed"), ("t-3", "success"), ("t-4", "blocked")];
        assert_eq!(results, expected, "{tasks:?}");
    }
}

#[test]
fn conductor_looks_every_thirty_seconds_and_gives_up_after_thirty_minutes() {
    let stage = Stage::new();
    // A message that cannot be read does not end the wait.
    stage.bed.land("mailbox/conductor/new/huge.yaml", vec![b' '; 128 * 1024]);
    let mut rests = Vec::new();
    let heard =
        stage.conductor().await_summary(&batch(&["t-1"]), None, &mut |_| (), &mut |longest| {
            rests.push(longest.as_secs());
            stage.clock.advance(longest);
            Ok(())
        });
    assert_eq!(heard.unwrap(), None);
    assert_eq!((stage.seconds(), rests.len()), (1_800, 60), "{rests:?}");
    assert!(rests.iter().all(|rest| *rest == 30), "{rests:?}");
    assert_eq!(
        stage.bed.records("role.patience_ended"),
        [serde_json::json!({"role": "conductor"})]
    );
    assert!(!stage.bed.in_queue(SUMMARY_PATH).exists(), "it notifies no agent itself");
}

#[test]
fn conductor_hears_each_escalation_of_its_batch_once() {
    let stage = Stage::new();
    let batch = batch(&["t-1", "t/2"]);
    let escalate = |file: &str, task: &str, reason: &str| {
        let text = format!("task_id: {task}\nreason: {reason}\nphase: 3\n...\n");
        stage.bed.land(&format!("reports/{file}"), text);
    };
    let odd_name = ensemble_core::driver::file_name("t/2");
    let (mut heard, mut rests) = (Vec::new(), 0);
    let told = stage.conductor().await_summary(
        &batch,
        None,
        &mut |escalation| heard.push(format!("{} {}", escalation.task_id, escalation.reason)),
        &mut |longest| {
            rests += 1;
            stage.clock.advance(longest);
            match rests {
                1 => escalate("escalation-t-1.yaml", "t-1", "unanswered"),
                2 => escalate("escalation-other.yaml", "other", "crashed"),
                3 => escalate(&odd_name, "t/2", "crashed"),
                4 => escalate("escalation-t-1.yaml", "t-1", "review_loop"),
                5 => stage.bed.land("reports/escalation-t-1.yaml", "phase: [\n"),
                6 => {
                    let mut summary = Summary::new(2);
                    summary.status = SummaryStatus::Failed;
                    stage
                        .batches()
                        .announce(&batch.id, &summary, &name("dispatch"), &stage.log)
                        .unwrap();
                }
                _ => panic!("it was told: {rests}"),
            }
            Ok(())
        },
    );
    assert_eq!(told.unwrap().unwrap().status, SummaryStatus::Failed);
    assert_eq!(heard, ["t-1 unanswered", "t/2 crashed", "t-1 review_loop"]);
}

#[test]
fn conductor_hears_of_what_is_given_up_while_it_looks_and_told_of_before_it_looks_again() {
    let stage = Stage::new();
    let batch = batch(&["t-1", "t-2"]);
    let escalate = |task: &str, reason: &str| {
        let text = format!("task_id: {task}\nreason: {reason}\n...\n");
        stage.bed.land(&format!("reports/escalation-{task}.yaml"), text);
    };
    escalate("t-2", "unanswered");
    let mut heard = Vec::new();
    let mut no_rest = |_| -> ensemble_core::Result<()> { panic!("it has been told of") };
    let told = stage.conductor().await_summary(
        &batch,
        None,
        &mut |escalation| {
            if heard.is_empty() {
                // `t-1` was handled already, and only the summary follows.
                escalate("t-1", "crashed");
                let (batches, dispatch) = (stage.batches(), name("dispatch"));
                batches.announce(&batch.id, &Summary::new(2), &dispatch, &stage.log).unwrap();
            }
            heard.push(format!("{} {}", escalation.task_id, escalation.reason));
        },
        &mut no_rest,
    );
    assert!(told.unwrap().is_some());
    assert_eq!(heard, ["t-2 unanswered", "t-1 crashed"]);
}

#[test]
fn conductor_finishes_what_a_dispatcher_had_decided_when_it_died() {
    let stage = Stage::new();
    let batch = batch(&["t-1"]);
    // The damaged summary of another batch hides none.
    std::fs::create_dir(stage.bed.state().join("batches")).unwrap();
    std::fs::write(stage.bed.state().join("batches/bad.yaml"), "no: [\n").unwrap();
    let mut summary = Summary::new(1);
    summary.errors = vec!["t-1 is missing: it waits in the mailbox of worker-1".to_owned()];
    stage.batches().announce(&batch.id, &summary, &name("dispatch"), &stage.log).unwrap();
    // The state between the decision and the rename.
    std::fs::remove_file(stage.bed.state().join("batches/batch.told")).unwrap();
    std::fs::remove_file(stage.bed.in_queue(SUMMARY_PATH)).unwrap();
    let mut no_rest = |_| -> ensemble_core::Result<()> { panic!("it does it itself") };
    let heard = stage.conductor().await_summary(&batch, None, &mut |_| (), &mut no_rest).unwrap();
    assert_eq!(heard.as_ref(), Some(&summary));
    let landed = std::fs::read_to_string(stage.bed.in_queue(SUMMARY_PATH)).unwrap();
    assert_eq!(landed, contract::write(&summary));
    assert!(stage.bed.state().join("batches/batch.told").exists());
}

#[test]
fn dispatch_waits_three_minutes_then_looks_every_thirty_seconds_and_says_what_is_missing() {
    let stage = Stage::new();
    let task = |id: &str| Envelope::new(name("worker-1"), "do it").with_task(id);
    stage.spool.publish(&task("held")).unwrap();
    stage.spool.receive(&name("worker-1"), &name("worker-1")).unwrap().unwrap();
    stage.spool.publish(&task("waits")).unwrap();
    let mut rests = Vec::new();
    let batch = batch(&["good", "bad", "held", "waits", "nowhere"]);
    let told = stage.dispatcher().collect(&batch, BatchLimits::default(), &mut |longest| {
        rests.push(longest.as_secs());
        stage.clock.advance(longest);
        // No event comes: polling finds it.
        match rests.len() {
            2 => stage.report("good", "status: success"),
            4 => stage.report("bad", "status: failure\nreason: no disk"),
            _ => {}
        }
        Ok(())
    });
    let Ok(SummaryOutcome::Now(summary)) = told else { panic!("{told:?}") };
    // Whenever a report came, patience begins again.
    assert_eq!(rests[..6], [180, 30, 180, 30, 180, 30], "{rests:?}");
    assert!(rests[6..rests.len() - 1].iter().all(|rest| *rest == 30), "{rests:?}");
    assert_eq!(stage.seconds(), 29 * 60);
    assert_eq!(stage.bed.records("role.patience_ended").len(), 3);
    assert_eq!(summary.status, SummaryStatus::Partial);
    assert_eq!((summary.completed_tasks, summary.failed_tasks), (1, 1));
    assert_eq!(summary.missing_tasks, ["held", "nowhere", "waits"]);
    for said in [
        "bad failed: no disk",
        "held is missing: worker-1 has it, without a report",
        "nowhere is missing: it is in no mailbox, and there is no report",
        "waits is missing: it waits in the mailbox of worker-1",
    ] {
        assert!(summary.errors.iter().any(|error| error == said), "{said}: {:?}", summary.errors);
    }
}

#[test]
fn a_task_counts_when_all_its_reviewers_approve_and_is_awaited_again_after_needs_fix() {
    let stage = Stage::new();
    let accept = Some("all(\"approved\")".parse().unwrap());
    let limits = BatchLimits { accept, reviewers: 2, ..BatchLimits::default() };
    let mut rests = 0;
    let told = stage.dispatcher().collect(&batch(&["t-1"]), limits, &mut |longest| {
        rests += 1;
        stage.clock.advance(longest.min(Duration::from_secs(1)));
        match rests {
            1 => stage.report("t-1", "status: success"),
            2 => {
                stage.review("t-1", "worker-2", "approved");
                // Neither its author nor another spelling is a second reviewer.
                stage.review("t-1.worker-1", "1", "approved");
                stage.review("t-1.again", "2", "approved");
            }
            3 => stage.review("t-1.worker-3", "worker-3", "needs_fix"),
            4 => stage.report("t-1", "status: success\nsummary: mended"),
            5 => stage.review("t-1", "worker-2", "approved\nround: 2"),
            6 => stage.review("t-1.worker-3", "worker-3", "approved\nround: 2"),
            _ => panic!("all have approved"),
        }
        Ok(())
    });
    let Ok(SummaryOutcome::Now(summary)) = told else { panic!("{told:?}") };
    assert_eq!((rests, summary.status), (6, SummaryStatus::Success));
    let count = ReviewCounts::new(&stage.bed.queue(), &stage.bed.state(), None).get("t-1").unwrap();
    assert_eq!(count.cycles, 1);
}

/// The shapes in which the original tools, and the contracts that they hand to their agents, write.
#[test]
fn reports_of_the_original_shapes_are_collected() {
    let shapes = [
        // A model writes the name of its task in its own case.
        ("t-7-completed.yaml", "task_id: T-7\nstatus: success\n", "success"),
        // The fields of the sibling's template; numbers, empty lists and nulls as its library dumps them.
        (
            "a-completed.yaml",
            "task_id: a\nstatus: success\nworker_id: 1\nexecuted_by: worker-1\ndelegated_from: null\n\
             summary: done\nfiles_modified: []\nfiles_created: []\nerrors: []\ntest_results: null\n\
             failure_reason: null\noptions_considered: []\ncompleted_at: 2026-02-03 10:00:00\n",
            "success",
        ),
        // Its contract for workers names the file without `-completed`.
        ("b.yaml", "task_id: b\nstatus: failed\nfailure_reason: no disk\n", "failed"),
        ("c-completed.yaml", "taskId: c\nstatus: failure\nworkerId: worker-2\n", "failed"),
        ("d-completed.yaml", "task-id: d\nStatus: BLOCKED\nfailureReason: no key\n", "blocked"),
        ("e-completed.yaml", "{\"task_id\": \"e\", \"result\": \"completed\"}\n", "success"),
        ("f-completed.yaml", "status: done\nblocked_by: []\n", "success"),
    ];
    let stage = Stage::new();
    for (file, content, _) in shapes {
        stage.bed.land(&format!("reports/{file}"), content);
    }
    stage.bed.land("reports/a.yaml", "task_id: a\nstatus: failed\n"); // beside the better name
    let tasks = ["T-7", "a", "b", "c", "d", "e", "f"];
    let all = batch(&tasks);
    let mut no_rest = |_| -> ensemble_core::Result<()> { panic!("all reports are there") };
    let told = stage.dispatcher().collect(&all, BatchLimits::default(), &mut no_rest).unwrap();
    let results = &told.summary().task_results;
    let read: Vec<_> = results.iter().map(|r| (r.task_id.as_str(), r.status.as_str())).collect();
    let expected = tasks.into_iter().zip(shapes.map(|shape| shape.2));
    assert_eq!(read, expected.collect::<Vec<_>>());
}
