//! What the hooks of agents have left behind: their reports, and messages that were never handed over.

use std::path::Path;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::driver::HookEvidence;
use ensemble_core::env::Lease;
use ensemble_core::message::Name;
use ensemble_core::spool::{Spool, State};
use ensemble_team::roster::ReportedActivity;
use ensemble_tmux::session::{Activity, AgentSession, CarriedMessage, Sessions};
use serde_json::{Value, json};

/// Releases a message that a hook has received but not delivered to the agent. Does nothing if the hook did not
/// receive it or it has moved on since. Returns whether it was released.
pub fn give_back(spool: &Spool, agent: &Name, carried: &CarriedMessage) -> Result<bool> {
    let CarriedMessage { mailbox, id, epoch, .. } = carried;
    let state = spool.state(mailbox, id)?;
    let is_its = matches!(&state, Some(State::Acked { holder, epoch: at }) if holder == agent && at == epoch);
    if is_its {
        let (mailbox, id, holder) = (mailbox.clone(), id.clone(), agent.clone());
        spool.release(&Lease { mailbox, id, holder, epoch: *epoch }, Duration::ZERO)?;
    }
    Ok(is_its)
}

/// Releases what hooks of these agents have received but not delivered before they exited. Returns the mailboxes that
/// changed.
pub fn give_back_all<'a>(
    sessions: &Sessions,
    spool: &Spool,
    agents: impl IntoIterator<Item = &'a Name>,
) -> Vec<Name> {
    let mut changed = Vec::new();
    for agent in agents {
        let is_left = |session: &AgentSession| session.abandoned().next().is_some();
        if !sessions.get(agent).ok().flatten().is_some_and(|session| is_left(&session)) {
            continue;
        }
        let Ok(mut locked) = sessions.lock(agent) else { continue };
        for carried in locked.session.abandoned() {
            match give_back(spool, agent, carried) {
                Ok(true) => changed.push(carried.mailbox.clone()),
                Ok(false) => {}
                Err(error) => tracing::warn!(%agent, %error, "cannot give a message back"),
            }
        }
        locked.session.carrying.retain(|carried| !carried.is_abandoned());
        if let Err(error) = locked.write() {
            tracing::warn!(%agent, %error, "cannot write a session");
        }
    }
    changed
}

/// What an agent's hooks have reported last, while its process lives.
pub fn reported(sessions: &Sessions, agent: &Name) -> Option<ReportedActivity> {
    let session = sessions.get(agent).ok().flatten()?;
    session.lives().then(|| ReportedActivity::new(session.activity, session.detail.clone()))
}

/// Whether the agent is woken by its own waiter, so that nothing has to be typed.
pub fn is_woken_by_itself(sessions: &Sessions, agent: &Name) -> bool {
    sessions.waiter_lives(agent)
        && sessions.get(agent).ok().flatten().is_some_and(|session| session.lives())
}

/// Whether a waiter of the agent's session lives, and whether it is idle; `state` is the project's state directory.
pub fn hook_evidence(state: &Path, agent: &Name) -> HookEvidence {
    let sessions = Sessions::open(state);
    let Some(session) = sessions.get(agent).ok().flatten().filter(AgentSession::lives) else {
        return HookEvidence::default();
    };
    let is_idle = session.activity == Activity::Idle;
    HookEvidence { wakes: sessions.waiter_lives(agent), is_idle }
}

/// How many messages came by each way, for `status`; `typing` is the way of lines that were typed.
pub fn ways(sessions: &Sessions, agent: &Name, typing: &str, lines: u64) -> Value {
    let session = sessions.get(agent).ok().flatten();
    let mut ways = session.map_or_else(|| json!({}), |session| json!(session.ways));
    ways[typing] = lines.into();
    ways
}
