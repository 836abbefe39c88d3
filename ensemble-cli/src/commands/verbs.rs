//! The surface of the command: each verb, its place, and the groups of help.
//!
//! A place is one word (`send`) or two (`agent join`). The top has at most 32 words, in 7 groups.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};
use ensemble_app::watcher_start::revive_watcher;
use ensemble_project::Project;

mod calls;

use super::log::{escalations, export};
#[cfg(feature = "mcp")]
use super::mcp::{self, tool_schemas};
use super::wrapped::{claude, codex, gemini, opencode};
use super::{
    adopt, agent, anomaly, api, assign, attach, board, completions, conformance, controls, dead,
    discover, dispatch, doctor, down, fsck, goal, held, help, hook, hooks, inbox, init, instruct,
    join, lint, log, mailbox, man, migrate, notify, pane, ping, projects, prompt, recall, recv,
    report, request, restart, review, schema, send, spawn, sprint, status, step, summary,
    supervise, task, team, top, up, usage, watch, whoami, why,
};
use crate::args::GlobalFlags;
use crate::context::{Context, Outcome};
use crate::demo;
use crate::help_texts::{AFTER_HELP, FIRST_DAY, FOR_PROGRAMS};
use crate::spellings::{ADMIN, canonical, join_texts, positions};
use crate::transports;
use crate::unasked::named_files;

/// A command that understands its words in capitals, too, as the tools do.
fn in_any_case(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        match arg.get_action().takes_values() && !arg.get_possible_values().is_empty() {
            true => arg.ignore_case(true),
            false => arg,
        }
    });
    let below: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    below.into_iter().fold(command, |command, name| command.mut_subcommand(name, in_any_case))
}

const WIDTH_MAX: usize = 100;

const USUAL_SEND_ARGS: [&str; 6] = ["text", "to", "all", "file", "when", "wait_for_reply"];

const GLOBALS_NAMED: &str =
    "Every command takes --queue DIR, --as NAME and --json (see `ensemble help options`)";

/// Verbs that start the watcher of a team again. Others start one themselves, or run
/// too often.
const REVIVING_VERBS: [&str; 14] = [
    "team",
    "status",
    "top",
    "why",
    "send",
    "recv",
    "settle",
    "reply",
    "mailbox release",
    "inbox",
    "assign",
    "report",
    "task",
    "admin hook",
];

pub(crate) struct CommandLine {
    pub(crate) globals: GlobalFlags,
    pub(crate) verb: Verb,
    pub(crate) place: &'static str,
    pub(crate) files: Vec<PathBuf>,
}

#[cfg(not(feature = "mcp"))]
const fn tool_schemas() -> Vec<(&'static str, serde_json::Value)> {
    Vec::new()
}

