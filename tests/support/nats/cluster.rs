//! Three servers that keep each message three times.

use std::path::Path;

use super::server::{Server, cluster_program, free_port};

const SERVERS: usize = 3;

pub struct Cluster {
    // Before their directory, so that they end first.
    pub servers: Vec<Server>,
    monitors: Vec<u16>,
    _home: tempfile::TempDir,
}

impl Cluster {
    /// Of the program for clusters: running, and every server has caught up. Clients know those servers whose
    /// addresses they were given. `None`, with the reason printed, without it.
    pub fn start() -> Option<Self> {
        cluster_program().map(|program| Self::by(&program))
    }

    fn by(program: &Path) -> Self {
        let home = tempfile::tempdir().unwrap();
        let routes: Vec<u16> = (0..SERVERS).map(|_| free_port()).collect();
        let monitors: Vec<u16> = (0..SERVERS).map(|_| free_port()).collect();
        let all: Vec<String> =
            routes.iter().map(|port| format!("nats-route://127.0.0.1:{port}")).collect();
        let start = |n: usize| {
            let home = home.path().join(n.to_string());
            std::fs::create_dir(&home).unwrap();
            let flags = [
                ("--name", format!("server-{n}")),
                ("--cluster_name", "ensemble-test".to_owned()),
                ("--cluster", format!("nats://127.0.0.1:{}", routes[n])),
                ("--routes", all.join(",")),
                ("--http_port", monitors[n].to_string()),
            ];
            let words = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
            let words: Vec<String> = words.chain(["--no_advertise".to_owned()]).collect();
            Server::by(program, &home, free_port(), &words)
        };
        let servers = (0..SERVERS).map(start).collect();
        let cluster = Self { servers, monitors, _home: home };
        (0..SERVERS).for_each(|n| cluster.catches_up(n));
        cluster
    }

    /// Waits until a server has everything that the others have.
    #[track_caller]
    pub fn catches_up(&self, n: usize) {
        self.servers[n].is_current(self.monitors[n]);
    }

    pub fn urls(&self) -> String {
        self.servers.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }
}
