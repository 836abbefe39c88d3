//! What the handle costs beside the calls that it is built from, in turns, in one run:
//! `cargo bench -p ensemble-broker-core --bench face`. benches/README.md says how to read a row.
#![allow(missing_docs, unreachable_pub, reason = "a program of several files")]

#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;

use std::sync::Arc;

use ensemble_core::message::Name;
use ensemble_core::requests::PlanGates;
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_core::{Durability, Mailbox, Queue};
use support::table::{self, Goal};
use support::{Outcome, Pairs, go_on, micros, now_ns, place, size};

const GOAL: Goal = Goal::AtMost(1.05);
/// Messages of one turn: short enough that a busy neighbour spoils few turns.
const MESSAGES: usize = 20;

fn main() -> Outcome<()> {
    let rounds = size("ENSEMBLE_BENCH_FACE_ROUNDS", 400);
    table::heading_against("the handle, durability Process (time for a message)", "spool");
    for (what, bytes) in [("500 B", 500), ("16 KiB", 16 * 1024)] {
        let [sent, received] = measure(bytes, rounds)?;
        table::pairs(&format!("send, {what}"), "us", &sent, GOAL);
        table::pairs(&format!("try_recv + settle, {what}"), "us", &received, GOAL);
    }
    Ok(())
}

fn measure(bytes: usize, rounds: usize) -> Outcome<[Pairs; 2]> {
    let (home, _) = place::in_memory_or_on_disk()?;
    let name = Name::new("dispatch")?;
    let handle = Queue::options().durability(Durability::Process);
    let inbox = handle.open_or_create(home.path().join("handle"))?.mailbox(&name)?;
    // What a handle has by default.
    let options = SpoolOptions::default().with_durability(Durability::Process);
    let options = options.with_admission(Arc::new(PlanGates));
    let spool = Spool::create(&home.path().join("spool"), options)?;
    spool.add_mailbox(&name, &Default::default())?;
    let text = "task 7 is done, see the report in reports/\n".repeat(bytes / 43 + 1);
    let text = &text[..bytes];
    let mut measured = [Pairs::default(), Pairs::default()];
    for round in 0..rounds {
        go_on()?;
        let (mut sent, mut received) = ([0.0; 2], [0.0; 2]);
        for turn in 0..2 {
            let subject = (turn + round) % 2;
            sent[subject] = each(|| match subject {
                0 => Ok(inbox.send(text).map(drop)?),
                _ => publish(&spool, &name, text),
            })?;
        }
        for turn in 0..2 {
            let subject = (turn + round) % 2;
            received[subject] = each(|| match subject {
                0 => receive_by_handle(&inbox),
                _ => receive(&spool, &name),
            })?;
        }
        for (pairs, [ours, theirs]) in measured.iter_mut().zip([sent, received]) {
            pairs.push(vec![ours], vec![theirs]);
        }
    }
    Ok(measured)
}

/// Microseconds for each of [`MESSAGES`] calls.
fn each(mut work: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let began = now_ns();
    for _ in 0..MESSAGES {
        work()?;
    }
    Ok(micros(began, now_ns()) / MESSAGES as f64)
}

fn publish(spool: &Spool, to: &Name, text: &str) -> Outcome<()> {
    let envelope = ensemble_core::Envelope::new(to.clone(), text).from(to.clone());
    spool.publish(&envelope)?;
    Ok(())
}

fn receive_by_handle(inbox: &Mailbox) -> Outcome<()> {
    Ok(inbox.try_recv()?.ok_or("a message is missing")?.settle()?)
}

fn receive(spool: &Spool, mailbox: &Name) -> Outcome<()> {
    let delivery = spool.receive(mailbox, mailbox)?.ok_or("a message is missing")?;
    Ok(spool.settle(&delivery.lease)?)
}
