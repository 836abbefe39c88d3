//! Agents that have met a usage limit keep what they hold until it has passed.
//!
//! A limit is a state and not a failure: starting the agent anew, or giving its task to another
//! with the same account, only meets it again. So while an agent's pane says that it is limited,
//! the leases it holds are extended in its name, and nothing else is done. Its pane is looked at as
//! often as the leases are; what it says decides, the reset time it shows is passed on to people.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::env::{Lease, Monotonic};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::Name;
use ensemble_core::proto::ack::PARK_MAX;
use ensemble_core::provider::{AgentState, Diagnosis};
use ensemble_core::spool::Spool;
use serde_json::json;

use crate::run::ACTOR;

struct Parked {
    since: Monotonic,
    /// In the agent's own words.
    resets_at: Option<String>,
    /// It was limited for so long that its leases run out now.
    given_up: bool,
}

/// The agents that are limited and hold something.
#[derive(Default)]
pub(crate) struct Parking {
    parked: BTreeMap<Name, Parked>,
}

impl Parking {
    /// The pane of an agent that holds something was looked at.
    pub(crate) fn looked(
        &mut self,
        now: Monotonic,
        agent: &Name,
        diagnosis: Option<&Diagnosis>,
        held: Vec<(Lease, Duration)>,
        spool: &Spool,
        recorder: &dyn Recorder,
    ) {
        // Who holds nothing has nothing to keep.
        if held.is_empty() {
            return;
        }
        // Nobody could look: as it was.
        let Some(diagnosis) = diagnosis else { return };
        if diagnosis.state != AgentState::RateLimited {
            if let Some(parked) = self.parked.remove(agent) {
                let seconds = now.since(parked.since).as_secs();
                let data = json!({ "agent": agent, "parked_seconds": seconds });
                recorder.record("worker.resumed", ACTOR, data);
            }
            return;
        }
        let resets_at = diagnosis.resets_at.clone();
        let parked = self.parked.entry(agent.clone()).or_insert_with(|| {
            let data = json!({ "agent": agent, "resets_at": resets_at, "held": held.len() });
            recorder.record("worker.parked", ACTOR, data);
            Parked { since: now, resets_at: None, given_up: false }
        });
        parked.resets_at = resets_at;
        if now.since(parked.since) < PARK_MAX {
            extend(&held, spool);
        } else if !std::mem::replace(&mut parked.given_up, true) {
            recorder.record("worker.given_up", ACTOR, json!({ "agent": agent }));
        }
    }

    /// Who holds nothing any more is of no interest, limited or not.
    pub(crate) fn keep(&mut self, holders: &BTreeSet<Name>) {
        self.parked.retain(|agent, _| holders.contains(agent));
    }

    /// For `status`.
    pub(crate) fn summary(&self, now: Monotonic) -> Vec<serde_json::Value> {
        let row = |(agent, parked): (&Name, &Parked)| {
            json!({
                "agent": agent,
                "why": AgentState::RateLimited.word(),
                "resets_at": parked.resets_at,
                "parked_seconds": now.since(parked.since).as_secs(),
                "given_up": parked.given_up,
            })
        };
        self.parked.iter().map(row).collect()
    }
}

fn extend(held: &[(Lease, Duration)], spool: &Spool) {
    for (lease, duration) in held {
        match spool.extend(lease, *duration) {
            // It has finished or given it back meanwhile.
            Ok(()) | Err(Error::LeaseLost { .. }) => {}
            Err(error) => tracing::warn!(%error, %lease, "cannot extend a parked agent's lease"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use ensemble_core::message::Envelope;
    use ensemble_core::pane::PaneState;
    use ensemble_core::provider::{Profiles, diagnose};
    use ensemble_core::spool::Options;

    use super::*;

    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);

    impl Recorder for Log {
        fn record(&self, kind: &str, _actor: &str, _data: serde_json::Value) {
            self.0.lock().unwrap().push(kind.to_owned());
        }
    }

    fn seen(screen: &str) -> Option<Diagnosis> {
        let mut pane = PaneState::default();
        (pane.bound, pane.command) = (true, "claude".to_owned());
        pane.screen = screen.lines().map(str::to_owned).collect();
        let claude = Profiles::embedded().unwrap().get("claude").unwrap();
        Some(diagnose(&claude, &pane))
    }

    fn sequence(spool: &Spool, agent: &Name) -> u64 {
        spool.observe(agent).unwrap()[0].sequence
    }

    #[test]
    fn a_limited_agent_keeps_what_it_holds_for_at_most_six_hours() {
        let home = tempfile::tempdir().unwrap();
        let root: &Path = &home.path().join("queue");
        let spool = Spool::create(root, Options::default()).unwrap();
        let agent = Name::new("w1").unwrap();
        spool.add_mailbox(&agent, &Default::default()).unwrap();
        spool.publish(&Envelope::new(agent.clone(), "work\n")).unwrap();
        let delivery = spool.receive(&agent, &agent).unwrap().unwrap();
        let held = || vec![(delivery.lease.clone(), delivery.lease_duration)];
        let (mut parking, log) = (Parking::default(), Log::default());
        let mut look = |seconds, screen: Option<Diagnosis>| {
            let now = Monotonic::from_duration(Duration::from_secs(seconds));
            parking.looked(now, &agent, screen.as_ref(), held(), &spool, &log);
            parking.summary(now)
        };
        let limit = "Claude usage limit reached. Your limit resets at 3pm (Europe/Berlin)\n❯ ";
        let idle = "❯ \n─────\n  ? for shortcuts";
        assert_eq!(look(0, seen(idle)).len(), 0);
        assert_eq!(sequence(&spool, &agent), 0, "an idle agent's lease is its own affair");
        let summary = look(30, seen(limit));
        assert_eq!(summary[0]["resets_at"], "3pm (Europe/Berlin)");
        look(60, seen(limit));
        look(90, None);
        assert_eq!(sequence(&spool, &agent), 2);
        look(30 + PARK_MAX.as_secs(), seen(limit));
        assert_eq!(sequence(&spool, &agent), 2);
        assert_eq!(look(40 + PARK_MAX.as_secs(), seen(limit))[0]["given_up"], true);
        assert_eq!(look(50 + PARK_MAX.as_secs(), seen(idle)).len(), 0);
        let told = log.0.lock().unwrap();
        assert_eq!(*told, ["worker.parked", "worker.given_up", "worker.resumed"]);
    }
}
