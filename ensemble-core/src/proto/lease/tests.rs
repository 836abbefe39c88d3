use super::*;
use crate::proto::testing::{at, drain, pairs};
use crate::sim::SimRng;

const DURATION: Duration = Duration::from_secs(300);
/// Time from the last sign of life, with a look every 30 s.
const FOUND_WITHIN: Duration = Duration::from_secs(300 + 85);

fn scan(watch: &mut LeaseWatch<u32>, now: Monotonic, sequences: &[(u32, u64)]) {
    for &(key, sequence) in sequences {
        watch.handle(now, Event::Seen { key, sequence, duration: DURATION });
    }
    watch.handle(now, Event::ScanDone);
}

/// Looks every 30 s with unchanged sequence numbers.
fn watch_silence(
    watch: &mut LeaseWatch<u32>,
    seconds: std::ops::Range<u64>,
    leases: &[(u32, u64)],
) {
    for second in seconds.step_by(30) {
        scan(watch, at(second), leases);
    }
}

fn expire(key: u32, sequence: u64) -> Effect<u32> {
    Effect::Expire { key, sequence }
}

fn gap() -> Event<u32> {
    Event::ClockGap(ClockGap::default())
}

const GAP_RECORD: Effect<u32> =
    Effect::Record(LeaseRecord::ClockGap(ClockGap { suspended_ms: 0, wall_jump_ms: 0 }));

#[test]
fn lease_expires_only_by_a_look_at_the_deadline() {
    let mut watch = LeaseWatch::new(at(0));
    watch_silence(&mut watch, 0..300, &[(1, 7)]);
    assert_eq!(watch.poll_timeout(), Some(at(300)));
    watch.handle_timeout(at(300));
    watch.handle_timeout(at(300));
    assert_eq!(drain(&mut watch), [Effect::Look]);
    assert_eq!(watch.poll_timeout(), Some(at(305)), "it asks again without a look");
    scan(&mut watch, at(301), &[(1, 7)]);
    assert_eq!(drain(&mut watch), [expire(1, 7)]);
}

#[test]
fn expiry_that_was_not_executed_is_requested_again() {
    let mut watch = LeaseWatch::new(at(0));
    watch_silence(&mut watch, 0..301, &[(1, 7)]);
    assert_eq!(drain(&mut watch), [expire(1, 7)]);
    scan(&mut watch, at(330), &[(1, 7)]);
    assert_eq!(drain(&mut watch), []);
    scan(&mut watch, at(360), &[(1, 7)]);
    assert_eq!(drain(&mut watch), [expire(1, 7)]);
    scan(&mut watch, at(390), &[(1, 8)]);
    scan(&mut watch, at(420), &[(1, 8)]);
    assert_eq!(drain(&mut watch), [], "the lease has a holder again");
}

/// A container was paused, say: no holder beats, and no clock shows it.
#[test]
fn holders_may_renew_after_their_observer_was_stopped() {
    for (duration, overtime) in [(300, OVERTIME_MAX.as_secs()), (10, 10)] {
        let mut watch = LeaseWatch::new(at(0));
        let look = |watch: &mut LeaseWatch<u32>, second, sequences: [u64; 2]| {
            for (key, sequence) in (1..).zip(sequences) {
                let duration = Duration::from_secs(duration);
                watch.handle(at(second), Event::Seen { key, sequence, duration });
            }
            watch.handle(at(second), Event::ScanDone);
            drain(watch)
        };
        let due = |watch: &LeaseWatch<u32>| watch.poll_timeout().unwrap().as_duration().as_secs();
        for second in (0..duration).step_by(30) {
            assert_eq!(look(&mut watch, second, [7, 7]), []);
        }
        let end = due(&watch);
        assert_eq!(end, duration);
        let late = Effect::Record(LeaseRecord::LateLook { seconds: 86_400 - end });
        assert_eq!(look(&mut watch, 86_400, [7, 7]), [late]);
        assert_eq!(watch.silent_for(&1), Some(Duration::from_secs(duration)));
        assert_eq!(due(&watch), 86_400 + overtime);
        // Stopped once more: holds do not add up.
        assert_eq!(look(&mut watch, 99_999, [7, 8]), [expire(1, 7)], "the other one renewed");
    }
}

