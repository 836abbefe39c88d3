//! What needs a person, with a real team: each trouble is named, and an ordinary life of a team names none.

use std::collections::BTreeSet;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{Spool, SpoolOptions};

use super::Team;
use crate::bed::polls;
use crate::live::Screen;

/// The needs of `status`: kind, and the agent or what it is about.
pub(super) fn needs(team: &Team) -> BTreeSet<String> {
    let last = team.bed.json("status").pop().unwrap();
    let needs = last["needs"].as_array().unwrap().iter().map(|need| {
        let who = need["agent"].as_str().or_else(|| need["about"].as_str()).unwrap_or_default();
        format!("{} {who}", need["need"].as_str().unwrap())
    });
    needs.collect()
}

/// Whether a line of the live view is a need. The lines of agents follow: a mark, and a name in small letters.
pub(super) fn is_need(line: &&str) -> bool {
    // The selected line has a mark before it.
    let line = line.trim_start_matches([' ', '>']);
    line.starts_with("!  ") || line.starts_with("-  ")
}

pub(super) fn bury(team: &Team, id: &str) {
    let options = SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() };
    let spool = Spool::open(&team.bed.project().join("queue"), options).unwrap();
    let (box_name, id) = (Name::new("docs").unwrap(), MessageId::new(id).unwrap());
    let task = Envelope::new(box_name.clone(), "work\n").with_task("changelog").with_id(id.clone());
    spool.publish(&task.with_kind(Name::new("task").unwrap())).unwrap();
    spool.dead_letter_waiting(&box_name, &id, "after 5 attempts").unwrap();
}

pub(super) fn page_section(team: &Team, name: &str) -> String {
    let page = team.bed.ok("log report -o -");
    let from = page.find(&format!("<section id=\"{name}\">")).expect(name);
    page[from..from + page[from..].find("</section>").unwrap()].to_owned()
}

#[test]
fn an_ordinary_life_of_a_team_needs_nothing() {
    let team = Team::with(&["worker-1"], "poll_interval: 1\n");
    team.up();
    team.wait_for_puppet("worker-1");
    team.wait_for_state("worker-1", "idle");
    needs_nothing(&team);
    team.bed.ok("send --to worker-1 --type task --task t1 --id m1 -m work");
    assert_eq!(team.order("worker-1", "$E recv").code, 0);
    needs_nothing(&team);
    assert_eq!(team.order("worker-1", "$E settle m1").code, 0);
    needs_nothing(&team);
    team.bed.ok("down --force");
    needs_nothing(&team);
}

/// `status`, the live view and the page of the session name no need, and the page nothing that went wrong.
#[track_caller]
fn needs_nothing(team: &Team) {
    assert_eq!(needs(team), BTreeSet::new());
    let screen = Screen::start(&team.bed.project(), "top", (80, 24));
    screen.shows("nothing needs you");
    let text = screen.text();
    assert_eq!(text.lines().filter(is_need).count(), 0, "{text}");
    // Where everything polls, the page says so.
    for (section, lines) in [("needs", 0), ("troubles", usize::from(polls()))] {
        let section = page_section(team, section);
        assert_eq!(section.matches("<li ").count(), lines, "{section}");
    }
}
