//! The disturbances: each once, then at random, all choices from one seed.

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::cast::{BUSY, Kind, LEAVERS};
use crate::support::{PATIENCE, eventually_true};

use super::*;

const PACE_MAX_MS: u64 = 1_500;
/// How long a process pauses at most: some longer than a lease.
const STOP_MAX_MS: u64 = LEASE_SECONDS * 2_000;
const FULL_MAX_MS: u64 = 4_000;
const PAUSE_MS: u64 = 12_000;
/// The longest jump of the wall clock, in seconds.
const JUMP_MAX: u64 = 7 * 24 * 3600;
/// Room that a full disk still has, in bytes: a page or two decide between a refusal and half a file.
const ROOM_MAX: u64 = 4 * 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Kill(Kind),
    Stop(Kind),
    SetClock,
    FillDisk,
    Pause,
    AskToLeave,
}

const ACTS: [Act; 12] = [
    Act::Kill(Kind::Agent),
    Act::Kill(Kind::Supervisor),
    Act::Stop(Kind::Agent),
    Act::Kill(Kind::Dispatch),
    Act::Kill(Kind::Watcher),
    Act::SetClock,
    Act::FillDisk,
    Act::AskToLeave,
    Act::Stop(Kind::Supervisor),
    Act::Stop(Kind::Watcher),
    Act::Stop(Kind::Dispatch),
    Act::Pause,
];

pub struct Chaos {
    random: SimRng,
    next: Instant,
    done: BTreeMap<Act, u64>,
    tries: usize,
    /// Processes that pause, and until when.
    stopped: Vec<(Instant, Vec<u32>)>,
    full: Option<Instant>,
    paused: Option<Instant>,
}

impl Chaos {
    pub fn new(seed: u64) -> Self {
        let next = Instant::now();
        let (done, stopped) = (BTreeMap::new(), Vec::new());
        Self { random: SimRng::new(seed), next, done, tries: 0, stopped, full: None, paused: None }
    }

    /// Whether each disturbance that is possible here has happened.
    pub const fn has_done_all(&self) -> bool {
        self.tries >= ACTS.len()
    }

    pub const fn is_disk_full(&self) -> bool {
        self.full.is_some()
    }

    pub fn told(&self) -> String {
        let told: Vec<String> = self.done.iter().map(|(act, n)| format!("{n} {act:?}")).collect();
        told.join(", ")
    }

    pub fn act(&mut self, stage: &Stage, cast: &mut Cast) {
        self.let_go(stage, false);
        if Instant::now() < self.next {
            return;
        }
        let at = match self.has_done_all() {
            true => usize::try_from(self.random.below(ACTS.len() as u64)).unwrap(),
            false => self.tries,
        };
        let act = ACTS[at];
        if self.perform(act, stage, cast) {
            *self.done.entry(act).or_default() += 1;
            self.tries += 1;
        }
        self.next = Instant::now() + Duration::from_millis(200 + self.random.below(PACE_MAX_MS));
    }

    fn perform(&mut self, act: Act, stage: &Stage, cast: &mut Cast) -> bool {
        match act {
            Act::Kill(kind) => {
                let name = self.one_of(&cast.names(kind));
                if kind == Kind::Supervisor && self.random.percent(50) {
                    return kill_an_agent(stage, &mut self.random);
                }
                cast.kill(stage, name)
            }
            Act::Stop(kind) => self.stop(stage, cast, kind),
            Act::SetClock => {
                let seconds = i64::try_from(self.random.below(2 * JUMP_MAX)).unwrap();
                stage.set_clock(seconds - i64::try_from(JUMP_MAX).unwrap());
                stage.note(now(), "once clock");
                true
            }
            Act::FillDisk => !stage.has_disk || self.fill(stage),
            Act::Pause => self.pause(stage),
            Act::AskToLeave => {
                let name = self.one_of(&LEAVERS);
                let line = format!("request shutdown {name} --reason enough --deadline 10s");
                stage.note(now(), &format!("once ask-{name}"));
                stage.run(&line).status.success()
            }
        }
    }

