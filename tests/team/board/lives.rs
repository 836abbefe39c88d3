//! What the board's file says of living agents: the stamps of seed 001, and fields of other programs.

use std::fs;
use std::fs::File;
use std::time::SystemTime;

use ensemble_core::document::LockedDocument;
use ensemble_core::env::Clock as _;
use ensemble_core::event_log::NullRecorder;
use ensemble_team::driver::BoardLeases;

use super::name;

use super::*;

const LEASE: Duration = Duration::from_secs(300);

/// Renews a lease as seed 001 says: lock, new stamps in the text, rename, unlock.
fn renew(bed: &Bed, agent: &str, at: Timestamp, lease: Duration) {
    let locked = LockedDocument::lock(bed.board.path(), Duration::from_secs(5)).unwrap();
    let text = bed.text();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let entry = lines.iter().position(|line| *line == format!("  {agent}:")).unwrap();
    for line in &mut lines[entry + 1..] {
        if line.starts_with("    heartbeat:") {
            *line = format!("    heartbeat: {at}");
        } else if line.starts_with("    lease_expires:") {
            *line = format!("    lease_expires: {}", at.plus(lease));
        } else if !line.starts_with("    ") {
            break;
        }
    }
    locked.replace(format!("{}\n", lines.join("\n")).as_bytes()).unwrap();
}

/// Minutes after which a lease expires, of an agent that renews it each minute for `renewals` minutes.
fn expires_after(
    bed: &Bed,
    renewals: u64,
    lease: Duration,
    wall: impl Fn(u64) -> Timestamp,
) -> u64 {
    let clock = SimClock::new(Timestamp::now());
    let mut leases = BoardLeases::new(bed.board.clone(), "observer", &clock);
    for half_minute in 0..200 {
        if half_minute % 2 == 0 && half_minute / 2 <= renewals {
            renew(bed, "bob", wall(half_minute), lease);
        }
        let taken = leases.expire_leases(&clock, &NullRecorder).unwrap();
        if !taken.is_empty() {
            assert_eq!(taken[0].by().as_str(), "bob");
            return half_minute / 2;
        }
        clock.advance(Duration::from_secs(30));
    }
    panic!("the lease never expires");
}

#[test]
fn an_agent_keeps_its_lease_by_its_stamps_on_the_board() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    let bob = bed.agent("bob", "coder");
    bed.claim("task-1", &bob);
    let now = Timestamp::now();
    let minutes = expires_after(&bed, 20, LEASE, |at| now.plus(Duration::from_secs(30 * at)));
    assert_eq!(minutes, 25, "20 minutes of renewals, and one lease of 5");
    assert_eq!(bed.status("task-1"), TaskStatus::Unclaimed);
}

#[test]
fn the_times_of_stamps_decide_nothing_but_their_change_does() {
    let bed = Bed::new();
    bed.agent("bob", "coder");
    // A clock that is a year late, and pauses for a minute now and then.
    let old: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    let jumps = |at: u64| old.plus(Duration::from_secs(if at % 8 < 4 { 7 * at } else { 3 * at }));
    assert_eq!(expires_after(&bed, 9, LEASE, jumps), 14);
    // A long operation, as the seed has it: 15 minutes.
    bed.agent("bob", "coder");
    let now = Timestamp::now();
    let long = |at: u64| now.plus(Duration::from_secs(at));
    assert_eq!(expires_after(&bed, 0, 3 * LEASE, long), 15);
}

fn sequence(bed: &Bed, agent: &TaskHolder) -> u64 {
    let directory = bed.board.path().parent().unwrap();
    let wanted = BoardLease::Agent { by: agent.by.clone(), epoch: agent.epoch };
    let seen = scan(&bed.state(), directory).unwrap();
    let of = |event| match event {
        Event::Seen { key, sequence, .. } if key == wanted => Some(sequence),
        Event::Seen { .. } | Event::Gone { .. } | Event::ClockGap(_) | Event::ScanDone => None,
    };
    seen.into_iter().find_map(of).unwrap()
}

/// Beats, as of some time ago or in the future.
fn beat(bed: &Bed, agent: &TaskHolder, sequence: u64, at: SystemTime) -> Timestamp {
    let directory = bed.board.path().parent().unwrap();
    write_beat(directory, agent, sequence, LEASE).unwrap();
    let file = directory.join("leases").join(format!("{}@{}.beat", agent.by, agent.epoch));
    File::options().append(true).open(&file).unwrap().set_modified(at).unwrap();
    let millis = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    Timestamp::from_unix_millis(i64::try_from(millis).unwrap())
}

