//! What the watcher does in panes, and by what it sees of them: from a file that lands to a line in the right pane, and
//! the leases of what an agent holds. The real watcher, a real tmux server.

use ensemble_core::event_log::read_all;

use crate::agent::PlayedAgent;
use crate::herdr::HerdrStage;
use crate::stage::PaneStage as _;
use crate::tmux_support::eventually;

use crate::*;

struct Bed {
    tmux: TestServer,
    project: Project,
    spool: Spool,
}

fn dispatch() -> Name {
    Name::new("dispatch").unwrap()
}

fn worker() -> Name {
    Name::new("worker-1").unwrap()
}

impl Bed {
    /// A queue whose Dispatch runs in a pane that reads lines.
    fn reader() -> Self {
        Self::new(TestServer::reader(), "shell")
    }

    fn new(tmux: TestServer, provider: &str) -> Self {
        let bed = Self::without_agents(tmux, "");
        bed.spool.add_mailbox(&dispatch(), &Settings::default()).unwrap();
        bed.bind(&dispatch(), provider);
        bed
    }

    fn without_agents(tmux: TestServer, config: &str) -> Self {
        let queue = tmux.dir.path().join("project/queue");
        let project = Project::discover(Some(&queue)).unwrap();
        project.create_state().unwrap();
        std::fs::write(project.root().join("ensemble.yaml"), config).unwrap();
        let spool = Spool::create(&queue, project.spool_options(Arc::new(NullRecorder))).unwrap();
        Self { tmux, project, spool }
    }

    /// A worker in a pane that runs a command, with leases of `lease_seconds` and one message that it holds.
    fn holding(command: &str, lease_seconds: u64) -> (Self, Lease) {
        let config = "durability: process\npoll_interval: 1\n";
        let bed = Self::without_agents(TestServer::start(command), config);
        let settings = Settings::default().with_lease_seconds(lease_seconds);
        bed.spool.add_mailbox(&worker(), &settings).unwrap();
        let entry = bed.bind(&worker(), "shell");
        let roster = bed.project.roster();
        roster
            .change(&worker(), |_| {
                let (role, since) = (Name::new("worker")?, SystemClock.wall());
                let mut member = Member::new(worker(), role, "shell", since);
                member.binding = Some(entry.binding.clone());
                Ok(Some(member))
            })
            .unwrap();
        bed.spool.publish(&Envelope::new(worker(), "work\n").with_task("t-1")).unwrap();
        let lease = bed.take();
        (bed, lease)
    }

    fn bind(&self, agent: &Name, provider: &str) -> PaneEntry {
        let binding = self.tmux.server.bind("%0").unwrap();
        let entry = PaneEntry::new(agent.clone(), agent.clone(), provider, binding);
        panes::write(&self.project.panes(), &entry).unwrap();
        entry
    }

    fn take(&self) -> Lease {
        self.spool.receive(&worker(), &worker()).unwrap().unwrap().lease
    }

    fn state(&self, lease: &Lease) -> State {
        self.spool.state(&worker(), &lease.id).unwrap().unwrap()
    }

    fn watch(&self) -> Watcher {
        Watcher::start_in(&self.project.queue)
    }

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

    fn records(&self, kind: &str) -> Vec<Value> {
        let Ok(records) = read_all(&self.project.logs()) else { return Vec::new() };
        let records = records.filter(|record| record.kind.as_str() == kind);
        records.map(|record| Value::Object(record.data)).collect()
    }

