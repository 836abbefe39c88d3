//! The sections of the page beside its timelines: what needs a person, what went wrong, who waited, what it took.

use std::fmt::Write as _;
use std::time::Duration;

use super::latency::Latency;
use super::page::{SessionPresent, cell, clock, escaped, grouped, shown, took};
use super::story::SessionStory;
use super::trouble::{SessionTrouble, TroubleWeight};
use super::work::TaskStage;

const TROUBLES_MAX: usize = 100;
const WAITS_MAX: usize = 20;
const WAIT_MIN: Duration = Duration::from_secs(1);

pub(super) fn needs(out: &mut String, present: Option<&SessionPresent>) {
    let Some(present) = present else { return };
    out.push_str("<section id=\"needs\">\n<h2>Who needs you now</h2>\n");
    if present.needs.is_empty() {
        out.push_str("<p class=\"fine\">Nothing needs you.</p>\n</section>\n");
        return;
    }
    out.push_str("<ol class=\"troubles\">\n");
    for need in &present.needs {
        let class = if need.need.is_urgent() { "bad" } else { "odd" };
        let since = need.since.map_or_else(String::new, |at| took(present.at.since(at)));
        let _ = writeln!(
            out,
            "<li class=\"{class}\"><span class=\"when\">{since}</span><div>{}<small>{}</small></div></li>",
            escaped(&need.text),
            commands(&need.help),
        );
    }
    out.push_str("</ol>\n</section>\n");
}

/// A text with commands between backquotes.
fn commands(help: &str) -> String {
    let parts = help.split('`').enumerate();
    let part = |(index, part): (usize, &str)| match index % 2 {
        1 => format!("<code>{}</code>", escaped(part)),
        _ => escaped(part),
    };
    parts.map(part).collect()
}

pub(super) fn troubles(out: &mut String, story: &SessionStory) {
    out.push_str("<section id=\"troubles\">\n<h2>What went wrong</h2>\n");
    if story.troubles.is_empty() {
        out.push_str("<p class=\"fine\">Nothing.</p>\n</section>\n");
        return;
    }
    out.push_str("<ol class=\"troubles\">\n");
    story.troubles.iter().take(TROUBLES_MAX).for_each(|it| trouble(out, it));
    out.push_str("</ol>\n");
    let listed = story.troubles.len().min(TROUBLES_MAX) as u64;
    let hidden = story.troubles.len() as u64 + story.troubles_hidden - listed;
    if hidden > 0 {
        let _ = writeln!(out, "<p class=\"more\">and {} more</p>", grouped(hidden));
    }
    out.push_str("</section>\n");
}

fn trouble(out: &mut String, trouble: &SessionTrouble) {
    let SessionTrouble { weight, at, who, what, why, story, .. } = trouble;
    let class = if *weight == TroubleWeight::Bad { "bad" } else { "odd" };
    let at = at.map_or_else(String::new, |at| clock(at, "clock"));
    let (who, what) = (escaped(who), escaped(what));
    let text = match (who.is_empty(), story.is_empty()) {
        (_, true) => format!("<b>{who}</b> {what}"),
        _ => format!(
            "<button type=\"button\" data-story=\"{}\"><b>{who}</b> {what}</button>",
            escaped(story)
        ),
    };
    let _ = write!(out, "<li class=\"{class}\">{at}<div>{text}");
    if !why.trim().is_empty() {
        let _ = write!(out, "<small>{}</small>", escaped(why));
    }
    out.push_str("</div></li>\n");
}

pub(super) fn held(out: &mut String, present: Option<&SessionPresent>) {
    let Some(present) = present.filter(|present| !present.holds.is_empty()) else { return };
    out.push_str("<section id=\"held\">\n<h2>Held now</h2>\n<table class=\"plain\">\n");
    for (agent, tasks) in &present.holds {
        let tasks = escaped(&tasks.join(", "));
        let _ = writeln!(out, "<tr><th>{}</th><td>{tasks}</td></tr>", escaped(agent));
    }
    out.push_str("</table>\n</section>\n");
}

struct SessionWait {
    who: String,
    to: String,
    what: String,
    how: String,
    time: Duration,
    story: String,
}

