//! What a person sees of a team at work: the screens of a page of the guide, taken from a real run, and the questions
//! that people ask, each answered by one command.

use std::path::Path;

use serde_json::Value;

use super::hour::keep_picture;
use super::{Team, kill};
use crate::live::Screen;
use crate::tmux_support::eventually;

const PAGE: &str = "docs/guides/what-you-see.md";

impl Team {
    fn has_record(&self, kind: &str, is_it: impl Fn(&Value) -> bool) -> bool {
        self.records(kind).iter().any(is_it)
    }

    fn is_seen(&self, name: &str, state: &str) {
        eventually(&format!("{name} is seen {state}"), || {
            let all = self.records("agent.state");
            let last = all.iter().rfind(|record| record["agent"] == name);
            last.is_some_and(|record| record["to"] == state)
        });
        eventually("and since when", || self.member(name)["since"].is_string());
    }

    fn notify(&self, to: &str, line: &str, id: &str) {
        self.shell(&format!("$E send --as operator --to {to} --id {id} {line}")).ends(0);
        eventually("it is notified", || {
            let names = |record: &Value| {
                record["ids"].as_array().is_some_and(|ids| ids.contains(&id.into()))
            };
            self.has_record("receipt.submitted", names)
        });
    }

    fn does(&self, name: &str, line: &str) {
        let ran = self.order(name, line);
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
    }

    fn screen(&self, name: &str, verb: &str) -> String {
        let screen = Screen::start(&self.bed.project(), verb, (80, 24));
        screen.shows("left 0");
        keep_picture(&format!("seen-{name}"), &format!("ensemble {verb}"), &screen);
        let text = screen.text();
        let lines = text.lines().take_while(|line| !line.starts_with("left 0"));
        lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }
}

/// A person asks gem to count, gem answers, coda works on a task, and cora dies with one.
fn at_work() -> (Team, Vec<(&'static str, String)>) {
    let team = Team::with(&["coda", "cora", "gem"], "");
    team.up();
    for name in ["coda", "cora", "gem"] {
        team.wait_for_puppet(name);
        team.is_seen(name, "idle");
    }
    let mut screens = vec![("rest", team.screen("rest", "status"))];
    team.notify("gem", "'please count the lines of main.rs'", "ask-1");
    team.does("gem", "$E recv");
    team.is_seen("gem", "working");
    team.does("gem", "$E reply ask-1 '42 lines in main.rs'");
    team.is_seen("gem", "idle");
    team.notify("coda", "--type task --task auth 'review the auth change'", "task-1");
    team.does("coda", "$E recv");
    team.is_seen("coda", "working");
    team.notify("cora", "--type task --task db 'migrate the database'", "task-2");
    team.does("cora", "$E recv");
    team.is_seen("cora", "working");
    kill(team.pane("cora").pid);
    team.is_seen("cora", "gone");
    let is_back = |record: &Value| record["id"] == "task-2";
    eventually("its task is back", || team.has_record("message.released", is_back));
    eventually("and the conductor knows", || team.has_record("alarm.raised", |_| true));
    screens.push(("needs", team.screen("needs", "status")));
    let top = Screen::start(&team.bed.project(), "top", (80, 24));
    top.shows("cora  working -> gone");
    keep_picture("seen-top", "ensemble top", &top);
    screens.push(("top", top.text().trim_end().to_owned()));
    for (name, verb) in
        [("message", "why ask-1"), ("agent", "why coda"), ("thread", "why operator")]
    {
        screens.push((name, team.screen(name, verb)));
    }
    (team, screens)
}

/// A screen with the times of the page. Columns stay aligned.
fn as_example(screen: &str) -> String {
    let is_age = |word: &str| {
        let number = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let unit = &word[number.len()..];
        !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
            && ["ms", "s", "m"].contains(&unit)
    };
    let plain = |line: &str| {
        let mut before = "";
        let words = line.split(' ').map(|word| {
            let is_process = std::mem::replace(&mut before, word) == "process";
            let bare = word.trim_matches(|c: char| "(),:".contains(c));
            match bare.len() {
                8 if bare.as_bytes()[2] == b':' => word.replace(bare, "12:03:04"),
                _ if is_age(bare) => word.replace(bare, "4s"),
                _ if is_process && bare.parse::<u32>().is_ok() => word.replace(bare, "2471"),
                _ => word.to_owned(),
            }
        });
        words
            .collect::<Vec<_>>()
            .join(" ")
            .replace("just now", "4s ago")
            .replace("4s 4s", "4s")
            .trim_end()
            .to_owned()
    };
    let lines: Vec<String> = screen.lines().map(plain).collect();
    let rows: Vec<Option<[&str; 5]>> = lines.iter().map(|line| as_row(line)).collect();
    let width = |column: usize| {
        let cells = rows.iter().flatten().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let aligned = lines.iter().zip(&rows).map(|(line, row)| {
        let Some(row) = row else { return line.clone() };
        let padded = row.iter().enumerate().map(|(at, cell)| format!("{cell:<0$}", width(at)));
        let lead = if line.starts_with(" .") || line.starts_with(" >") || line.starts_with("    ") {
            " "
        } else {
            ""
        };
        format!("{lead}{}", padded.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    });
    aligned.collect::<Vec<_>>().join("\n")
}

/// The cells of a row of an agent or a mailbox, or of their head.
fn as_row(line: &str) -> Option<[&str; 5]> {
    let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let cells: Vec<&str> = cells.collect();
    match cells.as_slice() {
        _ if line.contains("-> `") => None,
        [name, said] if said.contains(" unread, oldest") || said.starts_with("you: ") => {
            Some(["", name, "", "", said])
        }
        ["agent", state, since, doing] => Some(["", "agent", state, since, doing]),
        [mark @ ("." | ">"), name, state, since] => Some([mark, name, state, since, ""]),
        [mark @ ("." | ">"), name, state, since, doing] => Some([mark, name, state, since, doing]),
        _ => None,
    }
}

#[test]
fn the_page_shows_the_screens_of_a_real_run_and_questions_have_one_command_each() {
    let (team, screens) = at_work();
    for (name, screen) in &screens {
        assert!(screen.lines().all(|line| line.chars().count() <= 80), "{name}: {screen}");
        assert!(screen.lines().count() <= 24, "{name}: {screen}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    let mut written = std::fs::read_to_string(&path).unwrap();
    for (name, screen) in &screens {
        let mark = format!("<!-- screen: {name} -->\n```text\n");
        let start =
            written.find(&mark).unwrap_or_else(|| panic!("no mark for {name}")) + mark.len();
        let end = start + written[start..].find("```\n").unwrap();
        written.replace_range(start..end, &format!("{}\n", as_example(screen)));
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(page, written, "BLESS=1 writes {PAGE}");
    let answers = [
        ("Did gem answer?", "status", "gem answered you: \"42 lines in main.rs\""),
        ("What is coda doing?", "why coda", "coda has been working"),
        ("Who is waiting for me?", "status", "NEEDS YOU: 2"),
        (
            "What did I ask yesterday?",
            "why operator",
            "operator -> gem  please count the lines of main.rs",
        ),
        ("Stop all agents", "pause", "PAUSE since"),
    ];
    for (question, command, answer) in answers {
        let row = format!("| {question} | `ensemble {command}` |");
        assert!(page.contains(&row), "{row}");
        let said = team.bed.ok(command);
        assert!(said.contains(answer), "{question} {said}");
    }
    let refused = team.order("gem", "$E send --to gem --type task --task t2 work && $E recv");
    refused.says(["no agent begins anything now"]);
}
