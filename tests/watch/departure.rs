//! Shutdowns with real panes and real processes: nothing of the agent remains.

use ensemble_core::message::Digest;
use ensemble_core::sim::SimRecorder;
use ensemble_project::agent_host::PaneHost;
use ensemble_team::driver::{AgentDeparture, DepartureOutcome, ShutdownDriver};
use ensemble_team::proto::shutdown::ShutdownConsent;
use ensemble_team::roster::{EndCause, MemberState, Roster};
use ensemble_tmux::reaper::PASS_VARIABLE;

use crate::tmux_support::{bash_command, eventually};

use crate::*;

/// A step whose lease outlasts the test.
const PLAN: &str = "{task_id: t-1, lease_seconds: 3600, steps: [{agent: worker, goal: one}]}";
/// Enough for any machine; nothing waits for it unless something is wrong.
const LONG: Duration = Duration::from_secs(60);

struct Bed {
    tmux: TestServer,
    project: Project,
    spool: Spool,
    roster: Roster,
    log: SimRecorder,
    pass: String,
}

impl Bed {
    /// A team whose `worker` runs `script` in its own pane.
    fn new(script: &str) -> Self {
        let tmux = TestServer::start("exec sleep 1000");
        tmux.server.run(&["set-option", "-g", "remain-on-exit", "on"]).expect("an option");
        let project = Project::discover(Some(&tmux.dir.path().join("queue"))).expect("a project");
        project.ensure_state().expect("a state directory");
        let log = SimRecorder::default();
        let options = project.spool_options(std::sync::Arc::new(SimRecorder::default()));
        let spool = Spool::create(&project.queue, options).expect("a queue");
        for mailbox in ["lead", "worker"] {
            spool.add_mailbox(&name(mailbox), &Default::default()).expect("a mailbox");
        }
        let roster = Roster::open(&project.state);
        let pass = Digest::of(tmux.dir.path().display().to_string().as_bytes()).to_string();
        let bed = Self { tmux, project, spool, roster, log, pass };
        bed.join(&bed.spawn(script), Some(script));
        bed
    }

    fn spawn(&self, script: &str) -> String {
        let file = self.path("script.sh");
        let text = format!("cd '{}' || exit 9\n{script}\n", self.tmux.dir.path().display());
        fs::write(&file, text).expect("a script");
        let command = format!("exec env {PASS_VARIABLE}={} sh {}", self.pass, file.display());
        self.tmux.server.split("%0", &command).expect("a pane")
    }

    fn join(&self, pane: &str, command: Option<&str>) {
        let binding = self.tmux.server.bind(pane).expect("a binding");
        let entry = PaneEntry::new(name("worker"), name("worker"), "shell", binding.clone());
        panes::write(&self.project.panes(), &entry).expect("a place");
        let changed = self.roster.change(&name("worker"), |current| {
            let new = Member::new(name("worker"), name("worker"), "shell", SystemClock.wall());
            let mut member = current.unwrap_or(new);
            member.generation += 1;
            member.state = MemberState::Up;
            member.command = command.map(str::to_owned);
            member.pass_sha256 = command.map(|_| Digest::of(self.pass.as_bytes()));
            member.binding = Some(binding);
            Ok(Some(member))
        });
        changed.expect("a member");
    }

    fn path(&self, file: &str) -> PathBuf {
        self.tmux.dir.path().join(file)
    }

    fn member(&self) -> Member {
        self.roster.get(&name("worker")).expect("a roster").expect("a member")
    }

    /// The pids that the script has written into `pids`, once there are `count`.
    fn pids(&self, count: usize) -> Vec<u32> {
        let read = || -> Vec<u32> {
            let text = fs::read_to_string(self.path("pids")).unwrap_or_default();
            text.lines().filter_map(|line| line.parse().ok()).collect()
        };
        eventually("the script runs", || read().len() == count);
        read()
    }

