//! The page.

use std::fmt::Write as _;
use std::time::Duration;

use super::latency::Latency;
use super::story::{Agent, Story};
use super::timeline::timeline;
use super::trouble::{Trouble, Weight};

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub(crate) fn page(story: &Story) -> String {
    let mut out = String::with_capacity(64 * 1024);
    let session = escaped(&story.session);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{session} · Ensemble</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    header(&mut out, story, &session);
    troubles(&mut out, story);
    held(&mut out, story);
    out.push_str("<section>\n<h2>Who did what when</h2>\n");
    out.push_str(
        "<p class=\"legend\"><span><i class=\"key held\"></i>holds a message</span>\
         <span><i class=\"key open\"></i>still held</span>\
         <span><i class=\"key back\"></i>given back</span>\
         <span><i class=\"key dead\"></i>dead letter</span>\
         <span><i class=\"key wait\"></i>mail waits</span>\
         <span><i class=\"key nudge\"></i>nudge</span>\
         <span><i class=\"key defer\"></i>not disturbed</span>\
         <span><i class=\"key oops\"></i>trouble</span></p>\n",
    );
    out.push_str(&timeline(story));
    out.push_str("</section>\n<section>\n<h2>How long it took</h2>\n<div class=\"charts\">\n");
    chart(&mut out, "Delivery", "stored until told of", &story.delivery);
    chart(&mut out, "Ack", "stored until taken", &story.ack);
    chart(&mut out, "Waking", "told of until taken", &story.waking);
    chart(&mut out, "Work", "taken until settled", &story.work);
    out.push_str("</div>\n</section>\n");
    agents(&mut out, story);
    let _ = write!(
        out,
        "<footer>From the event log of {session}: {} records. Times are UTC. Written by <code>ensemble log report</code>.</footer>\n</main>\n</body>\n</html>\n",
        grouped(story.records),
    );
    out
}

