//! What happens to servers, links and processes, one after the other: each kind once, then at random.

use ensemble_core::sim::SimRng;

use super::*;

const PAUSE_MAX_MS: u64 = 1_500;
/// How long a link is cut: shorter and longer than a lease.
const CUT_MS: (u64, u64) = (500, 8_000);
/// How much later everything arrives over a slow link.
const LATE_MS: (u64, u64) = (10, 120);

/// Dispatch runs at least for that long: to ask a worker of another host takes seconds, and is begun again by each.
const DISPATCH_SPARED: Duration = Duration::from_secs(45);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A server is killed, and started again after a while. The next one falls once it has caught up.
    Server,
    Cut,
    Slow,
    /// The server of the step queues is killed, and started again after a while.
    Database,
    Watcher,
    Verb,
    Supervisor,
    Agent,
    Dispatch,
}

const KINDS: [Kind; 9] = [
    Kind::Agent,
    Kind::Server,
    Kind::Verb,
    Kind::Database,
    Kind::Cut,
    Kind::Watcher,
    Kind::Dispatch,
    Kind::Slow,
    Kind::Supervisor,
];
const SERVERS_MIN: u64 = 3;

pub struct Chaos {
    random: SimRng,
    next: Instant,
    counts: BTreeMap<Kind, u64>,
    /// The server that is down, and until when.
    down: Option<(usize, Instant)>,
    /// Until when the server of the step queues is down.
    no_database: Option<Instant>,
    falls: usize,
    /// The host whose links are cut or slow, and until when.
    bad: Option<(usize, Instant)>,
    spared: Instant,
    at: usize,
}

impl Chaos {
    pub fn new(seed: u64) -> Self {
        Self {
            random: SimRng::new(seed),
            next: Instant::now(),
            counts: BTreeMap::new(),
            down: None,
            no_database: None,
            falls: 0,
            bad: None,
            spared: Instant::now(),
            at: 0,
        }
    }

    fn count(&self, kind: Kind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    pub fn has_done_all(&self) -> bool {
        KINDS.iter().all(|kind| self.count(*kind) > 0) && self.count(Kind::Server) >= SERVERS_MIN
    }

    pub fn act(
        &mut self,
        net: &Net,
        hosts: &[Host; 2],
        (crew, program): (&mut Crew<'_>, &mut Program<'_>),
    ) {
        self.mend(net, Instant::now());
        hosts.iter().for_each(Host::check_watcher);
        if Instant::now() < self.next {
            return;
        }
        let kind = KINDS[self.at];
        if self.strike(kind, net, hosts, (crew, program)) {
            *self.counts.entry(kind).or_default() += 1;
        }
        self.next = Instant::now() + Duration::from_millis(self.random.below(PAUSE_MAX_MS));
        // What could not be done yet is tried again, and all of it once before anything is done a second time.
        let missing = KINDS.iter().position(|kind| self.count(*kind) == 0);
        let chosen = || usize::try_from(self.random.below(KINDS.len() as u64)).unwrap();
        self.at = missing.unwrap_or_else(chosen);
    }

    fn strike(
        &mut self,
        kind: Kind,
        net: &Net,
        hosts: &[Host; 2],
        (crew, program): (&mut Crew<'_>, &mut Program<'_>),
    ) -> bool {
        let host = usize::try_from(self.random.below(2)).unwrap();
        match kind {
            Kind::Server => self.kill_server(net),
            Kind::Database if self.no_database.is_some() => false,
            Kind::Database => {
                net.database.kill();
                self.no_database = Some(self.until(CUT_MS));
                true
            }
            Kind::Cut | Kind::Slow if self.bad.is_some() => false,
            Kind::Cut => {
                net.cut(host);
                self.bad = Some((host, self.until(CUT_MS)));
                true
            }
            Kind::Slow => {
                net.slow(host, Duration::from_millis(self.between(LATE_MS)));
                self.bad = Some((host, self.until(CUT_MS)));
                true
            }
            Kind::Watcher => {
                hosts[host].replace_watcher();
                true
            }
            Kind::Verb => hosts[host].kill_verb(self.random.next_u64()),
            Kind::Supervisor => {
                crew.team.kill(self.random.next_u64(), self.random.percent(50));
                true
            }
            Kind::Agent => crew.kill_agent(),
            Kind::Dispatch if Instant::now() < self.spared => false,
            Kind::Dispatch => {
                self.spared = Instant::now() + DISPATCH_SPARED;
                program.kill()
            }
        }
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.random.below(most - least)
    }

    fn until(&mut self, range: (u64, u64)) -> Instant {
        Instant::now() + Duration::from_millis(self.between(range))
    }

    /// One at a time: two of three servers are needed.
    fn kill_server(&mut self, net: &Net) -> bool {
        if self.down.is_some() {
            return false;
        }
        net.cluster.servers[self.falls].kill();
        self.down = Some((self.falls, self.until(CUT_MS)));
        self.falls = (self.falls + 1) % net.cluster.servers.len();
        true
    }

    fn mend(&mut self, net: &Net, now: Instant) {
        if let Some((server, until)) = self.down
            && now >= until
        {
            net.cluster.servers[server].run();
            net.cluster.servers[server].answers();
            net.cluster.catches_up(server);
            self.down = None;
        }
        if self.no_database.is_some_and(|until| now >= until) {
            net.database.run();
            self.no_database = None;
        }
        if let Some((host, until)) = self.bad
            && now >= until
        {
            net.heal(host);
            self.bad = None;
        }
    }

    pub fn end(&mut self, net: &Net) {
        let later = Instant::now() + Duration::from_millis(CUT_MS.1);
        self.mend(net, later);
    }

    pub fn told(&self) -> String {
        let counts: Vec<String> =
            self.counts.iter().map(|(kind, count)| format!("{count} {kind:?}")).collect();
        format!("disturbed: {}", counts.join(", "))
    }
}
