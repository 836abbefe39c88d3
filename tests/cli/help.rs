//! The help of every command, and the pages that are made of what the program says.
//! `ENSEMBLE_UPDATE_SNAPSHOTS=1 cargo test -p ensemble-broker` rewrites those pages.

use std::path::PathBuf;

use crate::bed::{Bed, SaidText as _};

const UPDATE_VARIABLE: &str = "ENSEMBLE_UPDATE_SNAPSHOTS";

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every command line with its help, in the order in which help lists them.
fn all_help(bed: &Bed, verb: &str) -> Vec<(String, String)> {
    let help = bed.ok(&format!("{verb} --help"));
    if verb.is_empty() {
        return all_groups(bed, help);
    }
    let below = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    let below = below.split("\n\n").next().unwrap_or_default().to_owned();
    let mut all = vec![(format!("ensemble {verb}").trim_end().to_owned(), help)];
    // A summary that is too long for its line continues further right.
    for line in below.lines().filter(|line| !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" {
            all.extend(all_help(bed, format!("{verb} {name}").trim_start()));
        }
    }
    all
}

/// The first day, all commands in their groups, then the help of each.
fn all_groups(bed: &Bed, first_day: String) -> Vec<(String, String)> {
    let groups = bed.ok("help --all");
    let (people, programs) = groups.split_once("programs:\n").unwrap();
    let verbs = people.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let verbs = verbs.filter(|verb| !verb.is_empty()).map(str::to_owned);
    // Each has a place of two words.
    let places = programs.lines().take_while(|line| !line.is_empty());
    let places = places.map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
    let verbs: Vec<String> = verbs.chain(places).collect();
    let mut all =
        vec![("ensemble".to_owned(), first_day), ("ensemble help --all".to_owned(), groups)];
    verbs.iter().for_each(|verb| all.extend(all_help(bed, verb)));
    all
}

#[track_caller]
pub(crate) fn compare(path: &str, expected: &str) {
    let file = repository().join(path);
    if std::env::var_os(UPDATE_VARIABLE).is_some() {
        std::fs::write(&file, expected).unwrap();
    }
    let actual = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(actual == expected, "{path} is out of date: run the tests with {UPDATE_VARIABLE}=1");
}

#[test]
fn help_fits_a_terminal() {
    let bed = Bed::empty();
    let all = all_help(&bed, "");
    assert!(all.len() > 100, "{all:?}");
    for (line, help) in all {
        for row in help.lines() {
            assert!(row.chars().count() <= 100, "{line}: {row}");
        }
    }
}

#[test]
fn help_explains_commands_and_groups_and_its_short_form_is_shorter() {
    let bed = Bed::empty();
    assert_eq!(bed.ok("help"), bed.ok("--help"));
    assert_eq!(bed.ok("help task add"), bed.ok("task add --help"));
    bed.ok("help messages").begins("messages:\n  send ").has(["\n  recv "]);
    assert!(bed.fails(2, "help sned").contains("`ensemble help --all` lists all"));
    assert!(bed.fails(2, "ack m1").contains("hint: `ensemble settle` does that"));
    assert!(bed.fails(2, "finalize t1").contains("hint: `ensemble task finalize` does that"));
    assert!(bed.fails(2, "task assign w1 x").contains("hint: `ensemble assign` does that"));
    let bare = bed.fails(2, "");
    assert_eq!(bare, bed.ok("help"));
    // What people type: each word at the start of a line, and those that a line names beside it.
    let lines = bare.lines().filter_map(|line| line.strip_prefix("  "));
    let words = lines.filter_map(|line| line.split(' ').next()).count();
    assert_eq!(words + ["opencode", "gemini", "down"].len(), 14, "{bare}");
    let agent = bed.ok("agent -h");
    agent.has(["\n  join "]).lacks(["\n  heartbeat "]);
    assert!(bed.ok("help programs").contains("\n  agent heartbeat "));
    let flags = |help: &str| help.lines().filter(|line| line.contains(" --")).count();
    let (short, long) = (bed.ok("send -h"), bed.ok("send --help"));
    let (_, options) = short.split_once("Options:").unwrap();
    let (options, _) = options.split_once("Examples:").unwrap();
    assert_eq!(flags(options), 5 + 1, "five, and `--help`: {short}");
    assert!(flags(&long) > 15, "{long}");
}
