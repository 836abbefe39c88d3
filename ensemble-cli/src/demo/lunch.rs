//! The demo's story: four agents get a task each, and the user goes to lunch.
//!
//! ```text
//! steady    takes its task and ends it
//! silent    is told of its task, and does nothing: nudges, then an escalation
//! asking    takes its task, and stands at a question that only a person may answer
//! crashing  takes its task and is killed: the task goes back to its mailbox
//! ```
//!
//! It runs the command as a person would: `init`, `up`, `send`, `status`, `down`. The story is made from the event log, with
//! the sentences of `why`, and ends with what `status` prints.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ensemble_app::diagnostics::say;
use ensemble_app::sentences::{Sentence, SentenceMaker, SentenceWeight, sort_causally};
use ensemble_app::text::one_line;
use ensemble_core::event_log::{Follower, Record, types};
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_core::watch::Waiter;
use serde_json::Value;

use super::stage::{io_failure, own_program, write};
use super::{Arguments, tell};
use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{FAINT, GOOD, STRONG};
use crate::printing::overview::cut;

const TASKS: [(&str, &str); 4] = [
    ("steady", "count the tests"),
    ("silent", "write the release notes"),
    ("asking", "clean up the build directory"),
    ("crashing", "find the memory leak"),
];
/// The needs that must exist before the story ends: kind, and agent.
const NEEDS: [(&str, &str); 3] =
    [("blocked", "asking"), ("escalation", "silent"), ("gone", "crashing")];
/// Times are short, so that lunch takes seconds.
const CONFIG: &str = r"durability: process
poll_interval: 1
team: {name: lunch}
ladder: {phase: 1, ceiling: 0}
providers:
  shell: {states: [{state: permission, at: bottom, lines: 3, pattern: 'May I .*\[y/n\]'}]}
agents:
";
const LINE_CHARS_MAX: usize = 70;
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

struct LunchDemo {
    dir: PathBuf,
    program: PathBuf,
}

pub(super) fn run(context: &Context, settings: &Arguments, dir: &Path) -> Outcome {
    let interrupted = super::interruption()?;
    let lunch = LunchDemo::set(dir)?;
    let told = lunch.play(context, settings, &interrupted);
    lunch.strike();
    told
}

impl LunchDemo {
    fn set(dir: &Path) -> Outcome<Self> {
        let program = own_program()?;
        write(&dir.join("worker.sh"), include_str!("lunch_worker.sh"))?;
        let agents: String = TASKS
            .iter()
            .map(|(name, _)| {
                let program = program.display();
                format!("  {name}: {{command: sh worker.sh, env: {{ENSEMBLE: '{program}'}}}}\n")
            })
            .collect();
        write(&dir.join("ensemble.yaml"), &format!("{CONFIG}{agents}"))?;
        Ok(Self { dir: dir.to_owned(), program })
    }

    fn play(&self, context: &Context, settings: &Arguments, interrupted: &AtomicBool) -> Outcome {
        let tell = |text: &str| tell(context, text);
        tell(&context.out.paint(STRONG, "four agents get a task each, and you go to lunch"))?;
        self.ensemble(&["init"])?;
        self.ensemble(&["up"])?;
        for (name, text) in TASKS {
            self.ensemble(&["send", "--to", name, "--type", "task", "--task", name, text])?;
        }
        self.follow(context, settings.timeout, interrupted)?;
        tell("")?;
        tell(&context.out.paint(STRONG, "you are back: this is `ensemble status`"))?;
        let wanted: &[&str] =
            if context.out.is_json() { &["status", "--json"] } else { &["status"] };
        context.out.content(&self.ensemble(wanted)?.stdout)?;
        if settings.attach {
            context.out.flush()?;
            self.show()?;
        }
        tell("")?;
        tell(&format!(
            "{} nothing was lost: steady finished its task, and three agents need you",
            context.out.paint(GOOD, "done:")
        ))?;
        match settings.attach {
            true => Ok(()),
            false => tell("help them yourself: `ensemble demo --attach`, and the keys of its view"),
        }
    }

