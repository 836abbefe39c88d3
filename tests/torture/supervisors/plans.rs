//! Supervised coders whose tasks demand a plan: real supervisors, and agents that read their prompts.

use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::requests::{RequestEntry, Requests};
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_team::board::{Board, BoardOptions};

use super::*;

const AGENT: &str = include_str!("planner_agent.sh");

/// A project whose reviewer of plans is `lead`.
struct Bed {
    home: tempfile::TempDir,
    supervisors: Vec<Child>,
}

impl Bed {
    fn new(lease_seconds: u64) -> Self {
        let bed = Self { home: tempfile::tempdir().unwrap(), supervisors: Vec::new() };
        let home = bed.home();
        git(home, &["init", "-q", "-b", "main"]);
        git(home, &["commit", "-q", "--allow-empty", "-m", "one"]);
        let config = "durability: process\nidentity: {outsiders: allow}\n";
        std::fs::write(home.join("ensemble.yaml"), config).unwrap();
        std::fs::write(home.join("agent.sh"), AGENT).unwrap();
        bed.ok(&["init"]);
        bed.ok(&["mailbox", "add", "lead"]);
        bed.ok(&["board", "init"]);
        let board = home.join(".ensemble/state.yaml");
        let text = std::fs::read_to_string(&board).unwrap();
        let lease = format!("lease_duration: {lease_seconds}");
        std::fs::write(&board, text.replace("lease_duration: 300", &lease)).unwrap();
        bed
    }

    fn home(&self) -> &Path {
        self.home.path()
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = program(self.home());
        command.args(line);
        command
    }

    #[track_caller]
    fn ok(&self, line: &[&str]) {
        let output = self.command(line).output().unwrap();
        assert!(output.status.success(), "{line:?}: {output:?}");
    }

    fn add_task(&self) {
        let line = "task add t1 -d work --spec s.md --done-when works --needs-plan --as lead";
        self.ok(&line.split(' ').collect::<Vec<_>>());
    }

    /// Starts a supervisor; its agents wait for their reviews with these words.
    fn supervise(&mut self, role: &str, id: &str, wait: &str) {
        let line = "--poll 200ms --restart-delay 100ms --hand-over-delay 100ms -- sh";
        let agent = self.home().join("agent.sh");
        let mut command = self.command(&["agent", "supervise", "--role", role, "--id", id]);
        command.args(line.split(' ')).arg(agent).env("WAIT", wait);
        let told = std::fs::File::create(self.home().join(format!("told-{id}"))).unwrap();
        command.stdout(Stdio::null()).stderr(told);
        self.supervisors.push(command.spawn().unwrap());
    }

    fn state(&self) -> State {
        Board::find(self.home(), BoardOptions::new("test")).unwrap().read().unwrap()
    }

    fn task(&self) -> BoardTask {
        self.state().tasks[0].clone()
    }

    /// The plans that were submitted, the oldest first.
    fn plans(&self) -> Vec<RequestEntry> {
        let spool = Spool::open(&self.home().join("queue"), SpoolOptions::default()).unwrap();
        let (all, _) = Requests::new(&spool).list().unwrap();
        all.into_iter().filter(|entry| entry.request.task_id.is_some()).collect()
    }

    /// Waits for the plan of this round, which waits for its review; its request.
    #[track_caller]
    fn plan(&self, round: u32) -> Name {
        let mut found = None;
        self.wait(&format!("plan {round}"), || {
            found = self.plans().into_iter().find(|it| it.request.round == Some(round));
            found.as_ref().is_some_and(|it| it.decision.is_none())
        });
        found.unwrap().request.request_id
    }

    fn review(&self, plan: &Name, answer: &str, feedback: &str) {
        let line =
            ["request", "answer", plan.as_str(), answer, "--feedback", feedback, "--as", "lead"];
        self.ok(&line);
    }

    #[track_caller]
    fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "not {what}: {}", self.told());
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    #[track_caller]
    fn wait_for(&self, status: TaskStatus) {
        self.wait(&format!("{status:?}"), || {
            self.state().tasks.first().is_some_and(|task| task.status == status)
        });
    }

    fn told(&self) -> String {
        let files = std::fs::read_dir(self.home()).unwrap().flatten().map(|file| file.path());
        let told = files.filter(|path| path.to_string_lossy().contains("/told-"));
        told.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
    }

    fn prompts(&self) -> Vec<String> {
        let directory = self.home().join("prompts");
        let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
        files.sort();
        files.into_iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    fn count(&self, kind: &str) -> usize {
        let records = read_all(&self.home().join(".ensemble/logs")).unwrap();
        records.filter(|record| record.kind.matches(kind)).count()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for supervisor in &mut self.supervisors {
            signal(supervisor.id(), Signal::TERM);
            let _ = supervisor.wait();
        }
        for pid in running(self.home()) {
            signal(pid, Signal::KILL);
        }
    }
}

