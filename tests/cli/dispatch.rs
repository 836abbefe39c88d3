//! Dispatch as a program: order, workers, retries, the summary, and kills in the middle.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, Running, SaidText as _, end, program, watch};
use crate::ladders::told;
use crate::nats_server::{Server, fresh_team};
use crate::servers::bed_on;
use crate::tmux_support::eventually;

/// A worker that answers pings and works off its mailbox, in a directory or on servers; a task whose instruction says
/// `fail` fails once.
const WORKER: &str = r#"
me=$1
while [ ! -e stop ]; do
    if read -r _ worker attempt 2>/dev/null <".ensemble/ready/$me.ping"; then
        : >".ensemble/ready/$worker@$attempt.pong"
    fi
    if "$ENSEMBLE" recv --as "$me" --json >"taken.$me" 2>/dev/null; then
        field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "taken.$me"; }
        task=$(field task_id) attempt=$(field attempt)
        case $(field type) in task) ;; *) # advice
            "$ENSEMBLE" settle --as "$me" "$(field id)" >/dev/null
            continue ;;
        esac
        echo "$task $attempt $me" >>begun
        until [ -e go ]; do sleep 0.02; done
        status=success
        case $(cat "taken.$me") in *fail*) [ "$attempt" -gt 1 ] || status=failed ;; esac
        printf 'task_id: %s\nworker_id: %s\nattempt: %s\nstatus: %s\nfailure_reason: "no luck"\nsummary: "%s has done 1 of 1 (100%%), see begun:1"\n...\n' \
            "$task" "$me" "$attempt" "$status" "$me" >"queue/tmp/$task.$me"
        mv "queue/tmp/$task.$me" "queue/reports/$task-completed.yaml"
    fi
    sleep 0.05
done
"#;

/// Long enough for a machine that pauses for seconds.
const TIMES: &str = "readiness: {wait: 60}\nladder: {phase: 600}\n";

struct Team {
    bed: Bed,
    workers: Vec<Child>,
    watcher: Child,
}

impl Team {
    /// With one worker and one task, whose instruction Dispatch holds for two seconds at a time.
    fn with_a_short_lease() -> Self {
        let team = Self::new(1);
        team.bed.ok("mailbox remove dispatch");
        team.bed.ok("mailbox add dispatch --lease 2s");
        team.instruct("type: start_workers\ntasks: [{id: a, instruction: count}]\n...\n");
        team
    }

    fn new(workers: usize) -> Self {
        Self::on(Bed::new(), workers)
    }

    fn on(bed: Bed, workers: usize) -> Self {
        bed.add_config(TIMES);
        bed.write_file("worker.sh", WORKER);
        let watcher = bed.start("watch");
        let names: Vec<String> = (1..=workers).map(|n| format!("worker-{n}")).collect();
        for name in &names {
            bed.ok(&format!("mailbox add {name}"));
        }
        let start = |name: &String| {
            std::process::Command::new("sh")
                .args(["worker.sh", name])
                .env("ENSEMBLE", program())
                .current_dir(bed.project())
                .stdin(Stdio::null())
                .spawn()
                .unwrap()
        };
        let workers = names.iter().map(start).collect();
        Self { bed, workers, watcher }
    }

    fn instruct(&self, text: &str) {
        self.bed.write_file("i.yaml", text);
        self.bed.ok("agent instruct i.yaml");
    }

    fn go(&self) {
        self.bed.write_file("go", "");
    }

