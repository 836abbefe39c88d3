//! One server and many agents: what it costs, measured, and a simulation of a day's busiest minutes with
//! the costs of the same run. docs/scale.md tells what follows.

use std::time::{Duration, Instant};

use ensemble_core::message::{Envelope, Name};
use ensemble_core::nats::{NatsOptions, NatsTransport};
use ensemble_core::spool::Settings;

use super::{Outcome, Server};

/// A connection of a host, and the mailboxes of its agents.
type Host = (NatsTransport, Vec<Name>);

/// A number from the environment.
fn setting(variable: &str, default: usize) -> Outcome<usize> {
    std::env::var(variable).map_or(Ok(default), |text| Ok(text.parse()?))
}

/// What the server's processors spend on each, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    publish: f64,
    /// A receive and its settle.
    work: f64,
    /// Telling one more watcher of a version.
    tell: f64,
    /// Following a mailbox, with the reading of what waits.
    follow: f64,
    /// A host that follows a mailbox and asks for news.
    look: f64,
}

/// So many agents on so many hosts, each a connection that follows its agents' mailboxes: every
/// agent is sent a message, which its host receives and settles. Then the simulation.
pub(super) fn scale(server: &Server, body: &str) -> Outcome<()> {
    let agents = setting("ENSEMBLE_BENCH_AGENTS", 10_000)?;
    let hosts = setting("ENSEMBLE_BENCH_HOSTS", 20)?;
    let options =
        NatsOptions::new(server.url(), Name::new("scale")?).with_patience(Duration::from_secs(120));
    let mut all = Vec::new();
    for host in 0..hosts {
        let mailboxes = (0..agents / hosts)
            .map(|agent| Name::new(format!("agent-{host}-{agent}")))
            .collect::<Result<Vec<_>, _>>()?;
        all.push((NatsTransport::connect(&options)?, mailboxes));
    }
    println!("{agents} agents on {hosts} hosts, one server");
    let send = |queue: &NatsTransport, name: &Name| {
        queue.publish(&Envelope::new(name.clone(), body))?;
        Outcome::Ok(())
    };
    let work = |queue: &NatsTransport, name: &Name| {
        let delivery = queue.receive(name, name)?.ok_or("no message")?;
        queue.settle(&delivery.lease)?;
        Outcome::Ok(())
    };
    let look = |queue: &NatsTransport, name: &Name| {
        if queue.receive(name, name)?.is_some() {
            return Err("a message that nobody has sent".into());
        }
        Ok(())
    };
    let each = |what, act: &(dyn Fn(&NatsTransport, &Name) -> Outcome<()> + Sync)| {
        for_each(server, &all, what, act)
    };
    let mut costs = Costs::default();
    each("mailboxes added", &|queue, name| Ok(queue.add_mailbox(name, &Settings::default())?))?;
    costs.publish = each("a message sent to each", &send)?;
    let first = each("followed, received and settled", &work)?;
    costs.tell = (each("a message sent to each, all followed", &send)? - costs.publish).max(0.0);
    costs.work = each("received and settled, all followed", &work)?;
    costs.follow = (first - costs.work).max(0.0);
    costs.look = each("each asked for news, nothing there", &look)?;
    idle(server)?;
    simulate(&costs, agents)
}

/// Does something for every agent, all hosts at once. Returns what the server's processors have
/// spent on each, in microseconds.
fn for_each(
    server: &Server,
    all: &[Host],
    what: &str,
    act: &(dyn Fn(&NatsTransport, &Name) -> Outcome<()> + Sync),
) -> Outcome<f64> {
    let (start, cpu) = (Instant::now(), server.cpu()?);
    std::thread::scope(|scope| {
        let running: Vec<_> = all
            .iter()
            .map(|(queue, mailboxes)| {
                scope.spawn(move || mailboxes.iter().try_for_each(|name| act(queue, name)))
            })
            .collect();
        running.into_iter().try_for_each(|host| host.join().map_err(|_| "a host failed")?)
    })?;
    let agents: usize = all.iter().map(|(_, mailboxes)| mailboxes.len()).sum();
    let seconds = start.elapsed().as_secs_f64();
    let each = (server.cpu()? - cpu) / agents as f64 * 1e6;
    println!(
        "{what:<38} {seconds:>7.2} s  {:>6.0} /s  server: {each:>6.0} us each, {}",
        agents as f64 / seconds,
        server.usage()?
    );
    Ok(each)
}

