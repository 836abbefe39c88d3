//! `examples/worker.sh`: a worker in nothing but shell takes part in every promise that a worker has
//! a part in, side by side with the library.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::Child;

use ensemble_core::dropbox::{BoxSpec, DropBox};

use crate::*;

const MESSAGES: usize = 200;
const WORKERS: usize = 3;
/// How long a worker may take that ends when there is nothing to do, even on a busy machine.
const PATIENCE_SECONDS: &str = "300";

struct Bed {
    home: tempfile::TempDir,
    shell: &'static str,
    spool: Spool,
}

/// Runs a test with every installed shell that the worker supports.
fn with_every_shell(test: impl Fn(&Bed)) {
    let shells = ["dash", "bash"].into_iter().filter(|shell| {
        Command::new(shell).args(["-c", ":"]).status().is_ok_and(|status| status.success())
    });
    let mut shells: Vec<_> = shells.collect();
    if shells.is_empty() {
        shells.push("sh");
    }
    for shell in shells {
        let home = tempfile::tempdir().unwrap();
        let options = SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() };
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        spool.add_mailbox(&team(), &Settings::default()).unwrap();
        test(&Bed { home, shell, spool });
    }
}

fn team() -> Name {
    Name::new("team").unwrap()
}

impl Bed {
    fn publish(&self, body: &str) -> MessageId {
        let envelope = Envelope::new(team(), body).with_task(format!("task-{body}"));
        self.spool.publish(&envelope).unwrap();
        envelope.id
    }

    fn path(&self, below: &str) -> PathBuf {
        self.home.path().join(below)
    }

    /// A worker that ends by itself when there is nothing to do.
    fn worker(&self, holder: &str, command: &[&str]) -> Command {
        self.worker_by(Command::new(self.shell), holder, command)
    }

    /// The same, ended by force if it does not end by itself.
    fn bounded_worker(&self, holder: &str, command: &[&str]) -> Command {
        let mut timeout = Command::new("timeout");
        timeout.arg(PATIENCE_SECONDS).arg(self.shell);
        self.worker_by(timeout, holder, command)
    }

    fn worker_by(&self, mut worker: Command, holder: &str, command: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/worker.sh");
        worker.arg(script).arg(self.spool.root()).args(["team", holder]).args(command);
        worker.env("IDLE", "exit").env_remove("DELAY").env_remove("LEASE");
        worker.stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        worker
    }

    fn run(&self, command: &[&str]) {
        let output = self.bounded_worker("runner", command).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }

    fn state(&self, id: &MessageId) -> State {
        self.spool.state(&team(), id).unwrap().unwrap()
    }

    /// Takes the one held message away, as an observer does when the holder has fallen silent.
    fn expire(&self) {
        let observed = self.spool.observe(&team()).unwrap();
        assert_eq!(observed.len(), 1);
        assert!(self.spool.expire(&observed[0]).unwrap());
    }

    fn reports(&self) -> Vec<serde_json::Value> {
        let reports = DropBox::open(self.spool.root(), &BoxSpec::named("reports")).unwrap();
        let read = |file: &String| {
            let (_, content) = reports.read(file, 1 << 20).unwrap().unwrap();
            assert!(DropBox::has_end_mark(&content), "{file}");
            let report = reports.parse(file, &content).unwrap();
            assert_eq!(*file, format!("{}-completed.yaml", report["task_id"].as_str().unwrap()));
            report
        };
        reports.dir().names().unwrap().iter().map(read).collect()
    }
}

/// A worker whose command has begun and waits. Dropping this kills what is left of it.
struct Busy {
    worker: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Busy {
    /// The command reads the body, says `working` and then runs `wait`.
    fn start(bed: &Bed, wait: &str) -> Self {
        let command = format!("cat >&2; {wait}");
        let mut worker = bed.worker("busy", &["sh", "-c", &command]).spawn().unwrap();
        let mut stderr = BufReader::new(worker.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert_eq!(line, "working\n", "the body");
        Self { worker, stderr }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.worker);
        // It may have ended by itself.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.worker.wait();
    }
}

#[test]
fn three_workers_settle_every_message_exactly_once() {
    with_every_shell(|bed| {
        let batch: Vec<_> = (0..MESSAGES)
            .map(|n| Envelope::new(team(), format!("line {n}\n")).with_task(format!("task-{n}")))
            .collect();
        bed.spool.publish_batch(&batch).unwrap();
        let done = bed.path("done.txt");
        let work = format!("tee -a '{}'", done.display());
        let workers: Vec<_> = (0..WORKERS)
            .map(|n| {
                bed.bounded_worker(&format!("worker-{n}"), &["sh", "-c", &work]).spawn().unwrap()
            })
            .collect();
        for worker in workers {
            let output = worker.wait_with_output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        }
        let counts = bed.spool.counts(&team()).unwrap();
        assert_eq!((counts.settled, counts.queued + counts.acked + counts.dead), (200, 0));
        let mut lines: Vec<_> =
            std::fs::read_to_string(&done).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), MESSAGES, "each was worked on once");
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), MESSAGES);
        let reports = bed.reports();
        assert_eq!(reports.len(), MESSAGES);
        for report in reports {
            let number = report["task_id"].as_str().unwrap().trim_start_matches("task-");
            assert_eq!(report["output"], format!("line {number}\n"));
        }
        assert_eq!(bed.spool.fsck(false).unwrap(), []);
        assert_eq!(std::fs::read_dir(bed.path("queue/tmp")).unwrap().count(), 0);
    });
}

