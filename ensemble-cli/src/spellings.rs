//! Words that are understood besides the places of commands. Spellings of former versions still run. For words of
//! other programs a hint is given.

use std::ffi::OsString;

use clap::Command;

/// Spellings of former versions, `request show` as in `dead show`, `agent list` as elsewhere, and `export` and `restart`, which are short for their places. `hook`, `mcp`, `watch`, `prime` and
/// `tmux-status` also stand in files of agents, of tmux and of systemd, so that these stay.
const FORMER: [(&str, &[&str]); 52] = [
    ("spawn", &["agent", "start"]),
    ("restart", &["agent", "restart"]),
    ("join", &["agent", "join"]),
    ("adopt", &["agent", "adopt"]),
    ("attach", &["agent", "attach"]),
    ("whoami", &["agent", "whoami"]),
    ("prime", &["agent", "prime"]),
    ("pane inspect", &["agent", "inspect"]),
    ("nudge", &["agent", "nudge"]),
    ("ping", &["agent", "ping"]),
    ("pong", &["agent", "pong"]),
    ("instruct", &["agent", "instruct"]),
    ("supervise", &["agent", "supervise"]),
    ("usage", &["agent", "usage"]),
    ("escalations", &["log", "escalations"]),
    ("export", &["log", "export"]),
    ("broadcast", &["send", "--all"]),
    ("extend", &["mailbox", "extend"]),
    ("release", &["mailbox", "release"]),
    ("recall", &["mailbox", "recall"]),
    ("review", &["task", "review"]),
    ("summary", &["task", "summary"]),
    ("dispatch", &["task", "dispatch"]),
    ("plan submit", &["request", "plan"]),
    ("plan review", &["request", "answer"]),
    ("respond", &["request", "answer"]),
    ("requests", &["request", "list"]),
    ("request show", &["request", "list"]),
    ("agent list", &["team"]),
    ("goal", &["board", "goal"]),
    ("sprint", &["board", "sprint"]),
    ("discover", &["board", "discover"]),
    ("anomaly", &["board", "anomaly"]),
    ("analyze", &["board", "analyze"]),
    ("prompt", &["board", "prompt"]),
    ("checkpoint", &["board", "checkpoint"]),
    ("abort", &["board", "abort"]),
    ("watch", &["admin", "watch"]),
    ("hooks", &["admin", "hooks"]),
    ("hook", &["admin", "hook"]),
    ("mcp", &["admin", "mcp"]),
    ("projects", &["admin", "projects"]),
    ("notify", &["admin", "notify"]),
    ("tmux-status", &["admin", "tmux-status"]),
    ("bridge", &["admin", "bridge"]),
    ("migrate", &["admin", "migrate"]),
    ("fsck", &["admin", "fsck"]),
    ("lint", &["admin", "lint"]),
    ("schema", &["admin", "schema"]),
    ("completions", &["admin", "completions"]),
    ("conformance", &["admin", "conformance"]),
    ("man", &["admin", "man"]),
];

/// Words of other programs for our commands.
const SYNONYMS: [(&str, &str); 27] = [
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
];

/// The command that a word of another program means.
pub(crate) fn meant_by(word: &str) -> Option<&'static str> {
    SYNONYMS.iter().find(|(known, _)| *known == word).map(|(_, meant)| *meant)
}

/// The line with a former spelling replaced by today's.
pub(crate) fn canonical(mut words: Vec<OsString>) -> Vec<OsString> {
    let found = positions(&words);
    let text: Vec<&str> = found.iter().filter_map(|&at| words[at].to_str()).collect();
    let Some((former, today)) = former(&text) else { return words };
    if former.contains(' ') {
        words.remove(found[1]);
    }
    words.splice(found[0]..=found[0], today.iter().map(OsString::from));
    words
}

/// The former spellings of a command.
pub(crate) fn former_spellings(place: &str) -> Vec<&'static str> {
    let is_of = |today: &[&str]| {
        let words: Vec<&str> =
            today.iter().copied().filter(|word| !word.starts_with('-')).collect();
        place == words.join(" ")
    };
    FORMER.iter().filter(|(_, today)| is_of(today)).map(|(former, _)| *former).collect()
}

/// Today's words for a former spelling, and the spelling.
pub(crate) fn former(words: &[&str]) -> Option<(&'static str, &'static [&'static str])> {
    let is_meant = |former: &str| match former.split_once(' ') {
        Some((first, second)) => words.starts_with(&[first, second]),
        None => words.first() == Some(&former),
    };
    FORMER.iter().find(|(former, _)| is_meant(former)).copied()
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

/// The command that words name, also in a former spelling.
pub(crate) fn described(program: Command, words: &[String]) -> Option<Command> {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some((spelling, today)) = former(&words) {
        let today = today.iter().filter(|word| !word.starts_with('-')).copied();
        let rest = words.split_off(spelling.split(' ').count());
        words = today.chain(rest).collect();
    }
    words.into_iter().try_fold(program, |command, word| command.find_subcommand(word).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{PLACES, bare, program, whole};

    fn today(line: &str) -> String {
        let words = canonical(line.split(' ').map(OsString::from).collect());
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_former_spelling_runs_as_todays() {
        assert_eq!(
            today("ensemble --as w spawn x --role y"),
            "ensemble --as w agent start x --role y"
        );
        assert_eq!(today("ensemble plan --json submit f"), "ensemble request plan --json f");
        assert_eq!(today("ensemble plan"), "ensemble plan");
        assert_eq!(today("ensemble send --to spawn"), "ensemble send --to spawn");
        assert_eq!(today("ensemble broadcast hi"), "ensemble send --all hi");
    }

    #[test]
    fn former_spellings_lead_to_places_and_are_none() {
        for (former, today) in FORMER {
            assert!(!PLACES.contains(&former), "{former}");
            let words = today.iter().copied().filter(|word| !word.starts_with('-'));
            let place = words.collect::<Vec<_>>().join(" ");
            assert!(PLACES.contains(&&*place) || place == "admin mcp", "{place}");
        }
    }

    #[test]
    fn a_synonym_means_a_command_and_is_none() {
        let program = whole(bare());
        for (word, meant) in SYNONYMS {
            assert!(program.find_subcommand(word).is_none(), "{word} is a command");
            assert!(former(&[word]).is_none(), "{word} runs");
            let mut found = &program;
            for word in meant.split(' ') {
                found = found.find_subcommand(word).unwrap_or_else(|| panic!("{meant}"));
            }
        }
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