    fn leave(&self, consent: ShutdownConsent, grace: Duration) -> DepartureOutcome {
        let mut departure = AgentDeparture::of(&self.member(), consent, name("lead"));
        departure.grace = grace;
        departure.request_id = Some(name("abcd1234"));
        self.carry_out(&departure)
    }

    fn carry_out(&self, departure: &AgentDeparture) -> DepartureOutcome {
        let mut agent_host = PaneHost::of(&self.project, &self.member()).expect("agent_host");
        let shutdown = ShutdownDriver {
            queue: &self.spool,
            roster: &self.roster,
            recorder: &self.log,
            clock: &SystemClock,
        };
        let mut rest = |longest: Duration| {
            ensemble_core::driver::nap(longest);
            true
        };
        shutdown.carry_out(departure, &mut agent_host, &mut rest).expect("a departure")
    }

    fn panes(&self) -> usize {
        self.tmux.server.panes().expect("panes").len()
    }
}

fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_silent_worker_is_removed_completely() {
    let bed = Bed::new(
        "trap '' TERM HUP\n(setsid sh -c 'echo $$ >> pids; exec sleep 1000' &)\n\
         sleep 1000 & echo $! >> pids\necho $$ >> pids\nwhile :; do wait; done",
    );
    let pids = bed.pids(3);
    let mut envelope = Envelope::new(name("worker"), "do it\n");
    envelope.from = name("lead");
    bed.spool.publish(&envelope).expect("stored");
    bed.spool.receive(&name("worker"), &name("worker")).expect("received").expect("a message");
    let home = bed.tmux.dir.path();
    let board = Board::create(home, BoardOptions::new("test")).expect("a board");
    let mut locked = board.lock().expect("a lock");
    locked.register(&NewAgent::new(name("worker"), "coder")).expect("a registration");
    locked.commit().expect("written");
    let steps = bed.project.state.join(STEPS_FILE);
    let steps = StepStore::open(&steps, StepOptions::new(home)).expect("steps");
    steps.add(&StepPlan::parse(PLAN, "plan.yaml".as_ref()).expect("a plan")).expect("added");
    steps.claim_step(&ClaimRequest::of(name("worker"))).expect("a step");
    let held = || steps.leases_of(&name("worker")).expect("leases").len();
    assert_eq!((held(), board.read().expect("a board").agents.len()), (1, 1));
    assert_eq!(bed.leave(ShutdownConsent::Forced, LONG), DepartureOutcome::Gone { survivors: 0 });
    assert_eq!((held(), board.read().expect("a board").agents.len()), (0, 0));
    assert!(pids.iter().all(|pid| !lives(*pid)), "{pids:?}");
    assert_eq!(bed.panes(), 1, "its pane is closed");
    assert!(panes::find(&bed.project.panes(), &name("worker")).expect("a look").is_none());
    let member = bed.member();
    assert_eq!((member.state, &member.binding), (MemberState::Shutdown, &None));
    let ended = member.ended.expect("how it ended");
    assert_eq!((ended.how, ended.by), (EndCause::Forced, Some(name("lead"))));
    let released = bed.log.of("worker_release");
    assert_eq!(released.len(), 1);
    assert_eq!(released[0]["worker_id"], "worker");
    assert_eq!(
        (&released[0]["leases_released"], &released[0]["mail_returned"]),
        (&1.into(), &1.into())
    );
    assert_eq!(bed.spool.counts(&name("worker")).expect("counts").dead, 1);
    let told = bed.spool.receive(&name("lead"), &name("lead")).expect("received");
    assert_eq!(told.expect("a notice").envelope.kind.as_str(), "mail.returned");
    // Once more, as a process that finds the decision again.
    let departure = AgentDeparture::of(&bed.member(), ShutdownConsent::Forced, name("lead"));
    assert_eq!(bed.carry_out(&departure), DepartureOutcome::Before);
    assert_eq!(bed.log.of("worker_release").len(), 1);
}

