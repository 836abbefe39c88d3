//! `ensemble status`: what needs a person, and everything else at a glance, however deep the backlog.

use ensemble_app::failure::Outcome;
use ensemble_app::overview::{FRESH, gather};
use ensemble_app::text::{age, inline, one_line, plural};
use ensemble_core::driver::LadderFile;
use ensemble_core::message::Name;
use ensemble_project::attention::{Kind, WatcherState};
use ensemble_project::overview::{
    COUNT_MAX, MailboxView, Overview, WatcherView, since_millis, watcher_remedy,
};
use serde_json::{Value, json};

use crate::context::Context;
use crate::output::{BAD, FAINT, GOOD, WARNING};
use crate::printing::overview::{note_look, print_agents, print_mailboxes, print_needs, watch};

/// How many open ladders are listed.
const LADDERS_SHOWN_MAX: usize = 10;

/// Show what needs you, the agents, the mailboxes and the watcher
///
/// What needs a person comes first, the worst on top, each with the command that helps. Then the agents as they are seen
/// now, and the mailboxes that have messages.
///
/// With `--json`, one object a mailbox, and then one about the watcher, the blackboard, the steps, what agents hold,
/// and `needs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Show it again whenever something has changed, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        note_look(context);
        if !self.watch {
            return print(context, &gather(context, FRESH)?);
        }
        let look = || {
            let overview = gather(context, FRESH)?;
            let lasting = lasting(&overview);
            Ok((overview, lasting))
        };
        watch(context, look, |overview| print(context, overview))
    }
}

fn print(context: &Context, overview: &Overview) -> Outcome {
    if context.out.is_json() {
        return print_json(context, overview);
    }
    print_heading(context, overview)?;
    print_needs(context, overview)?;
    if !overview.agents.is_empty() {
        context.out.line("")?;
        print_agents(context, overview, false)?;
    }
    context.out.line("")?;
    print_mailboxes(context, overview)?;
    print_ladders(context, &overview.ladders)?;
    print_watcher(context, &overview.watcher)
}

/// All but ages.
fn lasting(overview: &Overview) -> Value {
    let agents = overview.agents.iter().map(|agent| {
        json!([
            agent.row.member.name,
            agent.presence.state,
            agent.presence.why,
            agent.holds,
            agent.unread
        ])
    });
    let mailboxes = overview.mailboxes.iter().map(|MailboxView { name, glance, .. }| {
        json!([name, glance.waiting, glance.delayed, glance.held, glance.dead])
    });
    let (agents, mailboxes): (Vec<Value>, Vec<Value>) = (agents.collect(), mailboxes.collect());
    let hangs = matches!(overview.watcher.state(), WatcherState::Hangs(_));
    let watcher = [overview.watcher.runs(), hangs];
    json!([agents, mailboxes, overview.needs, overview.ladders, watcher, overview.away])
}

/// The project, its agents, and whether a watcher looks after them.
fn print_heading(context: &Context, overview: &Overview) -> Outcome {
    let out = &context.out;
    let root = context.project()?.root();
    let name = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy();
    let agents = plural(overview.agents.len() as u64, "agent");
    let watcher = match overview.watcher.state() {
        WatcherState::Runs => format!("watcher {}", out.paint(GOOD, "running")),
        WatcherState::Hangs(silent) => {
            format!("watcher {} (silent for {})", out.paint(BAD, "HANGS"), age(silent))
        }
        WatcherState::Missing => {
            let remedy = watcher_remedy(context.project()?);
            format!("watcher {}: {remedy}", out.paint(WARNING, "not running"))
        }
    };
    let away = overview.away.as_ref().map(|_| format!("{} · ", out.paint(BAD, "SERVERS AWAY")));
    let away = away.unwrap_or_default();
    out.line(format!("{} · {away}{agents} · {watcher}", one_line(&name)))
}

