//! Those who store steps and work them off, on both hosts, with a PostgreSQL server between them.
//!
//! | player | host | does |
//! |---|---|---|
//! | `a-driver`, `b-driver` | one each | stores a queue of steps for all workers, waits until it is done, and stores the next one |
//! | `w0` … `w3` | two each | takes its next step and reports it; the first attempt at some steps fails |
//!
//! A worker makes a file for each file of its step, and removes it before it reports. Both hosts use the same
//! directory for that: a file that already exists has two holders.

use super::*;

mod checked;

pub use checked::{Step, Steps, gather, violations};

pub const WORKERS: [(usize, &str); 4] = [(0, "w0"), (1, "w1"), (0, "w2"), (1, "w3")];
const STEPS: usize = 8;
/// Files of all steps, by the same names on each host.
const FILES: usize = 3;
/// The first attempt at every fifth step fails.
const FAILS_EVERY: u64 = 5;
/// The recipient of the notice that a queue is done.
pub const ORCHESTRATOR: &str = "conductor";

/// The row of a queue; `None` if the command did not answer.
fn queue(host: &Host, task: &str) -> Option<Value> {
    let ran = host.verb(&["step", "list", "--json"])?;
    let rows = ran.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    rows.into_iter().find(|row| row["task_id"] == task)
}

pub fn drive(player: &mut Player<'_>) {
    let (stage, host) = (player.stage, player.host);
    for number in 0.. {
        let task = format!("{}-{number}", host.name);
        let file = host.own().join("plan.json");
        fs::write(&file, plan(&task).to_string()).unwrap();
        let line = ["step", "add", "--as", ORCHESTRATOR, "-f", file.to_str().unwrap()];
        let Some(ran) = player.insist(&line) else { break };
        player.note(&line, &ran, Fact::Planned { task: task.clone(), steps: STEPS });
        let is_done = || queue(host, &task).is_some_and(|row| row["done"] == STEPS);
        while !is_done() && !player.has_given_up() {
            pause();
        }
        if stage.is_over() {
            break;
        }
    }
    stage.drivers.fetch_sub(1, Ordering::Relaxed);
}

fn plan(task: &str) -> Value {
    let step = |at: usize| {
        json!({
            "agent": WORKERS[at % WORKERS.len()].1,
            "goal": "count",
            "files": [format!("src/f{}", at % FILES)],
        })
    };
    json!({
        "task_id": task,
        "orchestrator": ORCHESTRATOR,
        "parallel": WORKERS.len(),
        "steps": (0..STEPS).map(step).collect::<Vec<_>>(),
    })
}

#[derive(Deserialize)]
struct Given {
    #[serde(rename = "task_id")]
    task: String,
    #[serde(rename = "step_index")]
    index: u64,
    epoch: u64,
    attempt: u64,
    #[serde(rename = "again")]
    is_again: bool,
}

impl Given {
    fn step(&self) -> String {
        format!("{}/{}", self.task, self.index)
    }

    fn fails(&self) -> bool {
        self.attempt == 1 && self.index.is_multiple_of(FAILS_EVERY)
    }

    /// The file of the step, where both hosts see it.
    fn held(&self, directory: &Path) -> PathBuf {
        directory.join(format!("f{}", (usize::try_from(self.index).unwrap() - 1) % FILES))
    }
}

pub fn work(player: &mut Player<'_>) {
    let stage = player.stage;
    let line = ["step", "next", "--as", player.name, "--wait", "1s", "--json"];
    while stage.drivers.load(Ordering::Relaxed) > 0 && !player.has_given_up() {
        let asked_at = stage.now();
        let Some(ran) = player.insist(&line) else { break };
        if ran.code == NOTHING {
            continue;
        }
        let Some(given) = ran.row::<Given>() else {
            player.note_wrong(&line, &ran);
            continue;
        };
        let (step, epoch, is_again) = (given.step(), given.epoch, given.is_again);
        player.facts.push(Fact::Taken { step: step.clone(), epoch, is_again, asked_at });
        let held = given.held(stage.files());
        if File::create_new(&held).is_err() {
            player.facts.push(Fact::Shared { step, file: held.display().to_string() });
        }
        let _ = fs::remove_file(&held);
        report(player, &given);
    }
}

fn report(player: &mut Player<'_>, given: &Given) {
    let name = player.name;
    let status = if given.fails() { "failure" } else { "success" };
    let report = json!({
        "task_id": given.task, "step_index": given.index, "agent": name, "status": status,
        "summary": "counted", "blockers": if given.fails() { vec!["the first one fails"] } else { vec![] },
    });
    let file = player.host.own().join(format!("report-{name}.json"));
    fs::write(&file, report.to_string()).unwrap();
    let (file, epoch) = (file.to_str().unwrap(), given.epoch.to_string());
    let line = ["step", "submit", "--as", name, "-f", file, "--epoch", &epoch, "--json"];
    let Some(ran) = player.insist(&line) else { return };
    let is_again = ran.row::<Value>().and_then(|row| row["already_submitted"].as_bool());
    let Some(is_again) = is_again else { return player.note_wrong(&line, &ran) };
    let accepted = Fact::Reported {
        step: given.step(),
        epoch: given.epoch,
        is_success: !given.fails(),
        is_again,
        answered_at: player.stage.now(),
    };
    player.note(&line, &ran, accepted);
}
