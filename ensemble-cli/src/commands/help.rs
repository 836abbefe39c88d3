use clap::Command;
use ensemble_core::message::nearest;
use ensemble_tmux::provider::Profiles;

use crate::context::{Context, Failure, Outcome};
use crate::help_texts::{
    AFTER_HELP, FIRST_DAY, FOR_PROGRAMS, GROUPS, HelpGroup, PROGRAMS, PROVIDERS, PROVIDERS_END,
    TOPICS,
};
use crate::output::STRONG;
use crate::spellings::{described, meant_by};

const SUMMARY_CHARS_MAX: usize = 64;

/// Explain a command, a group of commands or a topic, or list all
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble help messages
  ensemble help task add
  ensemble help leases
  ensemble help providers
  ensemble help --all")]
pub(crate) struct Arguments {
    /// A command; a group: agents, overview, messages, tasks, decisions, blackboard, setup, programs; or a topic:
    /// delivery, leases, identity, exit-codes, for-agents, options, providers
    #[arg(value_name = "COMMAND|GROUP|TOPIC")]
    topic: Vec<String>,
    /// List all commands in their groups, the global options and the exit codes
    #[arg(long, conflicts_with = "topic")]
    all: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context, mut program: Command) -> Outcome {
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
        if first == PROGRAMS {
            return print_for_programs(context, &program);
        }
        if first == PROVIDERS {
            return print_providers(context);
        }
        if let Some(topic) = TOPICS.iter().find(|topic| topic.name == first) {
            return context.out.content(topic.text.as_bytes());
        }
        let mut help = described(program.clone(), &self.topic)
            .ok_or_else(|| unknown(&program, &self.topic))?;
        context.out.content(help.render_long_help().to_string().as_bytes())
    }
}

fn unknown(program: &Command, words: &[String]) -> Failure {
    let line = words.join(" ");
    let meant = meant_by(program, &line).map(|meant| format!("`ensemble {meant}` does that; "));
    let near = || nearest_to(program, words).map(|near| format!("did you mean `{near}`? "));
    let hint =
        format!("{}`ensemble help --all` lists all", meant.or_else(near).unwrap_or_default());
    Failure::usage(format!("there is no command, group or topic `{line}`")).with_hint(hint)
}

fn nearest_to<'a>(mut parent: &'a Command, words: &[String]) -> Option<&'a str> {
    let is_first = |at: &Command| at.get_name() == "ensemble";
    for word in words {
        match parent.find_subcommand(word) {
            Some(command) => parent = command,
            None => {
                let commands = parent.get_subcommands().map(Command::get_name);
                let texts = GROUPS.iter().map(|group| group.name).chain([PROGRAMS, PROVIDERS]);
                let texts = texts.chain(TOPICS.iter().map(|topic| topic.name));
                let texts = texts.filter(|_| is_first(parent));
                return nearest(word, commands.chain(texts)).first().copied();
            }
        }
    }
    None
}

fn print_providers(context: &Context) -> Outcome {
    context.out.line("Agents that were seen working (`provider: NAME`), with version and date:")?;
    context.out.line("")?;
    let profiles = Profiles::embedded()?;
    for name in profiles.names() {
        let profile = profiles.get(name)?;
        if let Some((version, date)) = profile.seen_version().zip(profile.seen_date()) {
            context.out.line(format!("  {name:<10} {version:<10} {date}"))?;
        }
    }
    context.out.content(PROVIDERS_END.as_bytes())
}

fn print_all(context: &Context, program: &Command) -> Outcome {
    for group in &GROUPS {
        print_group(context, program, group)?;
        context.out.line("")?;
    }
    print_for_programs(context, program)?;
    context.out.line("")?;
    let topics = TOPICS.iter().map(|topic| topic.name).chain([PROVIDERS]);
    let topics: Vec<&str> = topics.collect();
    context.out.line("Topics, as in `ensemble help leases`:")?;
    context.out.line(topics.join(", "))?;
    context.out.line("")?;
    context.out.line("Every command has --queue DIR, --as NAME and --json.")?;
    context.out.line("")?;
    context.out.line(AFTER_HELP)
}

fn print_group(context: &Context, program: &Command, group: &HelpGroup) -> Outcome {
    context.out.line(context.out.paint(STRONG, format!("{}:", group.name)))?;
    let found = group.words.iter().filter_map(|word| program.find_subcommand(word));
    for command in found {
        let about = command.get_about().map_or_else(String::new, ToString::to_string);
        print_beside(context, &format!("  {}", command.get_name()), &about)?;
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        let names: Vec<&str> =
            below.map(Command::get_name).filter(|name| *name != "help").collect();
        if !names.is_empty() {
            print_beside(context, "", &names.join(", "))?;
        }
    }
    Ok(())
}

fn print_for_programs(context: &Context, program: &Command) -> Outcome {
    context.out.line(context.out.paint(STRONG, format!("{PROGRAMS}:")))?;
    for place in FOR_PROGRAMS.split(", ") {
        let command = place.split(' ').try_fold(program, |found, word| found.find_subcommand(word));
        let about = command.and_then(Command::get_about).map(ToString::to_string);
        context.out.line(format!("  {place:<18} {}", about.unwrap_or_default()))?;
    }
    Ok(())
}

fn print_beside(context: &Context, name: &str, text: &str) -> Outcome {
    let mut start = format!("{name:<14}");
    for line in wrapped(text) {
        context.out.line(format!("{start} {line}"))?;
        start = " ".repeat(start.len());
    }
    Ok(())
}

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