    fn one_of(&mut self, names: &[&'static str]) -> &'static str {
        names[usize::try_from(self.random.below(names.len() as u64)).unwrap()]
    }

    fn stop(&mut self, stage: &Stage, cast: &Cast, kind: Kind) -> bool {
        // While the team is paused, an agent that continues in the middle of a claim would look as if it began.
        if self.paused.is_some() {
            return false;
        }
        let name = self.one_of(&cast.names(kind));
        let pids = cast.processes(stage, name);
        if pids.is_empty() || self.stopped.iter().any(|(_, others)| others.contains(&pids[0])) {
            return false;
        }
        stage.note(now(), &format!("begin stop {}", words(&pids)));
        signal_all(&pids, Signal::STOP);
        let until = Instant::now() + Duration::from_millis(self.random.below(STOP_MAX_MS));
        self.stopped.push((until, pids));
        true
    }

    fn fill(&mut self, stage: &Stage) -> bool {
        if self.full.is_some() {
            return false;
        }
        let room = statvfs(&stage.home).unwrap();
        let bytes = (room.f_bavail * room.f_frsize).saturating_sub(self.random.below(ROOM_MAX));
        stage.note(now(), "begin full");
        let file = File::create(stage.home.join("ballast")).unwrap();
        // What is written in the meantime takes its part of the room.
        let is_filled = fallocate(&file, FallocateFlags::empty(), 0, bytes)
            .or_else(|_| {
                fallocate(&file, FallocateFlags::empty(), 0, bytes.saturating_sub(ROOM_MAX))
            })
            .is_ok();
        let hold = if is_filled { self.random.below(FULL_MAX_MS) } else { 0 };
        self.full = Some(Instant::now() + Duration::from_millis(hold));
        is_filled
    }

    fn pause(&mut self, stage: &Stage) -> bool {
        if self.paused.is_some() || self.full.is_some() {
            return false;
        }
        self.let_go(stage, true);
        let is_paused = stage.run("pause --reason lunch").status.success();
        stage.note(now(), "begin pause");
        self.paused = Some(Instant::now() + Duration::from_millis(PAUSE_MS));
        is_paused
    }

    fn let_go(&mut self, stage: &Stage, all: bool) {
        let now_is = Instant::now();
        self.stopped.retain(|(until, pids)| {
            let is_over = all || now_is >= *until;
            if is_over {
                signal_all(pids, Signal::CONT);
                stage.note(now(), &format!("end stop {}", words(pids)));
            }
            !is_over
        });
        if self.full.is_some_and(|until| all || now_is >= until) {
            self.full = None;
            let _ = fs::remove_file(stage.home.join("ballast"));
            stage.note(now(), "end full");
        }
        if self.paused.is_some_and(|until| now_is >= until) {
            self.resume(stage);
        }
    }

    /// Ends the pause, unless a process that is stopped now holds the lock of the board: then the next look does.
    fn resume(&mut self, stage: &Stage) {
        stage.note(now(), "end pause");
        let resumed = stage.run("resume");
        if resumed.status.code() == Some(BUSY) {
            return;
        }
        self.paused = None;
        assert!(resumed.status.success() || self.full.is_some(), "{resumed:?}");
    }

    pub fn end(&mut self, stage: &Stage) {
        self.let_go(stage, true);
        eventually_true(PATIENCE, "the pause ends", || {
            if self.paused.is_some() {
                self.resume(stage);
            }
            self.paused.is_none()
        });
        stage.set_clock(0);
        stage.note(now(), "once over");
    }
}

fn words(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// An agent under a supervisor, by its own word.
fn kill_an_agent(stage: &Stage, random: &mut SimRng) -> bool {
    let (lines, _) = super::journal::read(&stage.journals());
    let begun = lines.iter().filter(|line| line.agent == "supervised" && line.verb == "begin");
    let living: Vec<u32> =
        begun.map(|line| line.pid).filter(|pid| is_of(*pid, &stage.mark())).collect();
    if living.is_empty() {
        return false;
    }
    let pid = living[usize::try_from(random.below(living.len() as u64)).unwrap()];
    let at = now();
    let is_killed = signal(pid, Signal::KILL);
    stage.note(at, &format!("once kill {pid}"));
    is_killed
}
