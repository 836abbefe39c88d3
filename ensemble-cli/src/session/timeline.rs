//! Agents × time: a lane for each agent, in percent of the session's length, so that it fits any width.

use std::fmt::Write as _;
use std::time::Duration;

use ensemble_core::message::Timestamp;

use super::page::{escaped, took};
use super::story::{Agent, End, MarkKind, Span, SpanKind, Story};

/// How many bars may lie above each other in one lane.
const ROWS_MAX: usize = 5;
/// Bars that are closer than this are drawn as one, in percent of the width.
const MERGE_PERCENT: f64 = 0.08;
/// How narrow a bar may be, in percent of the width.
const WIDTH_MIN: f64 = 0.3;
/// How many ticks the axis has, about.
const TICKS: f64 = 7.0;
/// How long ticks may be apart, in milliseconds.
const STEPS: [u64; 27] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000,
    120_000, 180_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 10_800_000,
    21_600_000, 43_200_000,
];
/// How wide a letter of a label is, in percent of the width of a large screen.
const LETTER_PERCENT: f64 = 0.72;

/// Time as a place on the width.
struct Scale {
    start: Timestamp,
    millis: f64,
}

impl Scale {
    fn percent(&self, at: Timestamp) -> f64 {
        (at.since(self.start).as_millis() as f64 / self.millis * 100.0).clamp(0.0, 100.0)
    }
}

/// A bar of one or more spans.
struct Bar<'a> {
    from: f64,
    to: f64,
    first: &'a Span,
    count: usize,
}

/// The lanes and their axis.
pub(super) fn timeline(story: &Story) -> String {
    let Some(start) = story.start else { return String::new() };
    let millis = (story.length().as_millis() as f64).max(1.0);
    let scale = Scale { start, millis };
    let mut out = String::from("<div class=\"lanes\">\n");
    let ticks = ticks(millis);
    for (name, agent) in story.agents.iter().filter(|(_, agent)| !agent.is_silent()) {
        lane(&mut out, name, agent, &scale, &ticks, story.length());
    }
    out.push_str("<div class=\"lane axis\"><div class=\"name\"></div><div class=\"track\">");
    for (percent, label) in &ticks {
        let edge = if *percent > 92.0 { " last" } else { "" };
        let _ =
            write!(out, "<span class=\"tick{edge}\" style=\"left:{percent:.2}%\">{label}</span>");
    }
    out.push_str("</div></div>\n</div>\n");
    out
}

fn lane(
    out: &mut String,
    name: &str,
    agent: &Agent,
    scale: &Scale,
    ticks: &[(f64, String)],
    length: Duration,
) {
    let held = rows(bars(&agent.spans, SpanKind::Held, scale));
    let share =
        (agent.busy.as_millis() * 100).checked_div(length.as_millis()).unwrap_or(0).min(100);
    let _ = write!(
        out,
        "<div class=\"lane\"><div class=\"name\"><b>{}</b><small>{} done · busy {share}%</small></div>\
         <div class=\"track\" style=\"--rows:{}\">",
        escaped(name),
        agent.settled,
        held.len().max(1),
    );
    for (percent, _) in ticks {
        let _ = write!(out, "<i class=\"grid\" style=\"left:{percent:.2}%\"></i>");
    }
    for bar in bars(&agent.spans, SpanKind::Waiting, scale) {
        draw(out, &bar, "wait", 0);
    }
    for (row, bars) in held.iter().enumerate() {
        for bar in bars {
            let class = match bar.first.end {
                End::Settled | End::Taken => "held",
                End::GivenBack => "held back",
                End::Dead => "held dead",
                End::Open => "held open",
            };
            draw(out, bar, class, row);
        }
    }
    let mut last = [-1.0_f64; 3];
    for mark in &agent.marks {
        let (class, index) = match mark.kind {
            MarkKind::Nudge => ("nudge", 0),
            MarkKind::Deferred => ("defer", 1),
            MarkKind::Trouble => ("oops", 2),
        };
        let at = scale.percent(mark.at);
        // What would lie on the one before it is seen there.
        if at - last[index] < MERGE_PERCENT * 4.0 && last[index] >= 0.0 {
            continue;
        }
        last[index] = at;
        let label = escaped(&mark.label);
        if mark.kind == MarkKind::Trouble {
            let _ = write!(out, "<i class=\"pin\" style=\"left:{at:.2}%\"></i>");
        }
        let _ =
            write!(out, "<i class=\"mark {class}\" style=\"left:{at:.2}%\" title=\"{label}\"></i>");
    }
    out.push_str("</div></div>\n");
}

