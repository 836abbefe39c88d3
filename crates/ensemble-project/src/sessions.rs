//! What the hooks of agents have left behind: their reports, and messages that were never handed over.

use std::path::Path;
use std::time::Duration;

use ensemble_core::driver::HookEvidence;
use ensemble_core::env::Lease;
use ensemble_core::message::Name;
use ensemble_core::spool::{Spool, State};
use ensemble_core::{Error, Result};
use ensemble_team::roster::ReportedActivity;
use ensemble_tmux::session::{Activity, AgentSession, CarriedMessage, Sessions};
use serde_json::{Value, json};

/// Releases a message that a hook has received but not delivered to the agent. Does nothing if the hook did not
/// receive it or it has moved on since. Returns whether it was released.
fn give_back(spool: &Spool, agent: &Name, carried: &CarriedMessage) -> Result<bool> {
    let CarriedMessage { mailbox, id, epoch, .. } = carried;
    let state = spool.state(mailbox, id)?;
    let is_its = matches!(&state, Some(State::Acked { holder, epoch: at }) if holder == agent && at == epoch);
    if is_its {
        let (mailbox, id, holder) = (mailbox.clone(), id.clone(), agent.clone());
        spool.release(&Lease { mailbox, id, holder, epoch: *epoch }, Duration::ZERO)?;
    }
    Ok(is_its)
}

/// Releases what hooks of an agent have received but not delivered before they exited. What cannot be released stays
/// noted, and is tried again. Returns the mailboxes that changed.
pub fn give_back_abandoned(spool: &Spool, agent: &Name, session: &mut AgentSession) -> Vec<Name> {
    let mut changed = Vec::new();
    session.carrying.retain(|carried| {
        if !carried.is_abandoned() {
            return true;
        }
        match give_back(spool, agent, carried) {
            Ok(is_its) => changed.extend(is_its.then(|| carried.mailbox.clone())),
            Err(Error::NoMailbox { .. }) => {}
            Err(error) => {
                tracing::warn!(%agent, %error, "cannot give a message back");
                return true;
            }
        }
        false
    });
    changed
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
        changed.extend(give_back_abandoned(spool, agent, &mut locked.session));
        if let Err(error) = locked.write() {
            tracing::warn!(%agent, %error, "cannot write a session");
        }
    }
    changed
}

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

#[cfg(test)]
mod tests {
    use ensemble_core::message::Envelope;
    use ensemble_core::spool::SpoolOptions;

    use super::*;

    #[test]
    fn what_cannot_be_given_back_yet_is_tried_again() {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default()).unwrap();
        let agent = Name::new("w1").unwrap();
        spool.add_mailbox(&agent, &Default::default()).unwrap();
        spool.publish(&Envelope::new(agent.clone(), "hi")).unwrap();
        let lease = spool.receive(&agent, &agent).unwrap().unwrap().lease;
        let carried = CarriedMessage::by_this_process(agent.clone(), lease.id, lease.epoch);
        // The same pid with another start is a process that has exited.
        let pid = std::os::unix::process::parent_id();
        let mut session = AgentSession::new(agent.clone());
        session.carrying = vec![CarriedMessage { pid, started: Some(1), ..carried }];
        let (new, away) = (spool.root().join("mailbox/w1/new"), home.path().join("away"));
        std::fs::rename(&new, &away).unwrap();
        std::fs::write(&new, "").unwrap();
        let later = Spool::open(spool.root(), SpoolOptions::default()).unwrap();
        assert!(give_back_abandoned(&later, &agent, &mut session).is_empty());
        assert_eq!(session.carrying.len(), 1, "the message is still held");
        std::fs::remove_file(&new).unwrap();
        std::fs::rename(&away, &new).unwrap();
        assert_eq!(give_back_abandoned(&later, &agent, &mut session), [agent]);
        assert!(session.carrying.is_empty());
    }
}
