//! Five tasks of a person who has README and the help alone, in a terminal of 80 by 24: at most three screens each.
//!
//! The commands run in a real tmux, with a team in trouble, and each answer must be on its screen.

use super::Team;
use super::hooked::hooked;
use super::troubles::bury;
use crate::live::Screen;

const SIZE: (u16, u16) = (80, 24);
const SCREENS_MAX: usize = 3;

/// A command, and texts that its screen must have: how the person continues, or the answer.
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
            (
                "ensemble",
                &["is a dead letter", "after 5 attempts", "-> `ensemble dead retry dead-1`"],
            ),
            ("ensemble dead retry dead-1", &["returned dead-1 to docs"]),
        ],
    ),
    (
        "Approve a plan",
        &[
            (
                "ensemble",
                &["to decide on its plan approval", "-> `ensemble request list plan-1` shows it"],
            ),
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
            ("ensemble help", &["why       show what happened to a message, a task or an agent"]),
            ("ensemble why t-fail", &["It failed: 0 of 3 tests (0%) ran"]),
        ],
    ),
    (
        "Stop everything",
        &[
            ("ensemble help", &["`down` stops it"]),
            (
                "ensemble down --deadline 2s",
                &["reviewer may not answer", "coder-2", "stopped without an answer"],
            ),
        ],
    ),
];

/// A team of which one agent waits for a permission and one has failed, with a dead letter and a plan to approve.
fn in_trouble() -> Team {
    let team = hooked(&[("reviewer", "claude"), ("coder-2", "claude")], "poll_interval: 1\n");
    team.bed.add_mailboxes(&["boss", "docs"]);
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
    team.bed.write_file("plan.md", "move the cache to the disk\n");
    team.bed.ok("send --to coder-2 --type task --task t-fail --id m1 -m work");
    order("coder-2", "$E recv");
    let why = "0 of 3 tests (0%) ran: plan.md:1 needs a network";
    order("coder-2", &format!("$E report t-fail --status failed --reason '{why}'"));
    team.bed.ok("request plan plan.md --task t-plan --to boss --id plan-1");
    bury(&team, "dead-1");
    team
}

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

#[test]
fn five_tasks_are_found_within_three_screens_each() {
    let team = in_trouble();
    for (task, steps) in TASKS {
        assert!(steps.len() <= SCREENS_MAX, "{task}");
        for text in steps.iter().map(|step| screen(&team, *step)) {
            assert!(text.lines().count() <= usize::from(SIZE.1), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(SIZE.0)), "{text}");
        }
    }
}
