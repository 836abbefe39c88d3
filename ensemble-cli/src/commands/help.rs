//! `ensemble help`: the first day on one screen, the commands in groups, and each command.

use clap::{Command, CommandFactory as _};

use crate::args::{AFTER_HELP, Cli};
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::output::STRONG;

/// What bare `ensemble`, `-h` and `--help` print: 24 lines of 80 columns at most.
pub(crate) const FIRST_DAY: &str = "\
A message broker for teams of coding agents whose queue is a directory

The first day:
  ensemble init                       make a queue in this project
  ensemble claude                     start Claude Code as a member of the team
  ensemble send --to NAME -m TEXT     send a message
  ensemble recv --as NAME --wait 10m  receive the next message
  ensemble settle ID --as NAME        mark its work as done
  ensemble up                         start the team of ensemble.yaml
  ensemble status                     see what needs you; `top` is the live view
  ensemble why ID                     read the story of a task or an agent
  ensemble doctor                     find what is missing on this machine

Groups, as in `ensemble help agents`:
  agents      start agents, take them in, and end them
  overview    see what happens, and what needs you
  messages    send, receive and settle
  tasks       hand out tasks, and collect reports
  decisions   ask, answer, pause and resume
  blackboard  tasks, supervisors and steps for planned work
  setup       hooks, MCP, servers, checks and this command itself

`ensemble help --all` lists every command, `ensemble COMMAND -h` explains one.
";

/// The longest line of a summary beside the name of its command, in characters.
const SUMMARY_CHARS_MAX: usize = 64;

/// A group of commands.
struct Group {
    name: &'static str,
    verbs: &'static [&'static str],
}

const GROUPS: [Group; 7] = [
    Group {
        name: "agents",
        verbs: &[
            "claude", "codex", "opencode", "gemini", "up", "down", "spawn", "join", "adopt",
            "attach", "whoami", "demo",
        ],
    },
    Group {
        name: "overview",
        verbs: &[
            "status",
            "top",
            "team",
            "inbox",
            "log",
            "why",
            "escalations",
            "usage",
            "notify",
            "tmux-status",
        ],
    },
    Group {
        name: "messages",
        verbs: &[
            "send",
            "broadcast",
            "recv",
            "settle",
            "release",
            "extend",
            "nudge",
            "mailbox",
            "pane",
            "dead",
        ],
    },
    Group {
        name: "tasks",
        verbs: &[
            "assign", "instruct", "dispatch", "report", "summary", "review", "lint", "ping", "pong",
        ],
    },
    Group {
        name: "decisions",
        verbs: &[
            "request",
            "requests",
            "plan",
            "respond",
            "pause",
            "checkpoint",
            "abort",
            "resume",
        ],
    },
    Group {
        name: "blackboard",
        verbs: &[
            "board",
            "task",
            "supervise",
            "agent",
            "goal",
            "sprint",
            "discover",
            "anomaly",
            "analyze",
            "prompt",
            "step",
        ],
    },
    Group {
        name: "setup",
        verbs: &[
            "init",
            "watch",
            "hooks",
            "hook",
            "prime",
            "mcp",
            "bridge",
            "migrate",
            "fsck",
            "doctor",
            "schema",
            "completions",
            "man",
            "help",
        ],
    },
];

/// Words of other programs for our commands.
const SYNONYMS: [(&str, &str); 16] = [
    ("ls", "inbox"),
    ("list", "inbox"),
    ("get", "recv"),
    ("receive", "recv"),
    ("ack", "recv"),
    ("done", "settle"),
    ("complete", "settle"),
    ("finish", "settle"),
    ("nack", "release"),
    ("msg", "send"),
    ("publish", "send"),
    ("start", "up"),
    ("stop", "down"),
    ("ps", "team"),
    ("retry", "dead retry"),
    ("approve", "respond"),
];

/// The command that a word of another program means.
pub(crate) fn meant_by(word: &str) -> Option<&'static str> {
    SYNONYMS.iter().find(|(known, _)| *known == word).map(|(_, meant)| *meant)
}

/// Explain a command, a group of commands, or list all
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble help messages
  ensemble help task add
  ensemble help --all")]
pub(crate) struct Arguments {
    /// A command, or a group: agents, overview, messages, tasks, decisions, blackboard, setup
    #[arg(value_name = "COMMAND|GROUP")]
    topic: Vec<String>,
    /// List all commands in their groups, the global options and the exit codes
    #[arg(long, conflicts_with = "topic")]
    all: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let mut command = Cli::command();
        command.build();
        if self.all {
            return print_all(context, &command);
        }
        let [first, ..] = &self.topic[..] else {
            return context.out.content(FIRST_DAY.as_bytes());
        };
        if let Some(group) = GROUPS.iter().find(|group| group.name == first) {
            return print_group(context, &command, group);
        }
        let mut found = &mut command;
        for word in &self.topic {
            found = found.find_subcommand_mut(word).ok_or_else(|| {
                Failure::usage(format!("there is no command or group `{word}`"))
                    .with_hint("`ensemble help --all` lists all")
            })?;
        }
        context.out.content(found.render_long_help().to_string().as_bytes())
    }
}

fn print_all(context: &Context, command: &Command) -> Outcome {
    for group in &GROUPS {
        print_group(context, command, group)?;
        context.out.line("")?;
    }
    context.out.line("Every command has --queue DIR, --as NAME and --json.")?;
    context.out.line("")?;
    context.out.line(AFTER_HELP)
}

fn print_group(context: &Context, command: &Command, group: &Group) -> Outcome {
    context.out.line(context.out.paint(STRONG, format!("{}:", group.name)))?;
    let verbs = group.verbs.iter().filter_map(|verb| command.find_subcommand(verb));
    for verb in verbs {
        let about = verb.get_about().map_or_else(String::new, ToString::to_string);
        let mut start = format!("  {:<12}", verb.get_name());
        for line in wrapped(&about) {
            context.out.line(format!("{start} {line}"))?;
            start = " ".repeat(start.len());
        }
    }
    Ok(())
}

/// A summary in lines that fit beside the names.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        match lines[last].is_empty() || lines[last].len() + word.len() < SUMMARY_CHARS_MAX {
            true if lines[last].is_empty() => lines[last].push_str(word),
            true => lines[last] = format!("{} {word}", lines[last]),
            false => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_day_fits_one_screen() {
        assert!(FIRST_DAY.lines().count() <= 24);
        assert!(FIRST_DAY.lines().all(|line| line.chars().count() <= 80));
        let groups = GROUPS.iter().all(|group| FIRST_DAY.contains(&format!("\n  {} ", group.name)));
        assert!(groups, "each group is named");
    }

    #[test]
    fn a_synonym_means_a_command_and_is_none() {
        let command = Cli::command();
        for (word, meant) in SYNONYMS {
            assert!(command.find_subcommand(word).is_none(), "{word} is a command");
            let verb = meant.split(' ').next().unwrap();
            assert!(command.find_subcommand(verb).is_some(), "{meant}");
        }
    }

    #[test]
    fn each_command_is_in_one_group() {
        let command = Cli::command();
        let all = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        for verb in all.map(Command::get_name) {
            let count = GROUPS.iter().filter(|group| group.verbs.contains(&verb)).count();
            assert_eq!(count, 1, "{verb}");
        }
        for group in &GROUPS {
            assert!(command.find_subcommand(group.name).is_none(), "{} is a command", group.name);
        }
    }
}
