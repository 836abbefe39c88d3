//! Stories of documents, requests, logs and tables.

use ensemble_core::Result;
use ensemble_core::document::{DocumentOptions, LockedDocument};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{EventLog, LogOptions, NullRecorder, read_all};
use ensemble_core::proto::request::{Decision, DecisionRefusal, Outcome};
use ensemble_reports::contract::Summary;
use ensemble_team::driver::{Batches, SUMMARY_PATH};
use ensemble_team::steps::{
    ClaimOutcome, ClaimRequest, Completion, CompletionStatus, PlannedStep, StepKey, StepOptions,
    StepPlan, StepStore,
};
use serde_json::json;

use super::story::{ANOTHER, KILLED};

use super::*;

const PLAN: &str = "the-plan";
const TASK: &str = "task-1";
const WAIT: Duration = Duration::from_secs(5);

/// A plan is handed in and approved, another one is taken back.
pub const DECIDE: Story = Story {
    name: "decide",
    prepare: |home| {
        let bed = Bed::at(home);
        for mailbox in ["worker", "lead"] {
            bed.spool().add_mailbox(&name(mailbox), &Settings::default()).expect("a mailbox");
        }
    },
    act: |stage| {
        let spool = open(stage);
        let requests = Requests::new(&spool);
        for (id, by) in [(PLAN, "lead"), ("other", "worker")] {
            requests.ask(ask(id)).expect("asked");
            say(format_args!("asked {id}"));
            let decided = if by == "lead" {
                requests.respond(id, &name(by), true, "go")
            } else {
                requests.cancel(id, &name(by), "")
            };
            decided.expect("decided");
            say(format_args!("decided {id}"));
        }
    },
    judge: judge_requests,
    // Stuck: the directory of a request whose file is lost takes its id.
    weak: [&[], &[Kind::Lost, Kind::Torn, Kind::HalfSeen, Kind::Stuck]],
};

/// A process is killed before its decision is durable, and another process learns of the decision.
pub const DECIDE_AGAIN: Story = Story {
    name: "decide-again",
    prepare: DECIDE.prepare,
    act: |stage| {
        let spool = open(stage);
        let requests = Requests::new(&spool);
        requests.ask(ask(PLAN)).expect("asked");
        requests.ask(ask(PLAN)).expect("asked again");
        say(format_args!("asked {PLAN}"));
        let decision = Decision::new(Outcome::Approved, name("lead"), SystemClock.wall());
        say(KILLED);
        requests.propose(PLAN, &decision).expect("decided");
        say(ANOTHER);
        let again = requests.respond(PLAN, &name("lead"), true, "go");
        let is_refused =
            again.as_ref().is_err_and(|error| error.area::<DecisionRefusal>().is_some());
        assert!(is_refused, "{again:?}");
        say(format_args!("decided {PLAN}"));
    },
    judge: judge_requests,
    weak: DECIDE.weak,
};

pub const BOARD: Story = Story {
    name: "board",
    prepare: |home| {
        Bed::at(home);
        let board = Board::create(home, BoardOptions::new("earlier")).expect("a board");
        add_task(&board, "t-0").expect("a task");
    },
    act: |stage| {
        let board = board_of(stage.queue.parent().expect("a project"), stage.durability);
        for task in ["t-1", "t-2", "t-3"] {
            add_task(&board.expect_board(), task).expect("a task");
            say(format_args!("added {task}"));
        }
    },
    judge: judge_board,
    weak: [&[Kind::Untold], &[Kind::Lost, Kind::Torn, Kind::Untold]],
};

