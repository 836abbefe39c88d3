//! What needs a person, with a real team: each trouble is named, and an ordinary life of a team names none.

use std::collections::BTreeSet;
use std::fs;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{Options, Spool};

use super::Team;
use super::hooked::hooked;
use crate::live::Screen;
use crate::picture;
use crate::tmux_support::eventually;

/// The needs of `status`: kind, and the agent or what it is about.
fn needs(team: &Team) -> BTreeSet<String> {
    let last = team.bed.json("status").pop().unwrap();
    let needs = last["needs"].as_array().unwrap().iter().map(|need| {
        let who = need["agent"].as_str().or_else(|| need["about"].as_str()).unwrap_or_default();
        format!("{} {who}", need["need"].as_str().unwrap())
    });
    needs.collect()
}

/// Whether a line of the live view is a need. The lines of agents follow: a mark, and a name in small letters.
fn is_need(line: &&str) -> bool {
    let kind = line.strip_prefix("! ").or_else(|| line.strip_prefix("- "));
    kind.is_some_and(|kind| kind.starts_with(|c: char| c.is_ascii_uppercase()))
}

pub(super) fn bury(team: &Team, id: &str) {
    let mut options = Options::default();
    options.durability = Durability::Process;
    let spool = Spool::open(&team.bed.project().join("queue"), options).unwrap();
    let (box_name, id) = (Name::new("box").unwrap(), MessageId::new(id).unwrap());
    let task = Envelope::new(box_name.clone(), "work\n").with_task("t-dead").with_id(id.clone());
    spool.publish(&task.with_kind(Name::new("task").unwrap())).unwrap();
    spool.dead_letter_waiting(&box_name, &id, "after 5 attempts").unwrap();
}

/// As the live view calls the seven.
const KINDS: [&str; 7] =
    ["BLOCKED", "GONE", "DECISION", "ESCALATION", "STANDSTILL", "DEAD LETTER", "LIMITED"];

#[test]
fn seven_troubles_are_named_and_no_eighth() {
    let config = "alarms: {draft_seconds: 1, to: conductor}\n\
                  ladder: {phase_seconds: 2, ceiling_seconds: 0}\npoll_interval_seconds: 1\n";
    let agents = [
        "reviewer", "coder-2", "coder-4", "worker-6", "worker-1", "worker-2", "planner", "coder-7",
    ]
    .map(|name| (name, "claude"));
    let team = hooked(&agents, config);
    assert_eq!(needs(&team), BTreeSet::new(), "a team that is up needs nothing");
    for mailbox in ["boss", "box"] {
        team.bed.ok(&format!("mailbox add {mailbox}"));
    }
    let hook = |name: &str, line: &str| assert_eq!(team.order(name, line).code, 0, "{line}");
    let unknown = "printf '\\033[H\\033[2Jno screen that the profile knows' >/dev/tty;";
    let asked = r#"{"session_id":"s1","tool_name":"Bash"}"#;
    hook("reviewer", &format!("{unknown} printf '{asked}' | $E hook permission --provider claude"));
    let limited = r#"{"session_id":"s1","error":"rate_limit"}"#;
    hook("coder-2", &format!("printf '{limited}' | $E hook failure --provider claude"));
    team.bed.ok("send --to coder-4 --type task --task t-held --id held -m work");
    hook("coder-4", "$E recv");
    team.server().kill_pane(&team.pane("coder-4").id).unwrap();
    team.bed.ok("send --to worker-6 --type task --task t-mute --id unread -m work");
    fs::write(team.bed.project().join("plan.md"), "the plan\n").unwrap();
    team.bed.ok("plan submit plan.md --task t-plan --to boss");
    team.bed.ok("board init");
    team.bed.ok("task add later -d work --spec s.md --done-when works --draft");
    bury(&team, "dead-1");
    for worker in ["worker-1", "worker-2"] {
        team.bed
            .ok(&format!("send --to {worker} --type task --task t-{worker} --id {worker} -m work"));
        hook(worker, "$E recv");
    }

    let expected = [
        "blocked reviewer",
        "dead_letter box",
        "decision boss",
        "escalation worker-6",
        "gone coder-4",
        "limited coder-2",
        "standstill later",
    ];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    eventually("all seven are named", || needs(&team).is_superset(&expected));
    assert_eq!(needs(&team), expected);
    let screen = Screen::start(&team.bed.project(), "top", (80, 24));
    screen.shows("NEEDS YOU: 6");
    KINDS.iter().for_each(|kind| screen.shows(kind));
    let text = screen.text();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(text.lines().filter(is_need).count(), expected.len(), "{text}");
    check_page(&team, &expected);
    picture::keep("top", "The live view: what needs a person comes first", &screen.coloured(), 80);
    let status = Screen::start(&team.bed.project(), "status", (80, 60));
    status.shows("left 0");
    let all = status.text();
    assert!(!all.lines().any(|line| line.starts_with("s)")), "a need is one line: {all}");
    let heads = all.lines().filter(|line| line.starts_with("  ! ") || line.starts_with("  - "));
    let helps = all.lines().filter(|line| line.starts_with("    -> "));
    assert_eq!(heads.count(), helps.count(), "{all}");
    let shown = status.coloured();
    let shown: Vec<&str> = shown.lines().take_while(|line| !line.contains("left 0")).collect();
    picture::keep("status", "ensemble status of the same team", &shown.join("\n"), 80);
    keep_pictures(&team);
    let first = text.lines().find(|line| line.starts_with("! ")).unwrap();
    assert!(first.contains("BLOCKED") && first.contains("attach reviewer"), "{text}");
}

