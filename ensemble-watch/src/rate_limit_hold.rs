//! Agents that have met a usage limit keep what they hold until it has passed.
//!
//! A limit is a state and not a failure: after a restart, or with another agent on the same account, the task would
//! only run into it again. So while an agent's pane shows a limit, its leases are extended in its name, and nothing
//! else is done. The pane is inspected as often as the leases are. If it says when the limit ends, the agent is
//! parked until then, even if its screen was cleared or cannot be read, unless it is seen working or has exited. If
//! it does not say so, the only way to find out is to retry: the watcher types a hint at intervals
//! ([`RateLimitHold::looked`] says when).
//!
//! Where the mailboxes are on servers, the thread that follows them extends the leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::agent::AgentState;
use ensemble_core::broker::Broker;
use ensemble_core::env::{Lease, Monotonic};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::proto::ack::PARK_MAX;
use ensemble_project::status::ACTOR;
use ensemble_tmux::nudge::LimitProbe;
use ensemble_tmux::provider::Judgement;
use serde_json::json;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockMoment {
    pub(crate) now: Monotonic,
    pub(crate) wall: Timestamp,
}

struct LimitHold {
    since: Monotonic,
    /// In the agent's own words.
    resets_at: Option<String>,
    until: Option<Timestamp>,
    /// When it is tried, if the limit does not say when it ends.
    probe: LimitProbe,
    /// It has been limited too long, so its leases are no longer extended.
    given_up: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PaneLook {
    pub(crate) is_kept: bool,
    pub(crate) is_tried: bool,
}

#[derive(Default)]
pub(crate) struct RateLimitHold {
    holds: BTreeMap<Name, LimitHold>,
}

impl RateLimitHold {
    /// The pane of an agent that holds this many messages was inspected.
    pub(crate) fn looked(
        &mut self,
        ClockMoment { now, wall }: ClockMoment,
        agent: &Name,
        diagnosis: Option<&Judgement>,
        held: usize,
        recorder: &dyn Recorder,
    ) -> PaneLook {
        // An agent that holds nothing has nothing to keep.
        if held == 0 {
            return PaneLook::default();
        }
        let until = self.holds.get(agent).and_then(|hold| hold.until);
        let is_before_reset = until.is_some_and(|until| wall < until);
        let seen = match diagnosis {
            Some(diagnosis) if diagnosis.state == AgentState::RateLimited => Some(diagnosis),
            // The pane could not be observed, or does not show the limit: the hold stays.
            None if !is_before_reset => return PaneLook::default(),
            None => None,
            Some(diagnosis) if is_before_reset && may_hide_a_limit(diagnosis.state) => None,
            Some(_) => {
                self.resume(now, agent, recorder);
                return PaneLook::default();
            }
        };
        let (resets_at, until) = match seen {
            Some(diagnosis) => (diagnosis.resets_at.clone(), diagnosis.limited_until),
            None => (self.holds.get(agent).and_then(|hold| hold.resets_at.clone()), until),
        };
        let hold = self.holds.entry(agent.clone()).or_insert_with(|| {
            let data = json!({
                "agent": agent, "resets_at": resets_at, "until": until, "held": held,
            });
            recorder.record(types::WORKER_PARKED, ACTOR, data);
            let probe = LimitProbe::first(now);
            LimitHold { since: now, resets_at: None, until: None, probe, given_up: false }
        });
        (hold.resets_at, hold.until) = (resets_at, until);
        let is_kept = now.since(hold.since) < PARK_MAX;
        if !is_kept && !std::mem::replace(&mut hold.given_up, true) {
            recorder.record(types::WORKER_GIVEN_UP, ACTOR, json!({ "agent": agent }));
        }
        let is_tried = hold.until.is_none() && hold.probe.is_due(now);
        if is_tried {
            hold.probe = hold.probe.submitted(now);
        }
        PaneLook { is_kept, is_tried }
    }

