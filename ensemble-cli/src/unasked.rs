//! Commands that agents may run without asking a person, and what each of their arguments may do.
//!
//! The launch settings of agents allow a few commands by their first words ([`UNASKED`]). An allow-list sees no
//! options, so these commands must be harmless with every option. Some values would not be, and are refused to agents,
//! at every door:
//!
//! | value | for an agent |
//! |---|---|
//! | a file to read (`send -f`, `admin lint FILE`) | a file of the project, of its worktrees or of the directory the agent was started in |
//! | another project (`--queue`, of every command) | refused |
//! | a recipient in another project (`send --to NAME@PROJECT`) | a project that `other_projects` of `ensemble.yaml` names |
//!
//! An agent is a member of the team that is known by its pass, its process tree or its pane. A person may do all of it.
//! Every other command asks a person, as the agent's program asks for any command.
//!
//! Tests compare the table with the parser's own description of each command, and with the allow-lists of all
//! profiles. A new option fails them until it is classified here.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use ensemble_app::content::STDIN;

/// The commands, each with its harmless arguments and with those that name a file to read.
const UNASKED: &[(&str, &str, &str)] = &[
    ("team", "name watch", ""),
    ("agent whoami", "", ""),
    ("agent prime", "", ""),
    ("agent ping", "worker", ""),
    ("agent pong", "worker attempt", ""),
    ("agent instruct", "wait", "file positional_file"),
    ("status", "watch", ""),
    ("why", "id raw", ""),
    (
        "send",
        "to all create kind id priority when replaces wait_for_reply task plan attempt correlation traceparent expires until wait \
         text message",
        "file",
    ),
    ("recv", "mailbox wait lease body", ""),
    ("settle", "id mailbox epoch", ""),
    ("reply", "id mailbox text message", "file"),
    ("mailbox release", "id mailbox epoch delay", ""),
    ("mailbox recall", "id mailbox", ""),
    ("inbox", "name limit", ""),
    ("mailbox extend", "id mailbox epoch duration", ""),
    ("assign", "worker text message task until wait plan ping", "file"),
    (
        "report",
        "task status summary reason modified created errors test_results options lint allowed",
        "",
    ),
    ("task new", "id text message to review after files", "file"),
    ("task add", "id description spec_ref done_when scope priority after draft needs_plan", ""),
    ("task list", "claimable status", ""),
    ("task show", "id", ""),
    ("task finalize", "id", ""),
    ("task block", "id reason questions", ""),
    ("task unblock", "id", ""),
    ("task supersede", "id by reason", ""),
    ("task claim", "id review", ""),
    ("task submit", "id unchanged epoch", ""),
    ("task verdict", "id approve reject reason commit epoch", ""),
    ("task merge", "id", ""),
    ("task abandon", "id reason", ""),
    ("task review", "task status start findings summary lift lint allowed", ""),
    ("task summary", "tasks batch wait accept reviewers", "instruction"),
    ("task dispatch", "once batch", "file"),
    ("request ask", "kind name text message task deadline id wait", "file"),
    ("request cancel", "id reason", ""),
    ("request plan", "to task id wait", "file positional_file"),
    ("request answer", "id approve reject reason", ""),
    ("request list", "id pending", ""),
    ("step add", "", "file"),
    ("step next", "task wait", ""),
    ("step submit", "epoch", "file positional_file"),
    ("step heartbeat", "task step epoch", ""),
    ("step list", "task", ""),
    ("step show", "task step", ""),
    ("step retry", "task step note", ""),
    ("step split", "task step", "file"),
    ("step skip", "task step note", ""),
    ("step unblock", "task step note", ""),
    ("step run", "task wait stop_if_stuck", ""),
    ("admin lint", "format mode require languages banned", "files root"),
];

/// The files that a line which was read names for a command that agents run unasked.
pub(crate) fn named_files(matches: &ArgMatches) -> Vec<PathBuf> {
    let (place, own) = leaf(matches);
    let row = UNASKED.iter().find(|(unasked, ..)| *unasked == place);
    let files = row.into_iter().flat_map(|(_, _, files)| files.split_ascii_whitespace());
    let values = files.filter_map(|id| own.try_get_raw(id).ok().flatten()).flatten();
    values.map(PathBuf::from).filter(|file| file != Path::new(STDIN)).collect()
}

