//! The workers of `clients/` wait through `ensemble admin api` if that program is found, and poll otherwise.

use std::io::{BufRead as _, BufReader};

use super::*;

const ENSEMBLE: &str = env!("CARGO_BIN_EXE_ensemble");

fn send(queue: &Path, text: &str) {
    let mut send = Command::new(ENSEMBLE);
    send.arg("--queue").arg(queue).args(["--as", "asker", "send", "--to", "w", text]);
    let output = send.stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A worker receives a message that comes while it waits, then one that ends it, and settles both.
fn works(worker: &str, program: &str, way: &str) {
    let home = tempfile::tempdir().unwrap();
    let queue = home.path().join("queue");
    std::fs::create_dir_all(queue.join("mailbox/w")).unwrap();
    let mut run = Command::new("sh");
    run.arg("-c").arg(format!("exec {worker} \"$@\"")).arg("sh").arg(&queue).arg("w");
    run.env("ENSEMBLE_BIN", program).stdout(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), format!("waits by {way}"), "{worker}");
    send(&queue, "count");
    assert_eq!(next(), "count", "{worker}");
    send(&queue, "stop");
    assert_eq!(next(), "stop", "{worker}");
    assert!(run.wait().unwrap().success(), "{worker}");
    let settled = std::fs::read_dir(queue.join("mailbox/w/done")).unwrap().count();
    assert_eq!(settled, 2, "{worker}");
}

fn works_both_ways(worker: &str) {
    works(worker, ENSEMBLE, "the API");
    works(worker, "/nonexistent/ensemble", "looks");
}

#[test]
fn the_python_worker_waits_by_the_api_or_by_looks() {
    works_both_ways(&installed::python_worker());
}

#[test]
fn the_typescript_worker_waits_by_the_api_or_by_looks() {
    if let Some(worker) = installed::typescript_worker() {
        works_both_ways(&worker);
    }
}

#[test]
fn the_go_worker_waits_by_the_api_or_by_looks() {
    if let Some(worker) = installed::go_worker() {
        works_both_ways(&worker);
    }
}

#[test]
fn the_python_client_pauses_before_a_plan_that_waits_and_refuses_a_large_call() {
    let home = tempfile::tempdir().unwrap();
    let queue = home.path().join("queue");
    for directory in ["mailbox/w", "gates"] {
        std::fs::create_dir_all(queue.join(directory)).unwrap();
    }
    std::fs::write(queue.join("gates/task-1@w.yaml"), "").unwrap();
    let script = r#"import sys; from ensemble_api import *
class Counted(Api):
    waits = 0
    def wait(self, *words, **params):
        self.waits += 1
        assert self.waits < 20
        return super().wait(*words, **params)
queue = Queue(sys.argv[1])
queue.send("w", "build", type="task", task_id="task-1")
with Counted(sys.argv[1], agent="w") as api:
    print(receive_wait(queue, "w", "w", 1, api))
    try: api.call("send", text="x" * 2**20)
    except ApiError as error: print(error.code)"#;
    assert_eq!(run_python(script, &queue), "None\ntoo_large\n");
}

fn run_python(script: &str, queue: &Path) -> String {
    let mut run = Command::new("python3");
    run.args(["-c", script]).arg(queue).current_dir(root().join("clients/python"));
    let output = run.env("ENSEMBLE_BIN", ENSEMBLE).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_shell_forwards_what_it_has_received_and_says_why_it_was_refused() {
    let home = tempfile::tempdir().unwrap();
    let queue = home.path().join("queue");
    for mailbox in ["w", "other"] {
        std::fs::create_dir_all(queue.join("mailbox").join(mailbox)).unwrap();
    }
    let script = r#"queue=$1; . "$2"
        echo count | ensemble_send w asker task 0 && ensemble_receive w w
        ensemble_send other w task 0 <"$body"; cat "$body"
        ensemble_receive other w; cat "$body"
        error=old; (ulimit -f 0; ensemble_extend other "$id" w "$epoch" 60; echo "$error")
        ensemble_settle other ../../w/cur/x w 1; echo "$error""#;
    let mut run = Command::new("dash");
    run.args(["-c", script, "sh"]).arg(&queue).arg(root().join("clients/sh/ensemble.sh"));
    let output = run.output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "count\ncount\nio\ninvalid\n",
        "{output:?}"
    );
}