fn header(out: &mut String, story: &Story, session: &str) {
    let when = |stamp: Option<ensemble_core::message::Timestamp>| {
        stamp.map_or_else(String::new, |at| at.to_string().replace('T', " ")[..19].to_owned())
    };
    // A day is said once.
    let (begun, ended) = (when(story.start), when(story.end));
    let (class, verdict) = match (story.bad_total, story.troubles_total) {
        (0, 0) => ("good", "nothing went wrong".to_owned()),
        (0, odd) => ("odd", format!("{} to look at", plural(odd, "thing"))),
        (bad, all) if all == bad => ("bad", format!("{} went wrong", plural(bad, "thing"))),
        (bad, all) => {
            let odd = grouped(all.saturating_sub(bad));
            ("bad", format!("{} went wrong, {odd} more to look at", plural(bad, "thing")))
        }
    };
    let state = if story.has_ended { "" } else { " · still going on" };
    let _ = write!(
        out,
        "<header>\n<p class=\"over\">Ensemble session{state}</p>\n<h1>{session}</h1>\n\
         <p class=\"when\">{} – {} UTC</p>\n<p class=\"verdict {class}\">{verdict}</p>\n</header>\n\
         <dl class=\"figures\">\n",
        begun,
        ended.strip_prefix(&begun[..begun.len().min(11)]).unwrap_or(&ended),
    );
    let acting = story.agents.values().filter(|agent| !agent.is_silent()).count() as u64;
    let share = (story.settled * 100).checked_div(story.messages);
    let figures = [
        ("duration", took(story.length())),
        ("agents", (acting + story.other_agents.min(1)).to_string()),
        ("messages", grouped(story.messages)),
        ("settled", share.map_or_else(|| "–".to_owned(), |s| format!("{}%", s.min(100)))),
        ("median ack", shown(&story.ack, 50)),
        ("median work", shown(&story.work, 50)),
    ];
    for (name, value) in figures {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>\n");
}

fn shown(latency: &Latency, percent: u64) -> String {
    match latency.count() {
        0 => "–".to_owned(),
        _ => took(latency.percentile(percent)),
    }
}

fn troubles(out: &mut String, story: &Story) {
    out.push_str("<section>\n<h2>What went wrong</h2>\n");
    if story.troubles.is_empty() {
        out.push_str(
            "<p class=\"fine\">Nothing: no escalation, no dead letter, nothing set aside, nothing left over.</p>\n</section>\n",
        );
        return;
    }
    out.push_str("<ol class=\"troubles\">\n");
    for trouble in &story.troubles {
        let Trouble { weight, at, who, what, why } = trouble;
        let class = match weight {
            Weight::Bad => "bad",
            Weight::Odd => "odd",
        };
        let since = story.start.zip(*at).map(|(start, at)| format!("+{}", took(at.since(start))));
        let who = if who.is_empty() { String::new() } else { format!("<b>{}</b> ", escaped(who)) };
        let _ = write!(
            out,
            "<li class=\"{class}\"><time>{}</time><div>{who}{}",
            since.unwrap_or_default(),
            escaped(what),
        );
        if !why.trim().is_empty() {
            let _ = write!(out, "<small>{}</small>", escaped(why));
        }
        out.push_str("</div></li>\n");
    }
    out.push_str("</ol>\n");
    let hidden = story.troubles_total.saturating_sub(story.troubles.len() as u64);
    if hidden > 0 {
        let _ = writeln!(out, "<p class=\"more\">and {} more</p>", grouped(hidden));
    }
    out.push_str("</section>\n");
}

/// What agents hold at the time of the page: messages, tasks, reviews and steps.
fn held(out: &mut String, story: &Story) {
    if story.holds.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Held now</h2>\n<div class=\"wide\"><table>\n");
    for (agent, tasks) in &story.holds {
        let tasks = escaped(&tasks.join(", "));
        let _ = writeln!(out, "<tr><th>{}</th><td>{tasks}</td></tr>", escaped(agent));
    }
    out.push_str("</table></div>\n</section>\n");
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
            "<tr><th>{prefix}{label}</th><td><i style=\"width:{width:.1}%\"></i></td><td>{}</td></tr>",
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

fn agents(out: &mut String, story: &Story) {
    out.push_str(
        "<section>\n<h2>Agent by agent</h2>\n<div class=\"scroll\" tabindex=\"0\"><table class=\"agents\">\n<thead><tr>\
         <th>agent</th><th>sent</th><th>received</th><th>settled</th><th>given back</th><th>dead</th>\
         <th>nudges</th><th>deferred</th><th>escalations</th><th>busy</th><th>its mail waited</th></tr></thead>\n<tbody>\n",
    );
    for (name, agent) in &story.agents {
        let Agent { sent, received, settled, given_back, dead, .. } = agent;
        let _ = write!(out, "<tr><th>{}</th>", escaped(name));
        for count in [sent, received, settled, given_back] {
            cell(out, *count, "");
        }
        cell(out, *dead, "bad");
        cell(out, agent.nudges, "");
        cell(out, agent.deferrals, "");
        cell(out, agent.escalations, "bad");
        for time in [agent.busy, agent.waited] {
            let time = if time.is_zero() { "–".to_owned() } else { took(time) };
            let _ = write!(out, "<td>{time}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    let hidden: u64 = story.agents.values().map(|agent| agent.hidden).sum();
    if hidden > 0 {
        let _ = writeln!(
            out,
            "<p class=\"more\">{} stretches and marks are counted, but not drawn.</p>",
            grouped(hidden)
        );
    }
    out.push_str("</section>\n");
}

fn cell(out: &mut String, count: u64, class: &str) {
    let _ = match count {
        0 => write!(out, "<td class=\"zero\">0</td>"),
        count if class.is_empty() => write!(out, "<td>{}</td>", grouped(count)),
        count => write!(out, "<td class=\"{class}\">{}</td>", grouped(count)),
    };
}

/// A text that is nothing but text on the page.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().take(400) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A duration as people say it: 3 ms, 1.4 s, 2 min 5 s, 3 h 10 min, 2 d 4 h.
pub(super) fn took(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let pair = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..10 if !duration.as_millis().is_multiple_of(1_000) => {
            format!("{:.1} s", duration.as_secs_f64())
        }
        1..60 => format!("{seconds} s"),
        60..3_600 => pair(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// 1,234,567.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn plural(count: u64, noun: &str) -> String {
    crate::text::plural(count, noun)
}