#[test]
fn absent_observer_does_not_expire_leases() {
    let mut watch = LeaseWatch::new(at(0));
    scan(&mut watch, at(0), &[(1, 7)]);
    scan(&mut watch, at(90_000), &[(1, 7)]);
    assert_eq!(drain(&mut watch), [], "it ends long after the hold");
    assert_eq!(watch.silent_for(&1), Some(LOOK_GAP_MAX));
}

#[test]
fn gap_holds_for_two_heartbeats_and_gaps_do_not_add_up() {
    let mut watch = LeaseWatch::new(at(0));
    watch_silence(&mut watch, 0..211, &[(1, 7)]);
    watch.handle(at(220), gap());
    assert_eq!(drain(&mut watch), [GAP_RECORD]);
    watch_silence(&mut watch, 240..331, &[(1, 7)]);
    assert_eq!(drain(&mut watch), [], "on hold until 340");
    scan(&mut watch, at(340), &[(1, 7)]);
    assert_eq!(drain(&mut watch), [expire(1, 7)]);

    let mut watch = LeaseWatch::new(at(0));
    for second in (0..=355).step_by(5) {
        watch.handle(at(second), gap());
        scan(&mut watch, at(second), &[(1, 7)]);
        let expected = if second == 0 {
            vec![GAP_RECORD]
        } else if second == 355 {
            vec![expire(1, 7)]
        } else {
            vec![]
        };
        assert_eq!(drain(&mut watch), expected, "{second} s");
    }
}

#[test]
fn processes_of_one_boot_continue_an_observation() {
    let mut first = LeaseWatch::new(at(1_000));
    scan(&mut first, at(1_000), &[(1, 7), (2, 7)]);
    let text = serde_json::to_string(&first.snapshot(at(1_001), "boot-a")).unwrap();
    let snapshot: LeaseSnapshot<u32> = serde_json::from_str(&text).unwrap();

    let mut second = LeaseWatch::restore(at(1_300), "boot-a", snapshot.clone());
    scan(&mut second, at(1_300), &[(1, 7), (2, 8)]);
    // No process looked when a look was due. Its lease ran out in that time, and its holder may still renew it, once.
    assert!(matches!(drain(&mut second)[..], [Effect::Record(LeaseRecord::LateLook { .. })]));
    let mut third = LeaseWatch::restore(at(1_900), "boot-a", second.snapshot(at(1_300), "boot-a"));
    scan(&mut third, at(1_900), &[(1, 7), (2, 9)]);
    assert_eq!(drain(&mut third), [expire(1, 7)]);

    let mut rebooted = LeaseWatch::restore(at(1_300), "boot-b", snapshot.clone());
    scan(&mut rebooted, at(1_300), &[(1, 7), (2, 7)]);
    assert_eq!(drain(&mut rebooted), []);

    let before = LeaseWatch::restore(at(900), "boot-a", snapshot);
    assert_eq!(before.silent_for(&1), None);
}

#[test]
fn hold_survives_its_process() {
    let mut first = LeaseWatch::<u32>::new(at(0));
    watch_silence(&mut first, 0..271, &[(1, 7)]);
    first.handle(at(280), gap());
    let mut second = LeaseWatch::restore(at(310), "b", first.snapshot(at(290), "b"));
    scan(&mut second, at(310), &[(1, 7)]);
    assert_eq!(drain(&mut second), []);
    scan(&mut second, at(355), &[(1, 7)]);
    assert_eq!(drain(&mut second), [expire(1, 7)]);
}

#[test]
fn diverging_clocks_are_a_gap_and_drifting_ones_are_not() {
    use crate::message::Timestamp;
    let wall = |millis: i64| Timestamp::from_unix_millis(1_000_000 + millis);
    let mut clocks = GapDetector::default();
    assert_eq!(clocks.compare_clocks(at(0), at(5), wall(0)), None);
    assert_eq!(clocks.compare_clocks(at(10), at(15), wall(11_900)), None);
    let jump = clocks.compare_clocks(at(20), at(25), wall(12_000 + 9_000 - 60_000)).unwrap();
    assert_eq!((jump.suspended_ms, jump.wall_jump_ms), (0, -60_900));
    assert_eq!(clocks.compare_clocks(at(30), at(35), wall(12_000 + 19_000 - 60_000)), None);
}