pub const DOCUMENT: Story = Story {
    name: "document",
    prepare: |home| {
        Bed::at(home);
        fs::write(home.join("counter"), counted(0)).expect("a document");
    },
    act: |stage| {
        for count in 1..=3 {
            let path = stage.queue.with_file_name("counter");
            let options =
                DocumentOptions { durability: stage.durability, ..DocumentOptions::default() };
            let document = LockedDocument::lock_with(path, WAIT, options).expect("the lock");
            document.replace(counted(count).as_bytes()).expect("replaced");
            say(format_args!("wrote {count}"));
        }
    },
    judge: |bed, told, found| {
        let path = bed.home.path().join("counter");
        let document = LockedDocument::lock(&path, WAIT)?;
        let content = String::from_utf8(document.read()?.unwrap_or_default()).unwrap_or_default();
        match (0..=3).find(|count| counted(*count) == content) {
            None => found.note(Kind::Torn, format!("{content:?}")),
            Some(count) if count < told.iter().filter(|mark| mark.starts_with("wrote")).count() => {
                found.note(Kind::Lost, format!("it still says {count}"));
            }
            Some(_) => {}
        }
        document.replace(b"after")
    },
    weak: [&[], &[Kind::Lost, Kind::Torn]],
};

/// The log is synced at neither durability.
pub const LOG: Story = Story {
    name: "log",
    prepare: |home| {
        Bed::at(home);
        let log = EventLog::open(&home.join(".ensemble/logs")).expect("a log");
        log.try_record("test.earlier", "test", json!({ "n": 0 })).expect("recorded");
    },
    act: |stage| {
        let options = LogOptions::default().with_segment_bytes_max(500);
        let log = EventLog::open_with(&stage.state.join("logs"), options).expect("a log");
        for n in 1..=6 {
            log.try_record("test.later", "test", json!({ "n": n })).expect("recorded");
            say(format_args!("recorded {n}"));
        }
    },
    judge: judge_log,
    weak: [&[Kind::Untold], &[Kind::Untold]],
};

pub const STEPS: Story = Story {
    name: "steps",
    prepare: |home| {
        Bed::at(home);
        let plan =
            vec![PlannedStep::new(name("Tara"), "one"), PlannedStep::new(name("Tara"), "two")];
        let mut plan = StepPlan::new("0-4-1", plan);
        plan.orchestrator = Some(name("orion"));
        steps_of(home, Durability::Power).expect("a store").add(&plan).expect("a plan");
    },
    act: |stage| {
        let home = stage.queue.parent().expect("a project");
        let store = steps_of(home, stage.durability).expect("a store");
        for index in 1..=2 {
            let next = store.claim_step(&ClaimRequest::of(name("Tara"))).expect("taken");
            assert!(matches!(next, ClaimOutcome::Handed(_)), "{next:?}");
            say(format_args!("took {index}"));
            store.submit(&done(index), &name("Tara"), None).expect("submitted");
            say(format_args!("submitted {index}"));
        }
    },
    judge: judge_steps,
    weak: [&[], &[Kind::Lost]],
};

/// A Dispatcher reports two batches, and the first was delivered in between.
pub const TELL: Story = Story {
    name: "tell",
    prepare: mail::prepare,
    act: |stage| {
        let batches = Batches::new(&stage.queue, &stage.state, stage.durability);
        batches
            .announce(&name("one"), &summary("one"), &name("dispatch"), &NullRecorder)
            .expect("told");
        say("told one");
    },
    judge: |bed, told, found| {
        let batches = Batches::new(&bed.queue(), &bed.state(), Durability::Process);
        let other = Summary::new(9);
        let is_acknowledged = told.contains(&"told one".to_owned());
        if is_acknowledged && !bed.in_queue(SUMMARY_PATH).exists() {
            found.note(Kind::Lost, "the summary");
        }
        let text = |bed: &Bed| fs::read_to_string(bed.in_queue(SUMMARY_PATH)).unwrap_or_default();
        let before = text(bed);
        // A whole file may have been read and delivered.
        let has_landed = before == ensemble_reports::contract::write(&summary("one"));
        let is_acknowledged = is_acknowledged || has_landed;
        let said = batches.announce(&name("one"), &other, &name("other"), &NullRecorder);
        match said {
            Ok(said) if is_acknowledged && said.summary().total_tasks != 2 => {
                found.note(Kind::Lost, "what was decided");
            }
            Ok(_) if is_acknowledged && text(bed) != before => {
                found.note(Kind::Torn, format!("{before:?}"));
            }
            Ok(_) => {}
            Err(error @ Error::Malformed { .. }) => found.note(Kind::Torn, error),
            Err(error) => return Err(error),
        }
        Ok(())
    },
    weak: [&[], &[Kind::Lost, Kind::Torn]],
};