#[test]
fn a_coder_plans_is_rejected_plans_again_is_approved_and_goes_on() {
    let mut bed = Bed::new(300);
    bed.add_task();
    bed.supervise("coder", "coder-1", "");
    let first = bed.plan(1);
    bed.wait("the supervisor waits", || {
        bed.told().contains(&format!("plan {first} of `t1` waits for lead"))
    });
    let claimed = bed.task();
    assert_eq!((claimed.status, bed.count(types::SUPERVISE_SPAWNED)), (TaskStatus::Claimed, 1));
    bed.review(&first, "--reject", "name the files");
    let second = bed.plan(2);
    bed.review(&second, "--approve", "go");
    bed.wait_for(TaskStatus::ReadyForReview);
    let submitted = bed.task();
    assert_eq!(submitted.lease_epoch, claimed.lease_epoch, "one claim from the plan to the end");
    let prompts = bed.prompts();
    assert_eq!(prompts.len(), 3, "{prompts:?}");
    let submit = "`ensemble request plan -f - --to lead --task t1`";
    assert!(prompts[0].contains(submit), "{}", prompts[0]);
    assert!(!prompts[0].contains("ensemble task submit"), "{}", prompts[0]);
    assert!(prompts[1].contains(submit), "{}", prompts[1]);
    for part in ["name the files", "plan number 0", "has rejected your plan"] {
        assert!(prompts[1].contains(part), "{part}: {}", prompts[1]);
    }
    for part in ["has approved your plan", "plan number 1", "`ensemble task submit t1`"] {
        assert!(prompts[2].contains(part), "{part}: {}", prompts[2]);
    }
    assert!(bed.state().anomalies.is_empty(), "{:?}", bed.state().anomalies);
}

#[test]
fn a_task_whose_plans_are_rejected_again_and_again_is_blocked_with_the_feedback() {
    let mut bed = Bed::new(300);
    bed.add_task();
    bed.supervise("coder", "coder-1", "");
    for round in 1..=3 {
        let plan = bed.plan(round);
        bed.review(&plan, "--reject", &format!("no, and {round}"));
    }
    bed.wait_for(TaskStatus::Blocked);
    let reason = bed.task().blocked_reason.unwrap();
    assert!(reason.contains("3 plans of `coder-1` were not approved by lead"), "{reason}");
    assert!(reason.ends_with("no, and 3"), "{reason}");
    assert_eq!((bed.plans().len(), bed.prompts().len()), (3, 3));
}

#[test]
#[ignore = "long"]
fn an_agent_that_waits_for_its_review_keeps_its_lease_and_goes_on() {
    let lease = 4;
    let mut bed = Bed::new(lease);
    bed.add_task();
    bed.supervise("coder", "coder-1", "--wait 10m");
    let plan = bed.plan(1);
    let asked = bed.task();
    let begun = Instant::now();
    // The agent pauses for longer than an observer gives a silent one.
    let silence = Duration::from_secs(4 * lease);
    bed.wait("three leases later", || {
        assert_eq!(bed.task().lease_epoch, asked.lease_epoch, "{}", bed.told());
        begun.elapsed() > silence
    });
    bed.review(&plan, "--approve", "");
    bed.wait_for(TaskStatus::ReadyForReview);
    assert_eq!(bed.task().lease_epoch, asked.lease_epoch);
    assert_eq!(bed.prompts().len(), 1);
}

#[test]
fn a_planner_that_demands_a_plan_is_woken_to_review_it() {
    let mut bed = Bed::new(300);
    bed.supervise("planner", "planner-1", "");
    bed.wait("planned", || !bed.state().tasks.is_empty());
    bed.supervise("coder", "coder-1", "");
    bed.wait_for(TaskStatus::ReadyForReview);
    let plans = bed.plans();
    assert_eq!((plans.len(), plans[0].state()), (1, "approved"));
    assert_eq!(plans[0].request.to.as_str(), "planner-1");
    let last = bed.prompts().pop().unwrap();
    assert!(last.contains("has approved your plan") && last.contains("tests first"), "{last}");
}
