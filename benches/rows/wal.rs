//! Compares the write-ahead log with a sync of each file and directory, in turns, at `power`. One
//! row is in one process, the other with four senders and four consumers.

use std::path::Path;
use std::time::Duration;

use ensemble_core::durable::Durability;
use ensemble_core::message::Name;
use ensemble_core::spool::{Options, Spool};

use super::peers::{self, Peer};
use super::shared::eight;
use super::store::{Bare, publish, rate, receive};
use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, go_on, place, size};

const SIZES: [(&str, usize); 3] = [("500 B", 500), ("4 KiB", 4 * 1024), ("16 KiB", 16 * 1024)];
/// Messages of one batch of one process.
const COUNT: usize = 10;

pub fn run() -> Outcome<()> {
    table::heading("the write-ahead log against syncs of its own, one process (messages a second)");
    for (what, bytes) in SIZES {
        alone(what, bytes)?;
    }
    table::heading("the same, 4 + 4 processes (messages a second, end to end)");
    for (what, bytes) in SIZES {
        together(what, bytes)?;
    }
    Ok(())
}

fn spool(queue: &Path, wal: bool) -> Outcome<Spool> {
    let mut options = Options::default();
    options.wal = wal;
    let spool = Spool::create(queue, options)?;
    spool.add_mailbox(&Name::new("work")?, &Default::default())?;
    Ok(spool)
}

fn alone(what: &str, bytes: usize) -> Outcome<()> {
    let home = place::on_disk()?;
    let to = Name::new("work")?;
    let spools =
        [spool(&home.path().join("with"), true)?, spool(&home.path().join("without"), false)?];
    let mut bare = Bare::new(&home.path().join("bare"), Durability::Power)?;
    let text: String = "task 7 is done\n".chars().cycle().take(bytes).collect();
    let mut pairs: [[Pairs; 2]; 2] = Default::default();
    for round in 0..size("ENSEMBLE_BENCH_ROUNDS", 40) {
        go_on()?;
        let mut rates = [[0.0; 3]; 2];
        for turn in 0..3 {
            let subject = (turn + round) % 3;
            let Some(spool) = spools.get(subject) else {
                bare.prepare(&to, &text, COUNT)?;
                rates[0][subject] = rate(COUNT, || bare.publish())?;
                rates[1][subject] = rate(COUNT, || bare.receive())?;
                continue;
            };
            rates[0][subject] = rate(COUNT, || publish(spool, &to, &text, COUNT))?;
            rates[1][subject] = rate(COUNT, || receive(spool, &to, COUNT))?;
        }
        for (pairs, rates) in pairs.iter_mut().zip(rates) {
            pairs[0].push(vec![rates[0]], vec![rates[1]]);
            pairs[1].push(vec![rates[0]], vec![rates[2]]);
        }
    }
    for (verb, [own, limit]) in ["publish", "receive + settle"].iter().zip(&pairs) {
        table::pairs(&format!("{verb}, {what}, to its own syncs"), "/s", own, Goal::AtLeast(1.0));
        table::pairs(&format!("{verb}, {what}, to bare calls"), "/s", limit, Goal::AtLeast(0.8));
    }
    Ok(())
}

fn together(what: &str, bytes: usize) -> Outcome<()> {
    let home = place::on_disk()?;
    let window = Duration::from_millis(size("ENSEMBLE_BENCH_SHARED_MILLIS", 1_500) as u64);
    let queues = ["with", "without"].map(|name| home.path().join(name));
    spool(&queues[0], true)?;
    spool(&queues[1], false)?;
    let peers: Vec<Peer> = peers::servers(home.path(), Durability::Power);
    let mut own = Pairs::default();
    let mut floor = Pairs::default();
    let mut others: Vec<(&Peer, Pairs)> = peers.iter().map(|p| (p, Pairs::default())).collect();
    for round in 0..size("ENSEMBLE_BENCH_SHARED_ROUNDS", 6) {
        let mut rates = [0.0; 2];
        for turn in 0..2 {
            let subject = (turn + round) % 2;
            let with = ["logged", "ours"][subject];
            rates[subject] =
                eight(home.path(), &format!("{with}:{bytes}"), &queues[subject], window)?;
        }
        own.push(vec![rates[0]], vec![rates[1]]);
        let log = home.path().join("log");
        let appends = eight(home.path(), &format!("append:{bytes}"), &log, window)?;
        floor.push(vec![rates[0]], vec![appends / 2.0]);
        for (peer, pairs) in &mut others {
            let theirs = peer.together(home.path(), bytes, window)?.unwrap_or_default();
            // Senders may keep consumers from a lock for a whole round; that is not a gain of ours.
            if theirs > 0.0 {
                pairs.push(vec![rates[0]], vec![theirs]);
            }
        }
    }
    table::pairs(&format!("{what}, to its own syncs"), "/s", &own, Goal::AtLeast(1.0));
    table::pairs(&format!("{what}, floor: two shared appends"), "/s", &floor, Goal::None);
    for (peer, pairs) in others.iter().filter(|(_, pairs)| pairs.len() > 0) {
        table::pairs(&format!("{what}, {}", peer.name), "/s", pairs, Goal::AtLeast(1.0));
    }
    Ok(())
}
