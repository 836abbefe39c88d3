//! From a file that lands to a line in the right pane: the real watcher, a real tmux server.

#[path = "tmux_support/mod.rs"]
mod tmux_support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ensemble_core::event_log::{NullRecorder, read_all};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Settings, Spool};
use ensemble_project::Project;
use ensemble_project::panes::{self, PaneEntry};
use rustix::process::{Pid, Signal, kill_process};
use tmux_support::{TestServer, eventually};

/// The watcher as a process; ended when this is dropped.
struct Watcher(Child);

impl Watcher {
    fn start(queue: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ensemble-watch"));
        command.arg("--queue").arg(queue).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.contains("watching"), "{first}");
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Bed {
    tmux: TestServer,
    project: Project,
    spool: Spool,
}

fn dispatch() -> Name {
    Name::new("dispatch").unwrap()
}

impl Bed {
    /// A queue whose Dispatch runs in a pane that reads lines.
    fn reader() -> Self {
        Self::new(TestServer::reader(), "shell")
    }

    fn new(tmux: TestServer, provider: &str) -> Self {
        let queue = tmux.dir.path().join("project/queue");
        let project = Project::discover(Some(&queue)).unwrap();
        project.ensure_state().unwrap();
        let spool = Spool::create(&queue, project.spool_options(Arc::new(NullRecorder))).unwrap();
        spool.add_mailbox(&dispatch(), &Settings::default()).unwrap();
        let bed = Self { tmux, project, spool };
        bed.bind(provider);
        bed
    }

    fn bind(&self, provider: &str) {
        let binding = self.tmux.server.bind("%0").unwrap();
        let provider = provider.to_owned();
        let entry = PaneEntry::new(dispatch(), dispatch(), provider, binding);
        panes::write(&self.project.panes(), &entry).unwrap();
    }

    fn watch(&self) -> Watcher {
        Watcher::start(&self.project.queue)
    }

    /// Moves a report into the drop box, as a worker would.
    fn report(&self, task: &str) -> PathBuf {
        let whole = self.project.queue.join("tmp").join(task);
        std::fs::write(&whole, format!("task_id: {task}\nstatus: success\n")).unwrap();
        let landed = self.project.queue.join(format!("reports/{task}-completed.yaml"));
        std::fs::rename(whole, &landed).unwrap();
        landed
    }

    fn drain(&self) -> usize {
        let mut count = 0;
        while let Some(delivery) = self.spool.receive(&dispatch(), &dispatch()).unwrap() {
            self.spool.settle(&delivery.lease).unwrap();
            count += 1;
        }
        count
    }

    /// The types of the log's records so far, with the words of what was deferred.
    fn log(&self) -> Vec<String> {
        let Ok(records) = read_all(&self.project.logs()) else { return Vec::new() };
        records
            .map(|r| match r.data.get("reason").and_then(|reason| reason.as_str()) {
                Some(reason) => format!("{} {reason}", r.kind),
                None => r.kind.to_string(),
            })
            .collect()
    }

    fn logged(&self, kind: &str) -> usize {
        self.log().iter().filter(|k| *k == kind).count()
    }

    /// The agent's row of the watcher's status file.
    fn status(&self) -> Option<serde_json::Value> {
        let text = std::fs::read(self.project.watch_status()).ok()?;
        serde_json::from_slice::<serde_json::Value>(&text).ok()?.get("agents")?.get(0).cloned()
    }