pub(super) fn waits(out: &mut String, story: &SessionStory) {
    let Some(end) = story.end else { return };
    let asked = story.requests.all.iter().map(|asked| SessionWait {
        who: asked.from.clone(),
        to: asked.to.clone(),
        what: asked.label(),
        how: asked.outcome().to_owned(),
        time: asked.waited(end),
        story: format!("r:{}", asked.id),
    });
    let queued = story.work.tracks.iter().flat_map(|(task, track)| {
        let spans = track.spans.iter().filter(|span| span.stage == TaskStage::Queued);
        spans.map(move |span| SessionWait {
            who: task.clone(),
            to: span.who.clone(),
            what: "task in the mailbox".to_owned(),
            how: if span.is_open { "waits" } else { "received" }.to_owned(),
            time: span.to.since(span.from),
            story: format!("t:{task}"),
        })
    });
    let mut all: Vec<SessionWait> =
        asked.chain(queued).filter(|it| it.time >= WAIT_MIN && !it.to.is_empty()).collect();
    if all.is_empty() {
        return;
    }
    all.sort_by_key(|wait| std::cmp::Reverse(wait.time));
    out.push_str(
        "<section id=\"waits\">\n<h2>Who waited for whom</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Who waited for whom\"><table class=\"plain\"><thead><tr><th>who</th><th>for</th><th>what</th>\
         <th>how long</th><th>then</th></tr></thead>\n<tbody>\n",
    );
    for wait in all.iter().take(WAITS_MAX) {
        let SessionWait { who, to, what, how, time, story } = wait;
        let _ = writeln!(
            out,
            "<tr><td><button type=\"button\" data-story=\"{}\">{}</button></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(story),
            escaped(who),
            escaped(to),
            escaped(what),
            took(*time),
            escaped(how),
        );
    }
    out.push_str("</tbody></table></div>\n");
    if let Some(more) = all.len().checked_sub(WAITS_MAX).filter(|more| *more > 0) {
        let _ = writeln!(out, "<p class=\"more\">and {} more</p>", grouped(more as u64));
    }
    out.push_str("</section>\n");
}

pub(super) fn agents(out: &mut String, story: &SessionStory, present: Option<&SessionPresent>) {
    let usage = present.map(|present| &present.usage).filter(|usage| !usage.is_empty());
    out.push_str(
        "<section id=\"agents\">\n<h2>Agent by agent</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Agent by agent\"><table class=\"agents\">\n<thead><tr><th>agent</th><th>working</th><th>stuck</th>\
         <th>waiting</th><th>held work</th><th>its mail waited</th><th>sent</th><th>received</th><th>settled</th>\
         <th>returned</th><th>nudges</th><th>deferred</th>",
    );
    if usage.is_some() {
        out.push_str("<th>turns</th><th>tokens</th><th>cost</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (name, agent) in &story.agents {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escaped(name));
        let states = &agent.states;
        let times = [states.time_in("working"), agent.stuck(), states.time_in("waiting")];
        for time in times.into_iter().chain([agent.held, agent.mail_waited]) {
            let time = if time.is_zero() { "–".to_owned() } else { took(time) };
            let _ = write!(out, "<td>{time}</td>");
        }
        let moves = [agent.sent, agent.received, agent.settled, agent.given_back];
        moves.into_iter().chain([agent.nudges, agent.deferrals]).for_each(|it| cell(out, it));
        if let Some(usage) = usage {
            match usage.get(name) {
                Some(used) => {
                    cell(out, used.turns);
                    cell(out, used.tokens);
                    let _ = write!(out, "<td>{}</td>", escaped(&used.cost));
                }
                None => out.push_str("<td>–</td><td>–</td><td>–</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    for text in present.map(|present| &present.unclear).into_iter().flatten() {
        let _ = writeln!(out, "<p class=\"more\">{}.</p>", escaped(text));
    }
    let hidden: u64 = story.agents.values().map(|agent| agent.hidden).sum();
    if hidden > 0 {
        let hidden = grouped(hidden);
        let _ =
            writeln!(out, "<p class=\"more\">{hidden} stretches are counted, but not drawn.</p>");
    }
    out.push_str("</section>\n");
}

/// How long delivery, receipt and work took; folded.
pub(super) fn timings(out: &mut String, story: &SessionStory) {
    out.push_str("<section>\n<details>\n<summary><h2>How long messages took</h2></summary>\n<div class=\"charts\">\n");
    chart(out, "Delivery", "stored until submitted to the agent", &story.delivery);
    chart(out, "Ack", "stored until received", &story.ack);
    chart(out, "Work", "received until settled", &story.took);
    out.push_str("</div>\n</details>\n</section>\n");
}

fn chart(out: &mut String, name: &str, what: &str, latency: &Latency) {
    let _ = write!(out, "<figure><figcaption><b>{name}</b> <span>{what}</span></figcaption>");
    let bins = latency.bins();
    let Some(most) = bins.iter().map(|(_, count)| *count).max().filter(|most| *most > 0) else {
        out.push_str("<p class=\"none\">not measured in this session</p></figure>\n");
        return;
    };
    out.push_str("<table class=\"bars\"><tbody>");
    for (label, count) in bins {
        let width = count as f64 / most as f64 * 100.0;
        let prefix = if label == "longer" { "" } else { "≤ " };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{prefix}{label}</th><td><i style=\"width:{width:.1}%\"></i></td><td>{}</td></tr>",
            grouped(count),
        );
    }
    let _ = writeln!(
        out,
        "</tbody></table><p class=\"stats\"><span>median <b>{}</b></span><span>95% <b>{}</b></span><span>longest <b>{}</b></span></p></figure>",
        shown(latency, 50),
        shown(latency, 95),
        took(latency.max()),
    );
}
