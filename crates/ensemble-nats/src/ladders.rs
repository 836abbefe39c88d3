//! Which host runs the ladders of a mailbox: a claim in the team's bucket, renewed by compare-and-set.
//!
//! ```text
//! the claim of a mailbox                 a host that asks
//! none                                   claims it
//! its own                                runs the ladders, and renews the claim every 30 s
//! another's, for a weaker reason         takes it over
//! another's, the same for two minutes    takes it over: that host is silent
//! another's                              leaves the ladders to that host
//! ```
//!
//! [`ClaimReason`] lists the reasons, weakest first. *A crash* leaves the claim, which the next
//! watcher of that host continues with. *Silence* is measured by each host on its own monotonic clock, from when it has
//! first seen the version. The claim names the ladders that have ended without an ack, so that the host that has handed
//! out the task and keeps no ladder of it learns of that. For up to two seconds two hosts may both run a ladder: the one that has lost its claim asks
//! again at its next look.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::versions::PutOutcome;
use super::{NatsTransport, lock};
use ensemble_core::Result;
use ensemble_core::driver::LadderFile;
use ensemble_core::env::{Monotonic, boot_id};
use ensemble_core::message::Name;

const BEAT_INTERVAL: Duration = Duration::from_secs(30);
/// After this time without a new version, a claim is that of a host that has ended.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Most tries of one claim, each of which another host was quicker at.
const TRIES_MAX: usize = 4;

/// Why a host runs the ladders of a mailbox; the stronger reason counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimReason {
    /// It sees a task that waits.
    Sees,
    /// An agent of the host has handed out the latest task.
    HandsOut,
    /// The agent that reads the mailbox is in this host's roster or panes.
    Reads,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClaimContent {
    host: String,
    reason: ClaimReason,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    given_up: Vec<LadderFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimDecision {
    Write(ClaimReason),
    Keep,
    Leave,
}

/// The claims of one host, as this process knows them. Share it between threads by reference.
#[derive(Debug)]
pub struct LadderClaims {
    host: String,
    /// The version of each claim, and when this process has first seen it.
    seen: Mutex<BTreeMap<Name, (u64, Monotonic)>>,
}

impl LadderClaims {
    /// The claims of this host for the project with this state directory. A machine that has booted since is another
    /// host.
    pub fn new(state: &std::path::Path) -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let state = std::fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
        let boot: String = boot_id().chars().take(8).collect();
        let host = format!("{}:{boot}:{}", name.trim(), state.display());
        Self { host, seen: Mutex::default() }
    }

    /// Whether this host runs the ladders of a mailbox: claims them if it may. `given_up` are those that it has
    /// escalated.
    pub fn hold(
        &self,
        queue: &NatsTransport,
        mailbox: &Name,
        reason: ClaimReason,
        given_up: &[LadderFile],
    ) -> Result<bool> {
        for _ in 0..TRIES_MAX {
            let (claim, revision) = queue.claim(mailbox)?;
            let age = self.age(mailbox, revision, queue.monotonic());
            let reason = match decide(claim.as_ref(), &self.host, reason, age) {
                ClaimDecision::Keep => match claim {
                    Some(claim) if claim.given_up != given_up => claim.reason,
                    _ => return Ok(true),
                },
                ClaimDecision::Leave => return Ok(false),
                ClaimDecision::Write(reason) => reason,
            };
            let (host, given_up) = (self.host.clone(), given_up.to_vec());
            let claim = ClaimContent { host, reason, given_up };
            let content = serde_json::to_vec(&claim).unwrap_or_default();
            let written = queue.write_key(queue.subjects.ladders(mailbox), revision, content)?;
            if let PutOutcome::Done(revision) = written {
                self.age(mailbox, revision, queue.monotonic());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The escalated ladders of the host that runs those of a mailbox; none if that is this host.
    pub fn given_up(&self, queue: &NatsTransport, mailbox: &Name) -> Result<Vec<LadderFile>> {
        let (claim, _) = queue.claim(mailbox)?;
        let other = claim.filter(|claim| claim.host != self.host);
        Ok(other.map_or_else(Vec::new, |claim| claim.given_up))
    }

    /// For how long this process has seen this version of a claim.
    fn age(&self, mailbox: &Name, revision: u64, now: Monotonic) -> Duration {
        let mut seen = lock(&self.seen);
        let (known, since) = seen.entry(mailbox.clone()).or_insert((revision, now));
        if *known != revision {
            (*known, *since) = (revision, now);
        }
        now.since(*since)
    }
}

fn decide(
    claim: Option<&ClaimContent>,
    host: &str,
    reason: ClaimReason,
    age: Duration,
) -> ClaimDecision {
    let Some(claim) = claim else { return ClaimDecision::Write(reason) };
    if claim.host == host {
        // The host that has handed out a task keeps the claim afterwards, even if the reader has left.
        let handed_out = claim.reason.min(ClaimReason::HandsOut);
        let reason = reason.max(handed_out);
        return match reason == claim.reason && age < BEAT_INTERVAL {
            true => ClaimDecision::Keep,
            false => ClaimDecision::Write(reason),
        };
    }
    let is_later = reason == ClaimReason::HandsOut && claim.reason == ClaimReason::HandsOut;
    match reason > claim.reason || is_later || age >= SILENCE_MAX {
        true => ClaimDecision::Write(reason),
        false => ClaimDecision::Leave,
    }
}

impl NatsTransport {
    /// The claim of a mailbox's ladders and its version, 0 if there was none. One that cannot be read counts as none.
    fn claim(&self, mailbox: &Name) -> Result<(Option<ClaimContent>, u64)> {
        let found = self.last_key("read a claim", self.subjects.ladders(mailbox))?;
        Ok(found.map_or((None, 0), |found| {
            (serde_json::from_slice(&found.payload).ok(), found.sequence)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::ClaimReason::{HandsOut, Reads, Sees};
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn decided(of: &str, claimed: ClaimReason, asked: ClaimReason, age: Duration) -> ClaimDecision {
        let claim = ClaimContent { host: of.to_owned(), reason: claimed, given_up: Vec::new() };
        decide(Some(&claim), "here", asked, age)
    }

    #[test]
    fn the_stronger_reason_takes_a_claim_over() {
        assert_eq!(decide(None, "here", Sees, NOW), ClaimDecision::Write(Sees));
        let all = [Sees, HandsOut, Reads];
        for (claimed, asked) in all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b))) {
            let is_taken = asked > claimed || (asked, claimed) == (HandsOut, HandsOut);
            let wanted = if is_taken { ClaimDecision::Write(asked) } else { ClaimDecision::Leave };
            assert_eq!(decided("there", claimed, asked, NOW), wanted, "{claimed:?} {asked:?}");
        }
    }

    #[test]
    fn a_silent_host_loses_its_claim() {
        let short = SILENCE_MAX - Duration::from_secs(1);
        assert_eq!(decided("there", Reads, Sees, short), ClaimDecision::Leave);
        assert_eq!(decided("there", Reads, Sees, SILENCE_MAX), ClaimDecision::Write(Sees));
    }

    #[test]
    fn a_host_keeps_and_renews_its_own_claim() {
        assert_eq!(decided("here", HandsOut, Sees, NOW), ClaimDecision::Keep, "it has handed out");
        assert_eq!(decided("here", Sees, HandsOut, NOW), ClaimDecision::Write(HandsOut));
        assert_eq!(
            decided("here", Reads, Sees, NOW),
            ClaimDecision::Write(HandsOut),
            "no reader now"
        );
        assert_eq!(decided("here", Reads, Reads, BEAT_INTERVAL), ClaimDecision::Write(Reads));
    }
}
