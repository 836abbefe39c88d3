//! Words that are understood besides the places of commands. A few short ones run. For words of other programs a hint
//! is given.

use std::ffi::OsString;

use clap::Command;

/// The group of the commands that files of other programs and people who set up a project need.
pub(crate) const ADMIN: &str = "admin";
/// Commands of it whose word alone runs as well, because it is in files of agents, of tmux and of systemd.
const SHORT: [&str; 5] = ["hook", "mcp", "projects", "tmux-status", "watch"];

/// Words of other programs for our commands.
const SYNONYMS: [(&str, &str); 30] = [
    ("api", "admin api"),
    ("ls", "inbox"),
    ("list", "inbox"),
    ("get", "recv"),
    ("receive", "recv"),
    ("ack", "recv"),
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
    ("kill", "down"),
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

/// The command that a word of another program means, or that has the word at one other place.
pub(crate) fn meant_by(program: &Command, word: &str) -> Option<String> {
    let synonym = SYNONYMS.iter().find(|(known, _)| *known == word);
    synonym.map(|(_, meant)| (*meant).to_owned()).or_else(|| {
        let mut places = places_of(program, word);
        places.pop().filter(|_| places.is_empty())
    })
}

/// The places of all commands of this name.
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
        && SHORT.iter().any(|short| words[at] == **short)
    {
        words.insert(at, ADMIN.into());
    }
    words
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

/// The command that words name, by their place or a short word.
pub(crate) fn described(program: Command, words: &[String]) -> Option<Command> {
    let is_short = words.first().is_some_and(|first| SHORT.contains(&first.as_str()));
    let head = is_short.then_some(ADMIN);
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
        let is_place = |word: &str| PLACES.contains(&&*format!("{ADMIN} {word}"));
        assert!(SHORT.iter().all(|word| is_place(word) || *word == "mcp"));
        assert!(SHORT.iter().all(|word| !PLACES.contains(word)));
    }

    #[test]
    fn a_synonym_means_a_command_and_is_none() {
        let program = whole(bare());
        for (word, meant) in SYNONYMS {
            assert!(program.find_subcommand(word).is_none(), "{word} is a command");
            assert!(!SHORT.contains(&word), "{word} runs");
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
