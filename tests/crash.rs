//! Publishers, consumers and the watcher are killed 200 times in one run, while a supervisor
//! restarts them. They note acknowledged operations outside the queue, and the test compares the
//! notes with the final state.
//!
//! `TORTURE_KILLS` (200), `TORTURE_SECONDS`, `TORTURE_SEED`; see tests/torture/README.md.

mod support;
#[path = "support/watcher.rs"]
mod watcher;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ensemble_core::Error;
use ensemble_core::env::Delivery;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{Settings, Spool};
use support::history::{History, Writer};
use support::{Bed, PATIENCE, Process, Random, eventually_true, given, name, options, setting};
use watcher::Watcher;

const PUBLISHERS: u64 = 2;
const CONSUMERS: u64 = 3;
/// A publisher waits while this many messages are unread.
const BACKLOG_MAX: u64 = 300;
/// The longest time between two kills, in milliseconds.
const KILL_INTERVAL_MAX: u64 = 90;

#[test]
fn a_child_process_plays_its_role() {
    match support::role().as_deref() {
        Some("publisher") => publish(&mut Player::new()),
        Some("consumer") => consume(&mut Player::new()),
        Some(other) => panic!("there is no role `{other}`"),
        None => {}
    }
}

/// A publisher or a consumer.
struct Player {
    spool: Spool,
    me: Name,
    stop: PathBuf,
    history: Writer,
    past: History,
    random: Random,
}

impl Player {
    fn new() -> Self {
        let path = Path::new(&given("HISTORY")).join(given("ME"));
        let mut past = History::default();
        past.read_file(&path);
        Self {
            spool: Spool::open(given("QUEUE").as_ref(), options()).unwrap(),
            me: name(&given("ME")),
            stop: given("STOP").into(),
            history: Writer::open(&path),
            past,
            random: Random::from_seed(given("SEED").parse().unwrap()),
        }
    }
}

/// Publishes under chosen ids and under generated ones. A message that may not be stored, because an earlier life was
/// killed, is published again under the same id.
fn publish(player: &mut Player) {
    let (offered, stored) = (player.past.ids("offered"), player.past.ids("published"));
    let unsure: Vec<String> = offered.difference(&stored).map(|id| (*id).to_owned()).collect();
    let mut number = offered.len() + player.past.count("offered-once");
    for id in unsure {
        player.publish(chosen(&id));
    }
    while !player.stop.exists() {
        if player.spool.waiting(&name("dispatch"), BACKLOG_MAX).unwrap() >= BACKLOG_MAX {
            support::pause();
            continue;
        }
        number += 1;
        let envelope = match player.random.percent(50) {
            true => chosen(&format!("{}-{number}", player.me)),
            false => Envelope::new(name("dispatch"), "fresh\n"),
        };
        let priority = if player.random.percent(10) { 5 } else { 0 };
        player.publish(envelope.with_priority(priority));
    }
}

fn chosen(id: &str) -> Envelope {
    Envelope::new(name("dispatch"), format!("body of {id}\n")).with_id(MessageId::new(id).unwrap())
}

impl Player {
    fn publish(&mut self, envelope: Envelope) {
        let id = envelope.id.to_string();
        // A fresh id is not tried again by a later life, which does not know the content.
        let offer = if id.starts_with("publisher") { "offered" } else { "offered-once" };
        self.history.note(offer, &id, 0);
        self.spool.publish(&envelope).unwrap();
        self.history.note("published", &id, 0);
    }
}

/// Receives until nothing waits and it is asked to stop. With each message it does one of the things that a holder
/// may do, sometimes too late.
fn consume(player: &mut Player) {
    loop {
        let last_look = player.stop.exists();
        match player.spool.receive(&name("dispatch"), &player.me).unwrap() {
            Some(delivery) => player.treat(&delivery),
            None if last_look => return,
            None => support::pause(),
        }
    }
}

impl Player {
    fn treat(&mut self, delivery: &Delivery) {
        let lease = &delivery.lease;
        self.history.note_lease("received", lease);
        let (done, result) = match self.random.below(100) {
            0..=4 => ("released", self.spool.release(lease, Duration::ZERO)),
            5..=7 => ("buried", self.spool.dead_letter(lease, "no wish to")),
            8 => {
                self.outlive(delivery);
                ("settled-late", self.spool.settle(lease))
            }
            9..=14 => {
                let extended = self.spool.extend(lease, Duration::from_secs(2));
                ("settled", extended.and_then(|()| self.spool.settle(lease)))
            }
            _ => ("settled", self.spool.settle(lease)),
        };
        match result {
            Ok(()) => self.history.note_lease(done, lease),
            Err(Error::LeaseLost { .. }) => self.history.note_lease("refused", lease),
            Err(error) => panic!("{done} {lease}: {error}"),
        }
    }

