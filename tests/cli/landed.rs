//! Files that land in the drop boxes again, or that no agent gets, or whose effects fail at first.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::bed::{Bed, land, watch};
use crate::conversation::reader;
use crate::takeover::received;
use crate::tmux_support::eventually;

const REPORT: &str = "task_id: same\nworker_id: w1\nstatus: success\n\
                      summary: w1 has done 1 of 1 (100%), see ensemble.yaml:1\n";

fn is_settled(bed: &Bed, id: &str) -> bool {
    bed.mailbox(&format!("w1/done/{id}.yaml")).exists()
}

fn hand_over(bed: &Bed, id: &str) {
    bed.ok(&format!("send --to w1 --type task --task same --id {id} -m work"));
    assert_eq!(bed.object("recv --as w1")["id"], id);
}

fn until_it_fails(bed: &Bed, file: &str) {
    eventually("it is tried in vain", || {
        let waiting = bed.json("log --type file.waiting");
        waiting.iter().any(|record| record["data"]["file"] == file)
    });
}

#[test]
fn a_report_with_the_same_words_ends_its_task_each_time_it_is_open() {
    let bed = Bed::new();
    let _watcher = watch(&bed);
    for id in ["first", "second"] {
        hand_over(&bed, id);
        land(&bed, "reports/same-completed.yaml", REPORT);
        assert_eq!(received(&bed, "dispatch").1, "report.completed", "{id}");
        eventually("its task ends", || is_settled(&bed, id));
    }
    assert_eq!(bed.json("log --type task_complete").len(), 2);
    // Its task is not open any more.
    land(&bed, "reports/same-completed.yaml", REPORT);
    eventually("it is known", || bed.json("log --type file.again").len() == 1);
    bed.fails(3, "recv --as dispatch");
}

#[test]
fn a_task_file_reaches_an_agent_that_reads_another_mailbox() {
    let bed = Bed::new();
    reader(&bed, "bob", "pool");
    land(&bed, "tasks/bob-task.yaml", "id: z1\ntitle: count\n");
    assert!(!bed.ok("status").contains("tasks/bob-task.yaml"));
    let _watcher = watch(&bed);
    eventually("it is delivered", || bed.json("inbox bob").len() == 1);
}

#[test]
fn a_summary_or_an_escalation_that_is_written_anew_is_told_again() {
    let bed = Bed::new();
    let _watcher = watch(&bed);
    let files = [
        (
            "reports/completion-summary.yaml",
            "status: success\nsummary: all 3 of 3 tasks (100%) are done\n",
        ),
        ("reports/escalation-t9.yaml", "task: t9\nworker: w1\nreason: unanswered\n"),
    ];
    for (file, content) in files {
        for _ in 0..2 {
            land(&bed, file, content);
            assert_eq!(received(&bed, "conductor").0, file);
        }
        // Touched, and not written.
        let path = bed.project().join("queue").join(file);
        let times = fs::FileTimes::new().set_modified(std::time::SystemTime::now());
        fs::File::options().append(true).open(&path).unwrap().set_times(times).unwrap();
        eventually("it is known", || {
            let known = bed.json("log --type file.again");
            known.iter().any(|record| record["data"]["file"] == file)
        });
        bed.fails(3, "recv --as conductor");
    }
}