fn states() -> Vec<(&'static str, LeaseWatch<u32>)> {
    let empty = LeaseWatch::new(at(0));
    let mut running = empty.clone();
    watch_silence(&mut running, 0..271, &[(1, 7)]);
    let mut held = running.clone();
    held.handle(at(271), gap());
    let mut expired = running.clone();
    scan(&mut expired, at(300), &[(1, 7)]);
    let restored = LeaseWatch::restore(at(300), "b", running.snapshot(at(271), "b"));
    let mut states = vec![
        ("empty", empty),
        ("running", running),
        ("held", held),
        ("expired", expired),
        ("restored", restored),
    ];
    for (_, watch) in &mut states {
        drain(watch);
    }
    states
}

fn show(watch: &LeaseWatch<u32>, event: Option<&Event<u32>>) -> String {
    let mut watch = watch.clone();
    match event {
        Some(event) => watch.handle(at(310), event.clone()),
        None => watch.handle_timeout(at(310)),
    }
    let lease = watch.leases.get(&1).map_or('-', |lease| match lease.life {
        LeaseLife::Restored => 'o',
        LeaseLife::Running => 'r',
        LeaseLife::Expired { .. } => 'x',
    });
    let mut cell = match watch.state {
        State::Judging => format!("{lease} judging"),
        State::Held { .. } => format!("{lease} held"),
    };
    for effect in drain(&mut watch) {
        cell.push_str(match effect {
            Effect::Look => " L",
            Effect::Expire { .. } => " X",
            Effect::Record(_) => " R",
        });
    }
    cell
}

#[test]
fn every_pair_of_state_and_event() {
    let seen = |sequence| Some(Event::Seen { key: 1, sequence, duration: DURATION });
    let events = [
        ("same", seen(7)),
        ("beat", seen(8)),
        ("gone", Some(Event::Gone { key: 1 })),
        ("gap", Some(gap())),
        ("scanned", Some(Event::ScanDone)),
        ("time", None),
    ];
    let table = pairs(&states(), &events, |watch, event| show(watch, event.as_ref()));
    assert_eq!(
        table,
        "
         empty      running      held    expired    restored
same     r judging  r judging    r held  x judging  r judging
beat     r judging  r judging    r held  r judging  r judging
gone     - judging  - judging    - held  - judging  - judging
gap      - held R   r held R     r held  x held R   o held R
scanned  - judging  - judging    - held  - judging  - judging
time     - judging  r judging L  r held  x judging  o judging L
"
    );
}

/// A host with eight workers for a year of running time, reduced to its bad hours.
///
/// A worker's sequence number is a function of the running time, so quiet weeks cost nothing.
/// Around each incident the observer looks at its usual interval. `bad_clock` counts the false
/// expiries of an observer that trusts a clock which runs during a suspend.
struct Host {
    rng: SimRng,
    watch: LeaseWatch<u32>,
    workers: [Worker; 8],
    slept: Duration,
    bad_clock: [(u64, Duration); 8],
    false_reaps: u32,
    bad_clock_reaps: u32,
    latest_find: Duration,
}

#[derive(Clone, Copy)]
struct Worker {
    phase: Duration,
    /// Beats due in this period are all sent when it ends: the worker was stalled.
    stalled: (Monotonic, Monotonic),
    died: Option<Monotonic>,
    base: u64,
}

impl Worker {
    fn sequence(&self, now: Monotonic) -> u64 {
        let (from, to) = self.stalled;
        let now = self.died.map_or(now, |died| died.min(now));
        let now = if now > from && now < to { from } else { now };
        self.base + (now.as_duration() + self.phase).as_millis() as u64 / 60_000
    }
}

