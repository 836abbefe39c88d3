//! Telling a person: the rules of `notify` with a real team, real commands and real terminals.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::durable::FileLock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::Team;
use super::hooked::hooked;
use super::starts::ok;
use crate::bed::{Bed, JsonMembers as _, SaidText as _, objects, watch};
use crate::live::Screen;
use crate::tmux_support::eventually;

const ASKED: &str = r#"{"session_id":"s1","tool_name":"Bash"}"#;

fn alerts(file: &PathBuf) -> Vec<Value> {
    fs::read_to_string(file).map(|text| objects(&text)).unwrap_or_default()
}

fn restart_watcher(team: &Team) {
    let status = team.bed.read_file(".ensemble/watch.json");
    let status: Value = serde_json::from_str(&status).unwrap();
    let pid = i32::try_from(status["pid"].as_u64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let lock = team.bed.project().join(".ensemble/watch.lock");
    let holder = || FileLock::holder(&lock).map(u32::cast_signed);
    eventually("the watcher has ended", || holder() != Some(pid));
    ok(team, &["up"]);
}

/// An agent asks for a permission, by its hook and on its screen.
fn ask(team: &Team, name: &str) {
    let unknown = "printf '\\033[H\\033[2Jno screen that the profile knows' >/dev/tty;";
    let line = format!("{unknown} printf '{ASKED}' | $E hook permission --provider claude");
    assert_eq!(team.order(name, &line).code, 0);
}

#[test]
fn a_person_is_told_once_by_a_command_until_it_is_over() {
    let rules = "notify:\n  - {command: 'cat >> told; echo \"$ENSEMBLE_ALERT\" >> words'}\n\
                 \x20 - {command: 'exit 3', when: [gone]}\n";
    let team = hooked(&[("asks", "claude"), ("dies", "claude")], rules);
    let told = team.bed.project().join("told");
    ask(&team, "asks");
    eventually("the command has the alert", || alerts(&told).len() == 1);
    let alert = alerts(&told).remove(0);
    alert.fits(json!({
        "need": "blocked", "agent": "asks", "count": 1, "help": "`ensemble agent attach asks`",
    }));
    eventually("it is recorded", || team.records("alert.sent").len() == 1);
    team.bed.read_file("words").begins("asks waits for a person: ");

    team.server().kill_pane(&team.pane("dies").id).unwrap();
    eventually("one that has failed is recorded", || team.records("alert.failed").len() == 1);
    let failed = team.records("alert.failed").remove(0);
    failed.fits(json!({ "rule": 2, "agent": "dies", "retried": true }));
    eventually("the other rule has told it", || alerts(&told).len() == 2);

    // The next watcher does not repeat alerts that were sent, but sends new ones.
    restart_watcher(&team);
    ask(&team, "asks");
    team.bed.ok("mailbox add boss");
    team.bed.write_file("plan.md", "the plan\n");
    team.bed.ok("request plan plan.md --task t-plan --to boss");
    eventually("what is new is told", || alerts(&told).iter().any(|it| it["need"] == "decision"));
    let needs: Vec<String> =
        alerts(&told).iter().map(|it| it["need"].as_str().unwrap().to_owned()).collect();
    assert_eq!(needs.iter().filter(|need| *need == "gone").count(), 1, "{needs:?}");
}

#[test]
fn all_work_is_over_is_told_after_work() {
    let rules = "notify: [{command: 'cat >> told', when: [finished]}]\n";
    let team = hooked(&[("worker", "claude")], rules);
    let told = team.bed.project().join("told");
    team.bed.ok("send --to worker --type task --task t1 --id m1 -m work");
    assert_eq!(team.order("worker", "$E recv").code, 0);
    eventually("the watcher sees the work", || {
        let kept = fs::read_to_string(team.bed.project().join(".ensemble/alerts.json"));
        kept.is_ok_and(|text| text.contains("\"worked\":true"))
    });
    assert!(alerts(&told).is_empty());
    assert_eq!(team.order("worker", "$E settle m1").code, 0);
    eventually("it is told", || alerts(&told).len() == 1);
    assert_eq!(alerts(&told)[0]["need"], "finished");
}

#[test]
fn attached_terminals_ring_and_show_it_and_run_nothing() {
    let rules = "notify: [{terminal: bell, tmux: true, when: [blocked]}]\n";
    let team = hooked(&[("asks", "claude")], rules);
    let test = team.bed.run("admin notify test");
    test.ends(1).shows(["no terminal is attached"]);

    let screen = Screen::start(&team.bed.project(), "agent attach", (100, 20));
    screen.listen_for_bells();
    eventually("a terminal is attached", || team.server().attached_terminals().unwrap().len() == 1);
    ask(&team, "asks");
    screen.shows("asks waits for a person: ");
    eventually("the bell has rung", || screen.has_rung());
    let test = team.bed.ok("admin notify test");
    assert_eq!(test, "rule 1 (terminal, tmux): sent\n");
    screen.shows("a test alert: nothing needs you");

    let trap = team.bed.project().join("trap");
    let hostile = format!("#(touch {}) %H #[fg=red]x", trap.display());
    let terminal = team.server().attached_terminals().unwrap().remove(0);
    let shown = Duration::from_secs(10);
    team.server().show_message(terminal.to_str().unwrap(), &hostile, shown).unwrap();
    screen.shows_all(["#(touch ", "%H #[fg=red]x"]);
    assert!(!trap.exists());
}

#[test]
fn a_prompt_on_a_screen_is_seen_without_hooks_and_between_two_regular_looks() {
    let team = hooked(&[("asks", "claude")], "hooks: {providers: []}\npoll_interval: 3600\n");
    team.wait_for_state("asks", "idle");
    let blocked = || {
        let status = team.bed.json("status").pop().unwrap();
        status["needs"].as_array().unwrap().iter().any(|need| need["need"] == "blocked")
    };
    assert!(!blocked());
    let prompt = "Do you want to proceed?\\n\\0337❯ 1. Yes\\n  2. No\\n\\n Esc to cancel\\0338";
    team.order("asks", &format!("printf '\\033[H\\033[2J{prompt}' >/dev/tty")).ends(0);
    eventually("the watcher has seen it", blocked);
}

#[test]
fn the_status_line_of_tmux_says_what_needs_a_person() {
    let team = hooked(&[("asks", "claude")], "");
    assert_eq!(team.bed.ok("tmux-status"), "");
    ask(&team, "asks");
    eventually("it is said", || !team.bed.ok("tmux-status").is_empty());
    let line = team.bed.ok("tmux-status");
    line.begins("#[fg=red,bold]! 1 asks waits for a person: ").finishes("#[default]\n");
    assert_eq!(team.bed.object("tmux-status")["urgent"], 1);
    team.bed.fails(3, "admin notify test");
}

#[test]
fn an_alert_whose_command_ends_with_the_watcher_is_sent_by_the_next_one() {
    let bed = Bed::new();
    bed.add_config(
        "notify: [{command: 'cat >> sent; test -e calm || sleep 100', when: [urgent]}]\n",
    );
    bed.ok("mailbox add bad");
    bed.write_file("queue/mailbox/bad/mailbox.yaml", "[");
    let sent = bed.project().join("sent");
    let count = || alerts(&sent).iter().filter(|it| it["about"] == "mailbox bad").count();
    let mut watcher = watch(&bed);
    eventually("it is sent", || count() == 1);
    kill_process(Pid::from_child(&watcher.0), Signal::TERM).unwrap();
    watcher.0.wait().unwrap();
    bed.write_file("calm", "");
    let _next = watch(&bed);
    eventually("it is sent again", || count() == 2);
}

#[test]
fn an_alert_that_cannot_be_noted_is_noted_later_and_not_sent_again() {
    let bed = Bed::new();
    bed.add_config("notify: [{command: 'cat >> sent', when: [urgent]}]\n");
    let break_mailbox = |name: &str| {
        bed.ok(&format!("mailbox add {name}"));
        bed.write_file(format!("queue/mailbox/{name}/mailbox.yaml"), "[");
    };
    let (sent, noted) = (bed.project().join("sent"), bed.project().join(".ensemble/alerts.json"));
    let count = |name: &str| {
        let is_about = |alert: &&Value| alert["about"] == format!("mailbox {name}");
        alerts(&sent).iter().filter(is_about).count()
    };
    break_mailbox("bad");
    // No file can replace a directory.
    fs::create_dir(&noted).unwrap();
    let watcher = watch(&bed);
    eventually("it is sent", || count("bad") == 1);
    fs::remove_dir(&noted).unwrap();
    eventually("it is noted", || {
        bed.send("the watcher wakes");
        noted.is_file()
    });
    drop(watcher);
    break_mailbox("worse");
    let _next = watch(&bed);
    eventually("the new one is sent", || count("worse") == 1);
    assert_eq!(count("bad"), 1, "{:?}", alerts(&sent));
}