    /// Waits until the message was taken away from this holder.
    fn outlive(&self, delivery: &Delivery) {
        let lease = &delivery.lease;
        let file =
            format!("mailbox/dispatch/cur/{}@{}@{}.yaml", lease.id, lease.holder, lease.epoch);
        let file = self.spool.root().join(file);
        eventually_true(PATIENCE, "a silent holder loses its message", || !file.exists());
    }
}

/// Everything that is tortured, and what keeps it going.
struct Arena {
    bed: Bed,
    history: PathBuf,
    stop: PathBuf,
    random: Random,
    players: BTreeMap<String, Process>,
    watcher: Option<Watcher>,
}

impl Arena {
    fn new() -> Self {
        let mut settings = Settings::default();
        settings.lease_seconds = 1;
        settings.attempts_max = 20;
        let bed = Bed::with(&settings, "poll_interval: 1\n");
        let history = bed.home.path().join("history");
        std::fs::create_dir(&history).unwrap();
        let stop = bed.home.path().join("stop");
        let random = Random::printed("crash");
        Self { bed, history, stop, random, players: BTreeMap::new(), watcher: None }
    }

    fn play(&mut self, player: &str) {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let role = player.split('-').next().unwrap();
        let variables = [
            ("QUEUE", &path(&self.bed.queue())),
            ("HISTORY", &path(&self.history)),
            ("STOP", &path(&self.stop)),
            ("ME", &player.to_owned()),
            ("SEED", &self.random.next().to_string()),
        ];
        let process = Process::role(role, &variables.map(|(key, value)| (key, value.as_str())));
        self.players.insert(player.to_owned(), process);
    }

    fn start(&mut self) {
        for number in 0..PUBLISHERS {
            self.play(&format!("publisher-{number}"));
        }
        for number in 0..CONSUMERS {
            self.play(&format!("consumer-{number}"));
        }
        self.watcher = Some(Watcher::launch(&self.bed.queue()));
    }

    /// Kills one of them at a random moment and starts it again.
    fn kill_one(&mut self) {
        std::thread::sleep(Duration::from_millis(self.random.below(KILL_INTERVAL_MAX)));
        let victim = self.random.below(self.players.len() as u64 + 1);
        match self.players.keys().nth(usize::try_from(victim).unwrap()).cloned() {
            Some(player) => {
                let mut process = self.players.remove(&player).unwrap();
                assert!(process.is_running(), "{player} has ended by itself: see its message");
                process.kill();
                self.play(&player);
            }
            None => {
                let mut watcher = self.watcher.take().unwrap();
                watcher.assert_running();
                watcher.kill();
                self.watcher = Some(Watcher::launch(&self.bed.queue()));
            }
        }
    }
}