    /// The agent's row of the watcher's status file.
    fn status(&self) -> Option<Value> {
        let text = std::fs::read(self.project.watch_status()).ok()?;
        serde_json::from_slice::<Value>(&text).ok()?.get("agents")?.get(0).cloned()
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
        let names_it = |record: &Value| {
            record["ids"].as_array().is_some_and(|ids| ids.contains(&envelope.id.as_str().into()))
        };
        eventually(kind, || bed.records(kind).iter().any(names_it));
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
    bed.bind(&dispatch(), "shell");
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

#[test]
fn the_lease_of_a_working_agent_is_extended_and_runs_out_once_it_is_idle() {
    let (bed, lease) = Bed::holding("trap : INT; while :; do read -r line && $line; done", 4);
    bed.tmux.human(&["sleep 100000", "Enter"]);
    let _watcher = bed.watch();
    // Four times its lease, and it is still the same delivery.
    eventually("the lease is extended again and again", || {
        bed.spool.observe(&worker()).unwrap().first().is_some_and(|held| held.sequence >= 8)
    });
    assert_eq!(bed.state(&lease), State::Acked { holder: worker(), epoch: 1 });
    let kept = bed.records("lease.kept");
    assert_eq!((kept.len(), &kept[0]["evidence"]), (1, &"runs sleep".into()));
    assert!(bed.records("nudge.sent").is_empty(), "it is not nudged about what it holds");
    bed.tmux.human(&["C-c"]);
    eventually("the lease of an idle agent runs out", || {
        matches!(bed.state(&lease), State::Queued { epoch: 1, .. })
    });
}

#[test]
fn what_an_agent_held_comes_back_at_once_when_its_pane_is_gone() {
    // Its lease would run for a day.
    let (bed, lease) = Bed::holding("exec sleep 100000", 86_400);
    let second = Name::new("other").unwrap();
    bed.spool.add_mailbox(&second, &Settings::default()).unwrap();
    bed.spool.publish(&Envelope::new(second.clone(), "work\n")).unwrap();
    let foreign = bed.spool.receive(&second, &worker()).unwrap().unwrap().lease;
    let conductor = Name::new("conductor").unwrap();
    bed.spool.add_mailbox(&conductor, &Settings::default()).unwrap();
    let _watcher = bed.watch();
    eventually("it is seen working", || !bed.records("lease.kept").is_empty());
    bed.tmux.server.run(&["new-window", "-d", "sleep 100000"]).unwrap();
    bed.tmux.server.kill_pane("%0").unwrap();
    eventually("the watcher sees the end", || !bed.records("lease.holder_gone").is_empty());
    assert!(matches!(bed.state(&lease), State::Queued { epoch: 1, .. }));
    let state = bed.spool.state(&second, &foreign.id).unwrap();
    assert!(matches!(state, Some(State::Queued { epoch: 1, .. })), "{state:?}");
    let gone = bed.records("lease.holder_gone").remove(0);
    assert_eq!(gone["agent"], "worker-1");
    assert_eq!(gone["messages"].as_array().unwrap().len(), 2);
    assert_eq!(gone["messages"][0]["attempt"], 1);
    let mut told = None;
    eventually("the conductor is told", || {
        told = bed.spool.receive(&conductor, &conductor).unwrap();
        told.is_some()
    });
    let told = told.unwrap().envelope;
    assert_eq!(told.kind.as_str(), "board.alarm");
    assert!(told.body.contains("alarm: agent_gone"), "{}", told.body);
    assert!(told.body.contains(lease.id.as_str()) && told.body.contains("`ensemble up worker-1`"));
    // A person who acts for it keeps an ordinary lease.
    let by_hand = bed.take();
    assert_eq!(by_hand.epoch, 2);
    assert!(bed.spool.extend(&by_hand, Duration::from_secs(60)).is_ok());
    bed.spool.settle(&by_hand).unwrap();
}

#[test]
fn an_agent_in_herdr_is_nudged_and_its_mail_is_shown_beside_it() {
    let stage = HerdrStage::scripted();
    let agent = PlayedAgent::start(&stage, "ready");
    let queue = stage.directory().join("project/queue");
    let project = Project::discover(Some(&queue)).unwrap();
    project.create_state().unwrap();
    let spool = Spool::create(&queue, project.spool_options(Arc::new(NullRecorder))).unwrap();
    spool.add_mailbox(&worker(), &Settings::default()).unwrap();
    let entry = PaneEntry::new(worker(), worker(), "claude", agent.binding.clone());
    panes::write(&project.panes(), &entry).unwrap();
    let _watcher = Watcher::start_in(&queue);
    let shows = |unread: Value, held: Value| {
        let asked = stage.double().asked();
        let last = asked.iter().rfind(|(method, _)| method == "pane.report_metadata");
        last.is_some_and(|(_, it)| it["tokens"]["unread"] == unread && it["tokens"]["held"] == held)
    };
    eventually("no mail is shown", || shows(Value::Null, Value::Null));
    spool.publish(&Envelope::new(worker(), "count the lines\n")).unwrap();
    eventually("one unread message is shown", || shows("1".into(), Value::Null));
    eventually("the hint is submitted", || {
        agent.events().iter().any(|event| event.starts_with("SUBMIT"))
    });
    spool.receive(&worker(), &worker()).unwrap().unwrap();
    eventually("one held message is shown", || shows(Value::Null, "1".into()));
}