    fn wait_for_lines(&self, count: usize) {
        eventually("the lines were typed", || self.tmux.received().len() >= count);
    }
}

#[test]
fn a_report_that_lands_wakes_dispatch_with_a_line_that_has_no_content() {
    let bed = Bed::reader();
    let _watcher = bed.watch();
    bed.report("task-1");
    bed.wait_for_lines(1);
    assert_eq!(
        bed.tmux.received(),
        [": ensemble - 1 message for dispatch - run ensemble recv --as dispatch"]
    );
    let delivery = bed.spool.receive(&dispatch(), &dispatch()).unwrap().unwrap();
    assert_eq!(delivery.envelope.source.as_deref(), Some("reports/task-1-completed.yaml"));
}

#[test]
fn ten_messages_in_a_burst_are_one_line() {
    let bed = Bed::reader();
    let _watcher = bed.watch();
    for task in 0..10 {
        bed.report(&format!("task-{task}"));
    }
    eventually("all are routed", || bed.logged("file.routed") == 10);
    bed.wait_for_lines(1);
    eventually("all are in the mailbox", || bed.spool.counts(&dispatch()).unwrap().queued == 10);
    // The next line can only come for the next mail after a drained mailbox.
    assert_eq!(bed.drain(), 10);
    bed.report("after");
    bed.wait_for_lines(2);
    // The record follows the line.
    eventually("both are recorded", || bed.logged("nudge.sent") >= 2);
    assert_eq!((bed.tmux.received().len(), bed.logged("nudge.sent")), (2, 2));
}

#[test]
fn as_many_came_as_went_and_still_the_agent_is_told() {
    let bed = Bed::reader();
    let watcher = bed.watch();
    bed.report("first");
    bed.wait_for_lines(1);
    // While the watcher is stopped, one message is taken and another one comes: the number of
    // waiting messages is the same before and after.
    eventually("the line is recorded", || bed.logged("nudge.sent") == 1);
    watcher.signal(Signal::STOP);
    assert_eq!(bed.drain(), 1);
    let envelope = Envelope::new(dispatch(), "second");
    bed.spool.publish(&envelope).unwrap();
    watcher.signal(Signal::CONT);
    bed.wait_for_lines(2);
}

#[test]
fn what_landed_while_no_watcher_ran_wakes_dispatch_at_the_start() {
    let bed = Bed::reader();
    bed.report("early");
    let _watcher = bed.watch();
    bed.wait_for_lines(1);
}

#[test]
fn receipts_name_the_messages_and_their_evidence() {
    let bed = Bed::reader();
    let _watcher = bed.watch();
    let envelope = Envelope::new(dispatch(), "hello");
    bed.spool.publish(&envelope).unwrap();
    bed.wait_for_lines(1);
    for kind in ["receipt.notified", "receipt.submitted"] {
        eventually(kind, || {
            read_all(&bed.project.logs()).is_ok_and(|mut records| {
                records.any(|r| {
                    r.kind.as_str() == kind
                        && r.data["ids"].as_array().is_some_and(|ids| {
                            ids.iter().any(|id| id.as_str() == Some(envelope.id.as_str()))
                        })
                })
            })
        });
    }
}

#[test]
fn copy_mode_defers_visibly_and_leaving_it_delivers() {
    let bed = Bed::reader();
    bed.tmux.server.run(&["copy-mode", "-t", "%0"]).unwrap();
    let _watcher = bed.watch();
    bed.report("task-1");
    eventually("it is deferred", || bed.logged("nudge.deferred copy_mode") == 1);
    eventually("status says so", || {
        bed.status()
            .is_some_and(|s| s["deferred"]["reason"] == "copy_mode" && s["phase"] == "deferred")
    });
    assert_eq!(bed.tmux.received(), [""; 0]);
    bed.tmux.server.run(&["send-keys", "-X", "-t", "%0", "cancel"]).unwrap();
    bed.wait_for_lines(1);
    assert_eq!(bed.logged("nudge.deferred copy_mode"), 1, "recorded once");
}

#[test]
fn an_agent_that_went_back_to_a_bare_shell_is_not_typed_to() {
    let bed = Bed::new(TestServer::bash(), "claude");
    let _watcher = bed.watch();
    bed.report("task-1");
    eventually("it is deferred", || bed.logged("nudge.deferred bare_shell") == 1);
    assert_eq!(bed.tmux.screen("%0"), [tmux_support::PROMPT]);
}

#[test]
fn a_pane_of_another_server_with_the_same_id_is_never_taken_for_it() {
    let mut bed = Bed::reader();
    let _watcher = bed.watch();
    bed.report("task-1");
    bed.wait_for_lines(1);
    bed.drain();
    bed.tmux.server.kill_server().unwrap();
    let command = bed.tmux.reader_command();
    bed.tmux.new_server(&command);
    bed.tmux.wait_for_reader();
    bed.report("task-2");
    eventually("it is refused", || bed.log().iter().any(|k| k == "nudge.deferred pane_reused"));
    assert_eq!(bed.tmux.received().len(), 1, "the stranger in %0 was not typed to");
    // Once it is bound again, it is nudged.
    bed.bind("shell");
    bed.wait_for_lines(2);
}

#[test]
fn a_summary_behind_mere_advice_is_announced_without_the_pause() {
    let bed = Bed::reader();
    let send = |kind: &str| {
        let envelope = Envelope::new(dispatch(), "x").with_kind(Name::new(kind).unwrap());
        bed.spool.publish(&envelope).unwrap();
    };
    let _watcher = bed.watch();
    send("report.advice");
    bed.wait_for_lines(1);
    eventually("the line stands", || bed.logged("nudge.sent") == 1);
    // More advice rides on that line; a summary does not, and the next one rides on its line.
    send("report.advice");
    send("report.summary");
    bed.wait_for_lines(2);
    assert!(bed.tmux.received()[1].contains("3 messages"), "{:?}", bed.tmux.received());
    eventually("both lines are submitted", || bed.logged("nudge.sent") == 2);
    send("report.escalation");
    bed.report("task-1");
    eventually("all of it is seen", || bed.status().is_some_and(|agent| agent["waiting"] == 5));
    assert_eq!(bed.logged("nudge.sent"), 2);
}