fn leaf(matches: &ArgMatches) -> (String, &ArgMatches) {
    let (mut words, mut own) = (Vec::new(), matches);
    while let Some((word, below)) = own.subcommand() {
        words.push(word);
        own = below;
    }
    (words.join(" "), own)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    use clap::{Arg, Command, ValueHint};
    use ensemble_tmux::provider::{Profiles, plugin};

    use super::*;
    use crate::commands::place_among;

    const NAMES_ONLY: [(&str, &str); 4] = [
        ("report", "modified"),
        ("report", "created"),
        ("task add", "spec_ref"),
        ("task new", "files"),
    ];
    /// Arguments of every command; `--queue` and `--as` are checked by themselves.
    const GLOBAL: [&str; 5] = ["queue", "acting_as", "json", "help", "version"];

    fn leaves() -> Vec<(String, Command)> {
        fn collect(command: &Command, above: &str, found: &mut Vec<(String, Command)>) {
            for below in command.get_subcommands() {
                let words = format!("{above} {}", below.get_name()).trim_start().to_owned();
                let runs = !below.is_subcommand_required_set();
                if runs && place_among(&line(&words)).is_some() {
                    found.push((words.clone(), below.clone()));
                }
                collect(below, &words, found);
            }
        }
        let mut program = crate::commands::program();
        program.build();
        let mut found = Vec::new();
        collect(&program, "", &mut found);
        found
    }

    fn line(words: &str) -> Vec<OsString> {
        std::iter::once("ensemble").chain(words.split(' ')).map(OsString::from).collect()
    }

    /// The beginnings of commands that the launch settings of any agent allow, and the agent.
    fn allowed() -> BTreeSet<(String, String)> {
        let profiles = Profiles::embedded().unwrap();
        let mut all = BTreeSet::new();
        for name in profiles.names() {
            let profile = profiles.get(name).unwrap();
            let mut text = serde_json::to_string(profile.hooks()).unwrap();
            for file in ["opencode-events.js", "opencode-waiter.js"] {
                if text.contains(file) {
                    text.push_str(plugin(file).unwrap());
                }
            }
            let (rules, lists) =
                (text.split("(ensemble ").skip(1), text.split("ALLOWED = [").skip(1));
            let rules = rules.filter_map(|rule| rule.split_once(')')).map(|(rule, _)| rule);
            let listed = lists.filter_map(|list| list.split_once(']'));
            let listed = listed.flat_map(|(list, _)| list.split('"').skip(1).step_by(2));
            let verbs = rules.map(|rule| rule.trim_end_matches(":*")).chain(listed);
            all.extend(verbs.map(|verb| (verb.to_owned(), name.to_owned())));
        }
        all
    }

    #[test]
    fn what_runs_unasked_is_classified_with_every_option() {
        let allowed = allowed();
        assert!(allowed.iter().any(|(_, agent)| agent == "claude"), "{allowed:?}");
        assert!(allowed.iter().any(|(_, agent)| agent == "opencode"), "{allowed:?}");
        let mut reached = BTreeSet::new();
        let mut wrong = Vec::new();
        for (words, command) in leaves() {
            // A list compares characters: `task` allows all that begins so.
            let is_allowed = |(verb, _): &&(String, String)| words.starts_with(verb.as_str());
            let Some((verb, agent)) = allowed.iter().find(is_allowed) else { continue };
            let Some((_, harmless, files)) = UNASKED.iter().find(|(place, ..)| *place == words)
            else {
                wrong.push(format!("{agent} may run `{words}` unasked, by `{verb}`"));
                continue;
            };
            reached.insert(words.clone());
            let known: BTreeSet<&str> =
                harmless.split_ascii_whitespace().chain(files.split_ascii_whitespace()).collect();
            let own =
                command.get_arguments().filter(|arg| !GLOBAL.contains(&arg.get_id().as_str()));
            let own: Vec<&Arg> = own.collect();
            let ids: BTreeSet<&str> = own.iter().map(|arg| arg.get_id().as_str()).collect();
            if ids != known {
                wrong.push(format!("`{words}` takes {ids:?}, and {known:?} are classified"));
            }
            for arg in own {
                let id = arg.get_id().as_str();
                let is_file = names_a_file(arg) && !NAMES_ONLY.contains(&(&*words, id));
                if is_file != files.split_ascii_whitespace().any(|file| file == id) {
                    wrong.push(format!("`{words}`: is `{id}` a file to read?"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let rows: BTreeSet<String> =
            UNASKED.iter().map(|(place, ..)| (*place).to_owned()).collect();
        assert_eq!(rows, reached, "rows that no list allows");
    }

    fn names_a_file(arg: &Arg) -> bool {
        let is_path = arg.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>();
        let named = arg.get_value_names().unwrap_or_default();
        let is_named = named.iter().any(|name| {
            let name = name.as_str();
            ["FILE", "PATH", "DIR", "SOCKET", "URL"].iter().any(|word| name.starts_with(word))
        });
        is_path || is_named || !matches!(arg.get_value_hint(), ValueHint::Unknown)
    }
}