#[test]
fn urgent_and_returned_messages_come_first_and_delayed_ones_later() {
    with_every_shell(|bed| {
        let returned = bed.publish("returned");
        let delivery = bed.spool.receive(&team(), &team()).unwrap().unwrap();
        bed.spool.release(&delivery.lease, Duration::ZERO).unwrap();
        let delayed = bed.publish("delayed");
        let delivery = bed.spool.receive_id(&team(), &delayed, &team()).unwrap().unwrap();
        bed.spool.release(&delivery.lease, Duration::from_secs(3600)).unwrap();
        for (body, priority) in [("first\n", 0), ("urgent\n", 3), ("most urgent\n", 9)] {
            bed.spool.publish(&Envelope::new(team(), body).with_priority(priority)).unwrap();
        }
        let order = bed.path("order.txt");
        let work = format!("cat >>'{0}'; echo \"$held\" >>'{0}'", order.display());
        bed.run(&["sh", "-c", &work]);
        let text = std::fs::read_to_string(&order).unwrap();
        let bodies: Vec<_> = text.lines().filter(|line| !line.contains("cur/")).collect();
        assert_eq!(bodies, ["most urgent", "urgent", "returned", "first"]);
        assert!(text.contains(&format!("{returned}@runner@2.yaml")), "{text}");
        assert!(matches!(bed.state(&delayed), State::Queued { epoch: 1, .. }));
    });
}

#[test]
fn what_fails_is_given_back_and_dies_by_the_librarys_rules() {
    with_every_shell(|bed| {
        let id = bed.publish("poison");
        let now = u64::try_from(SystemClock.wall().unix_millis()).unwrap();
        let output =
            bed.bounded_worker("runner", &["false"]).env("DELAY", "3600").output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let State::Queued { epoch: 1, not_before } = bed.state(&id) else { panic!() };
        assert!((now + 3_590_000..now + 3_700_000).contains(&not_before), "{not_before} {now}");

        let delivery = bed.spool.receive_id(&team(), &id, &team()).unwrap().unwrap();
        assert_eq!(delivery.lease.epoch, 2);
        bed.spool.release(&delivery.lease, Duration::ZERO).unwrap();
        for deliveries in [5, 10] {
            bed.run(&["false"]);
            let letter = bed.spool.dead_letters(&team()).unwrap().remove(0);
            assert_eq!((letter.id, letter.epoch), (id.clone(), deliveries));
            assert_eq!(letter.reason, "released after 5 attempts");
            assert_eq!(letter.holder.unwrap().as_str(), "runner");
            bed.spool.redrive(&team(), &id).unwrap();
        }
        bed.run(&["cat"]);
        assert_eq!(bed.state(&id), State::Settled);
    });
}

#[test]
fn work_that_may_not_begin_stays_where_it_is() {
    with_every_shell(|bed| {
        let id = bed.publish("later");
        let waits = |why: &str| {
            bed.run(&["cat"]);
            assert!(matches!(bed.state(&id), State::Queued { epoch: 0, .. }), "{why}");
        };
        let (state, gates) = (bed.path(".ensemble"), bed.spool.root().join("gates"));
        std::fs::create_dir_all(&state).unwrap();
        for file in ["PAUSE", "CHECKPOINT", "ABORT"] {
            std::fs::write(state.join(file), "lunch").unwrap();
            waits(file);
            std::fs::remove_file(state.join(file)).unwrap();
        }
        std::fs::create_dir_all(&gates).unwrap();
        let gate = gates.join("task-later@runner.yaml");
        std::fs::write(&gate, "version: 1").unwrap();
        waits("its plan is not approved");
        std::fs::remove_file(&gate).unwrap();
        std::fs::write(gates.join("task-later@.yaml"), "version: 1").unwrap();
        waits("a plan is demanded, and there is none");
        std::fs::write(&gate, "version: 1\nrequest_id: abc\ndemanded: true\n").unwrap();
        let decision = bed.spool.root().join("requests/abc/decision.yaml");
        std::fs::create_dir_all(decision.parent().unwrap()).unwrap();
        std::fs::write(&decision, "version: 1\noutcome: rejected\n").unwrap();
        waits("its plan was rejected");
        std::fs::write(&decision, "version: 1\noutcome: approved\n").unwrap();
        bed.run(&["cat"]);
        assert_eq!(bed.state(&id), State::Settled);
    });
}