    fn resume(&mut self, now: Monotonic, agent: &Name, recorder: &dyn Recorder) {
        if let Some(hold) = self.holds.remove(agent) {
            let seconds = now.since(hold.since).as_secs();
            let data = json!({ "agent": agent, "parked_seconds": seconds });
            recorder.record(types::WORKER_RESUMED, ACTOR, data);
        }
    }

    /// An agent that holds nothing any more is of no interest, limited or not.
    pub(crate) fn retain_holders(&mut self, holders: &BTreeSet<Name>) {
        self.holds.retain(|agent, _| holders.contains(agent));
    }

    pub(crate) fn summary(&self, now: Monotonic) -> Vec<serde_json::Value> {
        let row = |(agent, hold): (&Name, &LimitHold)| {
            json!({
                "agent": agent,
                "why": AgentState::RateLimited.word(),
                "resets_at": hold.resets_at,
                "until": hold.until,
                "parked_seconds": now.since(hold.since).as_secs(),
                "given_up": hold.given_up,
            })
        };
        self.holds.iter().map(row).collect()
    }
}

/// Whether an agent that looks like this may have met a limit that its screen does not show.
const fn may_hide_a_limit(state: AgentState) -> bool {
    use AgentState::{Draft, Ready, Starting, Unknown};
    matches!(state, Ready | Draft | Starting | Unknown)
}

pub(crate) fn extend<'l>(
    held: impl IntoIterator<Item = &'l (Lease, Duration)>,
    queue: &dyn Broker,
) {
    for (lease, duration) in held {
        match queue.extend(lease, *duration) {
            // It has finished or given it back in the meantime.
            Ok(()) | Err(Error::LeaseLost { .. }) => {}
            Err(error) => tracing::warn!(%error, %lease, "cannot extend a parked agent's lease"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ensemble_core::message::Envelope;
    use ensemble_core::pane::PaneState;
    use ensemble_core::sim::SimRecorder;
    use ensemble_core::spool::{Spool, SpoolOptions};
    use ensemble_tmux::provider::{DiagnosisContext, Profiles, Zones, diagnose_with};
    use serde_json::Value;

    use super::*;

    fn seen(screen: &str, now: Timestamp, zones: &Zones) -> Judgement {
        let mut pane = PaneState::default();
        (pane.bound, pane.command) = (true, "claude".to_owned());
        pane.screen = screen.lines().map(str::to_owned).collect();
        let claude = Profiles::embedded().unwrap().get("claude").unwrap();
        let context = DiagnosisContext { time: Some((now, zones)), ..DiagnosisContext::default() };
        diagnose_with(&claude, &pane, &context)
    }

    #[test]
    fn a_limit_without_an_end_is_tried_and_one_with_an_end_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default()).unwrap();
        let agent = Name::new("w1").unwrap();
        spool.add_mailbox(&agent, &Default::default()).unwrap();
        spool.publish(&Envelope::new(agent.clone(), "work\n")).unwrap();
        let delivery = spool.receive(&agent, &agent).unwrap().unwrap();
        let held = [(delivery.lease.clone(), delivery.lease_duration)];
        let (start, zones) = ("2026-11-22T13:00:00Z".parse::<Timestamp>().unwrap(), Zones::utc());
        let tried = |screen: &str| {
            let (mut rate_limit_hold, log) = (RateLimitHold::default(), SimRecorder::default());
            let looks = (0..40_u64).map(|look| look * 30).filter(|seconds| {
                let since = Duration::from_secs(*seconds);
                let moment =
                    ClockMoment { now: Monotonic::from_duration(since), wall: start.plus(since) };
                let seen = seen(screen, moment.wall, &zones);
                let look = rate_limit_hold.looked(moment, &agent, Some(&seen), 1, &log);
                extend(held.iter().filter(|_| look.is_kept), &spool);
                look.is_tried
            });
            looks.collect::<Vec<u64>>()
        };
        let error = "● API Error: Request rejected (429)\n─────\n❯ \n─────\n  ? for shortcuts";
        assert_eq!(tried(error), [60, 180, 420, 900]);
        assert_eq!(sequence(&spool, &agent), 40, "its lease is extended all the while");
        let timed = "Claude usage limit reached. Your limit resets at 3pm (UTC)\n❯ ";
        assert_eq!(tried(timed), [0; 0]);
    }

    fn sequence(spool: &Spool, agent: &Name) -> u64 {
        spool.observe(agent).unwrap()[0].sequence
    }

    #[test]
    fn a_limited_agent_keeps_what_it_holds_until_the_reset_or_for_six_hours() {
        let home = tempfile::tempdir().unwrap();
        let root: &Path = &home.path().join("queue");
        let spool = Spool::create(root, SpoolOptions::default()).unwrap();
        let agent = Name::new("w1").unwrap();
        spool.add_mailbox(&agent, &Default::default()).unwrap();
        spool.publish(&Envelope::new(agent.clone(), "work\n")).unwrap();
        let delivery = spool.receive(&agent, &agent).unwrap().unwrap();
        let held = [(delivery.lease.clone(), delivery.lease_duration)];
        let (mut rate_limit_hold, log) = (RateLimitHold::default(), SimRecorder::default());
        let (start, zones) = ("2026-11-22T13:00:00Z".parse::<Timestamp>().unwrap(), Zones::utc());
        let mut look = |seconds, screen: Option<&str>| {
            let since = Duration::from_secs(seconds);
            let moment =
                ClockMoment { now: Monotonic::from_duration(since), wall: start.plus(since) };
            let seen = screen.map(|screen| seen(screen, moment.wall, &zones));
            let look = rate_limit_hold.looked(moment, &agent, seen.as_ref(), 1, &log);
            extend(held.iter().filter(|_| look.is_kept), &spool);
            rate_limit_hold.summary(moment.now)
        };
        let limit = "Claude usage limit reached. Your limit resets at teatime\n❯ ";
        let timed = limit.replace("teatime", "3pm (UTC)");
        let idle = "❯ \n─────\n  ? for shortcuts";
        let busy = "❯ \n─────\n  esc to interrupt";
        let (limit, timed) = (Some(limit), Some(timed.as_str()));
        let (idle, busy) = (Some(idle), Some(busy));
        assert_eq!(look(0, idle).len(), 0);
        assert_eq!(sequence(&spool, &agent), 0, "an idle agent's lease is its own affair");
        let summary = look(30, limit);
        assert_eq!(
            (&summary[0]["resets_at"], &summary[0]["until"]),
            (&"teatime".into(), &Value::Null)
        );
        look(60, limit);
        look(90, None);
        assert_eq!(sequence(&spool, &agent), 2);
        assert_eq!(look(120, idle).len(), 0);
        // From 13:00 to 15:00 are 7200 seconds.
        assert_eq!(look(150, timed)[0]["until"], "2026-11-22T15:00:00.000Z");
        assert_eq!(look(180, None).len(), 1);
        assert_eq!(look(7_199, idle)[0]["resets_at"], "3pm (UTC)", "its screen was cleared");
        assert_eq!(sequence(&spool, &agent), 5, "its lease is held until the reset");
        assert_eq!(look(7_200, idle).len(), 0);
        assert_eq!(look(150, timed).len(), 1);
        assert_eq!(look(180, busy).len(), 0, "what works has no limit");
        assert_eq!(sequence(&spool, &agent), 6);
        look(30, limit);
        look(30 + PARK_MAX.as_secs(), limit);
        assert_eq!(sequence(&spool, &agent), 7);
        assert_eq!(look(40 + PARK_MAX.as_secs(), limit)[0]["given_up"], true);
        assert_eq!(look(50 + PARK_MAX.as_secs(), idle).len(), 0);
        let (parked, resumed) = ("worker.parked", "worker.resumed");
        let given_up = "worker.given_up";
        assert_eq!(
            log.kinds(),
            [parked, resumed, parked, resumed, parked, resumed, parked, given_up, resumed]
        );
    }
}
