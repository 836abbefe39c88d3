//! The work that is given, and whether it has ended. What an agent does with it follows from its number, as the
//! scripts say; most of it succeeds.

use ensemble_team::board::{State, TaskStatus};

use super::*;

const PACE_MAX_MS: u64 = 1_500;
/// How much of each kind is open at a time.
const OPEN_MAX: usize = 4;
const OVER_INTERVAL: Duration = Duration::from_secs(2);
/// One kind of work in each of these numbers of pieces.
const KINDS: [Kind; 4] = [Kind::Mail, Kind::Batch, Kind::Board, Kind::Steps];
const MAIL: [&str; 4] = ["worker-3", "box-1", "mcp-1", "worker-4"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Mail,
    Batch,
    Board,
    Steps,
}

#[derive(Clone, Debug)]
pub struct Work {
    pub kind: Kind,
    /// The message and its task, the task of the board, the queue of steps, or the batch.
    pub id: String,
    /// Its parts: the tasks of a batch.
    pub parts: Vec<String>,
    /// What comes before what: `(first, then)`.
    pub order: Vec<(String, String)>,
    /// It cannot be finished without an approved plan.
    pub needs_plan: bool,
}

impl Work {
    pub fn new(kind: Kind, id: &str) -> Self {
        let (parts, order) = (Vec::new(), Vec::new());
        Self { kind, id: id.to_owned(), parts, order, needs_plan: false }
    }
}

pub struct Works {
    pub all: Vec<Work>,
    open: Vec<Work>,
    random: SimRng,
    numbers: BTreeMap<Kind, u64>,
    next: Instant,
    looked: Instant,
    refused: u64,
}

impl Works {
    pub fn new(seed: u64) -> Self {
        Self {
            all: Vec::new(),
            open: Vec::new(),
            random: SimRng::new(seed),
            numbers: BTreeMap::new(),
            next: Instant::now(),
            looked: Instant::now(),
            refused: 0,
        }
    }

    pub fn offer(&mut self, stage: &Stage, is_disk_full: bool) {
        let now = Instant::now();
        if now - self.looked >= OVER_INTERVAL {
            self.looked = now;
            self.forget_what_is_over(stage);
        }
        if now < self.next || is_disk_full {
            return;
        }
        self.next = now + Duration::from_millis(200 + self.random.below(PACE_MAX_MS));
        let kind = KINDS[usize::try_from(self.random.below(KINDS.len() as u64)).unwrap()];
        if self.open.iter().filter(|work| work.kind == kind).count() >= OPEN_MAX {
            return;
        }
        let number = self.numbers.entry(kind).or_insert(0);
        *number += 1;
        let work = match kind {
            Kind::Mail => mail(stage, *number),
            Kind::Batch => batch(stage, *number),
            Kind::Board => board(stage, *number),
            Kind::Steps => steps(stage, *number),
        };
        match work {
            Some(work) => {
                self.open.push(work.clone());
                self.all.push(work);
            }
            None => self.refused += 1,
        }
    }

    fn forget_what_is_over(&mut self, stage: &Stage) {
        let state = board_state(stage);
        self.open.retain(|work| !is_over(stage, work, &state));
    }

    pub fn still_open(&self, stage: &Stage) -> Vec<String> {
        let state = board_state(stage);
        let open = self.all.iter().filter(|work| !is_over(stage, work, &state));
        open.map(|work| work.id.clone()).collect()
    }

    pub fn told(&self) -> String {
        let counts: Vec<String> =
            self.numbers.iter().map(|(kind, n)| format!("{n} of {kind:?}")).collect();
        format!("work: {}, {} refused", counts.join(", "), self.refused)
    }
}