fn open(stage: &Stage) -> Spool {
    let options = mail::of(stage.durability).with_admission(Arc::new(PlanGates));
    Spool::open(&stage.queue, options).expect("the queue")
}

fn ask(id: &str) -> NewRequest {
    let ask =
        NewRequest::new("plan_approval", name("worker"), name("lead"), "1. think\n").with_id(id);
    if id == PLAN { ask.with_task(TASK) } else { ask }
}

fn judge_requests(bed: &Bed, told: &[String], found: &mut Findings) -> Result<()> {
    let spool = bed.spool();
    let requests = Requests::new(&spool);
    for id in [PLAN, "other"] {
        let asked = told.contains(&format!("asked {id}"));
        let decided = told.contains(&format!("decided {id}"));
        let directory = bed.in_queue(&format!("requests/{id}"));
        let decision_is_there = directory.join("decision.yaml").exists();
        let entry = match requests.find(id) {
            Err(Error::Malformed { .. }) => {
                found.note(if asked { Kind::Torn } else { Kind::HalfSeen }, id);
                requests.reject(&name(id))?;
                None
            }
            other => other?,
        };
        let decision = entry.as_ref().and_then(|entry| entry.decision.as_ref());
        if asked && entry.is_none() && !found.0.iter().any(|(kind, _)| *kind == Kind::Torn) {
            found.note(Kind::Lost, id);
        }
        if decided && entry.is_some() && decision.is_none() {
            let kind = if decision_is_there { Kind::Torn } else { Kind::Lost };
            found.note(kind, format!("the decision of {id}"));
        }
        // The next start, then the process that tries again.
        requests.resume(id)?;
        if asked
            && entry.is_some()
            && told.last().is_some_and(|last| last == &format!("asked {id}"))
        {
            let lies_in =
                |state: &str| files(&bed.in_queue(&format!("mailbox/lead/{state}"))).len();
            if decision.is_none()
                && ["new", "front", "dead"].map(lies_in).iter().sum::<usize>() == 0
            {
                found.note(Kind::Lost, "the question's message");
            }
        }
        if entry.is_none() && id == PLAN {
            continue;
        }
        requests.ask(ask(id))?;
        let by = if id == PLAN { name("lead") } else { name("worker") };
        let again = if id == PLAN {
            requests.respond(id, &by, false, "no")
        } else {
            requests.cancel(id, &by, "")
        };
        if decided && decision.is_some() && again.is_ok() {
            found.note(Kind::Twice, format!("{id} was decided again"));
        }
        if requests.get(id)?.decision.is_none() {
            found.note(Kind::Stuck, format!("{id} cannot be decided: {again:?}"));
        }
    }
    Ok(())
}

/// The board of a project, as each of its writers opens it.
struct Project {
    home: std::path::PathBuf,
    options: BoardOptions,
}

impl Project {
    fn expect_board(&self) -> Board {
        Board::find(&self.home, self.options.clone()).expect("the board")
    }
}

fn board_of(home: &Path, durability: Durability) -> Project {
    let log = EventLog::deferred(&home.join(".ensemble/logs"), LogOptions::default());
    let options =
        BoardOptions::new("writer").with_durability(durability).with_recorder(Arc::new(log));
    Project { home: home.to_owned(), options }
}

fn add_task(board: &Board, task: &str) -> Result<()> {
    let mut locked = board.lock()?;
    locked.add_task(&NewTask::draft(name(task)))?;
    locked.commit().map(drop)
}

fn judge_board(bed: &Bed, told: &[String], found: &mut Findings) -> Result<()> {
    let project = board_of(bed.home.path(), Durability::Process);
    let board = Board::find(&project.home, project.options.clone())?;
    let state = match board.read() {
        Ok(state) => state,
        Err(error) => {
            found.note(Kind::Torn, error);
            return Ok(());
        }
    };
    for task in told.iter().filter_map(|mark| mark.strip_prefix("added ")) {
        if state.task(&name(task)).is_none() {
            found.note(Kind::Lost, task);
        }
    }
    if state.task(&name("t-0")).is_none() {
        found.note(Kind::Lost, "what was there before");
    }
    add_task(&board, "after")?;
    let written = bed.records("board.written");
    let last = written.last().and_then(|record| record["revision"].as_u64());
    let after = board.read()?;
    if last != Some(after.revision) || after.tasks.len() != state.tasks.len() + 1 {
        found.note(Kind::Stuck, format!("{last:?} of {}", after.revision));
    }
    // The last line of the log, or the file beside the board, was not synced.
    let told: Vec<u64> = written.iter().filter_map(|record| record["revision"].as_u64()).collect();
    if (2..=state.revision).any(|revision| !told.contains(&revision)) {
        found.note(Kind::Untold, format!("{told:?} of {}", after.revision));
    }
    Ok(())
}

