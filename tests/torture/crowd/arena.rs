//! The processes under test, their restarts and disturbances, and the final state.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::durable::Durability;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::read_all;
use ensemble_core::requests::Requests;
use ensemble_core::sim::SimRng;
use ensemble_core::spool::{Settings, Spool};
use ensemble_project::Project;
use ensemble_project::panes::{self, PaneEntry};
use ensemble_team::board::{Board, BoardOptions};
use ensemble_team::replay::{self, DifferenceKind, Replay};
use ensemble_team::steps::{PlannedStep, StepPlan};
use rustix::process::{Pid, Signal, kill_process};

use super::checker::Disk;
use super::journal::{self, Operation};
use super::players::{AWAY, PLAN, moves, open_board, open_steps, recorder};
use crate::support::{
    Bed, PATIENCE, Process, eventually_true, files, messages, name, options, printed_random,
};
use crate::tmux_support::TestServer;
use crate::wall_clock::WallClock;
use crate::watcher::Watcher;

const PLAYERS: [(&str, u64); 5] =
    [("publisher", 2), ("consumer", 3), ("decider", 2), ("writer", 4), ("stepper", 2)];
/// More than the steppers can process in an hour.
const STEPS: u32 = 10_000;
/// The longest time between two disturbances, and the longest stop of a process.
const PACE_MAX_MS: u64 = 120;
const STANDSTILL_MAX_MS: u64 = 1_500;
/// Where the wall clock may go, in days from the machine's.
const JUMPS: [i64; 6] = [0, 3, -3, 8, 400, -3_650];
const DAY_SECONDS: i64 = 86_400;

pub struct Arena {
    bed: Bed,
    random: SimRng,
    players: BTreeMap<String, Process>,
    watcher: Option<Watcher>,
    tmux: TestServer,
    clock: Option<WallClock>,
    landed: u64,
    troubles: BTreeMap<&'static str, u64>,
}

impl Arena {
    pub fn new() -> Self {
        let mut settings = Settings::default();
        // The watcher returns what a dead consumer holds.
        settings.lease_seconds = 1;
        settings.attempts_max = 1_000;
        let bed = Bed::with(&settings, "poll_interval: 1\n");
        let home = bed.home.path();
        for directory in ["journals", "clock"] {
            std::fs::create_dir(home.join(directory)).expect("a directory");
        }
        let options = BoardOptions::new("test").with_durability(Durability::Process);
        Board::create(home, options).expect("a board");
        let steppers = PLAYERS[4].1;
        let step =
            |n: u32| PlannedStep::new(name(&format!("stepper-{}", u64::from(n) % steppers)), "do");
        let mut plan = StepPlan::new(PLAN, (0..STEPS).map(step).collect());
        plan.parallel = u32::try_from(steppers).expect("a number");
        plan.attempts_max = 99;
        open_steps(home).add(&plan).expect("a plan");
        let arena = Self {
            random: printed_random("torture"),
            players: BTreeMap::new(),
            watcher: None,
            tmux: TestServer::reader(),
            clock: WallClock::build(&home.join("clock")),
            landed: 0,
            troubles: BTreeMap::new(),
            bed,
        };
        arena.bind();
        arena
    }

    fn home(&self) -> PathBuf {
        self.bed.home.path().to_owned()
    }

    fn bind(&self) {
        let project = Project::discover(Some(&self.bed.queue())).expect("a project");
        project.ensure_state().expect("a state directory");
        let binding = self.tmux.server.bind("%0").expect("a binding");
        let (agent, mailbox) = (name("dispatch"), name("dispatch"));
        let entry = PaneEntry::new(agent, mailbox, "shell", binding);
        panes::write(&project.panes(), &entry).expect("written");
    }

    pub fn start(&mut self) {
        for (role, count) in PLAYERS {
            (0..count).for_each(|number| self.play(&format!("{role}-{number}")));
        }
        self.launch_watcher();
    }