#[test]
fn a_file_without_a_mailbox_or_a_route_is_named_with_what_helps() {
    let bed = Bed::new();
    land(&bed, "tasks/w2-task.yaml", "id: z1\ntitle: count\n");
    land(&bed, "reports/t_completed.yaml", "status: perhaps\n");
    let needs = bed.json("status").pop().unwrap()["needs"].take();
    let texts: Vec<&str> =
        needs.as_array().unwrap().iter().filter_map(|it| it["text"].as_str()).collect();
    let wanted = [
        "reports/t_completed.yaml is not delivered: no route matches its name",
        "tasks/w2-task.yaml is not delivered: there is no mailbox `w2`: did you mean w1?",
    ];
    assert_eq!(texts, wanted);
    assert!(needs[1]["help"].as_str().unwrap().contains("`ensemble mailbox add w2`"), "{needs}");
    land(&bed, "tasks/W1-task.yaml", "id: z2\ntitle: count\n");
    let needs = bed.json("status").pop().unwrap()["needs"].take();
    assert_eq!(needs[1]["help"], "name the file for w1", "{needs}");
    fs::remove_file(bed.project().join("queue/tasks/W1-task.yaml")).unwrap();
    let checked = bed.ok("admin fsck");
    assert!(
        wanted.iter().all(|text| checked.contains(text.split(' ').next().unwrap())),
        "{checked}"
    );
    assert!(bed.run("doctor").stdout.contains("2 things"), "{:?}", bed.run("doctor"));
    bed.ok("mailbox add w2");
    let _watcher = watch(&bed);
    let message = bed.object("recv --wait 60s --as w2");
    assert_eq!(message["source"], "tasks/w2-task.yaml");
    bed.ok(&format!("settle {} --as w2", message["id"].as_str().unwrap()));
    bed.ok("mailbox remove w2");
    let left = bed.json("status").pop().unwrap()["needs"].take();
    assert_eq!(left.as_array().unwrap().len(), 1, "it was delivered: {left}");
}

#[test]
fn a_report_is_known_by_a_name_near_that_of_one_or_by_its_content() {
    let bed = Bed::new();
    bed.ok("mailbox add notes");
    bed.add_config("routes:\n  - match: reports/memo*\n    to: [notes]\n    type: note\n");
    let _watcher = watch(&bed);
    let rest = "worker_id: w1\nstatus: success\nsummary: 1 of 1 (100%) done, see ensemble.yaml:1\n";
    for (file, task) in [
        ("Copy of t1-completed.yaml", None),
        ("t2-completed (1).yaml", None),
        ("t3_Complete.yml", None),
        ("completed.yaml", Some("t4")),
        ("notes on t5.yaml", Some("t5")),
    ] {
        let known = task.map_or_else(String::new, |task| format!("task_id: {task}\n"));
        land(&bed, &format!("reports/{file}"), &format!("{known}{rest}"));
        let told = bed.object("recv --wait 60s --as dispatch");
        let (task, kind) = (told["task_id"].as_str().unwrap(), &told["type"]);
        assert_eq!(kind, "report.completed", "{told}");
        assert!(file.contains(task) || task == "t4", "{file}: {told}");
        bed.ok(&format!("settle {} --as dispatch", told["id"].as_str().unwrap()));
    }
    assert_eq!(bed.json("status").pop().unwrap()["needs"], serde_json::json!([]));
    // A copy of what was delivered is not a second report.
    land(&bed, "reports/t6-completed.yaml", rest);
    assert_eq!(bed.object("recv --wait 60s --as dispatch")["task_id"], "t6");
    land(&bed, "reports/memo.yaml", rest);
    assert_eq!(received(&bed, "notes").0, "reports/memo.yaml");
    for copy in [
        "t6-completed copy.yaml",
        "Kopie von t6-completed.yaml",
        "memo (1).yaml",
        "memo 2.yaml",
        "memo - Copy (2).yaml",
    ] {
        land(&bed, &format!("reports/{copy}"), rest);
    }
    eventually("they are named", || bed.json("log --type file.unmatched").len() == 5);
    let other = &rest.replace("done", "checked");
    for (file, content) in [("memo 3.yaml", other.as_str()), ("memo two.yaml", rest)] {
        land(&bed, &format!("reports/{file}"), content);
        assert_eq!(received(&bed, "notes").0, format!("reports/{file}"));
    }
    assert!(
        bed.json("inbox dispatch")
            .iter()
            .all(|it| it["type"] != "report.completed" || it["state"] == "acked")
    );
}