fn counted(count: usize) -> String {
    format!("count: {count}\n").repeat(50)
}

fn judge_log(bed: &Bed, told: &[String], found: &mut Findings) -> Result<()> {
    let logs = bed.state().join("logs");
    let read = || -> Result<Vec<(u64, Option<u64>)>> {
        Ok(read_all(&logs)?.map(|r| (r.seq, r.data.get("n").and_then(|n| n.as_u64()))).collect())
    };
    let before = read()?;
    let numbers: Vec<u64> = before.iter().filter_map(|(_, n)| *n).collect();
    if numbers.first() != Some(&0) {
        found.note(Kind::Lost, "what was safe before");
    }
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted != numbers {
        found.note(Kind::Twice, format!("{numbers:?}"));
    }
    let recorded = told.iter().filter_map(|mark| mark.strip_prefix("recorded ")?.parse().ok());
    let missing: Vec<u64> = recorded.filter(|n| !numbers.contains(n)).collect();
    if !missing.is_empty() {
        found.note(Kind::Untold, format!("{missing:?}"));
    }
    let log = EventLog::open(&logs)?;
    let appended = log.try_record("test.after", "test", json!({ "n": 99 }))?;
    let after = read()?;
    let is_last = after.last() == Some(&(appended.seq, Some(99)));
    if !is_last || !before.iter().all(|line| after.contains(line)) {
        found.note(Kind::Stuck, format!("{after:?}"));
    }
    Ok(())
}

fn steps_of(home: &Path, durability: Durability) -> Result<StepStore> {
    let options = StepOptions::new(home).with_durability(durability);
    StepStore::open(&home.join("steps.db"), options)
}

fn done(index: u32) -> Completion {
    let mut report =
        Completion::new(StepKey::new("0-4-1", index), name("Tara"), CompletionStatus::Success);
    report.context_for_next_step = Some("go on".to_owned());
    report
}

fn judge_steps(bed: &Bed, told: &[String], found: &mut Findings) -> Result<()> {
    let store = steps_of(bed.home.path(), Durability::Process)?;
    let db = rusqlite::Connection::open(bed.home.path().join("steps.db")).expect("the database");
    let whole: String =
        db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    if whole != "ok" {
        found.note(Kind::Torn, whole);
    }
    let steps = store.steps("0-4-1")?;
    for step in &steps {
        let index = step.key.step_index;
        let runs = store.runs(&step.key)?.len();
        let is_completed = step.status.as_str() == "COMPLETED";
        if told.contains(&format!("submitted {index}")) && !is_completed {
            found.note(Kind::Lost, format!("step {index} is {}", step.status.as_str()));
        } else if told.contains(&format!("took {index}")) && runs == 0 {
            found.note(Kind::Lost, format!("who took step {index}"));
        }
        if runs > 1 {
            found.note(Kind::Twice, format!("step {index} was handed out {runs} times"));
        }
    }
    for step in steps.iter().filter(|step| step.status.as_str() != "COMPLETED") {
        if store.runs(&step.key)?.is_empty() {
            let _ = store.claim_step(&ClaimRequest::of(name("Tara")))?;
        }
        store.submit(&done(step.key.step_index), &name("Tara"), None)?;
    }
    if !store.queue("0-4-1")?.is_done() {
        found.note(Kind::Stuck, "the queue does not end");
    }
    Ok(())
}

fn summary(batch: &str) -> Summary {
    let mut summary = Summary::new(2);
    summary.batch_id = Some(batch.to_owned());
    summary
}
