//! Mailboxes with few messages each.

use std::time::Duration;

use ensemble_core::message::Name;

use super::messages::{commands, send, take};
use super::project::{Project, timed};
use crate::support::peak::{Usage, UsedShare};
use crate::support::points::{At, Points};
use crate::support::{Outcome, Spread, go_on, rest, size, sizes};

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
        receive.push(timed(|| take(&spool, mailbox))?.0);
    }
    at.add("publish to any", "us", &publish)?;
    at.add("receive + settle from any", "us", &receive)?;
    at.add("status of all mailboxes", "us", &look)
}

/// Measures the watcher's start and its idle cost.
fn idle(project: &Project, at: &mut At<'_>) -> Outcome<()> {
    let watcher = project.watcher(at)?;
    std::thread::sleep(SETTLING);
    let seconds = size("ENSEMBLE_BENCH_SCALE_IDLE_SECONDS", IDLE_SECONDS);
    let share = UsedShare::during(watcher.id(), || rest(seconds))?;
    at.add("idle watcher", "% CPU", &[share.cpu_percent])?;
    at.add("idle watcher wake-ups", "a minute", &[share.wake_ups_a_minute])?;
    at.add_memory("idle watcher", Usage::of(watcher.id())?.resident_kib)
}
