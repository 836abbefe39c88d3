//! A team, a sprint of three roles and a step queue on one project at the same time, as docs/one-project.md has them.
//!
//! What `team`, `status` and the page say is compared with the files
//! themselves (held messages, `state.yaml`, `steps.db`) while each agent works and after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ensemble_team::board::{Board, BoardOptions, TaskStatus};
use serde_json::{Value, json};

use super::page::Step;
use super::shell::Shell;
use super::{ONE_PROJECT, read};
use crate::bed::{objects, program, to_end};
use crate::tmux_support::eventually;

const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cli/guides/agent_at_work.sh");
const AGENTS: [&str; 6] =
    ["conductor", "worker-1", "worker-2", "coder-1", "planner-1", "reviewer-1"];

/// What agents hold: the task, and in which place.
type Held = BTreeMap<String, BTreeSet<(String, String)>>;

/// The page's project, with the shell in which all of it was typed.
struct Together {
    shell: Shell,
}

impl Together {
    #[track_caller]
    fn type_steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::File { name, content } => self.shell.write(name, content),
                Step::Run(command) => {
                    let outcome = self.shell.run(command);
                    let at = command.line;
                    assert!(outcome.is_ok(), "{ONE_PROJECT}:{at}: {}", outcome.unwrap_err());
                }
                Step::Open(commands) => self.shell.open(commands),
                Step::NotRun(_) => {}
            }
        }
    }

    fn project(&self) -> PathBuf {
        self.shell.home().join("work/project")
    }

    fn let_end(&self, work: &str) {
        fs::write(self.shell.home().join("go").join(work), "").unwrap();
    }

    #[track_caller]
    fn ensemble(&self, line: &str) -> String {
        let mut command = Command::new(program());
        command
            .args(line.split_whitespace())
            .env_clear()
            .env("HOME", self.shell.home())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .current_dir(self.project());
        let ran = to_end(&mut command);
        assert_eq!(ran.code, 0, "ensemble {line}: {ran:?}");
        ran.stdout
    }

    fn team(&self) -> BTreeMap<String, Value> {
        let rows = objects(&self.ensemble("team --json")).into_iter();
        rows.map(|row| (row["agent"].as_str().unwrap().to_owned(), row)).collect()
    }

    fn states(&self) -> BTreeMap<String, String> {
        let word = |row: Value| row["state"].as_str().unwrap().to_owned();
        self.team().into_iter().map(|(agent, row)| (agent, word(row))).collect()
    }

    fn status(&self) -> Value {
        objects(&self.ensemble("status --json")).pop().unwrap()
    }

    fn on_disk(&self) -> Held {
        let mut held = Held::new();
        let mut add = |agent: &str, task: &str, place: &str| {
            held.entry(agent.to_owned()).or_default().insert((task.to_owned(), place.to_owned()));
        };
        for mailbox in fs::read_dir(self.project().join("queue/mailbox")).unwrap() {
            // A mailbox that is being made has no `cur` yet.
            let held = fs::read_dir(mailbox.unwrap().path().join("cur")).into_iter().flatten();
            for path in held.map(|message| message.unwrap().path()) {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let mut parts = name.split('@');
                let (id, holder) = (parts.next().unwrap(), parts.next().unwrap());
                // It may have moved on.
                let text = fs::read_to_string(&path).unwrap_or_default();
                let task = text.lines().find_map(|line| line.strip_prefix("task_id: "));
                add(holder, task.map_or(id, |task| task.trim_matches('"')), "message");
            }
        }
        let board = Board::find(&self.project(), BoardOptions::new("test")).unwrap();
        for task in board.read().unwrap().tasks {
            match (task.status, task.assigned_to, task.reviewing_by) {
                (TaskStatus::Claimed, Some(coder), _) => {
                    add(coder.as_str(), task.id.as_str(), "task")
                }
                (TaskStatus::ReadyForReview, _, Some(reviewer)) => {
                    add(reviewer.as_str(), task.id.as_str(), "review");
                }
                _ => {}
            }
        }
        let steps = self.project().join(".ensemble/steps.db");
        if steps.exists() {
            let steps = rusqlite::Connection::open(steps).unwrap();
            let query = "select holder, task_id from task_steps where status = 'IN_PROGRESS'";
            let mut query = steps.prepare(query).unwrap();
            let mut rows = query.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                add(&row.get::<_, String>(0).unwrap(), &row.get::<_, String>(1).unwrap(), "step");
            }
        }
        held
    }

    /// The place of each message. A notice may come, be held for a moment and be settled at any time.
    fn mail(&self) -> BTreeSet<PathBuf> {
        let below = |place: PathBuf| fs::read_dir(place).into_iter().flatten().flatten();
        let boxes = below(self.project().join("queue/mailbox")).flat_map(|it| below(it.path()));
        boxes.flat_map(|state| below(state.path())).map(|message| message.path()).collect()
    }

    /// What `team`, `status` and the page say that agents hold. The page names no places.
    fn said(&self) -> (Held, Held, Vec<String>) {
        let read = |holds: &Value| -> BTreeSet<(String, String)> {
            let holds = holds.as_array().unwrap().iter();
            let word = |of: &Value| of.as_str().unwrap().to_owned();
            holds.map(|it| (word(&it["task_id"]), word(&it["as"]))).collect()
        };
        let rows = self.team().into_iter().map(|(agent, row)| (agent, read(&row["holds"])));
        let of_team: Held = rows.filter(|(_, held)| !held.is_empty()).collect();
        let status = self.status();
        let said = status["holds"].as_object().unwrap().iter();
        let of_status: Held = said.map(|(agent, held)| (agent.clone(), read(held))).collect();
        let page = self.ensemble("log report -o -");
        let section = page.split("<h2>Held now</h2>").nth(1).map(|rest| {
            let rows = rest.split("</table>").next().unwrap().split("<tr>").skip(1);
            rows.map(|row| row.trim().to_owned()).collect::<Vec<_>>()
        });
        (of_team, of_status, section.unwrap_or_default())
    }

    /// Waits until the files say that agents hold this, and compares what is said while no message moves.
    #[track_caller]
    fn hold(&self, what: &str, expected: Value) {
        let expected: Held = serde_json::from_value(expected).unwrap();
        eventually(what, || self.on_disk() == expected);
        self.wait_for_states(what, &expected.keys().map(String::as_str).collect());
        let mut said = None;
        eventually(&format!("{what}: no message moves"), || {
            let before = self.mail();
            let sample = (self.on_disk() == expected).then(|| self.said());
            said = sample.filter(|_| self.mail() == before);
            said.is_some()
        });
        let (of_team, of_status, of_page) = said.unwrap();
        assert_eq!(of_team, expected, "{what}: team");
        assert_eq!(of_status, expected, "{what}: status");
        let row = |(agent, held): (&String, &BTreeSet<(String, String)>)| {
            let tasks: BTreeSet<&str> = held.iter().map(|(task, _)| task.as_str()).collect();
            let tasks: Vec<&str> = tasks.into_iter().collect();
            format!("<th>{agent}</th><td>{}</td></tr>", tasks.join(", "))
        };
        let rows: Vec<String> = expected.iter().map(row).collect();
        assert_eq!(of_page, rows, "{what}: the page");
    }

    /// Waits until exactly these agents are at work and all others idle, as `team` and the watcher say.
    #[track_caller]
    fn wait_for_states(&self, what: &str, working: &BTreeSet<&str>) {
        let all: BTreeMap<String, String> = AGENTS
            .iter()
            .map(|agent| {
                let state = if working.contains(agent) { "working" } else { "idle" };
                ((*agent).to_owned(), state.to_owned())
            })
            .collect();
        eventually(&format!("{what}: the states of team"), || self.states() == all);
        eventually(&format!("{what}: the states of the watcher"), || {
            let status = self.status();
            let seen = status["watcher"]["status"]["members"].as_array().unwrap().iter();
            let word = |of: &Value| of.as_str().unwrap().to_owned();
            let seen: BTreeMap<String, String> =
                seen.map(|it| (word(&it["agent"]), word(&it["state"]))).collect();
            seen == all
        });
    }

    fn merged(&self) -> Vec<String> {
        let board = Board::find(&self.project(), BoardOptions::new("test")).unwrap();
        let tasks = board.read().unwrap().tasks.into_iter();
        tasks.filter(|it| it.status == TaskStatus::Merged).map(|it| it.id.to_string()).collect()
    }

    /// What `status` says is stuck: of the blackboard, and of steps. That the goal is open is left out: no planner
    /// runs that could end it.
    fn standing(&self) -> Vec<String> {
        let status = self.status();
        let troubles = status["board"]["troubles"].as_array().unwrap().iter();
        let about = troubles.map(|trouble| trouble["about"].as_str().unwrap().to_owned());
        let steps = status["steps"]["standing"].as_array().unwrap().iter();
        about
            .filter(|about| !about.starts_with("goal "))
            .chain(steps.map(|step| format!("{} {}", step["task_id"], step["step_index"])))
            .collect()
    }
}

