//! Messages that wait in one mailbox.

use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::Spool;

use super::project::{Project, timed};
use crate::support::peak::Usage;
use crate::support::points::{At, Points};
use crate::support::{Outcome, go_on, sizes};

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const ROUNDS: usize = 300;
/// Processes that each receive a first message.
const FIRST: usize = 3;
/// Memory of one message: a page for its text, and its name and inode.
const MESSAGE_BYTES: u64 = 6 * 1024;
/// Largest count that `status` reports.
const COUNT_MAX: u64 = 1_000;
/// Interval between two checks for Ctrl-C.
const CHUNK: usize = 1_000;
const CHART: &str = "messages";

pub fn run(points: &mut Points) -> Outcome<()> {
    let sizes = sizes("ENSEMBLE_BENCH_SCALE_MESSAGES", &SIZES)?;
    let most = *sizes.last().ok_or("no sizes")? as u64;
    let project = Project::new(most * MESSAGE_BYTES)?;
    let mailbox = project.mailbox("worker-1")?;
    let mut filled = 0;
    for size in sizes {
        fill(&project.spool()?, &mailbox, size.saturating_sub(filled))?;
        filled = size;
        let at = &mut points.at(CHART, size, "messages");
        library(&project, &mailbox, at)?;
        commands(&project, &project.spool()?, &mailbox, at)?;
        project.watcher(at)?;
    }
    points
        .print(CHART, &format!("messages in one mailbox ({}, durability process)", project.place));
    Ok(())
}

fn fill(spool: &Spool, mailbox: &Name, count: usize) -> Outcome<()> {
    for number in 0..count {
        if number.is_multiple_of(CHUNK) {
            go_on()?;
        }
        send(spool, mailbox)?;
    }
    Ok(())
}

pub fn send(spool: &Spool, mailbox: &Name) -> Outcome<()> {
    spool.publish(&Envelope::new(mailbox.clone(), "task 7 is done\n"))?;
    Ok(())
}

pub fn take(spool: &Spool, mailbox: &Name) -> Outcome<()> {
    let delivery = spool.receive(mailbox, mailbox)?.ok_or("a message is missing")?;
    Ok(spool.settle(&delivery.lease)?)
}

/// Publishes one message and receives one, in a warm process. Then measures a process's first
/// receive.
fn library(project: &Project, mailbox: &Name, at: &mut At<'_>) -> Outcome<()> {
    let mut first = Vec::new();
    for _ in 0..FIRST {
        let (micros, spool) = timed(|| {
            let spool = project.spool()?;
            take(&spool, mailbox)?;
            Ok(spool)
        })?;
        first.push(micros);
        send(&spool, mailbox)?;
    }
    let spool = project.spool()?;
    let before = Usage::of(std::process::id())?.resident_kib;
    send(&spool, mailbox)?;
    take(&spool, mailbox)?;
    let after = Usage::of(std::process::id())?.resident_kib;
    let (mut publish, mut receive, mut status) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        go_on()?;
        publish.push(timed(|| send(&spool, mailbox))?.0);
        receive.push(timed(|| take(&spool, mailbox))?.0);
        status.push(timed(|| Ok(spool.glance(mailbox, COUNT_MAX)?))?.0);
    }
    at.add("publish", "us", &publish)?;
    at.add("receive + settle", "us", &receive)?;
    at.add("status of the mailbox", "us", &status)?;
    at.add("first receive of a process", "us", &first)?;
    at.add_memory("known backlog of a process", after.saturating_sub(before))
}

/// Measures the commands, one process each.
pub fn commands(project: &Project, spool: &Spool, mailbox: &Name, at: &mut At<'_>) -> Outcome<()> {
    let mailbox_name = mailbox.as_str();
    let recv = ["recv", "--as", mailbox_name];
    let backlog = project.queue().join("mailbox").join(mailbox_name).join("backlog");
    let one_more = || send(spool, mailbox);
    let forget = || {
        one_more()?;
        match std::fs::remove_file(&backlog) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    };
    project.command(at, "recv that lists", &recv, forget)?;
    project.command(at, "recv", &recv, one_more)?;
    project.command(at, "status", &["status"], || Ok(()))?;
    // The next command receives this message.
    let send = ["send", "--to", mailbox_name, "--as", "lead", "-m", "done"];
    project.command(at, "send", &send, || take(spool, mailbox))
}
