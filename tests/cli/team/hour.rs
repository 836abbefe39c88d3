//! An hour of eight agents with seven troubles among ordinary work, in a real tmux: each reader names the seven, and
//! no eighth. Its length is compressed to what the steps take; [`LENGTH`] gives it its own.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ensemble_core::message::Timestamp;
use serde_json::Value;

use super::Team;
use super::hooked::hooked;
use super::troubles::{bury, is_need, needs, page_section};
use crate::bed::SaidText as _;
use crate::browser::Browser;
use crate::live::Screen;
use crate::picture;
use crate::session_page::DESK;
use crate::tmux_support::eventually;

/// Environment variable: the length of the hour in seconds. 3,600 is a real one.
const LENGTH: &str = "ENSEMBLE_HOUR_SECONDS";

/// Alarms and ladders of a project that does not wait long.
const CONFIG: &str = "alarms: {draft: 1, to: conductor}\n\
                      ladder: {phase: 2, ceiling: 0}\npoll_interval: 1\n";

struct Hour {
    team: Team,
    began: Instant,
    length: Duration,
}

impl Hour {
    fn begin() -> Self {
        let agents = [
            "reviewer", "coder-2", "coder-4", "worker-6", "worker-1", "worker-2", "planner",
            "coder-7",
        ]
        .map(|name| (name, "claude"));
        let team = hooked(&agents, CONFIG);
        assert_eq!(needs(&team), BTreeSet::new(), "a team that is up needs nothing");
        team.bed.add_mailboxes(&["lead", "docs"]);
        team.bed.write_file("plan.md", "split the parser in two\n");
        team.bed.ok("board init");
        let seconds = std::env::var(LENGTH).ok().and_then(|text| text.parse().ok());
        Self { team, began: Instant::now(), length: Duration::from_secs(seconds.unwrap_or(0)) }
    }

    fn minute(&self, minute: u32) {
        let due = self.began + self.length * minute / 60;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }

    fn hook(&self, name: &str, event: &str, input: &str) {
        let line = format!("printf '{input}' | $E hook {event} --provider claude");
        let ran = self.team.order(name, &line);
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
    }

    fn order(&self, name: &str, line: &str) {
        let ran = self.team.order(name, line);
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
    }

