//! The command line.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args as _, Command, CommandFactory as _, FromArgMatches as _, Parser};
use clap_complete::engine::ArgValueCandidates;
use ensemble_core::message::Name;
use ensemble_watch::project::Project;

use crate::commands::{FIRST_DAY, Verb};
use crate::completion;

pub(crate) const AFTER_HELP: &str = "\
Durations are plain seconds or have units: 90, 90s, 5m, \"1h 30m\", 500ms.

Exit codes: 0 done · 1 refused or failed · 2 usage · 3 nothing there, or a wait timed out ·
4 broken invariant or corrupt data · 5 a needed program is missing · 42 an agent's graceful abort ·
75 busy, try again";

/// A message broker for teams of coding agents whose queue is a directory
#[derive(Debug, Parser)]
#[command(name = "ensemble", version, after_help = AFTER_HELP, max_term_width = 100)]
#[command(arg_required_else_help = true, disable_help_subcommand = true, override_help = FIRST_DAY)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Flags of every verb.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// The queue's directory [default: $ENSEMBLE_QUEUE, else ./queue]
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) queue: Option<PathBuf>,
    /// Act as this agent [default: $ENSEMBLE_AGENT_ID, else $LIZA_AGENT_ID]
    #[arg(long = "as", global = true, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(completion::mailboxes))]
    pub(crate) agent: Option<Name>,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Reads the command line; also what the verb is called.
pub(crate) fn parse() -> Result<(Cli, String), clap::Error> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.len() == 1 && is_live() {
        words.push("top".into());
    }
    if let [_, only] = &words[..]
        && (only == "--version" || only == "-V")
    {
        globals_alone().version(env!("CARGO_PKG_VERSION")).try_get_matches_from(&words)?;
    }
    let matches = match parse_one_verb(&words) {
        Some(matches) => matches,
        None => Cli::command().try_get_matches_from(&words)?,
    };
    let verb = matches.subcommand_name().unwrap_or_default().to_owned();
    Ok((Cli::from_arg_matches(&matches)?, verb))
}

/// Whether the live view is meant where no verb is given: in a project, on a terminal.
fn is_live() -> bool {
    let queue = std::env::var_os("ENSEMBLE_QUEUE").map(PathBuf::from);
    let is_project = || Project::discover(queue.as_deref()).is_ok_and(|it| it.queue.is_dir());
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && is_project()
}

/// Reads a command line without describing all the other verbs to the parser, which takes longer than most
/// verbs themselves. Whatever is not right, and every question for help, is answered by the whole command,
/// which knows what else there is.
fn parse_one_verb(words: &[OsString]) -> Option<ArgMatches> {
    with_one_verb(verb_among(words)?)?.try_get_matches_from(words).ok()
}

/// Whether the command line is that of an agent's hook, however wrong it is.
pub(crate) fn is_hook() -> bool {
    let words: Vec<OsString> = std::env::args_os().collect();
    verb_among(&words) == Some("hook")
}

/// The first word that is neither a global flag nor its value.
fn verb_among(words: &[OsString]) -> Option<&str> {
    let mut words = words.iter().skip(1).map(|word| word.to_str());
    loop {
        match words.next()?? {
            "--queue" | "--as" => drop(words.next()?),
            "--json" => {}
            word if word.starts_with("--queue=") || word.starts_with("--as=") => {}
            word => return Some(word),
        }
    }
}

fn globals_alone() -> Command {
    Globals::augment_args(Command::new("ensemble")).disable_help_subcommand(true)
}

fn with_one_verb(name: &str) -> Option<Command> {
    Some(globals_alone().subcommand(Verb::described(name)?))
}

/// A duration: plain seconds, or units as in `1h 30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let hint = || "write seconds (90) or units (90s, 5m, \"1h 30m\")".to_owned();
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        let seconds = text.parse::<f64>().map_err(|_| hint())?;
        return Duration::try_from_secs_f64(seconds).map_err(|_| hint());
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}: {}", hint()))
}

/// The duration of a lease: 1 second to a day.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_secs(ensemble_core::spool::LEASE_SECONDS_MAX);
    match duration(text)? {
        lease if lease < Duration::from_secs(1) || lease > longest => {
            Err("a lease runs for 1 second to 1 day".to_owned())
        }
        lease => Ok(lease),
    }
}

/// A free header of an envelope.
pub(crate) fn header(text: &str) -> Result<String, String> {
    const BYTES_MAX: usize = 256;
    if text.is_empty() || text.len() > BYTES_MAX {
        return Err(format!("has {} bytes, allowed are 1 to {BYTES_MAX}", text.len()));
    }
    if crate::text::one_line(text) != text {
        return Err("has control characters".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_verb_is_found_behind_global_flags() {
        let verb = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            verb_among(&words).map(str::to_owned)
        };
        for line in [
            "ensemble recv",
            "ensemble --as w1 recv --wait 5s",
            "ensemble --queue=q --json recv",
            "ensemble --as=w1 --queue q recv status",
        ] {
            assert_eq!(verb(line).as_deref(), Some("recv"), "{line}");
        }
        assert_eq!(verb("ensemble --as w1"), None);
        assert_eq!(verb("ensemble --nonsense recv").as_deref(), Some("--nonsense"));
    }

    #[test]
    fn each_verb_by_itself_takes_what_it_takes_among_all() {
        let ids = |command: &Command| {
            command.get_arguments().map(|arg| arg.get_id().to_string()).collect::<Vec<_>>()
        };
        let mut whole = Cli::command();
        whole.build();
        for verb in whole.get_subcommands() {
            let mut alone = with_one_verb(verb.get_name()).unwrap();
            alone.build();
            let only: Vec<&Command> = alone.get_subcommands().collect();
            assert_eq!(only.len(), 1);
            assert_eq!(only[0].get_name(), verb.get_name());
            assert_eq!(ids(only[0]), ids(verb), "{}", verb.get_name());
            let nested = |command: &Command| {
                command
                    .get_subcommands()
                    .map(|c| (c.get_name().to_owned(), ids(c)))
                    .collect::<Vec<_>>()
            };
            assert_eq!(nested(only[0]), nested(verb), "{}", verb.get_name());
        }
        assert!(with_one_verb("nonsense").is_none() && with_one_verb("Recv").is_none());
    }

    #[test]
    fn durations_are_seconds_or_have_units() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", ".", "x", "-1", "5 parsecs", "1e9", "99999999999999999999999"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