/// Takes messages back from holders that have been silent for their lease, by its own clock.
fn sweep(spool: &Spool, stop: &AtomicBool) {
    let mut silent: HashMap<(String, u64), (u64, Instant)> = HashMap::new();
    while !stop.load(Ordering::Relaxed) {
        let observed = spool.observe(&name("dispatch")).unwrap();
        let now = Instant::now();
        let mut next = HashMap::new();
        for one in observed {
            let key = (format!("{}@{}", one.lease.id, one.lease.holder), one.lease.epoch);
            let known = silent.get(&key).filter(|(sequence, _)| *sequence == one.sequence);
            let since = known.map_or(now, |(_, since)| *since);
            if now.duration_since(since) >= one.duration {
                spool.expire(&one).unwrap();
            }
            next.insert(key, (one.sequence, since));
        }
        silent = next;
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Gives dead letters back from time to time.
fn redrive(spool: &Spool, history: &Path, stop: &AtomicBool, mut random: Random) {
    let mut history = Writer::open(&history.join("redriver"));
    while !stop.load(Ordering::Relaxed) {
        for letter in spool.dead_letters(&name("dispatch")).unwrap() {
            if random.percent(30) {
                spool.redrive(&name("dispatch"), &letter.id).unwrap();
                history.note("redriven", letter.id.as_str(), letter.epoch);
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Lands a report every few milliseconds.
fn report(bed: &Bed, landed: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let number = landed.load(Ordering::Relaxed);
        bed.land(&format!("reports/r{number}-completed.yaml"), format!("number: {number}\n"));
        landed.store(number + 1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn no_acknowledged_operation_is_lost_or_repeated_after_any_kill() {
    let kills = setting("TORTURE_KILLS", 200);
    let at_least = Duration::from_secs(setting("TORTURE_SECONDS", 0));
    let mut arena = Arena::new();
    let (start, mut killed) = (Instant::now(), 0);
    let (quiet, end, landed) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let (sweeper, redriver) = (arena.bed.spool(), arena.bed.spool());
    let history = arena.history.clone();
    let seed = arena.random.clone();
    std::thread::scope(|scope| {
        // No matter what fails in here, the threads end.
        let _end = EndGuard([&quiet, &end]);
        arena.start();
        let reborrow = arena.bed.lend();
        let (landed, quiet, end) = (&landed, &quiet, &end);
        let reporter = scope.spawn(move || report(&reborrow, landed, quiet));
        scope.spawn(|| sweep(&sweeper, end));
        let history = &history;
        let redriver = &redriver;
        scope.spawn(move || redrive(redriver, history, quiet, seed));
        while killed < kills || start.elapsed() < at_least {
            arena.kill_one();
            killed += 1;
        }
        quiet.store(true, Ordering::Relaxed);
        // It may have been about to land one more, which is to be waited for as well.
        reporter.join().unwrap();
        let reports = || landed.load(Ordering::Relaxed) as usize;
        eventually_true(PATIENCE, "all reports are routed", || {
            routed(&arena.bed).len() >= reports()
        });
        std::fs::write(&arena.stop, "").unwrap();
        for (_, player) in std::mem::take(&mut arena.players) {
            player.succeeds();
        }
        finish(&mut arena);
    });
    arena.watcher.take().unwrap().stop();
    println!("{killed} kills in {:.1} s", start.elapsed().as_secs_f64());
    judge(&arena, landed.into_inner() as usize);
}

/// Ends the threads of a test that panics.
struct EndGuard<'a>([&'a AtomicBool; 2]);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
    }
}

/// Lets consumers that are no longer killed handle the remaining messages.
fn finish(arena: &mut Arena) {
    let dispatch = name("dispatch");
    let spool = arena.bed.spool();
    eventually_true(PATIENCE, "everything is settled or dead", || {
        let counts = spool.counts(&dispatch).unwrap();
        if counts.queued > 0 && arena.players.is_empty() {
            arena.play("consumer-0");
        }
        arena.players.retain(|_, player| player.is_running());
        counts.queued + counts.acked == 0 && arena.players.is_empty()
    });
}

/// Each report with how often it is in the mailbox.
fn routed(bed: &Bed) -> BTreeMap<String, usize> {
    let mut routed = BTreeMap::new();
    for (_, envelope) in support::messages(&bed.queue(), "dispatch") {
        if let Some(source) = envelope.source {
            *routed.entry(source).or_default() += 1;
        }
    }
    routed
}

fn judge(arena: &Arena, landed: usize) {
    let history = History::read(&arena.history);
    let found = support::messages(&arena.bed.queue(), "dispatch");
    let present: BTreeSet<String> = found.iter().map(|(_, e)| e.id.to_string()).collect();
    let published = history.ids("published");
    let offered: BTreeSet<&str> =
        history.ids("offered").union(&history.ids("offered-once")).copied().collect();
    let lost: Vec<_> = published.iter().filter(|id| !present.contains(**id)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let invented: Vec<_> = present
        .iter()
        .filter(|id| !id.starts_with("r-") && !offered.contains(id.as_str()))
        .collect();
    assert!(invented.is_empty(), "never offered: {invented:?}");
    assert_eq!(found.len(), present.len(), "every message is in one state");
    assert_eq!(history.repeated("settled"), [""; 0], "settled twice");
    assert_eq!(history.count("settled-late"), 0, "settled under a lease that was over");
    let broken = history.broken_fences("received", "settled");
    assert!(broken.is_empty(), "{broken:#?}");
    let settled: BTreeSet<String> = found
        .iter()
        .filter(|(path, _)| path.parent().is_some_and(|p| p.ends_with("done")))
        .map(|(_, e)| e.id.to_string())
        .collect();
    let undone: Vec<_> =
        history.ids("settled").into_iter().filter(|id| !settled.contains(*id)).collect();
    assert!(undone.is_empty(), "settled, but not in done/: {undone:?}");
    let routed = routed(&arena.bed);
    assert_eq!(routed.len(), landed, "every report is routed");
    assert!(routed.values().all(|times| *times == 1), "a report is routed once: {routed:?}");

    let spool = arena.bed.spool();
    let dead = spool.dead_letters(&name("dispatch")).unwrap();
    assert!(dead.iter().all(|letter| !letter.reason.is_empty()), "dead without a reason: {dead:?}");
    let swept = spool.sweep().unwrap();
    arena.bed.assert_clean();
    let counts: Vec<String> =
        history.notes.iter().map(|(what, all)| format!("{what} {}", all.len())).collect();
    println!(
        "noted: {}; in the mailbox: {} settled, {} dead; {landed} reports; left over: {} in tmp/, {} side files",
        counts.join(", "),
        settled.len(),
        dead.len(),
        support::files(&arena.bed.in_queue("tmp")).len(),
        swept.orphans_removed,
    );
}
