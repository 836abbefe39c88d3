//! Measures the cost of one server with many agents. Then simulates a day's busiest minutes with
//! the costs of the same run. docs/evidence/measurements.md states the results.

use std::time::{Duration, Instant};

use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::Settings;
use ensemble_nats::{NatsOptions, NatsTransport};

use super::{Outcome, Server};

/// Connection of a host, and the mailboxes of its agents.
type Host = (NatsTransport, Vec<Name>);

fn setting(variable: &str, default: usize) -> Outcome<usize> {
    std::env::var(variable).map_or(Ok(default), |text| Ok(text.parse()?))
}

/// Microseconds of the server's processors for each operation, in a team of a certain size.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    /// Mailboxes of the team, each followed once.
    team: f64,
    /// Sending to a followed mailbox: one version.
    publish: f64,
    /// Receiving, settling, extending: one version.
    change: f64,
    /// Starting to follow a mailbox.
    follow: f64,
    /// Requesting news of a followed mailbox.
    look: f64,
}

impl Costs {
    /// Costs in a team of another size, on the line through this and another measurement.
    fn at(&self, other: &Self, team: f64) -> Self {
        let share = (team - self.team) / (other.team - self.team);
        let on_line = |one: f64, two: f64| (two - one).mul_add(share, one).max(0.0);
        Self {
            team,
            publish: on_line(self.publish, other.publish),
            change: on_line(self.change, other.change),
            follow: on_line(self.follow, other.follow),
            look: on_line(self.look, other.look),
        }
    }
}

/// Measures many agents in small teams, then a tenth of them in one large team, then simulates.
pub(super) fn scale(body: &str) -> Outcome<()> {
    let agents = setting("ENSEMBLE_BENCH_AGENTS", 10_000)?;
    let teams = setting("ENSEMBLE_BENCH_TEAMS", 100)?;
    let small = measure(agents, teams, body)?;
    let large = measure(agents / 10, 1, body)?;
    if follows_teams() {
        // The simulation below has hosts that follow each mailbox separately.
        return Ok(());
    }
    simulate(&small, &large, agents)
}

/// Whether each host follows its team over one consumer, as watchers do, or each mailbox
/// separately.
fn follows_teams() -> bool {
    std::env::var("ENSEMBLE_BENCH_FOLLOW").is_ok_and(|which| which == "team")
}

/// Sends a message to every agent; its host receives and settles it. A host is a connection that
/// follows its agents' mailboxes. Each team has one.
fn measure(agents: usize, teams: usize, body: &str) -> Outcome<Costs> {
    let server = Server::start()?;
    let mut all = Vec::new();
    for team in 0..teams {
        let mailboxes = (0..agents / teams)
            .map(|agent| Name::new(format!("agent-{agent}")))
            .collect::<Result<Vec<_>, _>>()?;
        let options = NatsOptions::new(server.url(), Name::new(format!("scale-{team}"))?)
            .with_patience(Duration::from_secs(120));
        let queue = NatsTransport::connect(&options)?;
        if follows_teams() {
            queue.follow_team()?;
        }
        all.push((queue, mailboxes));
    }
    println!("{agents} agents in {teams} teams, one server");
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
            return Err("no message sent".into());
        }
        Ok(())
    };
    let each = |what, act: &(dyn Fn(&NatsTransport, &Name) -> Outcome<()> + Sync)| {
        for_each(&server, &all, what, act)
    };
    each("mailboxes added", &|queue, name| Ok(queue.add_mailbox(name, &Settings::default())?))?;
    each("a message sent to each", &send)?;
    let first = each("followed, received and settled", &work)?;
    let followed = each("a message sent to each, all followed", &send)?;
    let worked = each("received and settled, all followed", &work)?;
    let looked = each("each asked for news, nothing there", &look)?;
    let idle = idle(&server)?;
    let own = |(cost, seconds): (f64, f64)| (cost - idle * seconds * 1e6 / agents as f64).max(0.0);
    Ok(Costs {
        team: (agents / teams) as f64,
        publish: own(followed),
        change: own(worked) / 2.0,
        follow: (first.0 - own(worked)).max(0.0),
        look: own(looked),
    })
}

