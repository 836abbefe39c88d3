use ensemble_app::overview::{FRESH, describe_agent, gather};
use ensemble_app::text::{one_line, plural, with_members};
use ensemble_core::message::Name;
use ensemble_project::Project;
use ensemble_project::attention::{Kind, WatcherState, join_by_cause};
use ensemble_project::overview::{
    COUNT_MAX, MailboxOverview, Overview, StateSource, WatcherView, has_old_config, since_millis,
};
use serde_json::{Value, json};

use crate::context::{Context, Outcome};
use crate::output::WARNING;
use crate::printing::overview::{calm_agents, cut, note_look, print_needs, print_rows, watch};

/// Show what needs you and what each agent does
///
/// Answers to you come first, then problems, each with the command to run; then the other agents, and
/// mailboxes that no agent reads. Healthy parts are not listed.
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
            let lasting = lasting(context.project()?, &overview);
            Ok((overview, lasting))
        };
        watch(context, look, |overview| print(context, overview))
    }
}

fn print(context: &Context, overview: &Overview) -> Outcome {
    if context.out.is_json() {
        return print_json(context, overview);
    }
    print_needs(context, overview)?;
    print_rows(context, overview, &calm_agents(overview), false)?;
    print_watcher(context, &overview.watcher)
}

/// All but ages.
fn lasting(project: &Project, overview: &Overview) -> Value {
    let agents = overview.agents.iter().map(|agent| describe_agent(project, agent));
    let mailboxes = overview.mailboxes.iter().map(|MailboxOverview { name, glance, .. }| {
        json!([name, glance.waiting, glance.delayed, glance.held, glance.dead])
    });
    let (agents, mailboxes): (Vec<Value>, Vec<Value>) = (agents.collect(), mailboxes.collect());
    let hangs = matches!(overview.watcher.state(), WatcherState::Hangs(_));
    let watcher = [overview.watcher.runs(), hangs];
    json!([agents, mailboxes, overview.needs, overview.ladders, watcher, overview.away])
}

fn print_json(context: &Context, overview: &Overview) -> Outcome {
    for MailboxOverview { name, glance, overflow, .. } in &overview.mailboxes {
        let mut object = with_members(json!({ "mailbox": name }), glance);
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

const OLD_CONFIG: &str = "ensemble.yaml has changed since the watcher started: restart it (in a team, `ensemble up` does)";

fn print_watcher(context: &Context, watcher: &WatcherView) -> Outcome {
    let (out, project) = (&context.out, context.project()?);
    let warn = |text: &str| out.line(out.paint(WARNING, format!("  {}", one_line(text))));
    if watcher.runs() && has_old_config(project) {
        warn(OLD_CONFIG)?;
    }
    if project.is_shared()?
        && let Ok(waiting @ 1..) = project.open_outbox().and_then(|outbox| outbox.waiting())
    {
        warn(&format!("{} to send, in the outbox of this host", plural(waiting, "message")))?;
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
        warn(&plural(count, noun))?;
    }
    let of_servers = status["servers"]["troubles"].as_array().into_iter().flatten();
    of_servers.filter_map(Value::as_str).try_for_each(warn)?;
    if let Some(why) = status["degraded"].as_str() {
        warn(&format!("the watcher polls: {why}"))?;
    }
    Ok(())
}

const TEXT_CHARS_MAX: usize = 40;

/// Print what needs you in a few words, for the status line of tmux
///
/// Nothing is printed while nothing needs you. tmux asks every `status-interval` seconds; a rule of `notify` with
/// `tmux: true` redraws the line at once.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: tmux set -g status-right '#(ensemble --queue ~/project/queue tmux-status)'"
)]
pub(crate) struct TmuxLine {}

impl TmuxLine {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let overview = gather(context, StateSource::Watcher)?;
        if context.out.is_json() {
            let object = serde_json::json!({
                "urgent": overview.urgent(), "text": urgent_text(&overview), "needs": overview.needs,
            });
            return context.out.object(&object);
        }
        match urgent_text(&overview) {
            Some(text) => {
                // tmux takes `#` as the start of a style.
                let text = one_line(&text).replace('#', "##");
                context.out.line(format!("#[fg=red,bold]{text}#[default]"))
            }
            None => Ok(()),
        }
    }
}

fn urgent_text(overview: &Overview) -> Option<String> {
    let worst = join_by_cause(&overview.needs).into_iter().find(|need| need.need.is_urgent())?;
    Some(format!("! {} {}", overview.urgent(), cut(&worst.text, TEXT_CHARS_MAX)))
}