    fn launch_watcher(&mut self) {
        let variables = self.clock.as_ref().map(WallClock::variables);
        let variables = variables.as_ref().map_or(&[][..], |all| &all[..]);
        let complaints = OpenOptions::new().create(true).append(true).open(self.complaints());
        let complaints = complaints.expect("a file").into();
        self.watcher = Some(Watcher::launch_with(&self.bed.queue(), variables, complaints));
    }

    fn complaints(&self) -> PathBuf {
        self.home().join("complaints")
    }

    fn play(&mut self, player: &str) {
        let role = format!("crowd::{}", player.split('-').next().expect("a role"));
        let (home, seed) = (self.home(), self.random.next_u64().to_string());
        let utf8 = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        let mut variables =
            vec![("HOME_DIRECTORY", utf8(&home)), ("ME", player.to_owned()), ("SEED", seed)];
        for (variable, path) in self.clock.iter().flat_map(WallClock::variables) {
            variables.push((variable, utf8(path)));
        }
        let variables: Vec<_> = variables.iter().map(|(v, text)| (*v, text.as_str())).collect();
        self.players.insert(player.to_owned(), Process::role(&role, &variables));
    }

    /// Starts those again that ended because the queue was away. No other one ends by itself.
    fn revive(&mut self) {
        let ended = |(player, process): (&String, &mut Process)| {
            let status = process.child().try_wait().expect("a child can be waited for")?;
            assert_eq!(status.code(), Some(AWAY), "{player} has ended by itself: see its message");
            Some(player.clone())
        };
        let ended: Vec<String> = self.players.iter_mut().filter_map(ended).collect();
        for player in ended {
            self.play(&player);
            self.count("ends without a queue");
        }
    }

    fn count(&mut self, trouble: &'static str) {
        *self.troubles.entry(trouble).or_default() += 1;
    }

    pub fn troubles(&self) -> u64 {
        self.troubles.values().sum()
    }

    fn wait_up_to(&mut self, milliseconds: u64) {
        std::thread::sleep(Duration::from_millis(self.random.below(milliseconds)));
    }

    pub fn trouble(&mut self) {
        self.wait_up_to(PACE_MAX_MS);
        self.revive();
        self.bed.land(
            &format!("reports/r{}-completed.yaml", self.landed),
            format!("number: {}\n", self.landed),
        );
        self.landed += 1;
        self.redrive();
        match self.random.below(100) {
            0..=54 => self.kill_a_player(),
            55..=73 => self.stop_a_player(),
            74..=83 => self.trouble_the_watcher(),
            84..=89 => self.restart_tmux(),
            90..=95 => self.set_clock(),
            _ => self.move_the_queue(),
        }
    }

    fn redrive(&mut self) {
        let spool = self.recorded_spool();
        for letter in spool.dead_letters(&name("dispatch")).expect("dead letters") {
            if self.random.percent(10) {
                spool.redrive(&name("dispatch"), &letter.id).expect("redriven");
            }
        }
    }

    fn recorded_spool(&self) -> Spool {
        let told = options().with_recorder(recorder(&self.home()));
        Spool::open(&self.bed.queue(), told).expect("the queue")
    }

    fn random_player(&mut self) -> String {
        let victim = self.random.below(self.players.len() as u64);
        let mut names = self.players.keys();
        names.nth(usize::try_from(victim).expect("a number")).expect("a player").clone()
    }

    fn kill_a_player(&mut self) {
        let player = self.random_player();
        self.players.remove(&player).expect("a player").kill();
        self.play(&player);
        self.count("kills");
    }

    /// It pauses, perhaps with a lock or a message in its hands, and continues, or is killed.
    fn stop_a_player(&mut self) {
        let player = self.random_player();
        self.players[&player].signal(Signal::STOP);
        self.wait_up_to(STANDSTILL_MAX_MS);
        if self.random.percent(30) {
            self.players.remove(&player).expect("a player").kill();
            self.play(&player);
        } else {
            self.players[&player].signal(Signal::CONT);
        }
        self.count("stops");
    }

