//! Extends the leases of agents that are seen working, and returns what they hold as soon as they have exited.
//!
//! ```text
//! the holder is                                    evidence                         mail, board claim, step
//! working                                          its own word (hooks, session),   lease extended, up to
//!                                                  or a busy screen                 `leases.extend_max`      
//! a script or shell that runs another program      process table                    the same
//! supervised, with its agent running               lock and record of the           mail, steps: the same; its
//!                                                  supervisor                       supervisor keeps the board
//! at a usage limit                                 screen                           `rate_limit_hold` decides
//! waiting for the approval of a plan               plan gate                        `requests::keep_gated` decides
//! blocked by a dialog, permission, login           screen                           expires: a person has that long
//! idle, starting, with a draft, unknown, unseen    -                                runs out
//! gone: pane gone, dead or reused, bare shell,     pane and process table, seen     returned at once, with the
//! crashed; supervisor dead                         twice; the supervisor's lock     attempt counted
//! ```
//!
//! An extension looks like the holder's own, so every observer sees a live holder. It is written after half of a
//! lease, and recorded as `message.extended`. `lease.kept` is recorded once for each lease, and `lease.kept_enough`
//! when the ceiling is reached. After that the lease expires unless the holder extends it.
//!
//! Only what the agent held when it was seen to be gone is returned. A message received under its name later has an
//! ordinary lease, because a person may act for an agent that has exited. A message that kills its agent each time
//! becomes a dead letter after `attempts_max` attempts. The alarm `agent_gone` notifies the conductor.
//!
//! State: `.ensemble/leases/kept.json` has how long each lease was kept in this boot, so that a watcher that restarts
//! grants no new ceiling. Only the watcher writes it, after each look that extended a lease, so *a crash* loses at
//! most one look. After *a crash* between noticing an exit and returning the work, the leases expire.

mod gone;
mod kept;

use std::collections::BTreeMap;

use ensemble_core::agent::AgentState;
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_team::roster::PaneObservation;

pub(crate) use gone::{GoneAgent, GoneAgents, GoneVerdict, held_by, return_all};
pub(crate) use kept::{KeptLeases, keep_mail, keep_steps};

/// For how long evidence of work counts: the next look is due after half of it.
const EVIDENCE_AGE_MAX: std::time::Duration =
    std::time::Duration::from_secs(2 * LOOK_INTERVAL.as_secs());

/// The provider of shells and shell scripts, whose other programs are their work.
const SHELL: &str = "shell";

pub(crate) type WorkingAgents = BTreeMap<Name, String>;

#[derive(Debug, Default)]
pub(crate) struct WorkEvidence {
    seen: BTreeMap<Name, (Monotonic, String)>,
}

impl WorkEvidence {
    /// A pane was observed. An observation that failed changes nothing; old evidence stops to count by itself.
    /// Returns whether the agent is seen working, and was not before.
    pub(crate) fn observed(
        &mut self,
        now: Monotonic,
        agent: &Name,
        observation: &PaneObservation,
        provider: &str,
    ) -> bool {
        if *observation == PaneObservation::Unseen {
            return false;
        }
        match of_work(observation, provider) {
            Some(evidence) => self.seen.insert(agent.clone(), (now, evidence)).is_none(),
            None => {
                self.seen.remove(agent);
                false
            }
        }
    }

    /// The supervisor of an agent lives: evidence that its agent runs, if it does.
    pub(crate) fn supervised(&mut self, now: Monotonic, agent: &Name, evidence: Option<&str>) {
        match evidence {
            Some(evidence) => drop(self.seen.insert(agent.clone(), (now, evidence.to_owned()))),
            None => drop(self.seen.remove(agent)),
        }
    }

    pub(crate) fn working(&mut self, now: Monotonic) -> WorkingAgents {
        self.seen.retain(|_, (at, _)| now.since(*at) <= EVIDENCE_AGE_MAX);
        self.seen.iter().map(|(agent, (_, evidence))| (agent.clone(), evidence.clone())).collect()
    }
}

/// What shows that the agent of a pane is at work; `None` if nothing does.
fn of_work(observation: &PaneObservation, provider: &str) -> Option<String> {
    let seen = observation.diagnosis()?;
    if provider == SHELL {
        return seen.runs().map(|program| format!("runs {program}"));
    }
    // Another program than the agent's in its pane says nothing of the agent. The screen of a
    // program without a profile says nothing at all.
    let state = match seen.state {
        AgentState::Draft => seen.beneath,
        other => other,
    };
    let what = || seen.evidence.first().map_or("busy", |evidence| evidence.what.as_str());
    (state == AgentState::Busy).then(|| format!("busy ({})", what()))
}

#[cfg(test)]
mod tests;
