//! Several clients on one mailbox, killed and stopped at random; then a checker over what they answered and
//! what is on disk.
//!
//! ```text
//! players    one thread a process: send, receive, then settle, release, extend or abandon
//! killer     SIGKILL, or SIGSTOP for longer than a lease; a killed process is started again
//! observer   expires a lease that it has seen for the whole duration
//! checker    book.rs
//! ```
//!
//! A process that dies in a call leaves its outcome open: the message was stored or settled, or it was not.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ensemble_core::env::Lease;
use ensemble_core::event_log::{EventLog, LogOptions};
use ensemble_core::message::Name;
use ensemble_core::spool::{Settings, Spool, SpoolOptions};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::book::{LoadFigures, LoadHistory, RENAME};
use super::cases::{MAILBOX, TestedClient as _};
use super::program::ClientProgram;
use super::{ClientCheck, StageChecks};

/// Lease of the mailbox. A stopped process loses what it holds.
const LEASE: Duration = Duration::from_secs(2);
const STANDSTILL: Duration = Duration::from_secs(3);
const ATTEMPTS_MAX: u64 = 1_000_000;
/// Players send while fewer messages are open, so that a slow client finds some that no faster one has taken.
const OPEN_MIN: u64 = 150;
/// Players send no more while this many messages are open.
const OPEN_MAX: u64 = 250;
/// Time between two looks of the observer, of the killer and of an idle player.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_millis(5);
/// After the last send, the mailbox is to be empty within this time.
const DRAIN_PATIENCE: Duration = Duration::from_secs(180);
/// Of 100 calls under a lease.
const RELEASED: u64 = 4;
const EXTENDED: u64 = 8;
const ABANDONED: u64 = 9;

#[derive(Clone, Debug)]
pub struct LoadRun {
    pub processes: Vec<String>,
    pub messages: u64,
    /// Sending ends after this time, even if there are messages left.
    pub budget: Duration,
    /// Average time between two kills or stops.
    pub trouble: Duration,
    pub seed: u64,
}

#[derive(Debug, Default)]
struct PlayerSlot {
    pid: Mutex<Option<Pid>>,
    is_killed: AtomicBool,
}

struct LoadArena<'a> {
    load: &'a LoadRun,
    home: &'a Path,
    book: Mutex<LoadHistory>,
    slots: Vec<PlayerSlot>,
    is_over: AtomicBool,
    start: Instant,
}

impl LoadRun {
    /// Plays in a queue below `home`. The figures, and one check for each thing that is wrong.
    pub fn play(&self, home: &Path) -> Result<(LoadFigures, Vec<ClientCheck>), String> {
        let logs = home.join(".ensemble/logs");
        let told = |error: ensemble_core::Error| error.to_string();
        EventLog::start_session(&logs, "kit").map_err(told)?;
        let log = EventLog::deferred(&logs, LogOptions::default());
        let options = SpoolOptions::default().with_recorder(std::sync::Arc::new(log));
        let spool = Spool::create(&home.join("queue"), options).map_err(told)?;
        let mailbox = Name::new(MAILBOX).map_err(|error| error.to_string())?;
        let settings = Settings::default().with_attempts_max(ATTEMPTS_MAX);
        let settings = settings.with_lease_seconds(LEASE.as_secs());
        spool.add_mailbox(&mailbox, &settings).map_err(told)?;
        let slots = self.processes.iter().map(|_| PlayerSlot::default()).collect();
        let arena = LoadArena {
            load: self,
            home,
            book: Mutex::new(LoadHistory::new(self.seed)),
            slots,
            is_over: AtomicBool::new(false),
            start: Instant::now(),
        };
        std::thread::scope(|scope| {
            for number in 0..self.processes.len() {
                let arena = &arena;
                scope.spawn(move || arena.play(number));
            }
            arena.trouble(&spool, &mailbox);
        });
        let seconds = arena.start.elapsed().as_secs_f64();
        let mut book = arena.book.into_inner().unwrap_or_else(PoisonError::into_inner);
        book.compare(&home.join("queue"), &spool);
        let mut checks = StageChecks::new("all", "load");
        for (rule, text) in &book.wrong {
            checks.add_check("history", *rule, Err(text.clone()));
        }
        if book.wrong.is_empty() {
            checks.add_check("history", RENAME, Ok(()));
        }
        let played = LoadFigures { processes: self.processes.len(), seconds, ..book.played };
        Ok((played, checks.done))
    }
}