/// Runs an operation for every agent, all hosts at once. Returns the server's processor time for
/// each, in microseconds, and the total time in seconds.
fn for_each(
    server: &Server,
    all: &[Host],
    what: &str,
    act: &(dyn Fn(&NatsTransport, &Name) -> Outcome<()> + Sync),
) -> Outcome<(f64, f64)> {
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
    Ok((each, seconds))
}

/// Share of a core that the idle server uses.
fn idle(server: &Server) -> Outcome<f64> {
    let before = server.cpu()?;
    let idle = Duration::from_secs(10);
    std::thread::sleep(idle);
    let share = (server.cpu()? - before) / idle.as_secs_f64();
    println!("idle, all followed: {:.1} % of a core, {}", share * 100.0, server.usage()?);
    Ok(share)
}

/// Seconds between two lease observations of a watcher over its team's mailboxes.
const LEASE_LOOK: f64 = 30.0;
/// Seconds between two extensions of a held message: half of a lease.
const EXTENSION: f64 = 150.0;
/// Range of seconds that an agent works on a task.
const TASK: (f64, f64) = (300.0, 1500.0);
/// Simulated seconds.
const SPAN: f64 = 3600.0;

/// One server operation, and the time of its request.
#[derive(Clone, Copy)]
struct Asked {
    at: f64,
    microseconds: f64,
}

/// Agents in teams work on a task, report, and get the next one. The server handles their requests
/// one after the other, at the measured costs. Every watcher follows and observes every mailbox of
/// its team. Random numbers come from a fixed seed.
fn simulate(small: &Costs, large: &Costs, agents: usize) -> Outcome<()> {
    println!("\nsimulated: {agents} agents, {SPAN:.0} s, one processor, costs as measured above");
    println!("teams of, hosts of a team      asked /s     busy   wait p99    longest   all anew");
    for (team, hosts) in
        [(20, 1), (20, 2), (50, 1), (50, 4), (100, 1), (100, 5), (1000, 1), (1000, 10)]
    {
        let costs = small.at(large, (team * hosts) as f64);
        let look = small.at(large, team as f64).look;
        let mut asked = Vec::new();
        let mut chance = Chance(7);
        for _ in 0..agents {
            let mut at = chance.between(0.0, TASK.1);
            while at < SPAN {
                // A task is sent, received and settled; then its report.
                let end = at + chance.between(TASK.0, TASK.1);
                let mut extended = at + EXTENSION;
                asked.push(Asked { at, microseconds: costs.publish + costs.change });
                while extended < end {
                    asked.push(Asked { at: extended, microseconds: costs.change });
                    extended += EXTENSION;
                }
                asked.push(Asked {
                    at: end,
                    microseconds: 3.0f64.mul_add(costs.change, costs.publish),
                });
                at = end;
            }
        }
        for _ in 0..agents / team * hosts {
            let mut at = chance.between(0.0, LEASE_LOOK);
            while at < SPAN {
                asked.push(Asked { at, microseconds: look * team as f64 });
                at += LEASE_LOOK;
            }
        }
        let anew = costs.follow * (agents * hosts) as f64 / 1e6;
        serve(&format!("{team:>8}, {hosts:>3}"), anew, asked)?;
    }
    Ok(())
}

/// Handles requests one after the other, in the order of arrival.
fn serve(what: &str, anew: f64, mut asked: Vec<Asked>) -> Outcome<()> {
    asked.sort_by(|a, b| a.at.total_cmp(&b.at));
    let (mut free, mut busy, mut waits) = (0.0_f64, 0.0, Vec::with_capacity(asked.len()));
    for Asked { at, microseconds } in &asked {
        let begin = free.max(*at);
        waits.push(begin - at);
        free = begin + microseconds / 1e6;
        busy += microseconds / 1e6;
    }
    waits.sort_by(f64::total_cmp);
    let longest = waits.last().copied().ok_or("no requests were simulated")?;
    let (rate, share) = (asked.len() as f64 / SPAN, busy / SPAN * 100.0);
    if share >= 100.0 {
        println!(
            "{what:<28} {rate:>9.0} {share:>6.0} %   too much for one processor {anew:>7.0} s"
        );
        return Ok(());
    }
    let late = waits[waits.len() * 99 / 100];
    println!(
        "{what:<28} {rate:>9.0} {share:>6.0} % {:>7.0} ms {:>7.0} ms {anew:>8.0} s",
        late * 1e3,
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