/// Draws the bare help, and the team as `team` shows it.
fn keep_pictures(team: &Team) {
    let team_title = "ensemble team: the state of each agent, with its evidence";
    for (verb, title) in [("help", "The bare help"), ("team", team_title)] {
        let screen = Screen::start(&team.bed.project(), verb, (80, 40));
        screen.shows("left 0");
        let shown = screen.coloured();
        let shown: Vec<&str> = shown.lines().take_while(|line| !line.contains("left 0")).collect();
        picture::keep(verb, title, &shown.join("\n"), 80);
    }
}

/// The page of the session names the same needs, each with its command, and no other.
fn check_page(team: &Team, expected: &BTreeSet<String>) {
    let page = team.bed.ok("log report -o -");
    let from = page.find("<section id=\"needs\">").expect("needs");
    let section = &page[from..from + page[from..].find("</section>").unwrap()];
    assert_eq!(section.matches("<li ").count(), expected.len(), "{section}");
    let named = [
        "reviewer waits for a person",
        "coder-4 is gone",
        "coder-2 is at its usage limit",
        "waits for boss",
        "worker-6 did not take task t-mute",
        "later",
        "task t-dead of box is a dead letter",
    ];
    for need in named {
        assert!(section.contains(need), "{need}: {section}");
    }
    assert!(section.contains("<code>ensemble agent attach reviewer</code>"), "{section}");
}

#[test]
fn an_ordinary_life_of_a_team_needs_nothing() {
    let team = Team::with(&["worker-1"], "poll_interval_seconds: 1\n");
    team.up();
    team.wait_for_puppet("worker-1");
    team.wait_for_state("worker-1", "idle");
    assert_eq!(needs(&team), BTreeSet::new());
    team.bed.ok("send --to worker-1 --type task --task t1 --id m1 -m work");
    assert_eq!(team.order("worker-1", "$E recv").code, 0);
    assert_eq!(needs(&team), BTreeSet::new());
    assert_eq!(team.order("worker-1", "$E settle m1").code, 0);
    assert_eq!(needs(&team), BTreeSet::new());
    team.bed.ok("down --force");
    assert_eq!(needs(&team), BTreeSet::new());
}