fn file(stage: &Stage, name: &str, text: &str) -> PathBuf {
    let path = stage.own.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Runs a verb that gives work; `None` if it was refused, as by an addressee that is leaving.
fn give(stage: &Stage, arguments: &[&str]) -> Option<String> {
    let mut command = stage.command(arguments);
    let output = command.stderr(Stdio::from(stage.told("given"))).output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn mail(stage: &Stage, number: u64) -> Option<Work> {
    let id = format!("m{number}");
    let to = MAIL[usize::try_from(number).unwrap() % MAIL.len()];
    let needs_plan = to.starts_with("worker") && number.is_multiple_of(5);
    let text = if needs_plan { "count; plan: yes" } else { "count" };
    let mut arguments =
        vec!["send", "--to", to, "--type", "task", "--task", &id, "--id", &id, "-m", text];
    if needs_plan {
        arguments.push("--plan");
    }
    give(stage, &arguments)?;
    Some(Work { needs_plan, ..Work::new(Kind::Mail, &id) })
}

fn batch(stage: &Stage, number: u64) -> Option<Work> {
    let task = |part: u64| format!("i{number}-{}", 3 * number + part);
    let text = format!(
        "type: start_workers\nworker_count: 2\ntasks:\n\
         - {{id: {}, instruction: count}}\n\
         - {{id: {}, instruction: count, retry: {{attempts: 2, delay: 1}}}}\n\
         - {{id: {}, instruction: count, blocked_by: [{}]}}\n...\n",
        task(0),
        task(1),
        task(2),
        task(0)
    );
    let path = file(stage, "instruction.yaml", &text);
    let told = give(stage, &["agent", "instruct", path.to_str().unwrap(), "--json"])?;
    let told: serde_json::Value = serde_json::from_str(told.lines().next()?).ok()?;
    let mut work = Work::new(Kind::Batch, told["batch_id"].as_str()?);
    work.parts = (0..3).map(task).collect();
    work.order.push((task(0), task(2)));
    Some(work)
}

fn board(stage: &Stage, number: u64) -> Option<Work> {
    let id = format!("t{number}");
    let before = (number % 3 == 1 && number > 3).then(|| format!("t{}", number - 3));
    let mut arguments = vec!["task", "add", &id, "--description", "count", "--spec", "README"];
    arguments.extend(["--done-when", "it is there"]);
    if let Some(before) = &before {
        arguments.extend(["--after", before]);
    }
    let needs_plan = number % 6 == 2;
    if needs_plan {
        arguments.push("--needs-plan");
    }
    give(stage, &arguments)?;
    let mut work = Work { needs_plan, ..Work::new(Kind::Board, &id) };
    work.order.extend(before.map(|before| (before, id)));
    Some(work)
}

fn steps(stage: &Stage, number: u64) -> Option<Work> {
    let id = format!("s{number}");
    let first = if number % 3 == 1 { "it fails once" } else { "count" };
    let last = if number % 7 == 5 { "it is blocked" } else { "count" };
    let text = format!(
        "task_id: {id}\norchestrator: conductor\nattempts_max: 6\nlease_seconds: {}\nsteps:\n\
         - {{agent: tara, goal: {first}}}\n- {{agent: devon, goal: count}}\n\
         - {{agent: tara, goal: {last}}}\n",
        super::stage::LEASE_SECONDS
    );
    let path = file(stage, "plan.yaml", &text);
    give(stage, &["step", "add", "-f", path.to_str().unwrap()])?;
    let mut work = Work::new(Kind::Steps, &id);
    work.parts = (1..=3).map(|index| format!("{id}.{index}")).collect();
    work.order = work.parts.windows(2).map(|two| (two[0].clone(), two[1].clone())).collect();
    Some(work)
}

pub fn board_state(stage: &Stage) -> State {
    let board = Board::find(&stage.home, BoardOptions::new("test")).unwrap();
    board.read().unwrap()
}

/// The steps of a queue: number and status.
pub fn step_states(stage: &Stage, queue: &str) -> Vec<(u32, String)> {
    let path = stage.home.join(".ensemble/steps.db");
    let store = StepStore::open(&path, StepOptions::new(&stage.home)).unwrap();
    let steps = store.steps(queue).unwrap();
    steps.iter().map(|step| (step.key.step_index, step.status.as_str().to_owned())).collect()
}

/// Whether nothing more happens to it by itself.
fn is_over(stage: &Stage, work: &Work, state: &State) -> bool {
    match work.kind {
        Kind::Mail => MAIL.iter().any(|mailbox| {
            ["done", "dead"].iter().any(|place| {
                stage.in_queue(format!("mailbox/{mailbox}/{place}/{}.yaml", work.id)).exists()
            })
        }),
        Kind::Batch => stage.home.join(format!(".ensemble/batches/{}.told", work.id)).exists(),
        Kind::Board => {
            state.tasks.iter().any(|task| {
                task.id.as_str() == work.id
                    && matches!(task.status, TaskStatus::Merged | TaskStatus::Blocked)
            }) || waits_for_blocked(state, &work.id)
        }
        Kind::Steps => {
            let steps = step_states(stage, &work.id);
            let is_done = |status: &str| matches!(status, "COMPLETED" | "BLOCKED");
            steps.iter().all(|(_, status)| status == "COMPLETED")
                || steps
                    .iter()
                    .find(|(_, status)| status != "COMPLETED")
                    .is_some_and(|(_, s)| is_done(s))
        }
    }
}

/// Whether a task that comes before is blocked: a person was notified of that one.
pub fn waits_for_blocked(state: &State, id: &str) -> bool {
    let task = state.tasks.iter().find(|task| task.id.as_str() == id);
    task.is_some_and(|task| {
        task.depends_on.iter().any(|before| {
            state.tasks.iter().any(|task| task.id == *before && task.status == TaskStatus::Blocked)
                || waits_for_blocked(state, before.as_str())
        })
    })
}
