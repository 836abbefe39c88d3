//! Drop boxes of the configuration, and `init --from` of a project that has some by its own habits.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::bed::{Bed, Ran, SaidText as _, land, ran, watch, words};
use crate::tmux_support::{TestServer, eventually};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/ensemble-claude");
/// How long a message may take; the test continues as soon as it arrives.
const RECV: &str = "recv --wait 60s --as";

pub(crate) fn received(bed: &Bed, agent: &str) -> (String, String, Value) {
    let envelope = bed.object(&format!("{RECV} {agent}"));
    let text = |field: &str| envelope[field].as_str().unwrap_or_default().to_owned();
    (text("source"), text("type"), envelope["task_id"].clone())
}

fn is(source: &str, kind: &str, task: &str) -> (String, String, Value) {
    (source.to_owned(), kind.to_owned(), task.into())
}

const BOXES: &str = "durability: process
drop_boxes:
  - {name: checked, directory: reviews, files: '*.yaml', to: [dispatch], type: report.review}
  - {name: sum, directory: ., files: 'completion-summary.yaml', to: [conductor], type: report.summary}
";

#[test]
fn a_configured_drop_box_is_watched_and_every_command_has_the_same_table() {
    let bed = Bed::empty();
    bed.write_file("ensemble.yaml", BOXES);
    bed.ok("init");
    let watcher = watch(&bed);
    let review =
        "task_id: t-1\nreviewer: r-1\nstatus: needs_fix\nsummary: 1 of 2 (50 %) at a.rs:1\n...\n";
    land(&bed, "reviews/t-1-r-1.yaml", review);
    assert_eq!(received(&bed, "dispatch"), is("checked/t-1-r-1.yaml", "report.review", "t-1"));
    let summary = "status: success\ntotal_tasks: 1\ncompleted_tasks: 1\nfailed_tasks: 0\n...\n";
    land(&bed, "completion-summary.yaml", summary);
    assert_eq!(received(&bed, "conductor").0, "sum/completion-summary.yaml");
    // A review counts as one in `reports/` does.
    eventually("the review is counted", || bed.ok("log --json").contains("\"review_result\""));
    // Others stay alone, also for `fsck`.
    land(&bed, "reviews/notes.txt", "x");
    land(&bed, "reviews/broken.yaml", "a: [\n...\n");
    eventually("the broken one is put aside", || {
        fs::read_dir(bed.project().join("queue/rejected")).is_ok_and(|mut it| it.next().is_some())
    });
    assert!(bed.project().join("queue/reviews/notes.txt").exists());
    assert_eq!(bed.ok("admin fsck"), "clean\n");
    let status = bed.json("status").pop().unwrap();
    let boxes = status["watcher"]["status"]["boxes"].as_array().unwrap();
    let names: Vec<&str> = boxes.iter().filter_map(|it| it["box"].as_str()).collect();
    assert_eq!(names, ["reports", "tasks", "ack", "checked", "sum"]);
    bed.run("doctor").stdout.has(["reports/, tasks/, ack/, reviews/, the queue itself"]);
    bed.write_file("ensemble.yaml", format!("{BOXES}  - {{name: late}}\n"));
    bed.run("doctor").stdout.has(["the running watcher does not watch late/"]);
    drop(watcher);
}

