//! The command line.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};
use clap_complete::engine::ArgValueCandidates;
use ensemble_core::message::{Name, TraceParent};
use ensemble_watch::project::Project;

use crate::commands::{self, FIRST_DAY, Verb};
use crate::completion;
use crate::unasked::NamedFiles;

/// The widest help, in characters.
const WIDTH_MAX: usize = 100;

/// The last line of each verb's help.
const GLOBALS_NAMED: &str =
    "Of every command: --queue DIR, --as NAME, --json (see `ensemble help options`)";

pub(crate) const AFTER_HELP: &str = "\
Durations are plain seconds or have units: 90, 90s, 5m, \"1h 30m\", 500ms.

Exit codes: 0 done · 1 refused or failed · 2 usage · 3 nothing there, or a wait
timed out · 4 broken invariant or corrupt data · 5 a needed program is missing ·
42 an agent's graceful abort · 75 busy, try again";

/// What the command line says: the global options, the verb, its place, and the files it names.
pub(crate) struct Cli {
    pub(crate) globals: Globals,
    pub(crate) verb: Verb,
    pub(crate) place: &'static str,
    pub(crate) files: NamedFiles,
}

/// Flags of every verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Globals {
    /// The queue's directory [default: $ENSEMBLE_QUEUE, else that of the project around this directory]
    #[arg(long, global = true, hide = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) queue: Option<PathBuf>,
    /// Act as this agent [default: $ENSEMBLE_AGENT_ID, else $LIZA_AGENT_ID]
    // Not the id `agent`: a verb's own argument of that name would be taken for this one.
    #[arg(long = "as", id = "acting_as", global = true, hide = true, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(completion::mailboxes))]
    pub(crate) agent: Option<Name>,
    /// Print JSON, one object a line
    #[arg(long, global = true, hide = true)]
    pub(crate) json: bool,
}

/// The whole program, for help, completion and mistakes.
pub(crate) fn program() -> Command {
    let program = Globals::augment_args(Command::new("ensemble"))
        .about("A message broker for teams of coding agents whose queue is a directory")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(AFTER_HELP)
        .max_term_width(WIDTH_MAX)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .override_help(FIRST_DAY);
    with_globals_named(commands::whole(program))
}

/// Each verb's help names the global options in one line, instead of explaining them once more.
fn with_globals_named(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |below| {
            let own = below.get_after_help().map(ToString::to_string);
            let text = own.map_or_else(String::new, |own| format!("{own}\n\n")) + GLOBALS_NAMED;
            with_globals_named(below.after_help(text))
        })
    })
}

/// Reads the command line.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let mut words = words();
    if words.len() == 1 && is_live() {
        words.push("top".into());
    }
    let matches = match parse_one_verb(&words) {
        Some(matches) => matches,
        None => program().try_get_matches_from(&words)?,
    };
    Cli::of(&matches)
}

impl Cli {
    /// The command line that the parser has read.
    pub(crate) fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (verb, place) = Verb::of(matches)?;
        let globals = Globals::from_arg_matches(matches)?;
        Ok(Self { globals, verb, place, files: NamedFiles::of(matches) })
    }
}

/// The words of the line, in today's spelling.
fn words() -> Vec<OsString> {
    commands::canonical(std::env::args_os().collect())
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
    commands::with_one_verb(commands::place_among(words)?).try_get_matches_from(words).ok()
}

/// Whether failures are told to a program, known before anything else is read.
pub(crate) fn is_json() -> bool {
    std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json")
}

/// Whether the command line is that of an agent's hook, however wrong it is.
pub(crate) fn is_hook() -> bool {
    commands::place_among(&words()) == Some("admin hook")
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

/// The trace that the caller names in the environment. As W3C asks, an invalid one is as good as none.
pub(crate) fn trace_around() -> Option<TraceParent> {
    std::env::var("TRACEPARENT").ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        program().debug_assert();
    }

    #[test]
    fn no_argument_of_a_verb_is_taken_for_a_global_option() {
        fn check(command: &Command, globals: &[&str], place: &str) {
            for arg in command.get_arguments().filter(|arg| !arg.is_global_set()) {
                assert!(!globals.contains(&arg.get_id().as_str()), "{place}: {}", arg.get_id());
            }
            for below in command.get_subcommands() {
                check(below, globals, &format!("{place} {}", below.get_name()));
            }
        }
        check(&program(), &["queue", "acting_as", "json"], "ensemble");
    }

    #[test]
    fn a_flag_takes_the_same_everywhere() {
        fn collect(
            command: &Command,
            place: &str,
            found: &mut BTreeMap<String, BTreeMap<String, String>>,
        ) {
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let Some(long) = arg.get_long() else { continue };
                // A value that may be left out changes nothing in what the flag means.
                if arg
                    .get_num_args()
                    .is_some_and(|count| count.min_values() == 0 && count.max_values() == 1)
                {
                    continue;
                }
                let takes = arg.get_action().takes_values();
                let names = arg.get_value_names().filter(|_| takes);
                let name = names.map_or_else(String::new, |names| names.join(" "));
                found.entry(long.to_owned()).or_default().insert(name, place.to_owned());
            }
            for below in command.get_subcommands() {
                collect(below, &format!("{place} {}", below.get_name()), found);
            }
        }
        let mut found = BTreeMap::new();
        collect(&program(), "", &mut found);
        let differing: Vec<_> = found.iter().filter(|(_, takes)| takes.len() > 1).collect();
        assert!(differing.is_empty(), "{differing:#?}");
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