impl Host {
    fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let mut worker = || Worker {
            phase: Duration::from_millis(rng.below(60_000)),
            stalled: (at(0), at(0)),
            died: None,
            base: 0,
        };
        let workers = std::array::from_fn(|_| worker());
        Self {
            rng,
            watch: LeaseWatch::new(at(0)),
            workers,
            slept: Duration::ZERO,
            bad_clock: [(0, Duration::ZERO); 8],
            false_reaps: 0,
            bad_clock_reaps: 0,
            latest_find: Duration::ZERO,
        }
    }

    fn look(&mut self, now: Monotonic) {
        for key in 0..8_u32 {
            let worker = self.workers[key as usize];
            let sequence = worker.sequence(now);
            self.watch.handle(now, Event::Seen { key, sequence, duration: DURATION });
            let (seen, since) = &mut self.bad_clock[key as usize];
            let bad_now = now.as_duration() + self.slept;
            if *seen != sequence {
                (*seen, *since) = (sequence, bad_now);
            } else if bad_now - *since > DURATION && worker.died.is_none() {
                self.bad_clock_reaps += 1;
                *since = bad_now;
            }
        }
        self.watch.handle(now, Event::ScanDone);
        self.effects(now);
    }

    fn effects(&mut self, now: Monotonic) {
        let mut look = false;
        while let Some(effect) = self.watch.poll_effect() {
            match effect {
                Effect::Look => look = true,
                Effect::Record(_) => {}
                Effect::Expire { key, .. } => {
                    let worker = &mut self.workers[key as usize];
                    match worker.died.take() {
                        Some(died) => self.latest_find = self.latest_find.max(now - died),
                        None => self.false_reaps += 1,
                    }
                    worker.base += 1_000_000; // a new worker takes its place
                }
            }
        }
        if look {
            self.look(now);
        }
    }

    fn incident(&mut self, now: Monotonic) {
        let victim = self.rng.below(8) as usize;
        match self.rng.below(4) {
            0 => self.workers[victim].died = self.workers[victim].died.or(Some(now)),
            1 => self.watch.handle(now, gap()),
            _ => {
                self.slept += Duration::from_secs(self.rng.below(50_000));
                self.watch.handle(now, gap());
                for worker in self.workers.iter_mut().filter(|worker| worker.died.is_none()) {
                    worker.stalled = (now, now + Duration::from_secs(self.rng.below(150)));
                }
            }
        }
        self.effects(now);
    }

    /// Runs up to four incidents within 15 minutes, with their consequences.
    fn bad_hour(&mut self, start: Monotonic) {
        let mut incidents: Vec<_> = (0..=self.rng.below(4))
            .map(|_| start + Duration::from_secs(self.rng.below(900)))
            .collect();
        incidents.sort_unstable();
        let mut incidents = incidents.into_iter().peekable();
        let mut next_look = start + LOOK_INTERVAL;
        self.look(start);
        while next_look < start + Duration::from_secs(900 + 390) {
            let due = self.watch.poll_timeout().unwrap_or(next_look);
            let incident = incidents.peek().copied().unwrap_or(next_look);
            if incident < next_look && incident <= due {
                incidents.next();
                self.incident(incident);
            } else if due < next_look {
                self.watch.handle_timeout(due);
                self.effects(due);
            } else {
                self.look(next_look);
                next_look = next_look + Duration::from_millis(20_000 + self.rng.below(10_000));
            }
        }
    }
}

#[test]
fn a_thousand_years_without_a_false_expiry() {
    const YEAR: u64 = 365 * 86_400;
    const BAD_HOURS: u64 = 12;
    let mut bad_clock_reaps = 0;
    for seed in 0..1_000 {
        let mut host = Host::new(seed);
        for hour in 0..BAD_HOURS {
            let start = hour * (YEAR / BAD_HOURS) + host.rng.below(YEAR / BAD_HOURS - 3_600);
            host.bad_hour(at(start));
        }
        assert_eq!(host.false_reaps, 0, "seed {seed}");
        assert!(host.latest_find <= FOUND_WITHIN, "seed {seed}: {:?}", host.latest_find);
        assert!(host.workers.iter().all(|worker| worker.died.is_none()), "seed {seed}");
        bad_clock_reaps += host.bad_clock_reaps;
    }
    assert!(bad_clock_reaps > 1_000, "the world must be hostile: {bad_clock_reaps}");
}
