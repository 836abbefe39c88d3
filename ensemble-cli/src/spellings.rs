//! Words that are understood besides the places of commands. A few short ones run. For words of other programs a hint
//! is given.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

/// The group of the commands that files of other programs and people who set up a project need.
pub(crate) const ADMIN: &str = "admin";
/// Commands whose word alone runs as well, with their group: because it is in files of agents, of tmux and of systemd, or
/// is typed in a hurry.
const SHORT: [(&str, &str); 6] = [
    ("hook", ADMIN),
    ("mcp", ADMIN),
    ("projects", ADMIN),
    ("recall", "mailbox"),
    ("tmux-status", ADMIN),
    ("watch", ADMIN),
];

const SYNONYMS: [(&str, &str); 33] = [
    ("api", "admin api"),
    ("ls", "inbox"),
    ("list", "inbox"),
    ("get", "recv"),
    ("receive", "recv"),
    ("read", "recv"),
    ("ack", "settle"),
    ("done", "settle"),
    ("complete", "settle"),
    ("finish", "settle"),
    ("nack", "mailbox release"),
    ("msg", "send"),
    ("publish", "send"),
    ("start", "up"),
    ("stop", "down"),
    ("ps", "team"),
    ("retry", "dead retry"),
    ("approve", "request answer"),
    ("plan", "request plan"),
    ("pane", "agent inspect"),
    ("kill", "request shutdown"),
    ("mail", "inbox"),
    ("messages", "inbox"),
    ("agents", "team"),
    ("tasks", "task list"),
    ("reject", "request answer"),
    ("logs", "log"),
    ("check", "doctor"),
    ("new", "init"),
    ("setup", "init"),
    ("broadcast", "send --all"),
    ("spawn", "agent start"),
    ("requests", "request list"),
];

/// The same for the commands of a group, whichever has one of that name.
const GROUP_SYNONYMS: [(&str, &str); 12] = [
    ("create", "add"),
    ("new", "add"),
    ("delete", "remove"),
    ("delete", "drop"),
    ("rm", "remove"),
    ("rm", "drop"),
    ("remove", "drop"),
    ("ls", "list"),
    ("show", "list"),
    ("get", "show"),
    ("redrive", "retry"),
    ("status", "list"),
];

pub(crate) fn find_in_group(group: &Command, word: &str) -> Option<&'static str> {
    let is_place = group.get_name() != "ensemble";
    let meant = GROUP_SYNONYMS.iter().filter(|(known, _)| *known == word && is_place);
    meant.map(|(_, meant)| *meant).find(|meant| group.find_subcommand(meant).is_some())
}

/// The command that a word of another program means, or that has the word at one other place.
pub(crate) fn meant_by(program: &Command, word: &str) -> Option<String> {
    let synonym = SYNONYMS.iter().find(|(known, _)| *known == word);
    synonym.map(|(_, meant)| (*meant).to_owned()).or_else(|| {
        let mut places = places_of(program, word);
        places.pop().filter(|_| places.is_empty())
    })
}

fn places_of(program: &Command, word: &str) -> Vec<String> {
    let below = program.get_subcommands().filter(|command| !command.is_hide_set());
    let place = |command: &Command| -> Vec<String> {
        let name = command.get_name();
        let own = (name == word).then(|| name.to_owned());
        let deeper = places_of(command, word).into_iter().map(|place| format!("{name} {place}"));
        own.into_iter().chain(deeper).collect()
    };
    below.flat_map(place).collect()
}

/// The line with a short word replaced by its place.
pub(crate) fn canonical(mut words: Vec<OsString>) -> Vec<OsString> {
    if let Some(&at) = positions(&words).first()
        && let Some(group) = words[at].to_str().and_then(group_of)
    {
        words.insert(at, group.into());
    }
    words
}

/// The line with each text that begins with a dash, such as a list, joined to its option: no option has spaces.
pub(crate) fn join_texts(
    words: Vec<OsString>,
    describe: impl Fn(&[OsString]) -> Option<Command>,
) -> Vec<OsString> {
    let is_text = |word: &OsString| {
        word.to_str().is_some_and(|it| it.starts_with('-') && it.contains(char::is_whitespace))
    };
    let Some(program) = words.iter().any(is_text).then(|| describe(&words)).flatten() else {
        return words;
    };
    let mut joined: Vec<OsString> = Vec::new();
    for word in words {
        match joined.last_mut() {
            Some(option) if is_text(&word) && takes_text(&program, option) => {
                option.push("=");
                option.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

fn takes_text(command: &Command, option: &OsStr) -> bool {
    let is_it = |arg: &Arg| {
        let long = option.to_str().and_then(|it| it.strip_prefix("--"));
        let longs = arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default());
        let is_short = arg.get_short().is_some_and(|short| *option == *format!("-{short}"));
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| *name == "TEXT")
            && (is_short || longs.into_iter().any(|it| Some(it) == long))
    };
    command.get_arguments().any(is_it)
        || command.get_subcommands().any(|below| takes_text(below, option))
}

fn group_of(word: &str) -> Option<&'static str> {
    SHORT.iter().find(|(short, _)| *short == word).map(|(_, group)| *group)
}

/// The positions of the first two words that are neither options nor values of global options.
pub(crate) fn positions(words: &[OsString]) -> Vec<usize> {
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

pub(crate) fn described(program: Command, words: &[String]) -> Option<Command> {
    let head = words.first().and_then(|first| group_of(first));
    let mut words = head.into_iter().chain(words.iter().map(String::as_str));
    words.try_fold(program, |command, word| command.find_subcommand(word).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{PLACES, bare, program, whole};

    #[test]
    fn a_short_word_runs_as_its_place() {
        let place = |line: &str| {
            let words = canonical(line.split(' ').map(OsString::from).collect());
            words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(place("ensemble --as w mcp --http 1"), "ensemble --as w admin mcp --http 1");
        assert_eq!(place("ensemble send --to watch"), "ensemble send --to watch");
        assert_eq!(place("ensemble admin hook stop"), "ensemble admin hook stop");
        assert_eq!(place("ensemble recall 01a2"), "ensemble mailbox recall 01a2");
        let is_place = |word: &str, group: &str| PLACES.contains(&&*format!("{group} {word}"));
        assert!(SHORT.iter().all(|(word, group)| is_place(word, group) || *word == "mcp"));
        assert!(SHORT.iter().all(|(word, _)| !PLACES.contains(word)));
    }

    #[test]
    fn a_synonym_means_a_command_and_is_none() {
        let program = whole(bare());
        for (word, meant) in SYNONYMS {
            assert!(program.find_subcommand(word).is_none(), "{word} is a command");
            assert!(group_of(word).is_none(), "{word} runs");
            let mut found = &program;
            for word in meant.split(' ').filter(|word| !word.starts_with('-')) {
                found = found.find_subcommand(word).unwrap_or_else(|| panic!("{meant}"));
            }
        }
    }

    #[test]
    fn a_short_word_is_explained_as_its_place() {
        let name = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            described(program(), &words).map(|command| command.get_name().to_owned())
        };
        assert_eq!(name(&["watch"]).as_deref(), Some("watch"));
        assert_eq!(name(&["board", "goal", "set"]).as_deref(), Some("set"));
        assert_eq!(name(&["nonsense"]), None);
    }
}