fn files(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![at.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            match entry.file_type().unwrap().is_dir() {
                true => dirs.push(path),
                false => {
                    let name = path.strip_prefix(at).unwrap().display().to_string();
                    all.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    all
}

/// Every file is as it was; the other program's last log has one line more.
fn keeps(bed: &Bed, before: &BTreeMap<String, Vec<u8>>) {
    let after = files(&bed.project());
    for (name, content) in before {
        let now = &after[name];
        if name.ends_with(".ndjson") {
            let added = now.strip_prefix(content.as_slice()).unwrap();
            let added: Value = serde_json::from_slice(added).unwrap();
            assert_eq!(added["type"], "log.continued");
        } else {
            assert!(now == content, "{name} was changed");
        }
    }
}

/// The fixture as a project; git keeps no directory of the name `.ensemble`. An instruction, its task and
/// the report follow one another; with `open`, the task is handed out again after the report.
pub(crate) fn upstream(bed: &Bed, open: bool) -> BTreeMap<String, Vec<u8>> {
    fs::remove_file(bed.project().join("ensemble.yaml")).unwrap();
    for (name, content) in files(Path::new(FIXTURE)) {
        let path = bed.project().join(name.replacen("dot-ensemble", ".ensemble", 1));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let order = [
        ("conductor/dispatch-instruction.yaml", 1),
        ("tasks/worker-1-task.yaml", if open { 4 } else { 2 }),
        ("reports/task-001.yaml", 3),
    ];
    for (name, minute) in order {
        let path = bed.project().join("queue").join(name);
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(60 * minute)).unwrap();
    }
    files(&bed.project())
}

fn inside(bed: &Bed, tmux: &TestServer, line: &str) -> Ran {
    let variable = format!("{},{},0", tmux.server.socket().display(), tmux.pid());
    ran(bed.command(&words(line)).env("TMUX", variable).output().unwrap())
}

#[test]
fn a_project_of_ensemble_claude_is_taken_over_and_keeps_its_files() {
    let bed = Bed::empty();
    let before = upstream(&bed, true);
    let tmux = TestServer::start("cat");
    for command in ["cat", "cat"] {
        tmux.server
            .new_session(&format!("s{}", tmux.server.panes().unwrap().len()), command, 80, 24)
            .unwrap();
    }
    let told = inside(&bed, &tmux, "init --from ensemble-claude .");
    told.ends(0);
    for part in [
        "conductor                        conductor in pane %0\n",
        "worker-1                         worker in pane %2\n",
        "worker-2                         worker in pane %7, not in tmux now\n",
        "queue/reports/                   reports, 1 file now\n",
        "queue/reviews/                   reviews, 1 file now\n",
        "left as it is:\n  CONDUCTOR_SESSION=shop-conductor",
        "WORKER_COUNT=2                   has no meaning here\n",
        "queue/processing                 tasks that its own queue has claimed\n",
        "queue/conductor/dispatch-instruction.yaml was dealt with: not routed again\n",
        "  ensemble up  ",
    ] {
        assert!(told.stdout.contains(part), "{part}\n{}", told.stdout);
    }
    assert!(told.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", told.stdout);
    keeps(&bed, &before);
    let after = files(&bed.project());
    let written = bed.read_file("ensemble.yaml");
    let session =
        format!("session: \"shop-workers\"\n  socket: \"{}\"", tmux.server.socket().display());
    written.has([&session]);
    // The second time changes nothing, and lacks nothing.
    let again = inside(&bed, &tmux, "init --json --from ensemble-claude .");
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert!(again["config_created"] == false && again["from"]["lacking"] == json!([]), "{again}");
    assert_eq!(files(&bed.project()), after);

    // The existing files are routed, each to its agent.
    let _watcher = watch(&bed);
    let routed = |agent: &str| received(&bed, agent);
    assert_eq!(routed("worker-1"), is("tasks/worker-1-task.yaml", "task", "task-001"));
    let mut dispatch = [routed("dispatch"), routed("dispatch")];
    dispatch.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(dispatch[0], is("reports/task-001.yaml", "report.completed", "task-001"));
    assert_eq!(dispatch[1], is("reviews/task-001-reviewer-arch.yaml", "report.review", "task-001"));
    keeps(&bed, &before);
}

#[test]
fn what_was_reported_is_not_handed_out_again() {
    let bed = Bed::empty();
    upstream(&bed, false);
    let mut from_elsewhere = bed.command(&words("init --from ensemble-claude project"));
    let told = ran(from_elsewhere.current_dir(bed.project().join("..")).output().unwrap()).stdout;
    told.has(["queue/tasks/worker-1-task.yaml   was dealt with"]);
    told.has(["Next:\n  export ENSEMBLE_QUEUE="]);
    let _watcher = watch(&bed);
    let sources = [received(&bed, "dispatch").0, received(&bed, "dispatch").0];
    assert!(sources.contains(&"reports/task-001.yaml".to_owned()), "{sources:?}");
    // The next version of either file is news.
    land(&bed, "tasks/worker-1-task.yaml", "id: task-003\ninstruction: more\n...\n");
    // Before it there is advice on the wording of the report.
    assert_eq!(received(&bed, "worker-1").1, "report.advice");
    assert_eq!(received(&bed, "worker-1"), is("tasks/worker-1-task.yaml", "task", "task-003"));
    land(&bed, "conductor/dispatch-instruction.yaml", "type: start_workers\n...\n");
    assert_eq!(received(&bed, "dispatch").0, "conductor/dispatch-instruction.yaml");
}

#[test]
fn a_configuration_that_is_there_is_left_and_what_it_lacks_is_said() {
    let bed = Bed::empty();
    upstream(&bed, true);
    let mine = "agents:\n  conductor: {provider: claude, pane: '%0'}\n";
    bed.write_file("ensemble.yaml", mine);
    let told = bed.ok("init --from ensemble-claude .");
    told.has(["ensemble.yaml is left as it is; it lacks:\n  agents: dispatch: {role: dispatch"]);
    told.has(["  drop_boxes: {name: reviews, files: \"*.yaml\""]);
    assert_eq!(bed.read_file("ensemble.yaml"), mine);
    bed.ok("mailbox remove worker-1");
    let again = bed.object("init --from ensemble-claude .");
    assert_eq!(again["mailboxes_added"], serde_json::json!(["worker-1"]));
    // The commented configuration of an earlier `init` says nothing, so it gives way.
    fs::remove_file(bed.project().join("ensemble.yaml")).unwrap();
    bed.ok("init");
    bed.ok("init --from ensemble-claude .").lacks(["lacks:"]);
    assert!(bed.read_file("ensemble.yaml").contains("Taken over"));
}

#[test]
fn another_directory_is_not_taken_over() {
    let bed = Bed::empty();
    bed.fails(1, "init --from ensemble-claude .").has(["is not a project of ensemble-claude"]);
    assert!(!bed.project().join("queue").exists(), "nothing is made");
    assert!(bed.fails(2, "init --from shogun").contains("ensemble-claude"));
}
