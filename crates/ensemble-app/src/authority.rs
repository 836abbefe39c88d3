//! Which agents may stop others: one check for every verb and tool.

use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_team::authority::{ActorStanding, AuthorityAct, NotAuthorized};
use serde_json::json;

use crate::App;
use crate::failure::{Failure, Outcome};
use crate::worker::refuse_person;

/// Refuses the act if the asking agent has no authority for it. A person has all of it.
pub fn authorize(app: &App, act: AuthorityAct) -> Outcome {
    let Some(name) = app.agent()? else { return Ok(()) };
    let standing = standing(app, &name)?;
    let checked = app.project()?.config.authority.check(act, &standing);
    checked.map_err(|refused| refuse(app, &refused))
}

/// As [`authorize`], for asking `whom` to shut down in the name of `from`.
pub fn authorize_shutdown(app: &App, from: &Name, whom: &Name) -> Outcome {
    refuse_person(app.project()?, whom)?;
    let standing = standing(app, from)?;
    let checked = app.project()?.config.authority.check_shutdown(&standing, whom);
    checked.map_err(|refused| refuse(app, &refused))
}

/// As [`authorize`], for a change of the mailbox of `owner`. Every agent may change its own.
pub fn authorize_mailbox(app: &App, owner: &Name) -> Outcome {
    match app.agent()? {
        Some(agent) if agent != *owner => authorize(app, AuthorityAct::Mailbox),
        _ => Ok(()),
    }
}

fn standing(app: &App, name: &Name) -> Outcome<ActorStanding> {
    let (members, _) = app.project()?.roster().entries()?;
    let board = app.board().ok().and_then(|board| board.read().ok());
    Ok(ActorStanding::of(name, &members, board.as_ref()))
}

fn refuse(app: &App, refused: &NotAuthorized) -> Failure {
    let NotAuthorized { name, role, act, .. } = refused;
    if let Ok(recorder) = app.recorder() {
        let data = json!({ "agent": name, "role": role, "act": act.key() });
        recorder.record(types::AUTHORITY_REFUSED, name.as_str(), data);
    }
    let key = act.key();
    let hint =
        format!("a person may do it, or may add `{role}` there: `authority: {{{key}: [{role}]}}`");
    Failure::refused(refused.to_string()).with_hint(hint)
}