/// Puts a file in the place of a directory, so that what is written there fails.
fn block(place: &Path) {
    if place.exists() {
        fs::rename(place, place.with_extension("away")).unwrap();
    }
    fs::write(place, "").unwrap();
}

fn unblock(place: &Path) {
    fs::remove_file(place).unwrap();
    if place.with_extension("away").exists() {
        fs::rename(place.with_extension("away"), place).unwrap();
    }
}

#[test]
fn the_end_of_a_reported_task_is_tried_until_it_is_done() {
    let bed = Bed::new();
    let ends = bed.project().join(".ensemble/ends");
    hand_over(&bed, "m1");
    block(&ends);
    let _watcher = watch(&bed);
    land(&bed, "reports/same-completed.yaml", REPORT);
    until_it_fails(&bed, "reports/same-completed.yaml");
    // Its reader may remove it at once.
    fs::remove_file(bed.project().join("queue/reports/same-completed.yaml")).unwrap();
    assert!(!is_settled(&bed, "m1"));
    unblock(&ends);
    eventually("its task ends", || is_settled(&bed, "m1"));
    assert_eq!(bed.json("log --type task_complete").len(), 1);
    assert_eq!(received(&bed, "dispatch").1, "report.completed");
    bed.fails(3, "recv --as dispatch");
}

#[test]
fn a_review_is_tried_until_it_is_counted() {
    let bed = Bed::new();
    let reviews = bed.project().join(".ensemble/reviews");
    block(&reviews);
    let _watcher = watch(&bed);
    let review = "task_id: same\nreviewer: w1\nstatus: approved\nfindings: []\n";
    land(&bed, "reports/same-review.yaml", review);
    until_it_fails(&bed, "reports/same-review.yaml");
    unblock(&reviews);
    eventually("it is counted", || bed.json("log --type review_result").len() == 1);
    land(&bed, "reports/same-completed.yaml", REPORT);
    eventually("its author is known", || bed.json("log --type task_complete").len() == 1);
    land(&bed, "reports/same-review.yaml", &format!("{review}summary: my own work\n...\n"));
    eventually("it is rejected", || bed.json("log --type file.rejected").len() == 1);
    assert_eq!(bed.json("log --type review_result").len(), 1);
    // Review has stopped the task.
    let count = "task_id: same\ncycles: 3\nstopped_at: 2020-01-01T00:00:00Z\n";
    bed.write_file(".ensemble/reviews/same.yaml", count);
    land(&bed, "reports/same-completed.yaml", &(REPORT.replace("1 of 1", "2 of 2") + "...\n"));
    eventually("its report is rejected", || bed.json("log --type file.rejected").len() == 2);
}

#[test]
fn an_ack_is_tried_until_its_task_is_received() {
    let bed = Bed::new();
    bed.ok("send --to w1 --type task --task same --id m1 -m work");
    let cur = bed.mailbox("w1/cur");
    block(&cur);
    let _watcher = watch(&bed);
    land(&bed, "ack/same.ack", "w1\n");
    until_it_fails(&bed, "ack/same.ack");
    unblock(&cur);
    eventually("it is received", || bed.mailbox("w1/cur/m1@w1@1.yaml").exists());
}

#[test]
fn a_notice_is_tried_until_its_author_has_it() {
    let bed = Bed::new();
    let new = bed.mailbox("w1/new");
    block(&new);
    let _watcher = watch(&bed);
    let vague = "task_id: vague\nworker_id: w1\nstatus: success\nsummary: mostly done\n";
    let broken = "task_id: broken\nworker_id: w1\n...\n";
    for (task, content) in [("vague", vague), ("broken", broken)] {
        land(&bed, &format!("reports/{task}-completed.yaml"), content);
        until_it_fails(&bed, &format!("reports/{task}-completed.yaml"));
    }
    unblock(&new);
    let mut kinds: Vec<Value> = (0..2).map(|_| received(&bed, "w1").1.into()).collect();
    kinds.sort_by_key(ToString::to_string);
    assert_eq!(kinds, ["report.advice", "report.rejected"]);
}
