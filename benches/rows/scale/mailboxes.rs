//! Mailboxes with few messages each.

use std::time::Duration;

use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::Spool;

use super::messages::commands;
use super::project::{Project, timed};
use crate::support::peak::Usage;
use crate::support::points::{At, Points};
use crate::support::{Outcome, Spread, go_on, now_ns, size, sizes};

const SIZES: [usize; 3] = [100, 1_000, 10_000];
const MESSAGES_EACH: usize = 3;
const ROUNDS: usize = 300;
/// Pages of one mailbox: seven directories, a lock and the messages, and as much again for names
/// and inodes.
const MAILBOX_BYTES: u64 = 128 * 1024;
/// Time to observe an idle watcher; it includes one of its periodic scans.
const IDLE_SECONDS: usize = 31;
/// Time after which the watcher has finished its one-time work after the start.
const SETTLING: Duration = Duration::from_secs(3);
const COUNT_MAX: u64 = 1_000;
const CHART: &str = "mailboxes";

pub fn run(points: &mut Points) -> Outcome<()> {
    let sizes = sizes("ENSEMBLE_BENCH_SCALE_MAILBOXES", &SIZES)?;
    let most = *sizes.last().ok_or("no sizes")? as u64;
    let project = Project::new(most * MAILBOX_BYTES)?;
    let mut mailboxes = Vec::new();
    for size in sizes {
        add(&project, &mut mailboxes, size)?;
        let at = &mut points.at(CHART, size, "mailboxes");
        library(&project, &mailboxes, at)?;
        commands(&project, &project.spool()?, &mailboxes[0], at)?;
        idle(&project, at)?;
    }
    points.print(CHART, &format!("mailboxes ({}, durability process)", project.place));
    Ok(())
}

fn add(project: &Project, mailboxes: &mut Vec<Name>, count: usize) -> Outcome<()> {
    let spool = project.spool()?;
    for number in mailboxes.len()..count {
        go_on()?;
        let mailbox = project.mailbox(&format!("worker-{number}"))?;
        for _ in 0..MESSAGES_EACH {
            send(&spool, &mailbox)?;
        }
        mailboxes.push(mailbox);
    }
    Ok(())
}

fn send(spool: &Spool, mailbox: &Name) -> Outcome<()> {
    spool.publish(&Envelope::new(mailbox.clone(), "task 7 is done\n"))?;
    Ok(())
}

/// Publishes to and receives from any mailbox, in a process that knows all of them. Also measures
/// the status of all.
fn library(project: &Project, mailboxes: &[Name], at: &mut At<'_>) -> Outcome<()> {
    let spool = project.spool()?;
    let all = || -> Outcome<()> {
        for name in spool.mailboxes()? {
            spool.glance(&name, COUNT_MAX)?;
        }
        Ok(())
    };
    let mut look = Vec::new();
    for _ in 0..3 {
        go_on()?;
        look.push(timed(all)?.0);
    }
    let mut spread = Spread::new();
    let (mut publish, mut receive) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        go_on()?;
        let drawn = usize::try_from(spread.between(0, mailboxes.len() as u64 - 1))?;
        let mailbox = &mailboxes[drawn];
        publish.push(timed(|| send(&spool, mailbox))?.0);
        let take = || {
            let delivery = spool.receive(mailbox, mailbox)?.ok_or("a message is missing")?;
            Ok(spool.settle(&delivery.lease)?)
        };
        receive.push(timed(take)?.0);
    }
    at.add("publish to any", "us", &publish)?;
    at.add("receive + settle from any", "us", &receive)?;
    at.add("status of all mailboxes", "us", &look)
}

/// Measures the watcher's start and its idle cost.
fn idle(project: &Project, at: &mut At<'_>) -> Outcome<()> {
    let watcher = project.watcher(at)?;
    std::thread::sleep(SETTLING);
    let (began, before) = (now_ns(), Usage::of(watcher.id())?);
    for _ in 0..size("ENSEMBLE_BENCH_SCALE_IDLE_SECONDS", IDLE_SECONDS) {
        go_on()?;
        std::thread::sleep(Duration::from_secs(1));
    }
    let (elapsed_ns, after) = ((now_ns() - began) as f64, Usage::of(watcher.id())?);
    let cpu = (after.cpu_ns - before.cpu_ns) as f64 * 100.0 / elapsed_ns;
    let wake_ups = (after.wake_ups - before.wake_ups) as f64 * 60e9 / elapsed_ns;
    at.add("idle watcher", "% CPU", &[cpu])?;
    at.add("idle watcher wake-ups", "a minute", &[wake_ups])?;
    at.add_memory("idle watcher", after.resident_kib)
}