#[test]
fn a_worker_that_agreed_finishes_first() {
    let bed = Bed::new(
        "echo $$ >> pids\nuntil [ -e go ]; do sleep 0.05; done\necho done > result\nexit 0",
    );
    bed.pids(1);
    let result = bed.path("result");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            eventually("it is leaving", || bed.member().state == MemberState::Leaving);
            fs::write(bed.path("go"), "").expect("a file");
        });
        assert_eq!(
            bed.leave(ShutdownConsent::Approved, LONG),
            DepartureOutcome::Gone { survivors: 0 }
        );
    });
    assert_eq!(fs::read_to_string(result).expect("what it finished"), "done\n");
    let ended = bed.member().ended.expect("how it ended");
    assert_eq!((ended.how, ended.exit_code), (EndCause::Approved, Some(0)));
    assert_eq!(bed.panes(), 1);
}

#[test]
fn a_worker_that_agreed_and_continues_is_ended_after_its_grace() {
    let bed = Bed::new("echo $$ >> pids\nwhile :; do sleep 0.05; done");
    let pids = bed.pids(1);
    let grace = Duration::from_millis(300);
    assert_eq!(
        bed.leave(ShutdownConsent::Approved, grace),
        DepartureOutcome::Gone { survivors: 0 }
    );
    assert!(!lives(pids[0]));
    assert_eq!(bed.member().ended.expect("how it ended").how, EndCause::Approved);
}

#[test]
fn a_shell_that_was_there_before_stays() {
    let bed = Bed::new("exit 0");
    let pane = bed.tmux.server.split("%0", bash_command()).expect("a pane");
    bed.join(&pane, None);
    let shell = bed.member().binding.expect("a pane").pid;
    let type_in = |line: &str| {
        bed.tmux.server.run(&["send-keys", "-t", &pane, line, "Enter"]).expect("keys");
    };
    let pids = bed.path("pids");
    type_in(&format!("sleep 1000 & echo $! >> {0}", pids.display()));
    type_in(&format!("sh -c 'echo $$ >> {0}; sleep 1000 & echo $! >> {0}; wait'", pids.display()));
    let [background, agent, child] = bed.pids(3)[..] else { panic!("three of them") };
    assert_eq!(bed.leave(ShutdownConsent::Forced, LONG), DepartureOutcome::Gone { survivors: 0 });
    assert!(lives(shell) && lives(background), "processes outside of the agent survive");
    assert!(!lives(agent) && !lives(child));
    assert!(bed.tmux.server.panes().expect("panes").iter().any(|p| p.id == pane));
}

#[test]
fn a_new_generation_is_not_the_one_that_was_to_leave() {
    let bed = Bed::new("echo $$ >> pids; exec sleep 1000");
    let first = bed.pids(1)[0];
    let old = AgentDeparture::of(&bed.member(), ShutdownConsent::Forced, name("lead"));
    let pane = bed.member().binding.expect("a pane").id;
    bed.join(&pane, Some("sh"));
    assert_eq!(bed.carry_out(&old), DepartureOutcome::Superseded);
    assert!(lives(first));
    assert_eq!(bed.member().state, MemberState::Up);
}

#[test]
fn a_process_that_is_already_gone_is_no_obstacle() {
    let bed = Bed::new("exit 3");
    let pane = bed.member().binding.expect("a pane").id;
    eventually("it has ended", || {
        bed.tmux.server.panes().expect("panes").iter().any(|p| p.id == pane && p.dead)
    });
    assert_eq!(bed.leave(ShutdownConsent::Approved, LONG), DepartureOutcome::Gone { survivors: 0 });
    assert_eq!(bed.member().ended.expect("how it ended").exit_code, Some(3));
    // A server that is gone, too.
    let bed = Bed::new("exec sleep 1000");
    bed.tmux.server.kill_server().expect("it ends");
    assert_eq!(bed.leave(ShutdownConsent::Approved, LONG), DepartureOutcome::Gone { survivors: 0 });
    assert_eq!(bed.member().state, MemberState::Shutdown);
}