    /// Two workers do a task each, one of them after an approved plan.
    fn ordinary(&self, round: u32) {
        let bed = &self.team.bed;
        for worker in ["worker-1", "worker-2"] {
            let id = format!("{worker}-{round}");
            bed.ok(&format!("send --to {worker} --type task --task t-{id} --id {id} -m work"));
            // Mail comes with a prompt.
            self.hook(worker, "prompt", r#"{"session_id":"s"}"#);
        }
        let task = format!("t-worker-1-{round}");
        self.order("worker-1", &format!("$E request plan plan.md --task {task} --to lead"));
        let pending = bed.json("request list --pending");
        let request = pending.iter().find(|line| line["task_id"] == *task).expect("the plan waits");
        bed.ok(&format!(
            "request answer {} --approve --as lead",
            request["request_id"].as_str().unwrap()
        ));
        for worker in ["worker-1", "worker-2"] {
            self.order(worker, &format!("$E settle {worker}-{round}"));
            self.order(worker, READ_ALL);
            self.hook(worker, "stop", r#"{"session_id":"s"}"#);
        }
    }

    fn permission(&self) {
        let unknown = "printf '\\033[H\\033[2Jno screen that the profile knows' >/dev/tty";
        self.order("reviewer", unknown);
        self.hook("reviewer", "permission", r#"{"session_id":"s1","tool_name":"Bash"}"#);
        self.team.wait_for_state("reviewer", "blocked");
    }

    fn death(&self) {
        self.team.bed.ok("send --to coder-4 --type task --task cache --id held -m work");
        self.order("coder-4", "$E recv");
        self.team.server().kill_pane(&self.team.pane("coder-4").id).unwrap();
    }
}

/// Receives and settles what is left, such as answers.
const READ_ALL: &str = "while all=$($E recv --json); do \
    $E settle $(printf '%s' \"$all\" | grep -o '\"id\":\"[^\"]*\"' | head -1 | cut -d'\"' -f4); done";

const KINDS: [&str; 7] =
    ["reviewer", "coder-4", "lead", "worker-6", "api-docs", "changelog", "coder-2"];

/// As `status` has them: kind, and the agent or what it is about.
const NEEDS: [&str; 7] = [
    "blocked reviewer",
    "dead_letter docs",
    "decision lead",
    "escalation worker-6",
    "gone coder-4",
    "limited coder-2",
    "standstill api-docs",
];

#[test]
#[ignore = "long"]
fn an_hour_of_eight_agents_has_seven_troubles_and_no_eighth() {
    let hour = Hour::begin();
    let bed = &hour.team.bed;
    hour.minute(3);
    hour.ordinary(1);
    hour.minute(11);
    let before = Timestamp::now();
    hour.permission();
    // The watcher says since when, and looks twice a second.
    eventually("it is named", || {
        needs(&hour.team).contains("blocked reviewer")
            && !need(&hour.team, "blocked")["since"].is_null()
    });
    let after = Timestamp::now();
    hour.minute(15);
    hour.hook("coder-2", "failure", r#"{"session_id":"s1","error":"rate_limit"}"#);
    hour.minute(20);
    hour.order("planner", "$E request plan plan.md --task parser --to lead");
    hour.minute(23);
    hour.ordinary(2);
    hour.minute(30);
    hour.death();
    hour.minute(35);
    bed.ok("task add api-docs -d work --spec s.md --done-when works --draft");
    hour.minute(38);
    bed.ok("send --to worker-6 --type task --task login-tests --id unread -m work");
    hour.minute(45);
    bury(&hour.team, "dead-1");
    hour.minute(52);
    hour.ordinary(3);
    hour.minute(55);
    // By now it knows that no decision came.
    hour.order("planner", READ_ALL);
    hour.minute(60);

    let expected: BTreeSet<String> = NEEDS.map(str::to_owned).into();
    eventually("all seven are named", || needs(&hour.team).is_superset(&expected));
    assert_eq!(needs(&hour.team), expected);
    let blocked = need(&hour.team, "blocked");
    let since: Timestamp = serde_json::from_value(blocked["since"].clone()).unwrap();
    assert!(before <= since && since <= after, "{before} {since} {after}");
    check_view(&hour.team);
    check_status(&hour.team);
    check_page(&hour.team);
    keep_team(&hour.team);
    keep_page(&hour.team);
}

fn need(team: &Team, kind: &str) -> Value {
    let last = team.bed.json("status").pop().unwrap();
    let needs = last["needs"].as_array().unwrap();
    needs.iter().find(|need| need["need"] == kind).unwrap().clone()
}

/// The live view names the seven in their order of urgency, at 80 columns.
fn check_view(team: &Team) {
    let screen = Screen::start(&team.bed.project(), "top", (80, 24));
    screen.shows("NEEDS YOU: 6");
    KINDS.iter().for_each(|kind| screen.shows(kind));
    let text = screen.text();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(text.lines().filter(is_need).count(), NEEDS.len(), "{text}");
    let first = text.lines().find(is_need).unwrap();
    assert!(first.contains("attach reviewer"), "{text}");
    picture::keep("top", "The live view: what needs a person comes first", &screen.coloured(), 80);
}

/// `status` has a line and a command for each need.
fn check_status(team: &Team) {
    let status = Screen::start(&team.bed.project(), "status", (80, 60));
    status.shows("left 0");
    let all = status.text();
    assert!(!all.lines().any(|line| line.starts_with("s)")), "a need is one line: {all}");
    let heads = all.lines().filter(|line| line.starts_with("!  ") || line.starts_with("-  "));
    let helps = all.lines().filter(|line| line.contains("-> "));
    assert_eq!((heads.count(), helps.count()), (NEEDS.len(), NEEDS.len()), "{all}");
    keep_picture("status", "ensemble status of the same team", &status);
}

/// The page of the session names the same needs, each with its command, and no other.
fn check_page(team: &Team) {
    let section = page_section(team, "needs");
    assert_eq!(section.matches("<li ").count(), NEEDS.len(), "{section}");
    let named = [
        "reviewer waits for a person",
        "coder-4 is gone",
        "coder-2 is at its usage limit",
        "planner waits for lead",
        "worker-6 did not take task login-tests",
        "task api-docs has been a draft for over 1 s",
        "task changelog of docs is a dead letter",
    ];
    for need in named {
        assert!(section.contains(need), "{need}: {section}");
    }
    section.has(["<code>ensemble agent attach reviewer</code>"]);
}

fn keep_page(team: &Team) {
    let page = team.bed.project().join("page.html");
    team.bed.ok(&format!("log report -o {}", page.display()));
    if let Some(mut browser) = Browser::start(&team.bed.project()) {
        browser.open(&page, DESK);
        browser.write_picture("session-page", 1_560);
    }
}

fn keep_team(team: &Team) {
    let screen = Screen::start(&team.bed.project(), "team", (80, 40));
    screen.shows("left 0");
    keep_picture("team", "ensemble team: the state of each agent, with its evidence", &screen);
}

/// Draws what a command that has ended left on the screen.
pub(super) fn keep_picture(verb: &str, title: &str, screen: &Screen) {
    let shown = screen.coloured();
    let shown: Vec<&str> = shown.lines().take_while(|line| !line.contains("left 0")).collect();
    picture::keep(verb, title, &shown.join("\n"), 80);
}
