//! Five tasks of a person who has README and the help alone, in a terminal of 80 by 24: at most three screens each.
//!
//! The page `docs/evidence/five-tasks.md` has the screens; `make pictures` writes it. The test compares the page's
//! commands, and looks for each answer on its screens. Times and states on them are those of one run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::Team;
use super::hooked::hooked;
use super::troubles::bury;
use crate::live::Screen;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/evidence/five-tasks.md");
const SIZE: (u16, u16) = (80, 24);
const SCREENS_MAX: usize = 3;
const INTRODUCTION: &str = "# Five tasks within three screens

A person has README and the help, and a terminal of 80 columns and 24 lines. Each task is found within three screens. A
test runs the commands in a real tmux, with a team in trouble, and looks for the answer on each screen. It has written
this page, too: `make pictures` writes it again.
";

/// A command, and texts that its screen must have: how the person goes on, or the answer.
type Step = (&'static str, &'static [&'static str]);

const TASKS: [(&str, &[Step]); 5] = [
    (
        "Find a stuck agent",
        &[(
            "ensemble",
            &[
                "reviewer waits for a person: permission: Bash",
                "-> `ensemble agent attach reviewer`",
            ],
        )],
    ),
    (
        "Give back a dead letter",
        &[
            ("ensemble", &["DEAD LETTER", "after 5 attempts", "-> `ensemble dead retry dead-1`"]),
            ("ensemble dead retry dead-1", &["gave dead-1 back to box"]),
        ],
    ),
    (
        "Approve a plan",
        &[
            ("ensemble", &["DECISION", "-> `ensemble request list plan-1` shows it"]),
            (
                "ensemble request list plan-1",
                &["move the cache", "ensemble request answer plan-1 --approve --as boss"],
            ),
            (
                "ensemble request answer plan-1 --approve --as boss",
                &["Plan approved for", "operator has mail about it"],
            ),
        ],
    ),
    (
        "See why a task failed",
        &[
            ("ensemble help", &["ensemble why ID"]),
            ("ensemble why t-fail", &["task_failed", "why  0 of 3 tests (0%) ran"]),
        ],
    ),
    (
        "Stop everything",
        &[
            ("ensemble help", &["`down` ends it"]),
            (
                "ensemble down --deadline 2s",
                &["reviewer may not answer", "coder-2", "was ended without an answer"],
            ),
        ],
    ),
];

/// A team of which one agent waits for a permission and one has failed, with a dead letter and a plan to approve.
fn in_trouble() -> Team {
    let team =
        hooked(&[("reviewer", "claude"), ("coder-2", "claude")], "poll_interval_seconds: 1\n");
    for mailbox in ["boss", "box"] {
        team.bed.ok(&format!("mailbox add {mailbox}"));
    }
    let order = |name: &str, line: &str| {
        let ran = team.order(name, line);
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
    };
    let unknown = "printf '\\033[H\\033[2Jno screen that the profile knows' >/dev/tty;";
    let asked = r#"{"session_id":"s1","tool_name":"Bash"}"#;
    order(
        "reviewer",
        &format!("{unknown} printf '{asked}' | $E hook permission --provider claude"),
    );
    fs::write(team.bed.project().join("plan.md"), "move the cache to the disk\n").unwrap();
    team.bed.ok("send --to coder-2 --type task --task t-fail --id m1 -m work");
    order("coder-2", "$E recv");
    let why = "0 of 3 tests (0%) ran: plan.md:1 needs a network";
    order("coder-2", &format!("$E report t-fail --status failed --reason '{why}'"));
    team.bed.ok("plan submit plan.md --task t-plan --to boss --id plan-1");
    bury(&team, "dead-1");
    team
}

/// The screen of a command, once it has the texts.
fn screen(team: &Team, (command, texts): Step) -> String {
    let verb = command.trim_start_matches("ensemble").trim();
    let screen = Screen::start(&team.bed.project(), verb, SIZE);
    texts.iter().for_each(|text| screen.shows(text));
    // The last line of the live view, or the end of the command.
    screen.shows(if verb.is_empty() { "keys  q quit" } else { "left 0" });
    let text = screen.text();
    let shown = text.lines().take_while(|line| !line.starts_with("left 0")).collect::<Vec<_>>();
    let home = team.bed.project().parent().unwrap().display().to_string();
    shown.join("\n").replace(&home, "~").trim_end().to_owned()
}

fn page(screens: &[Vec<String>]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for (number, ((task, steps), screens)) in TASKS.iter().zip(screens).enumerate() {
        let _ = write!(page, "\n## {}. {task}\n", number + 1);
        for ((command, _), screen) in steps.iter().zip(screens) {
            let _ = write!(page, "\n`{command}`\n\n```text\n{screen}\n```\n");
        }
    }
    page
}

/// The commands of each task on the page, with their screens.
fn read(page: &str) -> Vec<(String, Vec<(String, String)>)> {
    let tasks = page.split("\n## ").skip(1).map(|part| {
        let (title, rest) = part.split_once('\n').unwrap();
        // A screen may have lines that look like the command of the next one.
        let parts: Vec<&str> = rest.split("`\n\n```text\n").collect();
        let screens = parts.windows(2).map(|pair| {
            let command = pair[0].rsplit_once("\n`").unwrap().1;
            (command.to_owned(), pair[1].split_once("\n```").unwrap().0.to_owned())
        });
        (title.split_once(". ").unwrap().1.to_owned(), screens.collect())
    });
    tasks.collect()
}

#[test]
fn five_tasks_are_found_within_three_screens_each() {
    let team = in_trouble();
    let screens: Vec<Vec<String>> = TASKS
        .iter()
        .map(|(_, steps)| steps.iter().map(|step| screen(&team, *step)).collect())
        .collect();
    if let Some(place) = std::env::var_os("ENSEMBLE_WRITE_PICTURES") {
        fs::write(Path::new(&place).join("../evidence/five-tasks.md"), page(&screens)).unwrap();
    }
    let told = fs::read_to_string(PAGE).unwrap();
    assert!(told.starts_with(INTRODUCTION), "`make pictures` writes it anew");
    let told = read(&told);
    assert_eq!(told.len(), TASKS.len());
    for ((task, steps), (title, shown)) in TASKS.iter().zip(&told) {
        assert_eq!(task, title);
        assert!(steps.len() <= SCREENS_MAX && steps.len() == shown.len(), "{task}");
        for ((command, texts), (its, text)) in steps.iter().zip(shown) {
            assert_eq!(command, its, "{task}");
            texts
                .iter()
                .for_each(|part| assert!(text.contains(part), "{command}: `{part}`\n{text}"));
        }
    }
    let all = told.iter().flat_map(|(_, shown)| shown.iter().map(|(_, text)| text));
    for text in all.chain(screens.iter().flatten()) {
        assert!(text.lines().count() <= usize::from(SIZE.1), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(SIZE.0)), "{text}");
    }
}
