//! For each host a link of its own to each server of the cluster.

use std::time::Duration;

use crate::nats_support::{Cluster, Link};

const HOSTS: usize = 2;

pub struct Net {
    // Before the servers, so that they end first.
    links: Vec<Vec<Link>>,
    pub cluster: Cluster,
}

impl Net {
    pub fn over(cluster: Cluster) -> Self {
        let to_all = |_| cluster.servers.iter().map(|server| Link::to(server.port)).collect();
        Self { links: (0..HOSTS).map(to_all).collect(), cluster }
    }

    /// What a host has in its `ensemble.yaml`.
    pub fn urls(&self, host: usize) -> String {
        let urls = self.links[host].iter().map(|link| format!("nats://127.0.0.1:{}", link.port));
        urls.collect::<Vec<_>>().join(",")
    }

    /// Nothing arrives at this host, or leaves it.
    pub fn cut(&self, host: usize) {
        self.links[host].iter().for_each(Link::cut);
    }

    /// Whatever comes and goes arrives so much later.
    pub fn slow(&self, host: usize, delay: Duration) {
        self.links[host].iter().for_each(|link| link.delay(delay));
    }

    pub fn heal(&self, host: usize) {
        self.links[host].iter().for_each(Link::heal);
    }
}