fn print_json(context: &Context, overview: &Overview) -> Outcome {
    for MailboxView { name, glance, overflow, .. } in &overview.mailboxes {
        let mut object = json!({ "mailbox": name });
        for (key, value) in
            serde_json::to_value(glance).unwrap_or_default().as_object().into_iter().flatten()
        {
            object[key] = value.clone();
        }
        let oldest = glance.oldest_millis.map(since_millis);
        object["oldest_seconds"] = json!(oldest.map(|age| age.as_secs()));
        object["overflow"] = json!(overflow);
        object["counted_up_to"] = json!(COUNT_MAX);
        context.out.object(&object)?;
    }
    let Overview { watcher, troubles, ladders, steps, holds, needs, away, .. } = overview;
    context.out.object(&json!({
        "watcher": {
            "running": watcher.holder.is_some(),
            "holder": watcher.holder,
            "hangs": matches!(watcher.state(), WatcherState::Hangs(_)),
            "silent_seconds": watcher.silent.map(|silent| silent.as_secs()),
            "status": watcher.status(),
            "overdue": overdue(overview),
        },
        "board": { "troubles": troubles },
        "ladders": ladders,
        "steps": { "standing": steps },
        "holds": holds,
        "needs": needs,
        "servers_away": away,
    }))
}

/// The idle agents whose mail has waited for too long.
fn overdue(overview: &Overview) -> Vec<Value> {
    let needs = overview.needs.iter().filter(|need| need.need == Kind::Undelivered);
    let row = |agent: &Name| {
        let known = overview.agents.iter().find(|known| known.row.member.name == *agent);
        let mailbox = known.map_or_else(
            || overview.watcher.notified().into_iter().find(|(name, _)| name == agent)?.1.into(),
            |known| Some(known.row.member.mailbox.clone()),
        )?;
        let view = overview.mailboxes.iter().find(|view| view.name == mailbox)?;
        let waited = view.waited()?.as_secs();
        let why = overview.watcher.why_not_notified(agent);
        Some(json!({ "agent": agent, "mailbox": mailbox, "waited_seconds": waited, "why": why }))
    };
    needs.filter_map(|need| row(need.agent.as_ref()?)).collect()
}

fn print_ladders(context: &Context, ladders: &[LadderFile]) -> Outcome {
    if ladders.is_empty() {
        return Ok(());
    }
    context.out.line("")?;
    let row = |file: &LadderFile| {
        let state = match &file.waits_for {
            Some(worker) => format!("waits: {worker}"),
            None => file.state.word().to_owned(),
        };
        let (task, mailbox) = (one_line(&file.task), file.mailbox.to_string());
        vec![task, mailbox, state, file.phase.to_string(), file.attempt.to_string()]
    };
    let shown = ladders.iter().take(LADDERS_SHOWN_MAX).map(row).collect();
    context.out.table(&["not acked", "mailbox", "ladder", "phase", "attempt"], shown)?;
    if let Some(more) = ladders.len().checked_sub(LADDERS_SHOWN_MAX).filter(|more| *more > 0) {
        context.out.line(format!("and {more} more"))?;
    }
    Ok(())
}

/// Who watches, and what it could not do.
fn print_watcher(context: &Context, watcher: &WatcherView) -> Outcome {
    let out = &context.out;
    if let Some(holder) = &watcher.holder {
        let state = match watcher.state() {
            WatcherState::Hangs(_) => out.paint(BAD, "hangs"),
            _ => out.paint(GOOD, "running"),
        };
        out.line(format!("watcher  {state}, {}", one_line(holder)))?;
    }
    let Some(status) = watcher.status().filter(|_| watcher.runs()) else { return Ok(()) };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let boxes = status["boxes"].as_array().map_or(&[][..], Vec::as_slice);
    let pending: u64 = boxes.iter().map(|it| number(&it["pending"])).sum();
    let unmatched: u64 = boxes.iter().map(|it| number(&it["unmatched"])).sum();
    let troubles = [
        (number(&status["rejected"]), "rejected file"),
        (pending, "undelivered file"),
        (unmatched, "unmatched file"),
        (number(&status["alarms"]["untold"]), "unsent alarm"),
    ];
    for (count, noun) in troubles.into_iter().filter(|(count, _)| *count > 0) {
        out.line(out.paint(WARNING, format!("  {}", plural(count, noun))))?;
    }
    if let Some(why) = status["degraded"].as_str() {
        out.line(out.paint(WARNING, format!("  it polls: {}", one_line(why))))?;
    }
    if !status["servers"].is_null() {
        out.line(format!("  servers: {}", inline(&status["servers"])))?;
    }
    out.line(out.paint(FAINT, "  `ensemble status --json` has all that it says"))
}
