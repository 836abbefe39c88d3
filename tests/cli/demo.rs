//! `ensemble demo` as a user starts it, and the binding of agents to panes.

use std::path::Path;

use ensemble_tmux::tmux::TmuxServer;
use serde_json::json;

use crate::bed::{Bed, SaidText as _, is_running, ran};
use crate::tmux_support::eventually;

#[test]
fn the_demo_runs_the_whole_flow_and_leaves_a_clean_queue_and_nothing_else() {
    let bed = Bed::new();
    let work = bed.project().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("a.rs"), "one\ntwo\n").unwrap();
    std::fs::write(work.join("b.md"), "three\n").unwrap();
    let dir = bed.project().join("demo");
    let command = format!(
        "demo --scenario team --dir {} --work {} --timeout 10m",
        dir.display(),
        work.display()
    );
    let rows = bed.json(&command);
    let hops: Vec<(&str, &str)> =
        rows.iter().filter_map(|r| Some((r["type"].as_str()?, r["mailbox"].as_str()?))).collect();
    let count = |kind: &str| hops.iter().filter(|(k, _)| *k == kind).count();
    assert_eq!(count("dispatch.instruction"), 1);
    assert_eq!(count("task"), 4);
    assert_eq!(count("report.completed"), 4);
    assert!(hops.contains(&("report.summary", "conductor")), "{hops:?}");
    assert!(rows.iter().all(|r| r["acked_to_settled_ms"].is_u64()), "{rows:?}");

    let summary =
        std::fs::read_to_string(dir.join("queue/reports/completion-summary.yaml")).unwrap();
    summary.has(["4 of 4 tasks (100%) are done", "2 lines in 1 of 1 files"]);
    let queue = dir.join("queue");
    let reports = std::fs::read_dir(queue.join("reports")).unwrap();
    let reports: Vec<String> = reports
        .map(|e| e.unwrap().path().display().to_string())
        .filter(|p| p.ends_with(".yaml"))
        .collect();
    assert_eq!(reports.len(), 5, "{reports:?}");
    bed.ok(&format!("admin lint --root {} {}", dir.display(), reports.join(" ")));
    let records =
        bed.json(&format!("--queue {} log --type report.vague,file.rejected", queue.display()));
    assert!(records.is_empty(), "{records:?}");
    bed.ok(&format!("--queue {} admin fsck", queue.display()));
    bed.ok(&format!("--queue {} status", queue.display()));
    bed.ok(&format!("--queue {} log replay --strict", queue.display())).begins("as the log tells");
    let log = bed.json(&format!("--queue {} log", queue.display()));
    assert_eq!(log.last().map(|r| r["type"].clone()), Some(json!("session_end")));
    // When the server ends, programs in its panes receive SIGHUP, and end after it.
    eventually("no process is left", || !is_running(&dir.display().to_string()));
    assert!(!dir.join("tmux.sock").exists() || !answers(&dir.join("tmux.sock")));
}

#[test]
fn the_story_ends_with_what_needs_a_person_and_leaves_nothing() {
    let bed = Bed::new();
    let temporary = bed.project().join("t");
    std::fs::create_dir(&temporary).unwrap();
    let demo = |line: &[&str]| ran(bed.command(line).env("TMPDIR", &temporary).output().unwrap());
    let failed = demo(&["demo", "--scenario", "team", "--wait", "0s"]);
    assert_eq!(failed.code, 3, "its failure is not lost with its directory: {failed:?}");
    let ran = demo(&["demo", "--wait", "10m"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let (story, status) = ran.stdout.split_once("you are back").expect("the status");
    for told in [
        "operator -> steady  task steady: count the tests",
        "steady finished task steady",
        "silent was reminded of task silent (1 of 3)",
        "silent has not picked up task silent",
        "-> blocked: ",
        "task crashing is back in crashing's mailbox",
    ] {
        assert!(story.contains(told), "{told}: {story}");
    }
    let needs: Vec<&str> = status.lines().filter(|line| line.starts_with("!  ")).collect();
    for need in ["asking", "silent", "crashing"] {
        assert!(needs.iter().any(|line| line.contains(need)), "{need}: {status}");
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
    crate::picture::keep("demo", "ensemble demo: the story, and what it ends in", &ran.stdout, 80);
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "nothing stays behind");
    let place = temporary.display().to_string();
    eventually("no process is left", || !is_running(&place));
}

fn answers(socket: &Path) -> bool {
    TmuxServer::new(socket).pid().is_ok()
}

/// Ends its server, no matter what happens.
struct Ended(TmuxServer);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill_server();
    }
}

#[test]
fn a_mailbox_is_bound_to_a_pane_and_unbound() {
    let bed = Bed::new();
    let socket = bed.project().join("s");
    let server = Ended(TmuxServer::new(&socket));
    let pane = server.0.new_session("agents", "cat", 80, 24).unwrap();
    let socket = socket.display();
    let bound = bed.object(&format!("mailbox bind w1 --pane {pane} --tmux-socket {socket}"));
    assert_eq!(bound, json!({ "agent": "w1", "mailbox": "w1", "pane": "%0", "provider": "shell" }));
    let file = bed.project().join(".ensemble/panes/w1.yaml");
    assert!(std::fs::read_to_string(&file).unwrap().contains("token:"));
    bed.ok("mailbox unbind w1");
    assert!(!file.exists());
    bed.fails(3, &format!("mailbox bind no-such-box --pane {pane} --tmux-socket {socket}"));
    bed.fails(1, &format!("mailbox bind w1 --pane agents --tmux-socket {socket}"));
    bed.fails(2, "mailbox bind w1");
    let added =
        bed.run(&format!("mailbox add w9 --pane {pane} --tmux-socket {socket} --provider claude"));
    assert_eq!(added.code, 0);
    assert!(added.stderr.contains("no claude runs in pane %0 yet: cat does"), "{}", added.stderr);
    assert!(bed.project().join(".ensemble/panes/w9.yaml").exists());
}