#[test]
fn every_write_shows_the_beats_and_is_none_itself() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    let bob = bed.agent("bob", "coder");
    bed.claim("task-1", &bob);
    let later = SystemTime::now() + Duration::from_secs(60);
    let at = beat(&bed, &bob, 1, later);
    let before = sequence(&bed, &bob);
    let other = NewTask::new(name("task-2"), "another", "s.md", "done");
    bed.change(|board| board.add_task(&other));
    assert_eq!(sequence(&bed, &bob), before, "showing a beat is no beat");
    let state = bed.state();
    let entry = &state.agents[&bob.by];
    assert_eq!((entry.heartbeat, entry.lease_expires), (Some(at), Some(at.plus(LEASE))));
    assert_eq!(state.task(&name("task-1")).unwrap().lease_expires, Some(at.plus(LEASE)));
    // An edit by hand shows them, too.
    let at = beat(&bed, &bob, 2, later + Duration::from_secs(60));
    let draft = bed.board.draft().unwrap();
    let edited = draft.text().replace("another", "yet another");
    let state = draft.apply(&bed.board, &edited).unwrap().unwrap();
    assert_eq!(state.agents[&bob.by].heartbeat, Some(at));
    assert_eq!(sequence(&bed, &bob), before + 1);
    // What the agent itself wrote, and which says more, is left as it is.
    renew(&bed, "bob", at.plus(LEASE), LEASE);
    let own = sequence(&bed, &bob);
    assert_ne!(own, before + 1);
    beat(&bed, &bob, 3, later);
    bed.change(|board| board.add_task(&NewTask::new(name("task-3"), "third", "s.md", "done")));
    let state = bed.state();
    assert_eq!(state.agents[&bob.by].lease_expires, Some(at.plus(2 * LEASE)));
    assert_eq!(state.task(&name("task-1")).unwrap().lease_expires, Some(at.plus(2 * LEASE)));
    assert_eq!(sequence(&bed, &bob), own + 1, "only the beat counts");
}

#[test]
fn an_observer_shows_beats_before_a_written_lease_passes() {
    let bed = Bed::new();
    let bob = bed.agent("bob", "coder");
    let written = bed.state().agents[&bob.by].lease_expires.unwrap();
    let clock = SimClock::new(Timestamp::now());
    let mut leases = BoardLeases::new(bed.board.clone(), "observer", &clock);
    let beaten = beat(&bed, &bob, 1, SystemTime::now() + Duration::from_secs(200));
    for _ in 0..=7 {
        leases.expire_leases(&clock, &NullRecorder).unwrap();
        assert_eq!(bed.state().agents[&bob.by].lease_expires, Some(written), "it is not due yet");
        clock.advance(
            Duration::from_secs(30).min(leases.next_timeout().unwrap().since(clock.boottime())),
        );
    }
    leases.expire_leases(&clock, &NullRecorder).unwrap();
    assert_eq!(bed.state().agents[&bob.by].lease_expires, Some(beaten.plus(LEASE)));
    assert!(clock.wall() < written, "before it passes");
    let revision = bed.state().revision;
    leases.expire_leases(&clock, &NullRecorder).unwrap();
    assert_eq!(bed.state().revision, revision, "there is nothing more to show");
}

#[test]
fn a_dead_agent_is_not_kept_alive_by_the_writes_of_others() {
    let bed = Bed::new();
    let bob = bed.agent("bob", "coder");
    beat(&bed, &bob, 1, SystemTime::now());
    let directory = bed.board.path().parent().unwrap().to_owned();
    let mut watch = LeaseWatch::new(Monotonic::ZERO);
    let mut expired = None;
    for look in 0..=20_u64 {
        let id = format!("task-{look}");
        bed.change(|board| board.add_task(&NewTask::new(name(&id), "work", "s.md", "done")));
        for event in scan(&bed.state(), &directory).unwrap() {
            watch.handle(Monotonic::ZERO + Duration::from_secs(30 * look), event);
        }
        if let Some(Effect::Expire { .. }) = watch.poll_effect() {
            expired.get_or_insert(look);
        }
    }
    assert_eq!(expired, Some(10));
}

#[test]
fn fields_of_other_programs_survive_the_lease_of_their_agent() {
    let bed = Bed::new();
    let bob = bed.agent("bob", "coder");
    bed.agent("ann", "coder");
    let text = bed.text().replace("  bob:\n", "  bob:\n    mood: calm\n    pets: [cat, dog]\n");
    fs::write(bed.board.path(), text).unwrap();
    bed.change(|board| {
        board.expire(&BoardLease::Agent { by: bob.by.clone(), epoch: bob.epoch }, 0)
    });
    let left = bed.text();
    assert!(left.contains("former_agents:"), "{left}");
    let again = bed.agent("bob", "coder");
    let text = bed.text();
    assert!(text.contains("mood: calm") && text.contains("cat"), "{text}");
    assert!(!text.contains("former_agents"), "{text}");
    bed.change(|board| board.unregister(&again, "done"));
    assert!(bed.text().contains("mood: calm"));
}
