//! Compares the answers that drivers and workers got with the final queues.
//!
//! | promise | refuted by |
//! |---|---|
//! | no step is lost | a stored step that is not completed, or whose hand-out has no outcome |
//! | no step is done twice | two successes of a step; a hand-out given twice, or after the success |
//! | a report counts once | two that were accepted as the first of their hand-out |
//! | two steps never change one file | a worker that has found another one's file |
//! | the orchestrator is notified once | none or two messages that a queue is done |

use crate::hosts::checker::rows;

use crate::hosts::*;

#[derive(Clone, Debug, Default)]
pub struct Step {
    pub status: String,
    /// The outcome of each hand-out, by its epoch.
    pub outcomes: BTreeMap<u64, String>,
}

#[derive(Clone, Debug, Default)]
pub struct Steps {
    pub steps: BTreeMap<String, Step>,
    /// By queue, the messages that it is done.
    pub notices: BTreeMap<String, usize>,
}

pub fn gather(host: &Host, mail: &[Value]) -> Steps {
    let mut found = Steps::default();
    for queue in rows(&host.ok("step list --json")) {
        let task = text(&queue["task_id"]);
        for row in rows(&host.ok(&format!("step list {task} --json"))) {
            let index = row["step_index"].as_u64().unwrap();
            let shown = rows(&host.ok(&format!("step show {task} {index} --json"))).remove(0);
            let runs = shown["runs"].as_array().unwrap();
            let outcome = |run: &Value| (run["epoch"].as_u64().unwrap(), text(&run["outcome"]));
            let step = Step {
                status: text(&shown["status"]),
                outcomes: runs.iter().map(outcome).collect(),
            };
            found.steps.insert(format!("{task}/{index}"), step);
        }
    }
    for envelope in mail.iter().filter(|envelope| envelope["type"] == "steps.done") {
        *found.notices.entry(text(&envelope["task_id"])).or_default() += 1;
    }
    found
}

pub fn violations(found: &Steps, notes: &[Fact], wrong: &mut Vec<String>) {
    for note in notes {
        if let Fact::Planned { task, steps } = note {
            let missing = |index: &usize| !found.steps.contains_key(&format!("{task}/{index}"));
            wrong.extend((1..=*steps).filter(missing).map(|at| format!("{task}/{at} is lost")));
            let told = found.notices.get(task).copied().unwrap_or_default();
            if told != 1 {
                wrong.push(format!("that {task} is done was told {told} times"));
            }
        }
    }
    for (name, step) in &found.steps {
        if step.status != "COMPLETED" {
            wrong.push(format!("step {name} is {}", step.status));
        }
        let count = |word: &str| step.outcomes.values().filter(|it| *it == word).count();
        if count("success") != 1 {
            wrong.push(format!("step {name} succeeded {} times", count("success")));
        }
        if count("") > 0 {
            wrong.push(format!("step {name} was handed out, and the end is unknown"));
        }
    }
    told(found, notes, wrong);
}

/// Compares the workers' answers with each other and with the queues.
fn told(found: &Steps, notes: &[Fact], wrong: &mut Vec<String>) {
    let (mut succeeded, mut first) = (BTreeMap::new(), BTreeSet::new());
    for note in notes {
        if let Fact::Reported { step, epoch, is_success, is_again, answered_at } = note {
            if !is_again && !first.insert((step, epoch)) {
                wrong.push(format!("report {epoch} of step {step} was the first twice"));
            }
            let outcome = found.steps.get(step).and_then(|step| step.outcomes.get(epoch));
            let expected = if *is_success { "success" } else { "failure" };
            if outcome.is_none_or(|outcome| outcome != expected) {
                wrong.push(format!("step {step} has {outcome:?}, and {expected} was accepted"));
            }
            if *is_success {
                succeeded.insert(step, *answered_at);
            }
        }
    }
    let mut handed = BTreeSet::new();
    for note in notes {
        match note {
            Fact::Taken { step, epoch, is_again, asked_at } => {
                if !is_again && !handed.insert((step, epoch)) {
                    wrong.push(format!("hand-out {epoch} of step {step} was given twice"));
                }
                if succeeded.get(step).is_some_and(|at| at < asked_at) {
                    wrong.push(format!("step {step} was handed out after its success"));
                }
            }
            Fact::Shared { step, file } => {
                wrong.push(format!("step {step} found {file}, which another one held"));
            }
            _ => {}
        }
    }
}
