//! `ensemble help`: the first day on one screen, the commands in groups, and each command.

use clap::Command;

use super::former::{former, meant_by};
use super::topics::{TOPICS, Topic};
use super::verbs::{GROUPS, Group};
use crate::args::{AFTER_HELP, program};
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::output::STRONG;

/// What bare `ensemble`, `-h` and `--help` print: 24 lines of 80 columns at most.
pub(crate) const FIRST_DAY: &str = "\
A message broker for teams of coding agents whose queue is a directory

The first day:
  ensemble init                       make a queue in this project
  ensemble claude                     start Claude Code as a member of the team
  ensemble send --to NAME TEXT        send a message
  ensemble recv --as NAME --wait 10m  receive the next message
  ensemble settle ID --as NAME        mark its work as done
  ensemble up                         start the team; `down` ends it
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
  setup       project, checks, hooks, MCP, servers and the shell

`ensemble help --all` lists every command, `ensemble COMMAND -h` explains one.
";

/// The longest line of a summary beside the name of its command, in characters.
const SUMMARY_CHARS_MAX: usize = 64;

/// Explain a command, a group of commands or a topic, or list all
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble help messages
  ensemble help task add
  ensemble help leases
  ensemble help --all")]
pub(crate) struct Arguments {
    /// A command; a group: agents, overview, messages, tasks, decisions, blackboard, setup; or a topic: delivery,
    /// leases, identity, exit-codes, for-agents, options
    #[arg(value_name = "COMMAND|GROUP|TOPIC")]
    topic: Vec<String>,
    /// List all commands in their groups, the global options and the exit codes
    #[arg(long, conflicts_with = "topic")]
    all: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let mut program = program();
        program.build();
        if self.all {
            return print_all(context, &program);
        }
        let [first, ..] = &self.topic[..] else {
            return context.out.content(FIRST_DAY.as_bytes());
        };
        if let Some(group) = GROUPS.iter().find(|group| group.name == first) {
            return print_group(context, &program, group);
        }
        if let Some(topic) = TOPICS.iter().find(|topic| topic.name == first) {
            return print_topic(context, topic);
        }
        let mut help = described(program, &self.topic).ok_or_else(|| unknown(&self.topic))?;
        context.out.content(help.render_long_help().to_string().as_bytes())
    }
}

/// The command that words name, also in a former spelling.
pub(super) fn described(program: Command, words: &[String]) -> Option<Command> {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some((spelling, today)) = former(&words) {
        let today = today.iter().filter(|word| !word.starts_with('-')).copied();
        let rest = words.split_off(spelling.split(' ').count());
        words = today.chain(rest).collect();
    }
    words.into_iter().try_fold(program, |command, word| command.find_subcommand(word).cloned())
}

fn unknown(words: &[String]) -> Failure {
    let words = words.join(" ");
    let hint = meant_by(&words).map_or_else(
        || "`ensemble help --all` lists all".to_owned(),
        |meant| format!("`ensemble {meant}` does that; `ensemble help --all` lists all"),
    );
    Failure::usage(format!("there is no command, group or topic `{words}`")).with_hint(hint)
}

fn print_topic(context: &Context, topic: &Topic) -> Outcome {
    context.out.content(topic.text.as_bytes())
}

fn print_all(context: &Context, program: &Command) -> Outcome {
    for group in &GROUPS {
        print_group(context, program, group)?;
        context.out.line("")?;
    }
    let topics: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
    context.out.line("Topics, as in `ensemble help leases`:")?;
    context.out.line(topics.join(", "))?;
    context.out.line("")?;
    context.out.line("Every command has --queue DIR, --as NAME and --json.")?;
    context.out.line("")?;
    context.out.line(AFTER_HELP)
}

fn print_group(context: &Context, program: &Command, group: &Group) -> Outcome {
    context.out.line(context.out.paint(STRONG, format!("{}:", group.name)))?;
    let found = group.words.iter().filter_map(|word| program.find_subcommand(word));
    for command in found {
        print_summary(context, command)?;
        let below = command.get_subcommands().filter(|below| below.get_name() != "help");
        let names: Vec<&str> = below.map(Command::get_name).collect();
        if !names.is_empty() {
            print_beside(context, "", &names.join(", "))?;
        }
    }
    Ok(())
}

fn print_summary(context: &Context, command: &Command) -> Outcome {
    let about = command.get_about().map_or_else(String::new, ToString::to_string);
    print_beside(context, &format!("  {}", command.get_name()), &about)
}

/// A text beside a name, in as many lines as it takes.
fn print_beside(context: &Context, name: &str, text: &str) -> Outcome {
    let mut start = format!("{name:<14}");
    for line in wrapped(text) {
        context.out.line(format!("{start} {line}"))?;
        start = " ".repeat(start.len());
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
    fn a_former_spelling_is_explained_as_todays() {
        let name = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            described(program(), &words).map(|command| command.get_name().to_owned())
        };
        assert_eq!(name(&["spawn"]).as_deref(), Some("start"));
        assert_eq!(name(&["plan", "submit"]).as_deref(), Some("plan"));
        assert_eq!(name(&["goal", "set"]).as_deref(), Some("set"));
        assert_eq!(name(&["broadcast"]).as_deref(), Some("send"));
        assert_eq!(name(&["nonsense"]), None);
    }
}
