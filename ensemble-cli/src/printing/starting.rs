//! The output of verbs that start agents: `up`, `agent start`, `agent restart`, `join` and `adopt`.

use ensemble_app::starting::{
    StartedAgents, StartedSession, ended, ended_at_once, waiting_for_person,
};
use ensemble_project::team::{HowBrought, LaunchedAgent};
use serde_json::json;

use crate::context::{Context, Failure, Outcome};

pub(crate) fn print_session(context: &Context, session: &StartedSession) -> Outcome {
    let word = |started| if started { "started" } else { "running" };
    let answer = json!({
        "session": session.name, "socket": session.socket,
        "session_state": word(session.started), "watcher_state": word(session.watcher_started),
    });
    context.out.print_answer(
        &answer,
        format!(
            "session {}, {} on {}; watcher {}",
            session.name,
            word(session.started),
            session.socket,
            word(session.watcher_started)
        ),
    )
}

/// Says what was done; an error if an agent is not up after it.
pub(crate) fn print_brought(context: &Context, brought: &[LaunchedAgent]) -> Outcome {
    print_observed(context, brought, StartedAgents::observe(context.project()?, brought)?)
}

pub(crate) fn print_observed(
    context: &Context,
    brought: &[LaunchedAgent],
    mut starts: StartedAgents<'_>,
) -> Outcome {
    let (out, project) = (&context.out, context.project()?);
    let (mut rows, mut failed, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    if out.is_json() {
        starts.observe_on(|_, _| Ok(()))?;
    }
    for LaunchedAgent { member, how, .. } in brought {
        let binding = member.binding.as_ref();
        let ended = ended(member)?;
        let mut said = word(*how);
        match (how, &ended) {
            (HowBrought::Lost, _) => {
                failed.push(format!("the pane from which {} has joined is gone", member.name));
                lost.push(member.name.to_string());
            }
            (HowBrought::Leaving, _) => {
                failed.push(format!("{} is being shut down", member.name));
            }
            (_, Some(signs)) => {
                failed.push(ended_at_once(member, signs.dead_status));
                said = "ended";
            }
            (_, None) => {}
        }
        if out.is_json() {
            out.object(&json!({
                "agent": member.name, "how": how, "ended": ended.is_some(),
                "generation": member.generation, "role": member.role, "provider": member.provider,
                "mailbox": member.mailbox, "pane": binding.map(|b| &b.id), "pid": binding.map(|b| b.pid),
                "waits_for_person": starts.dialogs.get(&member.name),
                "still_starting": starts.unknown.iter().any(|it| it.name == member.name),
            }))?;
            continue;
        }
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        rows.push(vec![
            member.name.to_string(),
            said.to_owned(),
            member.role.to_string(),
            member.provider.clone(),
            or_dash(binding.map(|b| b.id.clone())),
            or_dash(binding.map(|b| b.pid.to_string())),
        ]);
    }
    if !out.is_json() {
        out.table(&["agent", "", "role", "provider", "pane", "pid"], rows)?;
        for (agent, dialog) in &starts.dialogs {
            out.line(waiting_for_person(project, agent, dialog))?;
        }
        late(context, &mut starts, &mut failed)?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => {
            out.flush()?;
            let hint = match lost.first() {
                Some(name) => format!("run `ensemble agent join {name}` in the pane where it runs"),
                None => "`ensemble team` shows all; `ensemble agent attach NAME` a pane".into(),
            };
            Err(Failure::refused(failed.join("; ")).with_hint(hint))
        }
    }
}

/// Says what those agents show whose screen was unknown when the table was printed. An agent that
/// has ended since is added to `failed`.
fn late(context: &Context, starts: &mut StartedAgents<'_>, failed: &mut Vec<String>) -> Outcome {
    let (out, project) = (&context.out, context.project()?);
    out.flush()?;
    let watched = starts.unknown.clone();
    starts.observe_on(|agent, dialog| {
        out.line(waiting_for_person(project, agent, dialog))?;
        out.flush()
    })?;
    for member in &starts.unknown {
        out.line(format!("{} is still starting; `ensemble team` shows its state", member.name))?;
    }
    for member in watched {
        let text = ended(member)?.map(|signs| ended_at_once(member, signs.dead_status));
        failed.extend(text.filter(|text| !failed.contains(text)));
    }
    Ok(())
}

const fn word(how: HowBrought) -> &'static str {
    match how {
        HowBrought::Running => "running",
        HowBrought::Started => "started",
        HowBrought::Restarted => "restarted",
        HowBrought::Adopted => "adopted",
        HowBrought::Joined => "joined",
        HowBrought::Leaving => "leaving",
        HowBrought::Lost => "lost",
    }
}