/// The number of the step after the one that runs this command.
#[track_caller]
fn after(steps: &[Step], start: &str) -> usize {
    let runs =
        |step: &Step| matches!(step, Step::Run(command) if command.command.starts_with(start));
    1 + steps.iter().position(runs).unwrap_or_else(|| panic!("{ONE_PROJECT} has no `{start}`"))
}

#[test]
fn a_team_a_sprint_and_steps_share_a_project_and_what_is_said_of_them_is_true() {
    let page = read(ONE_PROJECT);
    let (team, steps) = (after(&page, "ensemble team "), after(&page, "ensemble status"));
    let mut all = Together { shell: Shell::start_with(AGENT) };
    fs::create_dir(all.shell.home().join("go")).unwrap();
    all.type_steps(&page[..team]);
    all.hold("the coder works", json!({ "coder-1": [["user-api", "task"]] }));
    all.type_steps(&page[team..steps]);
    let step_of = |agent: &str| json!({ agent: [["pages", "message"], ["pages", "step"]] });
    let mut expected = step_of("worker-1");
    expected["coder-1"] = json!([["user-api", "task"]]);
    expected["conductor"] = json!([["talk", "message"]]);
    all.hold("all three work", expected);

    all.let_end("coder");
    all.let_end("talk");
    let mut expected = step_of("worker-1");
    expected["reviewer-1"] = json!([["user-api", "review"]]);
    all.hold("the reviewer works", expected);
    all.let_end("reviewer");
    all.let_end("step-1");
    all.hold("the sprint is over", step_of("worker-2"));

    all.let_end("block-2");
    all.let_end("step-2");
    eventually("the step stands", || !all.standing().is_empty());
    assert_eq!(all.standing(), ["\"pages\" 2"]);
    eventually("the task is merged", || all.merged() == ["user-api"]);
    all.hold("one step stands, and is in no hands", json!({}));

    fs::remove_file(all.shell.home().join("go/block-2")).unwrap();
    fs::remove_file(all.shell.home().join("go/step-2")).unwrap();
    all.ensemble("step unblock pages 2 --note there");
    all.hold("the step goes on", step_of("worker-2"));
    all.ensemble("pause");
    assert_eq!(all.standing(), ["PAUSE"]);
    all.ensemble("resume");
    all.let_end("step-2");
    all.hold("all is done", json!({}));
    assert_eq!(all.standing(), [""; 0]);

    all.type_steps(&page[steps..]);
    assert!(all.states().values().all(|state| state == "shutdown"), "{:?}", all.states());
    assert_eq!(all.status()["holds"], json!({}));
}
