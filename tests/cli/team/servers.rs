//! A team whose mailboxes are on a real NATS server: who is to leave is asked from another host.

use std::fs;

use super::{Team, kill};
use crate::nats_server::{Server, fresh_team};
use crate::servers::bed_on;
use crate::tmux_support::eventually;

#[test]
fn who_is_asked_on_another_host_leaves_and_who_has_gone_is_not_waited_for() {
    let (server, name) = (Server::start(), fresh_team());
    let config = format!(
        "poll_interval_seconds: 1\ntransport: {}\nnats: {{team: {name}, patience_seconds: 3}}\n",
        server.url()
    );
    let team = Team::with(&["worker-1", "worker-2"], &config);
    let asking = bed_on(&server, &name);
    team.up();
    for worker in ["worker-1", "worker-2"] {
        team.wait_for_puppet(worker);
        // The watcher there makes its mailbox on the server.
        eventually("it has a mailbox", || asking.run("mailbox list").stdout.contains(worker));
    }
    for (worker, id) in [("worker-1", "go-1"), ("worker-2", "go-2")] {
        let line = format!("request shutdown {worker} --as operator --id {id} --deadline 1h");
        assert_eq!(asking.object(&line)["state"], "pending");
    }
    // One agrees and ends; the other one ends without a word.
    fs::write(team.here("worker-1.in"), "$E respond go-1 --approve; kill $$\n").unwrap();
    kill(team.pane("worker-2").pid);
    for (worker, id, state) in [("worker-1", "go-1", "approved"), ("worker-2", "go-2", "expired")] {
        eventually(&format!("{worker} has left"), || {
            asking.object(&format!("requests {id}"))["state"] == state
                && team.member(worker)["state"] == "shutdown"
        });
    }
    let mut how: Vec<String> = team
        .records("worker_release")
        .iter()
        .map(|record| record["how"].as_str().unwrap_or_default().to_owned())
        .collect();
    how.sort();
    assert_eq!(how, ["approved", "forced"]);
    let again = asking.run("request shutdown worker-1 --as operator --id go-1 --wait 60s");
    assert_eq!(again.code, 0, "{again:?}");
    team.bed.ok("down --force");
}