impl LoadArena<'_> {
    fn book(&self) -> MutexGuard<'_, LoadHistory> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_sending(&self) -> bool {
        self.start.elapsed() < self.load.budget
    }

    /// Kills, stops and observes until every message is settled.
    fn trouble(&self, spool: &Spool, mailbox: &Name) {
        let mut random = RandomNumbers(self.load.seed);
        let mut observer = ExpiryObserver::default();
        let mut standing: Vec<(usize, Pid, Instant)> = Vec::new();
        let mut drained_by = None;
        let mut next_trouble = Instant::now() + self.load.trouble;
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK_INTERVAL);
            let is_draining = {
                let book = self.book();
                !self.is_sending() || book.next >= self.load.messages
            };
            if is_draining {
                let by = *drained_by.get_or_insert_with(|| Instant::now() + DRAIN_PATIENCE);
                let is_empty = self.is_empty();
                if !is_empty && Instant::now() > by {
                    self.book().fail(RENAME, "messages are left in the mailbox".to_owned());
                }
                self.is_over.store(is_empty || Instant::now() > by, Ordering::Relaxed);
            }
            let is_over = self.is_over.load(Ordering::Relaxed);
            standing.retain(|(number, pid, since)| {
                let goes_on = is_over || since.elapsed() > STANDSTILL;
                if goes_on {
                    self.signal(*number, Some(*pid), Signal::CONT);
                }
                !goes_on
            });
            if !is_draining && Instant::now() > next_trouble {
                next_trouble = Instant::now() + self.load.trouble * (50 + random.below(100)) / 100;
                let number = random.below(self.slots.len() as u32) as usize;
                let stops = random.below(100) < 25;
                if standing.iter().all(|(other, ..)| *other != number) {
                    self.attack(number, stops, &mut standing);
                }
            }
            let expired = observer.expire_leases(spool, mailbox);
            self.book().played.expired += expired;
        }
    }

    fn attack(&self, number: usize, stops: bool, standing: &mut Vec<(usize, Pid, Instant)>) {
        let signal = if stops { Signal::STOP } else { Signal::KILL };
        let Some(pid) = self.signal(number, None, signal) else { return };
        let mut book = self.book();
        if stops {
            book.played.stops += 1;
            standing.push((number, pid, Instant::now()));
        } else {
            book.played.kills += 1;
        }
    }

    /// Signals the process of a player, if it is the one that is meant.
    fn signal(&self, number: usize, meant: Option<Pid>, signal: Signal) -> Option<Pid> {
        let slot = &self.slots[number];
        // The player removes its process only under this lock, so the pid is that of its child.
        let pid = slot.pid.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = (*pid)?;
        if meant.is_some_and(|meant| meant != pid) {
            return None;
        }
        if signal == Signal::KILL {
            slot.is_killed.store(true, Ordering::Relaxed);
        }
        rustix::process::kill_process_group(pid, signal).ok()?;
        Some(pid)
    }

    fn is_empty(&self) -> bool {
        let mailbox = self.home.join("queue/mailbox").join(MAILBOX);
        let is_empty = |state| super::cases::names(&mailbox.join(state)).is_empty();
        self.book().sending == 0 && ["new", "front", "cur"].into_iter().all(is_empty)
    }

    fn play(&self, number: usize) {
        let mut random = RandomNumbers(self.load.seed ^ ((number as u64 + 1) << 32));
        while !self.is_over.load(Ordering::Relaxed) {
            let client = &self.load.processes[number];
            let mut program = match ClientProgram::start(client, &self.home.join("queue")) {
                Ok(program) => program,
                Err(error) => {
                    self.book().fail(RENAME, format!("`{client}`: {error}"));
                    return;
                }
            };
            let slot = &self.slots[number];
            *slot.pid.lock().unwrap_or_else(PoisonError::into_inner) = Some(program.pid());
            let ended = self.use_process(number, &mut program, &mut random);
            *slot.pid.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let was_killed = slot.is_killed.swap(false, Ordering::Relaxed);
            if let Err(error) = ended
                && !was_killed
            {
                self.book().fail(RENAME, format!("`{client}`: {error}"));
            }
        }
    }

    fn use_process(
        &self,
        number: usize,
        program: &mut ClientProgram,
        random: &mut RandomNumbers,
    ) -> Result<(), String> {
        let file = self.home.join(format!("body-{number}"));
        let holder = format!("{}-{number}", program.name());
        while !self.is_over.load(Ordering::Relaxed) {
            let seq = {
                let mut book = self.book();
                let open = book.open();
                let may_send =
                    self.is_sending() && book.next < self.load.messages && open < OPEN_MAX;
                let sends = may_send && (open < OPEN_MIN || random.below(2) == 0);
                sends.then(|| book.begin())
            };
            if let Some(seq) = seq {
                let text = self.book().text(seq);
                std::fs::write(&file, text).map_err(|error| error.to_string())?;
                let call = json!({ "op": "send", "mailbox": MAILBOX, "from": holder, "type": "task", "body_file": file });
                let answer = program.call(&call);
                self.book().sent(seq, &answer);
                answer?;
                continue;
            }
            let call =
                json!({ "op": "receive", "mailbox": MAILBOX, "holder": holder, "body_file": file });
            let answer = program.call(&call)?;
            if answer["id"].is_null() {
                // A process that paused between rename and read has lost its lease.
                match (answer["ok"] == true, answer["error"] == "lease_lost") {
                    (true, _) => {}
                    (_, true) => self.book().played.leases_lost += 1,
                    _ => return Err(format!("receive: {answer}")),
                }
                std::thread::sleep(IDLE);
                continue;
            }
            let body = std::fs::read_to_string(&file).unwrap_or_default();
            self.book().received(&answer, &body);
            self.treat(program, &answer, random)?;
        }
        Ok(())
    }

    fn treat(
        &self,
        program: &mut ClientProgram,
        received: &Value,
        random: &mut RandomNumbers,
    ) -> Result<(), String> {
        let draw = u64::from(random.below(100));
        if (EXTENDED..ABANDONED).contains(&draw) {
            self.book().played.abandoned += 1;
            return Ok(());
        }
        let released = draw < RELEASED;
        if !released && draw < EXTENDED {
            let mut call = super::under_lease("extend", received);
            call["seconds"] = LEASE.as_secs().into();
            let answer = program.call(&call)?;
            self.book().extended(&answer);
        }
        let mut call = super::under_lease(if released { "release" } else { "settle" }, received);
        if released {
            call["delay_ms"] = 0.into();
        }
        let answer = program.call(&call);
        let mut book = self.book();
        match released {
            true => book.released(&answer),
            false => book.settled(program.name(), received, &answer),
        }
        answer.map(drop)
    }
}

/// Expires a lease that was seen unchanged for its whole duration.
#[derive(Debug, Default)]
struct ExpiryObserver {
    seen: HashMap<Lease, (u64, Instant)>,
}

impl ExpiryObserver {
    fn expire_leases(&mut self, spool: &Spool, mailbox: &Name) -> u64 {
        let held = spool.observe(mailbox).unwrap_or_default();
        self.seen.retain(|lease, _| held.iter().any(|held| held.lease == *lease));
        let mut expired = 0;
        for held in held {
            let (sequence, since) = *self
                .seen
                .entry(held.lease.clone())
                .or_insert_with(|| (held.sequence, Instant::now()));
            if sequence != held.sequence {
                self.seen.insert(held.lease.clone(), (held.sequence, Instant::now()));
            } else if since.elapsed() > held.duration && spool.expire(&held).unwrap_or(false) {
                expired += 1;
            }
        }
        expired
    }
}

/// Random numbers from a seed (SplitMix64).
#[derive(Debug)]
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((z ^ (z >> 31)) % u64::from(end)).unwrap_or(0)
    }
}