fn draw(out: &mut String, bar: &Bar<'_>, class: &str, row: usize) {
    let Bar { from, to, first, count } = bar;
    let width = (to - from).max(WIDTH_MIN).min(100.0 - from.min(100.0 - WIDTH_MIN));
    let left = from.min(100.0 - WIDTH_MIN);
    let time = took(first.to.since(first.from));
    let what = match (first.kind, count) {
        (_, 2..) => format!("{count} × {}", first.label),
        (SpanKind::Waiting, _) => format!("waited {time}: {}", first.label),
        (SpanKind::Held, _) => format!("{time}: {}", first.label),
    };
    // A label only where there is room for it.
    let label = short(&first.label);
    let has_room = width > (label.chars().count() + 2) as f64 * LETTER_PERCENT;
    let text = if first.kind == SpanKind::Held && has_room { label } else { "" };
    let _ = write!(
        out,
        "<span class=\"bar {class}\" style=\"left:{left:.2}%;width:{width:.2}%;--row:{row}\" title=\"{}\">{}</span>",
        escaped(&what),
        escaped(text),
    );
}

/// The task of a label `type task from sender`.
fn short(label: &str) -> &str {
    let what = label.split(" from ").next().unwrap_or(label);
    what.split_once(' ').map_or(what, |(_, task)| task)
}

/// The spans of one kind as bars, those that touch drawn as one.
fn bars<'a>(spans: &'a [Span], kind: SpanKind, scale: &Scale) -> Vec<Bar<'a>> {
    let mut wanted: Vec<&Span> = spans.iter().filter(|span| span.kind == kind).collect();
    wanted.sort_by_key(|span| span.from);
    let mut bars: Vec<Bar<'a>> = Vec::new();
    for span in wanted {
        let (from, to) = (scale.percent(span.from), scale.percent(span.to));
        match bars.last_mut() {
            Some(last)
                if last.first.end == span.end
                    && (from - last.to < MERGE_PERCENT && to - from < MERGE_PERCENT
                        || kind == SpanKind::Waiting && from <= last.to) =>
            {
                last.to = last.to.max(to);
                last.count += 1;
            }
            _ => bars.push(Bar { from, to, first: span, count: 1 }),
        }
    }
    bars
}

/// Bars that overlap lie above each other; of too many, the rest lies on the last row.
fn rows(bars: Vec<Bar<'_>>) -> Vec<Vec<Bar<'_>>> {
    let mut rows: Vec<Vec<Bar<'_>>> = Vec::new();
    for bar in bars {
        let free = rows.iter().position(|row| row.last().is_none_or(|last| last.to <= bar.from));
        match free {
            Some(row) => rows[row].push(bar),
            None if rows.len() < ROWS_MAX => rows.push(vec![bar]),
            None => rows[ROWS_MAX - 1].push(bar),
        }
    }
    rows
}

fn ticks(millis: f64) -> Vec<(f64, String)> {
    let step = STEPS.iter().copied().find(|step| millis / *step as f64 <= TICKS + 0.5);
    let step =
        step.unwrap_or_else(|| ((millis / TICKS / 86_400_000.0).ceil() as u64).max(1) * 86_400_000);
    let ticks = (0..).map(|index| index * step).take_while(|at| *at as f64 <= millis);
    let label = |at: u64| match at {
        0 => "0".to_owned(),
        at => took(Duration::from_millis(at)),
    };
    ticks.map(|at| (at as f64 / millis * 100.0, label(at))).collect()
}