#[test]
fn a_failed_attempt_is_reported_to_the_sender_that_counts_attempts() {
    with_every_shell(|bed| {
        let envelope = Envelope::new(team(), "x").with_task("poison".to_owned()).with_attempt(2);
        bed.spool.publish(&envelope).unwrap();
        bed.run(&["sh", "-c", "echo half; exit 3"]);
        assert_eq!(bed.state(&envelope.id), State::Settled);
        let report = bed.reports().remove(0);
        assert_eq!((&report["status"], &report["attempt"]), (&"failed".into(), &2.into()));
        assert_eq!(report["failure_reason"], "its command ended with code 3");
        assert_eq!(report["output"], "half\n");
        let summary = report["summary"].as_str().unwrap();
        assert!(summary.starts_with("runner has done 0 of 1 messages (0%), see "), "{summary}");
    });
}

#[test]
fn a_ping_is_answered_under_its_attempt() {
    with_every_shell(|bed| {
        let ready = bed.path(".ensemble/ready");
        std::fs::create_dir_all(&ready).unwrap();
        bed.run(&["cat"]);
        assert_eq!(std::fs::read_dir(&ready).unwrap().count(), 0, "no ping, no pong");
        std::fs::write(ready.join("team.ping"), "AGENT_TEAM_PING team 3\n").unwrap();
        bed.run(&["cat"]);
        assert!(ready.join("team@3.pong").exists());
        assert_eq!(std::fs::read_dir(&ready).unwrap().count(), 2);
    });
}

#[test]
fn a_killed_worker_leaves_its_message_for_the_next() {
    with_every_shell(|bed| {
        let id = bed.publish("working");
        let mut busy = Busy::start(bed, "exec sleep 600");
        busy.worker.kill().unwrap();
        busy.worker.wait().unwrap();
        let held = State::Acked { holder: Name::new("busy").unwrap(), epoch: 1 };
        assert_eq!(bed.state(&id), held);
        bed.run(&["cat"]);
        assert_eq!(bed.state(&id), held, "held until its lease is over");
        bed.expire();
        bed.run(&["cat"]);
        assert_eq!(bed.state(&id), State::Settled);
        assert_eq!(bed.reports()[0]["worker_id"], "runner");
    });
}

#[test]
fn a_worker_that_lost_its_lease_can_neither_settle_nor_report() {
    with_every_shell(|bed| {
        let id = bed.publish("working");
        let pipe = bed.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut busy = Busy::start(bed, &format!("cat '{}'", pipe.display()));
        bed.expire();
        bed.run(&["cat"]);
        // The slow command ends only now.
        drop(std::fs::OpenOptions::new().write(true).open(&pipe).unwrap());
        let mut said = String::new();
        busy.stderr.read_to_string(&mut said).unwrap();
        assert_eq!(said, format!("worker.sh: the lease of {id}@1 is over\n"));
        assert_eq!(bed.state(&id), State::Settled);
        assert_eq!(bed.reports().len(), 1);
        assert_eq!(bed.reports()[0]["worker_id"], "runner");
    });
}

#[test]
fn hostile_files_stop_nothing() {
    with_every_shell(|bed| {
        let place = |file: &str, content: &str| {
            std::fs::write(bed.path("queue/mailbox/team").join(file), content).unwrap();
        };
        place("new/cut.yaml", "version: 1\nbody: |2+\n  rm -r");
        place("new/newer.yaml", "version: 2\nbody: x\n...\n");
        place("new/empty.yaml", "");
        std::os::unix::fs::symlink("/etc/passwd", bed.path("queue/mailbox/team/new/link.yaml"))
            .unwrap();
        for stray in ["a b.yaml", "$(touch x).yaml", "*.yaml", "-rf.yaml", ".yaml", "x@y.yaml"] {
            place(&format!("new/{stray}"), "body: stray\n...\n");
            place(&format!("front/{stray}@p0@e0@t0.yaml"), "body: stray\n...\n");
        }
        place("front/octal@p0@e08@t0.yaml", "body: stray\n...\n");
        place("front/far@p0@e0@t18446744073709551615.yaml", "body: far\n...\n");
        let good = bed.publish("good");
        let output = bed.bounded_worker("runner", &["cat"]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(bed.state(&good), State::Settled);
        let letters = bed.spool.dead_letters(&team()).unwrap();
        let mut dead: Vec<_> = letters.iter().map(|letter| letter.id.as_str()).collect();
        dead.sort_unstable();
        assert_eq!(dead, ["cut", "empty", "link", "newer"]);
        assert_eq!(bed.reports().len(), 1);
    });
}
