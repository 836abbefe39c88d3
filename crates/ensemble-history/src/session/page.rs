//! The page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use ensemble_app::text::plural;
use ensemble_core::message::Timestamp;
use ensemble_project::attention::Need;

use super::latency::Latency;
use super::sections;
use super::story::SessionStory;
use super::timeline;
use super::trouble::TroubleWeight;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The present state, which the records do not have.
#[derive(Clone, Debug)]
pub struct SessionPresent {
    pub at: Timestamp,
    /// Needs of a person, the worst first.
    pub needs: Vec<Need>,
    pub holds: BTreeMap<String, Vec<String>>,
    pub usage: BTreeMap<String, AgentUse>,
    /// Records that count for no agent, each in a sentence.
    pub unclear: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct AgentUse {
    pub turns: u64,
    pub tokens: u64,
    pub cost: String,
}

const LEGEND: &str = "<p class=\"legend\"><span><i class=\"key s-working\"></i>working</span>\
    <span><i class=\"key s-idle\"></i>idle</span><span><i class=\"key s-waiting\"></i>waits for a decision</span>\
    <span><i class=\"key s-blocked\"></i>waits for a person</span><span><i class=\"key s-limited\"></i>usage limit</span>\
    <span><i class=\"key s-gone\"></i>gone</span><span><i class=\"key held\"></i>holds work</span>\
    <span><i class=\"key ask\"></i>has asked</span><span><i class=\"key line\"></i>request</span></p>\n";
const TASK_LEGEND: &str = "<p class=\"legend\"><span><i class=\"key wait\"></i>waits</span>\
    <span><i class=\"key held\"></i>in hand</span><span><i class=\"key review\"></i>in review</span>\
    <span><i class=\"key stopped\"></i>stopped</span><span><i class=\"key dead\"></i>dead letter</span></p>\n";

/// The whole page. `live` is its version, which lets it update itself from the server that it came from.
pub fn page(story: &SessionStory, present: Option<&SessionPresent>, live: Option<u64>) -> String {
    let mut out = String::with_capacity(256 * 1024);
    let session = escaped(&story.session);
    let connect = if live.is_some() { "; connect-src 'self'" } else { "" };
    let live = live.map_or_else(String::new, |version| format!(" data-live=\"{version}\""));
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"{live}>\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'{connect}\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{session} · Ensemble</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    header(&mut out, story, &session);
    sections::needs(&mut out, present);
    sections::troubles(&mut out, story);
    sections::held(&mut out, present);
    out.push_str("<section id=\"lanes\">\n<h2>Agents</h2>\n");
    out.push_str(LEGEND);
    out.push_str(&timeline::agents(story));
    out.push_str("</section>\n");
    if let Some(tasks) = timeline::tasks(story) {
        let _ =
            write!(out, "<section id=\"tasks\">\n<h2>Tasks</h2>\n{TASK_LEGEND}{tasks}</section>\n");
    }
    sections::waits(&mut out, story);
    sections::agents(&mut out, story, present);
    sections::timings(&mut out, story);
    let _ = write!(
        out,
        "<footer>From the event log of {session}: {} records. Times are <span id=\"zone\">UTC</span>. \
         Written by <code>ensemble log report</code>.</footer>\n</main>\n\
         <dialog id=\"story\" aria-labelledby=\"story-of\"><h2 id=\"story-of\"></h2><ol></ol>\
         <form method=\"dialog\"><button>Close</button></form></dialog>\n",
        grouped(story.records),
    );
    // Only what can be opened: a page stays small, however long the log is.
    let drawn = drawn_stories(&out);
    let stories = story.index.json(|key| drawn.contains(&*escaped(key)));
    let stories = stories.to_string().replace('<', "\\u003c");
    let _ = write!(
        out,
        "<script type=\"application/json\" id=\"stories\">{stories}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    );
    out
}

fn drawn_stories(html: &str) -> BTreeSet<&str> {
    let keys = html.split("data-story=\"").skip(1);
    keys.filter_map(|rest| rest.split('"').next()).collect()
}

fn header(out: &mut String, story: &SessionStory, session: &str) {
    let (bad, odd) = (story.count(TroubleWeight::Bad), story.count(TroubleWeight::Odd));
    let (class, verdict) = match (bad, odd) {
        (0, 0) => ("good", "nothing went wrong".to_owned()),
        (0, odd) => ("odd", format!("{} to look at", plural(odd, "thing"))),
        (bad, 0) => ("bad", format!("{} went wrong", plural(bad, "thing"))),
        (bad, odd) => {
            let (bad, odd) = (plural(bad, "thing"), grouped(odd));
            ("bad", format!("{bad} went wrong, {odd} more to look at"))
        }
    };
    let state = if story.has_ended { "" } else { " · still running" };
    let when = |at: Option<Timestamp>| at.map_or_else(String::new, |at| clock(at, "full"));
    let _ = write!(
        out,
        "<header>\n<p class=\"over\">Ensemble session{state}</p>\n<h1>{session}</h1>\n\
         <p class=\"when\">{} – {}</p>\n<p class=\"verdict {class}\">{verdict}</p>\n</header>\n\
         <dl class=\"figures\">\n",
        when(story.start),
        when(story.end),
    );
    let acting = story.agents.values().filter(|agent| agent.is_drawn()).count();
    let stuck: Duration = story.agents.values().map(|agent| agent.stuck()).sum();
    let figures = [
        ("duration", took(story.length())),
        ("agents", acting.to_string()),
        ("tasks", grouped(story.work.tracks.len() as u64 + story.work.hidden)),
        ("messages", grouped(story.messages)),
        ("median ack", shown(&story.ack, 50)),
        ("agents stuck", if stuck.is_zero() { "never".to_owned() } else { took(stuck) }),
    ];
    for (name, value) in figures {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>\n");
}

/// A time that the page's script shows in the reader's zone: `full`, `clock` or `short`.
pub(super) fn clock(at: Timestamp, form: &str) -> String {
    let text = at.to_string();
    let shown = match form {
        "full" => text[..19].replace('T', " "),
        "short" => text[11..16].to_owned(),
        _ => text[11..19].to_owned(),
    };
    format!("<time datetime=\"{text}\" data-form=\"{form}\">{shown}</time>")
}

pub(super) fn shown(latency: &Latency, percent: u64) -> String {
    match latency.count() {
        0 => "–".to_owned(),
        _ => took(latency.percentile(percent)),
    }
}

pub(super) fn cell(out: &mut String, count: u64) {
    let _ = match count {
        0 => write!(out, "<td class=\"zero\">0</td>"),
        count => write!(out, "<td>{}</td>", grouped(count)),
    };
}

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

pub(super) fn grouped(count: u64) -> String {
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
