//! A watcher that panics starts again in its process, and works.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use ensemble_project::Project;
use ensemble_watch::run_process;

use crate::support::{self, Bed, PATIENCE, eventually_true, given, role_command};

const READY: &str = "watches in process";

#[test]
fn a_child_process_plays_its_role() {
    if support::role().is_none() {
        return;
    }
    let project = Project::discover(Some(given("QUEUE").as_ref())).unwrap();
    let ready = || {
        assert!(std::env::var_os("ENSEMBLE_WATCH_PANICS").is_some(), "a bug");
        println!("\n{READY} {}", std::process::id());
    };
    run_process(&project, ready).unwrap();
}

#[test]
fn a_watcher_that_panics_starts_again_in_its_process() {
    let bed = Bed::new();
    let queue = bed.queue().to_string_lossy().into_owned();
    let mut command = role_command("panics::watch", &[("QUEUE", &queue)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ready = lines.into_iter().find(|line| line.starts_with(READY));
    assert_eq!(ready, Some(format!("{READY} {}", child.id())));
    bed.land("reports/t-1-completed.yaml", "task_id: t-1\nworker_id: w1\nstatus: success\n");
    let is_routed = || !bed.records("file.routed").is_empty();
    eventually_true(PATIENCE, "the report is routed", is_routed);
    child.kill().unwrap();
    let ended = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr);
    assert!(text.contains("a bug in the watcher, which starts again: panicked at"), "{text}");
}
