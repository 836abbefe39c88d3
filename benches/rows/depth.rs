//! Measures the cost of a deep backlog for each message: receive with many queued messages against
//! receive with a thousand.
//!
//! Both subjects list `new/` once and then consume the listing. The shallow mailbox's listing falls
//! into its round. The deep mailbox's listing is timed separately and divided by its number of
//! messages.

use std::path::Path;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Spool, SpoolOptions};

use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, go_on, micros, now_ns, place, size};

const SHALLOW: usize = 1_000;
const ROUNDS: usize = 20;

pub fn run() -> Outcome<()> {
    let deep = size("ENSEMBLE_BENCH_BACKLOG", 200_000).max((ROUNDS + 1) * SHALLOW);
    let (home, place) = place::in_memory_or_on_disk()?;
    let (few, many) = (Name::new("few")?, Name::new("many")?);
    let spool = open(home.path(), &[&few, &many])?;
    fill(&spool, &many, deep)?;
    table::heading(&format!(
        "receive at {deep} queued against {SHALLOW} queued ({place}, a message)"
    ));
    let began = now_ns();
    receive(&spool, &many, 1)?;
    let listing = micros(began, now_ns());
    let mut pairs = Pairs::default();
    for _ in 0..ROUNDS {
        go_on()?;
        fill(&spool, &few, SHALLOW)?;
        let began = now_ns();
        receive(&spool, &few, SHALLOW)?;
        let shallow = micros(began, now_ns()) / SHALLOW as f64;
        let began = now_ns();
        receive(&spool, &many, SHALLOW)?;
        let sustained = micros(began, now_ns()) / SHALLOW as f64;
        pairs.push(vec![sustained + listing / deep as f64], vec![shallow]);
    }
    table::pairs(&format!("{deep} queued (limit: {SHALLOW})"), "us", &pairs, Goal::AtMost(1.5));
    table::note(&format!(
        "the one listing took {:.0} ms, shared out over all messages",
        listing / 1e3
    ));
    Ok(())
}

fn open(home: &Path, mailboxes: &[&Name]) -> Outcome<Spool> {
    let options = SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() };
    let spool = Spool::create(&home.join("queue"), options)?;
    for mailbox in mailboxes {
        spool.add_mailbox(mailbox, &Default::default())?;
    }
    Ok(spool)
}

fn fill(spool: &Spool, mailbox: &Name, count: usize) -> Outcome<()> {
    for number in 0..count {
        if number.is_multiple_of(SHALLOW) {
            go_on()?;
        }
        spool.publish(&Envelope::new(mailbox.clone(), "task 7 is done\n"))?;
    }
    Ok(())
}

fn receive(spool: &Spool, mailbox: &Name, count: usize) -> Outcome<()> {
    for _ in 0..count {
        spool.receive(mailbox, mailbox)?.ok_or("a message is missing")?;
    }
    Ok(())
}
