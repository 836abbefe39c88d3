//! For each host its own link to each server of the cluster, and to the server of the step queues.

use crate::nats_support::Link;

use super::*;

const HOSTS: usize = 2;

pub struct Net {
    // Before the servers, so that they end first. The last one of a host leads to the database.
    links: Vec<Vec<Link>>,
    pub cluster: Cluster,
    pub database: Database,
}

impl Net {
    pub fn over(cluster: Cluster, database: Database) -> Self {
        let ports: Vec<u16> = cluster.servers.iter().map(|server| server.port).collect();
        let to_all = |_| ports.iter().chain([&database.port]).map(|port| Link::to(*port)).collect();
        Self { links: (0..HOSTS).map(to_all).collect(), cluster, database }
    }

    /// What a host has in its `ensemble.yaml`.
    pub fn urls(&self, host: usize) -> String {
        let links = self.links[host].iter().take(self.cluster.servers.len());
        let urls = links.map(|link| format!("nats://127.0.0.1:{}", link.port));
        urls.collect::<Vec<_>>().join(",")
    }

    pub fn steps(&self, host: usize) -> String {
        self.database.address_at(self.links[host][self.cluster.servers.len()].port)
    }

    pub fn cut(&self, host: usize) {
        self.links[host].iter().for_each(Link::cut);
    }

    pub fn slow(&self, host: usize, delay: Duration) {
        self.links[host].iter().for_each(|link| link.delay(delay));
    }

    pub fn heal(&self, host: usize) {
        self.links[host].iter().for_each(Link::heal);
    }
}