    fn follow(&self, context: &Context, patience: Duration, interrupted: &AtomicBool) -> Outcome {
        let logs = self.dir.join(".ensemble/logs");
        let waiter = Waiter::new(std::slice::from_ref(&logs));
        let mut follower = Follower::from_start(&logs);
        let start = Instant::now();
        let mut seen = BTreeSet::new();
        let spool = Spool::open(&self.dir.join("queue"), SpoolOptions::default())?;
        let mut maker = SentenceMaker::default();
        loop {
            let mut new = follower.poll()?;
            sort_causally(&mut new);
            for record in new {
                seen.extend(turn(&record));
                let sentence = maker.describe(&record, Some(&spool)).filter(is_of_story);
                if let Some(sentence) = sentence {
                    let at = format!("{:>5.1} s", start.elapsed().as_secs_f64());
                    let line = cut(&sentence.text, LINE_CHARS_MAX);
                    tell(context, format!("{}  {line}", context.out.paint(FAINT, at)))?;
                }
            }
            let needs = self.needs()?;
            if seen.len() == TASKS.len()
                && NEEDS.iter().all(|(kind, who)| needs.contains(&format!("{kind} {who}")))
            {
                return Ok(());
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err(Failure::refused("interrupted: all that the demo had started is gone"));
            }
            if start.elapsed() > patience {
                let text = format!("the demo was not finished within {} s", patience.as_secs());
                return Err(Failure::new(VerbExit::Nothing, text).with_hint(format!("{needs:?}")));
            }
            waiter.wait(LOOK_INTERVAL);
        }
    }

    fn needs(&self) -> Outcome<BTreeSet<String>> {
        let told = self.ensemble(&["status", "--json"])?.stdout;
        let text = String::from_utf8_lossy(&told);
        let last: Value = text
            .lines()
            .last()
            .and_then(|line| serde_json::from_str(line).ok())
            .unwrap_or_default();
        let needs = last["needs"].as_array().cloned().unwrap_or_default();
        let word = |need: &Value| {
            let who = need["agent"].as_str().or_else(|| need["about"].as_str()).unwrap_or_default();
            format!("{} {who}", need["need"].as_str().unwrap_or_default())
        };
        Ok(needs.iter().map(word).collect())
    }

    /// Runs one of our commands in the project, as a person who is not a member of a team.
    fn ensemble(&self, arguments: &[&str]) -> Outcome<Output> {
        let failed =
            |text: String| Failure::refused(format!("`ensemble {}`: {text}", arguments[0]));
        let ran = self.command(arguments).stdin(Stdio::null()).output();
        let ran = ran.map_err(|error| failed(error.to_string()))?;
        match ran.status.success() {
            true => Ok(ran),
            false => Err(failed(one_line(String::from_utf8_lossy(&ran.stderr).trim()))),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // Its output is shown as it is.
        command.args(arguments).current_dir(&self.dir).env("COLUMNS", "80");
        for variable in
            ["ENSEMBLE_QUEUE", "ENSEMBLE_AGENT_ID", "LIZA_AGENT_ID", "TMUX", "TMUX_PANE"]
        {
            command.env_remove(variable);
        }
        command
    }

    fn show(&self) -> Outcome {
        let shown = self.command(&["top"]).status();
        shown.map(drop).map_err(|error| io_failure("start", Path::new("ensemble top"), error))
    }

    fn strike(&self) {
        if let Err(failure) = self.ensemble(&["down", "--force"]) {
            say(&format!("warning: {}", failure.text()));
        }
    }
}

/// Whether a sentence belongs to the story: how agents are notified does not.
fn is_of_story(sentence: &Sentence) -> bool {
    sentence.weight != SentenceWeight::Detail && !sentence.text.starts_with("watcher -> ")
}

fn turn(record: &Record) -> Option<String> {
    let word = |field: &str| record.data.get(field).and_then(Value::as_str).unwrap_or_default();
    let agent = match record.kind.as_str() {
        types::MESSAGE_SETTLED => record.actor.as_str(),
        types::ESCALATION if word("reason") == "unanswered" => word("worker_id"),
        types::AGENT_STATE if word("to") == "blocked" => word("agent"),
        types::LEASE_HOLDER_GONE => word("agent"),
        _ => return None,
    };
    TASKS.iter().any(|(name, _)| *name == agent).then(|| agent.to_owned())
}
