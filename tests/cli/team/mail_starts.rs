//! Mail starts its reader, up to a limit a day.

use std::fs;

use super::{Team, kill};
use crate::bed::program;
use crate::tmux_support::eventually;

#[test]
#[ignore = "long"]
fn mail_starts_its_reader_until_the_limit_of_the_day() {
    let team = Team::with(&["worker-1"], "");
    let yaml = team.bed.project().join("ensemble.yaml");
    let reader = format!(
        "  reader: {{command: 'sh here/puppet.sh', env: {{HERE: {}, E: {}}}, start_on_mail: true, mail_starts_max: 1}}\n",
        team.here("").display(),
        program().display()
    );
    team.bed.ok("up worker-1");
    fs::write(&yaml, fs::read_to_string(&yaml).unwrap() + &reader).unwrap();
    // The watcher that runs has not read this; `up` starts another one.
    team.bed.ok("up worker-1");
    let sent = team.bed.run("send --to reader -m hello");
    sent.ends(0).says(["the watcher starts it for this message"]);
    team.wait_for_puppet("reader");
    assert_eq!(team.records("agent.mail_start").len(), 1);
    assert_eq!(team.order("reader", "$E recv --body").stdout, "hello");
    // It ends, and its limit is reached.
    let pane = team.pane("reader");
    let binding = team.server().bind(&pane.id).unwrap();
    kill(binding.pid);
    eventually("it is seen gone", || {
        let sent = team.bed.run("send --to reader -m again");
        sent.stderr.contains("as often as it may today (1)")
    });
    eventually("the person is asked", || {
        team.bed.ok("status").contains("mail waits for reader, which is not running")
    });
    assert_eq!(team.records("agent.mail_start").len(), 1);
}
