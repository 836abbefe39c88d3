//! An ordinary session, with verbs, drop boxes and the watcher of `up`: the log has all eleven types.

use std::fs;

use ensemble_core::event_log::RecordType;

use super::Team;
use crate::bed::land;
use crate::tmux_support::eventually;

const CONFIG: &str = "readiness: {wait: 120}\nladder: {phase: 1, ceiling: 0}\n";

#[test]
fn an_ordinary_session_writes_every_type_of_event() {
    let team = Team::with(&["worker-1", "worker-2"], CONFIG);
    team.up();
    let (bed, queue) = (&team.bed, team.bed.project().join("queue"));
    let has = |kind: &str, count: usize| team.records(kind).len() == count;
    bed.write_file("task.md", "count the lines\n");
    team.wait_for_puppet("worker-1");
    // A pong that waits for its ping answers it, no matter what the puppet does with the line.
    let assign = |task: &str, worker: &str, takes: bool| {
        let child = bed.start(&format!("assign {worker} -f task.md --task {task}"));
        let ready = bed.project().join(".ensemble/ready");
        eventually("it is asked", || ready.join(format!("{worker}.ping")).exists());
        fs::write(ready.join(format!("{worker}@1.pong")), "").unwrap();
        if takes {
            eventually("it is delivered", || {
                queue.join(format!("mailbox/{worker}/new/{task}.1.yaml")).exists()
            });
            land(bed, &format!("ack/{task}.ack"), &format!("{worker}\n"));
        }
        child.wait_with_output().unwrap().status.code()
    };
    assert_eq!(assign("t-1", "worker-1", true), Some(0));
    land(bed, "reports/t-1-completed.yaml", "task_id: t-1\nworker_id: 1\nstatus: success\n...\n");
    eventually("a drop-box report ends its task", || has("task_complete", 1));
    bed.ok("report t-2 --status failed --reason x --lint off --as conductor");
    assert!(has("task_failed", 1));
    bed.ok("task review t-1 --start --as conductor");
    assert!(has("review_start", 1) && has("review_result", 0));
    for round in 1..=3 {
        let review =
            format!("task_id: t-1\nreviewer: worker-2\nstatus: needs_fix\nround: {round}\n...\n");
        land(bed, "reports/t-1-review.yaml", &review);
        eventually("a drop-box review is counted", || has("review_result", round));
    }
    assert!(has("review_start", 4) && has("loop_detected", 1));
    assert_eq!(assign("t-3", "worker-2", false), Some(1));
    bed.run("request shutdown worker-2 --as conductor --deadline 1s --wait 10m").ends(0);
    bed.ok("down --force");
    let all = || bed.json("log");
    let missing = || -> Vec<_> {
        let kinds: Vec<String> =
            all().iter().map(|r| r["type"].as_str().unwrap().to_owned()).collect();
        let seed = RecordType::SEED.into_iter();
        seed.filter(|kind| !kinds.iter().any(|known| known == kind.as_str())).collect()
    };
    eventually(&format!("no type is missing: {:?}", missing()), || missing().is_empty());
    assert!(has("task_complete", 1), "once for each end");
    bed.ok("log replay");
}