    fn begun(&self) -> Vec<String> {
        let text = fs::read_to_string(self.bed.project().join("begun")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.bed.write_file("stop", "");
        self.go();
        for worker in &mut self.workers {
            let _ = worker.wait();
        }
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
    }
}

#[test]
fn a_batch_is_handed_out_in_order_retried_and_told_of_once_whatever_is_killed() {
    works_off_a_batch(&Team::new(2), true);
}

#[test]
fn a_batch_on_servers_is_handed_out_as_one_in_a_directory_is() {
    let (server, name) = (Server::start(), fresh_team());
    let (bed, other) = (bed_on(&server, &name), bed_on(&server, &name));
    other.add_config(TIMES);
    let _watcher = watch(&other);
    works_off_a_batch(&Team::on(bed, 2), false);
}

/// Dispatch is killed while two workers are at work, and started again.
fn works_off_a_batch(team: &Team, is_here: bool) {
    team.instruct(
        "type: start_workers\nworker_count: 2\ntasks:\n\
         - {id: a, instruction: count}\n\
         - {id: b, instruction: fail once, retry: {attempts: 2, delay: 0}}\n\
         - {id: c, instruction: count, blocked_by: [a, b]}\n\
         - {id: d, instruction: count, worker: worker-2}\n\
         - {id: e, instruction: fail}\n\
         - {id: f, instruction: count, blocked_by: [e]}\n...\n",
    );
    let mut first = team.bed.start("task dispatch --once --json");
    eventually("two are at work", || team.begun().len() == 2);
    for worker in ["worker-1", "worker-2"] {
        let taken = team.bed.project().join(format!("taken.{worker}"));
        let taken: Value = serde_json::from_slice(&fs::read(taken).unwrap()).unwrap();
        taken.fits(json!({ "from": "dispatch", "proof": "person" }));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let is_need = || {
        let needs = team.bed.run("status --json").stdout;
        needs.contains("`ensemble task dispatch` continues with it")
    };
    assert_eq!(is_need(), is_here);
    let second = team.bed.start("task dispatch --once --json");
    team.go();
    eventually("the conductor was told", || {
        team.bed.project().join("queue/reports/completion-summary.yaml").exists()
    });
    let done = end(second);
    done.ends(0);
    let summary: Value = serde_json::from_str(done.stdout.lines().next().unwrap()).unwrap();
    let counts = (&summary["completed_tasks"], &summary["failed_tasks"]);
    assert_eq!(counts, (&4.into(), &2.into()), "{summary}");
    let result = |task: &str| {
        let all = summary["task_results"].as_array().unwrap();
        all.iter().find(|result| result["task_id"] == task).unwrap().clone()
    };
    assert_eq!(result("d")["worker_id"], "worker-2");
    assert_eq!(["e", "f"].map(|task| result(task)["status"].clone()), ["failed", "blocked"]);
    let begun = team.begun();
    let mut once: Vec<&str> = begun.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    let c = once.iter().position(|line| *line == "c 1").unwrap();
    assert!(once.iter().position(|line| *line == "b 2").unwrap() < c, "{begun:?}");
    once.sort_unstable();
    assert_eq!(once, ["a 1", "b 1", "b 2", "c 1", "d 1", "e 1"], "none twice");
    assert!(!is_need());
    // After a restart there is nothing to do, and nothing is reported twice.
    team.bed.ok("task dispatch --once");
    eventually("the summary is routed", || {
        team.bed
            .json("log")
            .iter()
            .any(|r| r["type"] == "file.routed" && r["data"]["type"] == "report.summary")
    });
    // On servers it is routed before it is stored there.
    let mut received = Vec::new();
    let is_summary = |mail: &Value| mail["type"] == "report.summary";
    eventually("the conductor has it", || {
        received.extend(told(&team.bed));
        received.iter().any(is_summary)
    });
    assert_eq!(received.into_iter().filter(is_summary).count(), 1);
}

#[test]
fn an_instruction_that_makes_no_sense_is_refused_before_anything_begins() {
    let bed = Bed::new();
    let circle = "type: start_workers\ntasks:\n- {id: a, instruction: x, blocked_by: [b]}\n\
                  - {id: b, instruction: x, blocked_by: [a]}\n...\n";
    bed.write_file("i.yaml", circle);
    bed.fails(2, "task dispatch -f i.yaml");
    bed.write_file("body", circle);
    bed.ok("send --to dispatch --as conductor --type dispatch.instruction -f body");
    bed.run("task dispatch --once").ends(0).says(["refused"]);
    assert_eq!(bed.object("recv --as conductor")["type"], "mail.returned");
    assert_eq!(bed.json("dead list").len(), 1);
}

#[test]
fn that_there_is_no_worker_is_said() {
    let bed = Bed::new();
    bed.write_file("i.yaml", "type: start_workers\ntasks:\n- {id: a, instruction: count}\n...\n");
    let mut running = Running(bed.start("task dispatch --once -f i.yaml"));
    let said = BufReader::new(running.0.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    said.has(["there is no worker", "`ensemble up`"]);
    // It was noted before that was said. A worker ends it.
    assert!(bed.ok("status").contains("there is no worker for the tasks"), "{said}");
    bed.ok("mailbox add worker-1");
    eventually("a worker was found", || !bed.ok("status").contains("there is no worker"));
}

#[test]
fn a_pause_holds_the_program_back_and_does_not_end_it() {
    let team = Team::new(1);
    team.bed.ok("pause --reason lunch");
    team.instruct("type: start_workers\ntasks:\n- {id: a, instruction: count}\n...\n");
    let mut standing = Running(team.bed.start("task dispatch"));
    team.go();
    // It has seen the instruction once it reads the mail after it.
    team.bed.ok("send --to dispatch --type report.completed -m status:x --task other");
    eventually("it has read its other mail", || {
        team.bed.json("inbox conductor").iter().any(|message| message["task_id"] == "other")
    });
    assert!(standing.0.try_wait().unwrap().is_none(), "it has ended");
    assert_eq!(team.begun(), [""; 0]);
    team.bed.ok("resume");
    eventually("the conductor was told", || {
        team.bed.project().join("queue/reports/completion-summary.yaml").exists()
    });
    assert_eq!(team.begun(), ["a 1 worker-1"]);
}

#[test]
fn a_named_worker_that_is_not_ready_is_a_need_and_asked_again_only_after_a_pause() {
    let bed = Bed::new();
    bed.add_config("readiness: {wait: 1}\n");
    bed.ok("mailbox add cl");
    let tasks = "[{id: a, instruction: count, worker: cl}]";
    bed.write_file("i.yaml", format!("type: start_workers\ntasks: {tasks}\n...\n"));
    bed.ok("agent instruct i.yaml");
    let mut command = bed.command(&["task", "dispatch"]);
    let said = fs::File::create(bed.project().join("said")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    let _standing = Running(command.spawn().unwrap());
    eventually("it is a need", || bed.ok("status").contains("wait for cl, which is not ready"));
    bed.ok("send --to dispatch --type report.completed -m status:x --task other");
    eventually("it has read its other mail", || {
        bed.json("inbox conductor").iter().any(|message| message["task_id"] == "other")
    });
    assert_eq!(bed.read_file("said").matches("cl is not ready").count(), 1);
}

#[test]
fn a_failure_that_is_of_no_batch_goes_on_to_the_conductor() {
    let bed = Bed::new();
    let report = |task: &str, status: &str| {
        let text =
            format!("task_id: {task}\nstatus: {status}\nfailure_reason: no key\nsummary: x\n...\n");
        bed.write_file("report", text);
        let line =
            format!("send --to dispatch --as w1 --type report.completed --task {task} -f report");
        bed.ok(&line);
    };
    report("good", "success");
    report("bad", "failed");
    bed.ok("send --to dispatch -m hello");
    let _standing = Running(bed.start("task dispatch"));
    eventually("only the letter is left", || {
        let left = bed.json("inbox dispatch");
        left.len() == 1 && left[0]["type"] == "message"
    });
    let told = bed.json("inbox conductor");
    assert_eq!(told.len(), 1, "{told:?}");
    told[0].fits(json!({ "type": "report.completed", "task_id": "bad", "from": "dispatch" }));
    assert!(bed.ok("recv --as conductor --body").contains("no key"));
}

#[test]
fn a_report_that_came_while_the_program_was_down_is_left_for_its_batch() {
    let bed = Bed::new();
    bed.write_file("i.yaml", "type: start_workers\ntasks:\n- {id: a, instruction: count}\n...\n");
    bed.ok("agent instruct i.yaml");
    let text = "task_id: a\nstatus: failed\nfailure_reason: no luck\nsummary: x\n...\n";
    bed.write_file("report", text);
    bed.ok("send --to dispatch --as w1 --type report.completed --task a -f report");
    let _standing = Running(bed.start("task dispatch"));
    eventually("only the instruction is left", || {
        let left = bed.json("inbox dispatch");
        left.len() == 1 && left[0]["type"] == "dispatch.instruction"
    });
    assert_eq!(bed.run("inbox conductor --json").stdout, "", "no other batch has it");
}

#[test]
fn a_report_that_is_repeated_is_not_that_of_the_next_attempt() {
    let bed = Bed::new();
    let assign = |attempt: u32| {
        bed.ok(&format!(
            "send --to w1 --type task --task t --id t.{attempt} --attempt {attempt} -m x"
        ));
    };
    let report = |status: &str| {
        bed.ok(&format!(
            "report t --status {status} --as w1 --reason stuck --lint off --summary none"
        ));
        bed.read_file("queue/reports/t-completed.yaml")
    };
    assign(1);
    bed.ok("recv --as w1");
    assert!(report("failed").contains("attempt: 1"));
    assign(2);
    // As after a kill, which leaves its caller without an answer.
    assert!(report("failed").contains("attempt: 1"));
    let inbox = bed.json("inbox w1");
    inbox[0].fits(json!({ "id": "t.2", "state": "queued" }));
    bed.ok("recv --as w1");
    assert!(report("success").contains("attempt: 2"));
    assert!(bed.json("inbox w1").is_empty());
}

#[test]
fn a_lease_that_is_over_does_not_end_dispatch() {
    for paused in [false, true] {
        let team = Team::with_a_short_lease();
        let bed = &team.bed;
        let said = bed.project().join("said");
        let mut command = bed.command(&["task", "dispatch"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
        let _standing = Running(command.spawn().unwrap());
        eventually("the task is begun", || team.begun().len() == 1);
        let id = bed.object("inbox dispatch")["id"].as_str().unwrap().to_owned();
        if paused {
            bed.ok("pause");
        }
        // As the watcher does once the lease of a silent holder has ended.
        bed.ok(&format!("mailbox release {id} --as dispatch"));
        if paused {
            eventually("it is told that nothing begins", || {
                fs::read_to_string(&said).unwrap().contains("PAUSE since")
            });
            bed.ok("resume");
        }
        eventually("it is received again", || {
            let held = bed.object("inbox dispatch");
            held["state"] == "acked" && held["epoch"].as_u64() > Some(1)
        });
        team.go();
        eventually("the conductor was told", || {
            bed.project().join("queue/reports/completion-summary.yaml").exists()
        });
        eventually("the instruction is settled", || bed.json("inbox dispatch").is_empty());
        assert_eq!(team.begun().len(), 1, "no task begins twice, paused: {paused}");
    }
}
