//! The surface of the command: each verb, the place where it stands, and the groups of help.
//!
//! A place is one word (`send`) or two (`agent join`). At most 32 words stand at the top, in 7 groups. Former
//! spellings are turned into these before anything is read (`former`).

use std::ffi::OsString;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};

#[cfg(feature = "mcp")]
use super::mcp;
use super::wrapped::{claude, codex, gemini, opencode};
use super::{
    abort, adopt, agent, analyze, anomaly, api, assign, attach, board, bridge, checkpoint,
    completions, conformance, dead, demo, discover, dispatch, doctor, down, escalations, export,
    extend, fsck, goal, help, hook, hooks, inbox, init, instruct, join, lint, log, mailbox, man,
    migrate, notify, nudge, pane, pause, ping, plan_submit, pong, prime, prompt, recv, release,
    reply, report, request, requests, respond, restart, resume, review, schema, send, settle,
    spawn, sprint, status, step, summary, supervise, task, team, tmux_status, top, up, usage,
    watch, whoami, why,
};
use crate::args::Globals;
use crate::context::Context;
use crate::exit::Outcome;
use crate::{transports, watcher_start};

macro_rules! verbs {
    ($($(#[$condition:meta])? $place:literal => $variant:ident($module:ident),)*) => {
        /// The verb to run.
        #[derive(Debug)]
        pub(crate) enum Verb {
            $(
                // Its help is that of its arguments.
                $(#[$condition])?
                #[allow(missing_docs, clippy::allow_attributes)]
                $variant($module::Arguments),
            )*
        }

        /// The places of all verbs, in the order of help.
        pub(crate) const PLACES: &[&str] = &[$($(#[$condition])? $place,)*];

        impl Verb {
            /// The verb of a place as the parser needs it.
            fn described(place: &'static str) -> Command {
                let name = place.rsplit_once(' ').map_or(place, |(_, name)| name);
                match place {
                    $($(#[$condition])? $place => $module::Arguments::augment_args(Command::new(name)),)*
                    _ => Command::new(name),
                }
            }

            /// The verb of a place from what was read there.
            fn read(place: &str, matches: &ArgMatches) -> Result<Self, clap::Error> {
                match place {
                    $($(#[$condition])? $place => {
                        $module::Arguments::from_arg_matches(matches).map(Self::$variant)
                    })*
                    _ => Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand)),
                }
            }

            /// Does it, unless it is refused where the mailboxes are.
            pub(crate) fn run(self, context: &Context) -> Outcome {
                match self {
                    $($(#[$condition])? Self::$variant(arguments) => {
                        transports::admit(context, $place)?;
                        if watcher_start::is_reviving($place)
                            && let Ok(project) = context.project()
                        {
                            watcher_start::revive_watcher(project);
                        }
                        arguments.run(context)
                    })*
                }
            }
        }
    };
}

verbs! {
    "claude" => Claude(claude),
    "codex" => Codex(codex),
    "opencode" => Opencode(opencode),
    "gemini" => Gemini(gemini),
    "up" => Up(up),
    "down" => Down(down),
    "team" => Team(team),
    "agent" => Agent(agent),
    "agent start" => Spawn(spawn),
    "agent restart" => Restart(restart),
    "agent join" => Join(join),
    "agent adopt" => Adopt(adopt),
    "agent attach" => Attach(attach),
    "agent whoami" => Whoami(whoami),
    "agent prime" => Prime(prime),
    "agent inspect" => Pane(pane),
    "agent nudge" => Nudge(nudge),
    "agent ping" => Ping(ping),
    "agent pong" => Pong(pong),
    "agent instruct" => Instruct(instruct),
    "agent supervise" => Supervise(supervise),
    "agent usage" => Usage(usage),
    "status" => Status(status),
    "top" => Top(top),
    "why" => Why(why),
    "log" => Log(log),
    "log escalations" => Escalations(escalations),
    "log export" => Export(export),
    "send" => Send(send),
    "recv" => Recv(recv),
    "reply" => Reply(reply),
    "settle" => Settle(settle),
    "inbox" => Inbox(inbox),
    "dead" => Dead(dead),
    "mailbox" => Mailbox(mailbox),
    "mailbox extend" => Extend(extend),
    "mailbox release" => Release(release),
    "assign" => Assign(assign),
    "report" => Report(report),
    "task" => Task(task),
    "task review" => Review(review),
    "task summary" => Summary(summary),
    "task dispatch" => Dispatch(dispatch),
    "request" => Request(request),
    "request plan" => PlanSubmit(plan_submit),
    "request answer" => Respond(respond),
    "request list" => Requests(requests),
    "pause" => Pause(pause),
    "resume" => Resume(resume),
    "board" => Board(board),
    "board goal" => Goal(goal),
    "board sprint" => Sprint(sprint),
    "board discover" => Discover(discover),
    "board anomaly" => Anomaly(anomaly),
    "board analyze" => Analyze(analyze),
    "board prompt" => Prompt(prompt),
    "board checkpoint" => Checkpoint(checkpoint),
    "board abort" => Abort(abort),
    "step" => Step(step),
    "init" => Init(init),
    "doctor" => Doctor(doctor),
    "demo" => Demo(demo),
    "admin watch" => Watch(watch),
    "admin hooks" => Hooks(hooks),
    "admin hook" => Hook(hook),
    #[cfg(feature = "mcp")]
    "admin mcp" => Mcp(mcp),
    "admin api" => Api(api),
    "admin notify" => Notify(notify),
    "admin tmux-status" => TmuxStatus(tmux_status),
    "admin bridge" => Bridge(bridge),
    "admin migrate" => Migrate(migrate),
    "admin fsck" => Fsck(fsck),
    "admin lint" => Lint(lint),
    "admin schema" => Schema(schema),
    "admin conformance" => Conformance(conformance),
    "admin completions" => Completions(completions),
    "admin man" => Man(man),
    "help" => Help(help),
}

/// A group of help: its name, its summary, and its words in the order of `PLACES`.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) words: &'static [&'static str],
}

pub(super) const GROUPS: [Group; 7] = [
    Group {
        name: "agents",
        words: &["claude", "codex", "opencode", "gemini", "up", "down", "team", "agent"],
    },
    Group { name: "overview", words: &["status", "top", "why", "log"] },
    Group {
        name: "messages",
        words: &["send", "recv", "reply", "settle", "inbox", "dead", "mailbox"],
    },
    Group { name: "tasks", words: &["assign", "report", "task"] },
    Group { name: "decisions", words: &["request", "pause", "resume"] },
    Group { name: "blackboard", words: &["board", "step"] },
    Group { name: "setup", words: &["init", "doctor", "demo", "admin", "help"] },
];

/// The one word at the top that is no verb itself.
const ADMIN: &str = "admin";
const ADMIN_ABOUT: &str = "Plumbing: watcher, hooks, MCP, servers, checks, schemas, shell";

/// The program with its global options alone.
pub(crate) fn bare() -> Command {
    Globals::augment_args(Command::new("ensemble")).disable_help_subcommand(true)
}

/// The program with all its verbs.
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

/// The program with one verb. To describe all the others to the parser takes longer than most verbs themselves.
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
    /// The verb that a whole line names, and its place.
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

/// The place that the words of a line name, global options aside.
pub(crate) fn place_among(words: &[OsString]) -> Option<&'static str> {
    let positions = positions(words);
    let head = words[*positions.first()?].to_str()?;
    let word = positions.get(1).and_then(|&at| words[at].to_str());
    word.and_then(|word| place_of(head, Some(word))).or_else(|| place_of(head, None))
}

/// The positions of the first two words that are neither options nor values of global options.
pub(super) fn positions(words: &[OsString]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 1;
    while at < words.len() && found.len() < 2 {
        match words[at].to_str() {
            Some("--queue" | "--as") => at += 1,
            Some("--json") => {}
            Some(word) if word.starts_with("--queue=") || word.starts_with("--as=") => {}
            Some(word) if word.starts_with('-') => break,
            None => break,
            Some(_) => found.push(at),
        }
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The most words at the top of the command.
    const WORDS_MAX: usize = 32;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
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