macro_rules! verbs {
    ($($(#[$condition:meta])? $place:literal => $variant:ident($arguments:ty $(, $given:expr)*),)*) => {
        #[derive(Debug)]
        pub(crate) enum Verb {
            $(
                // Its help is that of its arguments.
                $(#[$condition])?
                $variant($arguments),
            )*
        }

        /// The places of all verbs, in the order of help.
        pub(crate) const PLACES: &[&str] = &[$($(#[$condition])? $place,)*];

        impl Verb {
            fn described(place: &'static str) -> Command {
                let name = place.rsplit_once(' ').map_or(place, |(_, name)| name);
                match place {
                    $($(#[$condition])? $place => in_any_case(<$arguments>::augment_args(Command::new(name))),)*
                    _ => Command::new(name),
                }
            }

            fn read(place: &str, matches: &ArgMatches) -> Result<Self, clap::Error> {
                match place {
                    $($(#[$condition])? $place => {
                        <$arguments>::from_arg_matches(matches).map(Self::$variant)
                    })*
                    _ => Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand)),
                }
            }

            /// Does it, unless it is refused where the mailboxes are.
            pub(crate) fn run(self, context: &Context) -> Outcome {
                match self {
                    $($(#[$condition])? Self::$variant(arguments) => {
                        transports::admit(context, $place)?;
                        if REVIVING_VERBS.contains(&$place)
                            && let Ok(project) = context.project()
                        {
                            revive_watcher(project);
                        }
                        let outcome = arguments.run(context $(, $given)*);
                        outcome.map_err(|failure| context.with_object_printed(failure))
                    })*
                }
            }
        }
    };
}

verbs! {
    "claude" => Claude(claude::Arguments),
    "codex" => Codex(codex::Arguments),
    "opencode" => Opencode(opencode::Arguments),
    "gemini" => Gemini(gemini::Arguments),
    "up" => Up(up::Arguments),
    "down" => Down(down::Arguments),
    "team" => Team(team::Arguments),
    "agent" => Agent(agent::Arguments),
    "agent start" => Spawn(spawn::Arguments),
    "agent restart" => Restart(restart::Arguments),
    "agent join" => Join(join::Arguments),
    "agent adopt" => Adopt(adopt::Arguments),
    "agent attach" => Attach(attach::Arguments),
    "agent whoami" => Whoami(whoami::Arguments),
    "agent prime" => Prime(whoami::PrimeAgent),
    "agent inspect" => Pane(pane::Arguments),
    "agent nudge" => Nudge(ping::NudgeAgent),
    "agent ping" => Ping(ping::PingWorker),
    "agent pong" => Pong(ping::AnswerPing),
    "agent instruct" => Instruct(instruct::Arguments),
    "agent supervise" => Supervise(supervise::Arguments),
    "agent usage" => Usage(usage::Arguments),
    "status" => Status(status::Arguments),
    "top" => Top(top::Arguments),
    "why" => Why(why::Arguments),
    "log" => Log(log::Arguments),
    "log escalations" => Escalations(escalations::Arguments),
    "log export" => Export(export::Arguments),
    "send" => Send(send::Arguments),
    "recv" => Recv(recv::Arguments),
    "reply" => Reply(held::ReplyMessage),
    "settle" => Settle(held::SettleMessage),
    "inbox" => Inbox(inbox::Arguments),
    "dead" => Dead(dead::Arguments),
    "mailbox" => Mailbox(mailbox::Arguments),
    "mailbox extend" => Extend(held::ExtendMessage),
    "mailbox release" => Release(held::ReleaseMessage),
    "mailbox recall" => Recall(recall::Arguments),
    "assign" => Assign(assign::Arguments),
    "report" => Report(report::Arguments),
    "task" => Task(task::Arguments),
    "task review" => Review(review::Arguments),
    "task summary" => Summary(summary::Arguments),
    "task dispatch" => Dispatch(dispatch::Arguments),
    "request" => Request(request::Arguments),
    "request plan" => PlanSubmit(request::SubmitPlan),
    "request answer" => Respond(request::AnswerRequest),
    "request list" => Requests(request::ListRequests),
    "pause" => Pause(controls::PauseTeam),
    "resume" => Resume(controls::ResumeTeam),
    "board" => Board(board::Arguments),
    "board goal" => Goal(goal::Arguments),
    "board sprint" => Sprint(sprint::Arguments),
    "board discover" => Discover(discover::Arguments),
    "board anomaly" => Anomaly(anomaly::Arguments),
    "board analyze" => Analyze(anomaly::AnalyzeAnomalies),
    "board prompt" => Prompt(prompt::Arguments),
    "board checkpoint" => Checkpoint(controls::CheckpointSprint),
    "board abort" => Abort(controls::AbortSprint),
    "step" => Step(step::Arguments),
    "init" => Init(init::Arguments),
    "doctor" => Doctor(doctor::Arguments),
    "demo" => Demo(demo::Arguments),
    "admin watch" => Watch(watch::Arguments),
    "admin hooks" => Hooks(hooks::Arguments),
    "admin hook" => Hook(hook::Arguments),
    #[cfg(feature = "mcp")]
    "admin mcp" => Mcp(mcp::Arguments, calls::read_hint),
    "admin api" => Api(api::Arguments, calls::call, calls::read_hint),
    "admin projects" => Projects(projects::Arguments),
    "admin notify" => Notify(notify::Arguments),
    "admin tmux-status" => TmuxStatus(status::TmuxLine),
    "admin migrate" => Migrate(migrate::Arguments),
    "admin fsck" => Fsck(fsck::Arguments),
    "admin lint" => Lint(lint::Arguments),
    "admin schema" => Schema(schema::Arguments, program(), tool_schemas),
    "admin conformance" => Conformance(conformance::Arguments),
    "admin completions" => Completions(completions::Arguments),
    "admin man" => Man(man::Arguments, program()),
    "help" => Help(help::Arguments, program()),
}

const ADMIN_ABOUT: &str = "Plumbing: watcher, hooks, MCP, servers, checks, schemas, shell";

pub(crate) fn program() -> Command {
    let program = GlobalFlags::augment_args(Command::new("ensemble"))
        .about("A message queue for coding agents, in a plain directory")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(AFTER_HELP)
        .max_term_width(WIDTH_MAX)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .override_help(FIRST_DAY);
    with_globals_named(with_few_flags(with_programs_apart(whole(program))))
}

fn with_programs_apart(program: Command) -> Command {
    let places = FOR_PROGRAMS.split(", ").filter_map(|place| place.split_once(' '));
    places.fold(program, |program, (head, word)| {
        program.mut_subcommand(head, |head| head.mut_subcommand(word, |below| below.hide(true)))
    })
}

/// `send -h` shows the flags that people need; `send --help` has all.
fn with_few_flags(program: Command) -> Command {
    program.mut_subcommand("send", |send| {
        send.mut_args(|arg| {
            let is_usual = USUAL_SEND_ARGS.contains(&arg.get_id().as_str());
            if is_usual { arg } else { arg.hide_short_help(true) }
        })
    })
}

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

pub(crate) fn parse() -> Result<CommandLine, clap::Error> {
    let mut words = words();
    if words.len() == 1 && is_live() {
        words.push("top".into());
    }
    let matches = match parse_one_verb(&words) {
        Some(matches) => matches,
        None => program().try_get_matches_from(&words)?,
    };
    CommandLine::of(&matches)
}

impl CommandLine {
    pub(crate) fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (verb, place) = Verb::of(matches)?;
        let globals = GlobalFlags::from_arg_matches(matches)?;
        Ok(Self { globals, verb, place, files: named_files(matches) })
    }
}

fn words() -> Vec<OsString> {
    let words = canonical(std::env::args_os().collect());
    join_texts(words, |words| place_among(words).map(with_one_verb))
}

fn is_live() -> bool {
    let queue = std::env::var_os("ENSEMBLE_QUEUE").map(PathBuf::from);
    let is_project = || Project::discover(queue.as_deref()).is_ok_and(|it| it.queue.is_dir());
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && is_project()
}

/// Reads a command line without describing all the other verbs to the parser, which takes longer than most
/// verbs themselves. Mistakes and questions for help are answered by the whole command,
/// which knows what else there is.
fn parse_one_verb(words: &[OsString]) -> Option<ArgMatches> {
    with_one_verb(place_among(words)?).try_get_matches_from(words).ok()
}

/// Whether the command line is that of an agent's hook, however wrong it is.
pub(crate) fn is_hook() -> bool {
    place_among(&words()) == Some("admin hook")
}

pub(crate) fn bare() -> Command {
    GlobalFlags::augment_args(Command::new("ensemble")).disable_help_subcommand(true)
}

pub(crate) fn whole(program: Command) -> Command {
    let program = program.subcommand(admin());
    PLACES.iter().fold(program, |program, place| {
        let verb = Verb::described(place);
        match place.split_once(' ') {
            None => program.subcommand(verb),
            Some((head, _)) => program.mut_subcommand(head, |head| head.subcommand(verb)),
        }
    })
}

pub(crate) fn with_one_verb(place: &'static str) -> Command {
    let verb = Verb::described(place);
    match place.split_once(' ') {
        None => bare().subcommand(verb),
        Some((head, _)) => bare().subcommand(Command::new(head).subcommand(verb)),
    }
}

fn admin() -> Command {
    Command::new(ADMIN).about(ADMIN_ABOUT).subcommand_required(true).arg_required_else_help(true)
}

impl Verb {
    pub(crate) fn of(matches: &ArgMatches) -> Result<(Self, &'static str), clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (head, below) = matches.subcommand().ok_or_else(missing)?;
        if let Some((word, deeper)) = below.subcommand()
            && let Some(place) = place_of(head, Some(word))
        {
            return Ok((Self::read(place, deeper)?, place));
        }
        let place = place_of(head, None).ok_or_else(missing)?;
        Ok((Self::read(place, below)?, place))
    }
}

fn place_of(head: &str, word: Option<&str>) -> Option<&'static str> {
    let is_meant = |place: &&&str| match (place.split_once(' '), word) {
        (Some(parts), Some(word)) => parts == (head, word),
        (None, None) => **place == head,
        _ => false,
    };
    PLACES.iter().find(is_meant).copied()
}

pub(crate) fn place_among(words: &[OsString]) -> Option<&'static str> {
    let positions = positions(words);
    let head = words[*positions.first()?].to_str()?;
    let word = positions.get(1).and_then(|&at| words[at].to_str());
    word.and_then(|word| place_of(head, Some(word))).or_else(|| place_of(head, None))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::help_texts::GROUPS;

    const WORDS_MAX: usize = 32;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

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
    fn the_top_has_few_words_and_each_is_in_one_group() {
        let program = whole(bare());
        let top: BTreeSet<&str> = program.get_subcommands().map(Command::get_name).collect();
        assert!(top.len() <= WORDS_MAX, "{} words", top.len());
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|group| group.words).copied().collect();
        assert_eq!(grouped.len(), top.len(), "no word is in two groups");
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), top);
        assert!(GROUPS.iter().all(|group| !top.contains(group.name)), "a group is no command");
    }

    #[test]
    fn verbs_that_start_a_watcher_are_verbs() {
        assert!(REVIVING_VERBS.iter().all(|verb| PLACES.contains(verb)));
    }

    #[test]
    fn a_place_is_found_behind_global_options() {
        for line in [
            "ensemble agent join w",
            "ensemble --as w1 agent join w",
            "ensemble --queue=q --json agent --json join",
        ] {
            assert_eq!(place_among(&words(line)), Some("agent join"), "{line}");
        }
        assert_eq!(place_among(&words("ensemble --as=w1 --queue q recv status")), Some("recv"));
        assert_eq!(place_among(&words("ensemble agent register --role coder")), Some("agent"));
        assert_eq!(place_among(&words("ensemble --as w1")), None);
        assert_eq!(place_among(&words("ensemble --nonsense recv")), None);
    }

    #[test]
    fn each_verb_by_itself_takes_what_it_takes_among_all() {
        fn ids(command: &Command) -> Vec<String> {
            let own = command.get_arguments().map(|arg| arg.get_id().to_string());
            own.chain(command.get_subcommands().flat_map(ids)).collect()
        }
        let mut program = whole(bare());
        program.build();
        for place in PLACES.iter().filter(|place| place.contains(' ')) {
            let mut alone = with_one_verb(place);
            alone.build();
            let (head, word) = place.split_once(' ').unwrap();
            let find = |program: &Command| {
                ids(program.find_subcommand(head).unwrap().find_subcommand(word).unwrap())
            };
            assert_eq!(find(&alone), find(&program), "{place}");
        }
    }
}