fn idle(server: &Server) -> Outcome<()> {
    let before = server.cpu()?;
    let idle = Duration::from_secs(10);
    std::thread::sleep(idle);
    let share = (server.cpu()? - before) / idle.as_secs_f64();
    println!("idle, all followed: {:.1} % of a core, {}", share * 100.0, server.usage()?);
    Ok(())
}

/// Seconds between two looks of a watcher at the leases of every mailbox of its team.
const LEASE_LOOK: f64 = 30.0;
/// Seconds between two extensions of a message that is worked on: half of a lease.
const EXTENSION: f64 = 150.0;
/// Seconds that an agent works on a task: any time between these.
const TASK: (f64, f64) = (300.0, 1500.0);
/// Simulated seconds.
const SPAN: f64 = 3600.0;

/// One thing that the server does, and when it is asked for it.
#[derive(Clone, Copy)]
struct Asked {
    at: f64,
    microseconds: f64,
}

/// Agents in teams work on a task, report, and get the next one; the server does what they ask one
/// thing after the other, at the costs measured. Chance follows from a fixed seed.
fn simulate(costs: &Costs, agents: usize) -> Outcome<()> {
    println!("\nsimulated: {SPAN:.0} s, one processor of the server, costs as measured above");
    println!(
        "{:<34} {:>9} {:>7} {:>10} {:>10}",
        "agents x teams x hosts a team", "asked /s", "busy", "wait p99", "longest"
    );
    for (teams, hosts) in
        [(agents.div_ceil(20), 1), (agents.div_ceil(100), 5), (agents.div_ceil(1000), 10), (1, 100)]
    {
        let team = agents / teams;
        // Receiving and settling were measured with one watcher, sending with none.
        let told = costs.tell * hosts as f64;
        let publish = costs.publish + told;
        let change = costs.work / 2.0 - costs.tell + told;
        let mut asked = Vec::new();
        let mut chance = Chance(7);
        for _ in 0..agents {
            let mut at = chance.between(0.0, TASK.1);
            while at < SPAN {
                // A task is sent, received and settled; then its report.
                let end = at + chance.between(TASK.0, TASK.1);
                let mut extended = at + EXTENSION;
                asked.push(Asked { at, microseconds: publish + change });
                while extended < end {
                    asked.push(Asked { at: extended, microseconds: change });
                    extended += EXTENSION;
                }
                asked.push(Asked { at: end, microseconds: publish + 3.0 * change });
                at = end;
            }
        }
        // Every watcher looks at every mailbox of its team.
        for _ in 0..teams * hosts {
            let mut at = chance.between(0.0, LEASE_LOOK);
            while at < SPAN {
                asked.push(Asked { at, microseconds: costs.look * team as f64 });
                at += LEASE_LOOK;
            }
        }
        serve(&format!("{agents} x {teams} x {hosts}"), asked)?;
    }
    let all_again = costs.follow * agents as f64 / 1e6;
    println!(
        "after a restart of the server, all mailboxes followed anew by one host each: {all_again:.1} s of a processor"
    );
    Ok(())
}

/// One after the other, in the order of asking.
fn serve(what: &str, mut asked: Vec<Asked>) -> Outcome<()> {
    asked.sort_by(|a, b| a.at.total_cmp(&b.at));
    let (mut free, mut busy, mut waits) = (0.0_f64, 0.0, Vec::with_capacity(asked.len()));
    for Asked { at, microseconds } in &asked {
        let begin = free.max(*at);
        waits.push(begin - at);
        free = begin + microseconds / 1e6;
        busy += microseconds / 1e6;
    }
    waits.sort_by(f64::total_cmp);
    let longest = waits.last().copied().ok_or("nobody has asked")?;
    println!(
        "{what:<34} {:>9.0} {:>5.0} % {:>7.0} ms {:>7.0} ms",
        asked.len() as f64 / SPAN,
        busy / SPAN * 100.0,
        waits[waits.len() * 99 / 100] * 1e3,
        longest * 1e3
    );
    Ok(())
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        (high - low).mul_add(share, low)
    }
}