    fn trouble_the_watcher(&mut self) {
        let mut watcher = self.watcher.take().expect("a watcher");
        if !watcher.is_running() {
            let said = std::fs::read_to_string(self.complaints()).unwrap_or_default();
            panic!("the watcher has ended by itself: {said}");
        }
        if self.random.percent(30) {
            watcher.signal(Signal::STOP);
            self.wait_up_to(STANDSTILL_MAX_MS);
            watcher.signal(Signal::CONT);
            self.watcher = Some(watcher);
            self.count("watcher stops");
        } else {
            watcher.kill();
            self.launch_watcher();
            self.count("watcher kills");
        }
    }

    fn restart_tmux(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.tmux.pid()).expect("a pid")).expect("a pid");
        kill_process(pid, Signal::KILL).expect("the server can be killed");
        let gone = || self.tmux.server.panes().is_err();
        eventually_true(PATIENCE, "the tmux server is gone", gone);
        let command = self.tmux.reader_command();
        self.tmux.new_server(&command);
        self.bind();
        self.count("tmux restarts");
    }

    fn set_clock(&mut self) {
        let days = JUMPS[usize::try_from(self.random.below(JUMPS.len() as u64)).expect("a number")];
        if let Some(clock) = &self.clock {
            clock.set(days * DAY_SECONDS);
            self.count("clock jumps");
        }
    }

    /// Moves the queue away and back. What holds its directories works on; others find none.
    fn move_the_queue(&mut self) {
        // One that starts in the meantime finds no queue, and ends.
        self.watcher.as_mut().expect("a watcher").wait_until_it_watches();
        let (queue, away) = (self.bed.queue(), self.home().join("away"));
        moves(&self.home(), 1);
        std::fs::rename(&queue, &away).expect("moved away");
        self.wait_up_to(STANDSTILL_MAX_MS);
        std::fs::rename(&away, &queue).expect("moved back: nothing made another one meanwhile");
        moves(&self.home(), 1);
        self.count("moves of the queue");
    }

    pub fn told(&self) -> String {
        let told: Vec<String> =
            self.troubles.iter().map(|(what, n)| format!("{n} {what}")).collect();
        format!("{}; {} reports", told.join(", "), self.landed)
    }

    /// Lets every process end, and the watcher route and release the rest; then reads the result.
    pub fn finish(&mut self) -> (Vec<Operation>, Disk) {
        if let Some(clock) = &self.clock {
            clock.set(0);
        }
        self.revive();
        std::fs::write(self.home().join("stop"), "").expect("a file");
        for (player, mut process) in std::mem::take(&mut self.players) {
            let code = process.end(PATIENCE).code();
            assert!(matches!(code, Some(0 | AWAY)), "{player} ended with {code:?}");
        }
        let landed = usize::try_from(self.landed).expect("a number");
        // The watcher still returns what the dead held: a message may move while the mailbox is read.
        let all = || {
            let found = messages(&self.bed.queue(), "dispatch");
            found.into_iter().filter_map(|(_, e)| e.source).collect::<BTreeSet<_>>().len() == landed
        };
        eventually_true(PATIENCE, "all reports are routed", all);
        self.watcher.take().expect("a watcher").stop();
        // The next holder of the board's lock writes a dead writer's records.
        drop(open_board(&self.home(), "last").lock().expect("the board's lock"));
        let (disk, journal) = (self.disk(), self.home().join("journals"));
        self.replay();
        (journal::read(&journal, ""), disk)
    }

    /// The log alone leads to what is on disk, but for what a killed process could not record.
    fn replay(&self) {
        let (home, mut disk) = (self.home(), replay::DiskState::default());
        let spool = self.bed.spool();
        disk.add_mailboxes(&spool, &home).expect("the mailboxes");
        disk.add_requests(&Requests::new(&spool)).expect("requests");
        disk.add_board(&open_board(&home, "reader"), &home).expect("the board");
        disk.add_steps(&open_steps(&home)).expect("the steps");
        let replay = Replay::read(&self.bed.state().join("logs")).expect("the log");
        let differences = replay.compare(&disk, SystemClock.wall());
        let (wrong, untold): (Vec<_>, Vec<_>) =
            differences.into_iter().partition(|d| d.kind == DifferenceKind::Contradiction);
        assert!(wrong.is_empty(), "{} contradict the log: {wrong:#?}", wrong.len());
        let (records, gaps) = (replay.records(), replay.gaps());
        assert!(gaps.is_empty(), "the log is not whole: {gaps:?}");
        println!("{records} records replayed: none contradicted, {} untold", untold.len());
        assert!(untold.len() as u64 <= self.troubles(), "more than one a kill: {untold:#?}");
    }

    fn disk(&self) -> Disk {
        let mut disk = Disk::default();
        for state in ["new", "front", "cur", "done", "dead"] {
            for path in files(&self.bed.in_queue(&format!("mailbox/dispatch/{state}"))) {
                let content = std::fs::read(&path).expect("a file");
                let is_side_file = path.to_string_lossy().contains("@reason.yaml");
                if is_side_file {
                    continue;
                }
                let envelope = ensemble_core::message::Envelope::decode(&content, &path);
                let id = envelope.expect("a whole message").id.to_string();
                disk.messages.entry(id).or_default().push(state);
            }
        }
        let spool = self.recorded_spool();
        let requests = Requests::new(&spool);
        for id in requests.ids().expect("requests") {
            // As the watcher does for a killed holder.
            let entry = requests.resume(id.as_str()).expect("resumed").expect("a request");
            let state = entry.state().to_owned();
            disk.decisions.insert(id.to_string(), state);
        }
        let state = open_board(&self.home(), "reader").read().expect("the board");
        disk.tasks = state.tasks.iter().map(|task| task.id.to_string()).collect();
        disk.revision = state.revision;
        let steps = open_steps(&self.home());
        for step in steps.steps(PLAN).expect("steps") {
            if step.status.as_str() == "PENDING" {
                continue;
            }
            let runs = steps.runs(&step.key).expect("runs");
            let successes = runs.iter().filter(|r| r.outcome.as_deref() == Some("success")).count();
            let key = format!("s-{}", step.key.step_index);
            disk.steps.insert(key, (step.status.as_str().to_owned(), successes));
        }
        self.read_log(&mut disk);
        disk
    }

    fn read_log(&self, disk: &mut Disk) {
        for record in read_all(&self.bed.state().join("logs")).expect("the log") {
            let kind = record.kind.to_string();
            if kind == "board.written" {
                disk.revisions.extend(record.data["revision"].as_u64());
            }
            for about in ["id", "request_id"] {
                if let Some(key) = record.data.get(about).and_then(|key| key.as_str()) {
                    disk.log.insert((kind.clone(), key.to_owned()));
                }
            }
        }
    }

    /// Checks without the history: reports are routed once, no file is torn, and no repair is due.
    pub fn judge_the_rest(&self) {
        let routed = self.bed.routed("dispatch");
        assert!(routed.values().all(|bodies| bodies.len() == 1), "routed once: {routed:?}");
        self.bed.spool().sweep().expect("swept");
        self.bed.assert_clean();
        let mut log = read_all(&self.bed.state().join("logs")).expect("the log");
        log.by_ref().for_each(drop);
        let (torn, kills) = (log.bad_lines().count() as u64, self.troubles());
        assert!(torn <= kills, "{torn} torn lines in the log, {kills} kills");
    }
}

pub fn counts(history: &[Operation]) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for operation in history {
        let word = operation.outcome.as_ref().map_or("killed inside", |outcome| &outcome.word);
        if word != "nothing" {
            *counts.entry(format!("{} {word}", operation.verb)).or_default() += 1;
        }
    }
    let counts: Vec<String> =
        counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    counts.join(", ")
}
