//! Agents × time and tasks × time, in percent of the session's length, so that they fit any width.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use ensemble_core::message::Timestamp;

use super::asked::SessionRequest;
use super::page::{clock, escaped, took};
use super::story::{SessionAgent, SessionStory};
use super::trouble::TroubleWeight;
use super::work::{TaskStage, TaskTrack};

/// Bars that are closer than this are drawn as one, in percent of the width.
const MERGE_PERCENT: f64 = 0.12;
/// The least width of a bar, in percent of the width.
const WIDTH_MIN: f64 = 0.3;
const TICKS: f64 = 7.0;
/// Distances of ticks, in milliseconds.
const STEPS: [u64; 27] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000,
    120_000, 180_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 10_800_000,
    21_600_000, 43_200_000,
];
/// Width of a letter of a label, in percent of the width of a large screen.
const LETTER_PERCENT: f64 = 0.72;
/// From here on, the label of a tick is before it, in percent of the width.
const EDGE_PERCENT: f64 = 92.0;
const TASKS_MAX: usize = 60;
const ARROWS_MAX: usize = 400;

struct TimeScale {
    start: Timestamp,
    millis: f64,
    ticks: Vec<(f64, String)>,
}

impl TimeScale {
    fn of(story: &SessionStory) -> Option<Self> {
        let millis = (story.length().as_millis() as f64).max(1.0);
        Some(Self { start: story.start?, millis, ticks: ticks(millis) })
    }

    fn percent(&self, at: Timestamp) -> f64 {
        (at.since(self.start).as_millis() as f64 / self.millis * 100.0).clamp(0.0, 100.0)
    }
}

struct TimelineBar {
    class: &'static str,
    from: Timestamp,
    to: Timestamp,
    label: String,
    title: String,
    story: String,
    count: u32,
}

impl TimelineBar {
    const fn new(
        class: &'static str,
        (from, to): (Timestamp, Timestamp),
        label: String,
        title: String,
        story: String,
    ) -> Self {
        Self { class, from, to, label, title, story, count: 1 }
    }
}

/// The lanes of the agents, the most stuck first, with the requests between them.
pub(super) fn agents(story: &SessionStory) -> String {
    let Some(scale) = TimeScale::of(story) else { return String::new() };
    let lanes = lanes(story);
    let mut out = String::from("<div class=\"lanes\">\n");
    for (name, agent) in &lanes {
        lane(&mut out, story, name, agent, &scale);
    }
    arrows(&mut out, story, &lanes, &scale);
    axis(&mut out, &scale);
    out.push_str("</div>\n");
    out
}

fn lanes(story: &SessionStory) -> Vec<(&String, &SessionAgent)> {
    let asks =
        |name: &str| story.requests.all.iter().any(|asked| asked.from == name || asked.to == name);
    let mut lanes: Vec<(&String, &SessionAgent)> =
        story.agents.iter().filter(|(name, agent)| agent.is_drawn() || asks(name)).collect();
    lanes.sort_by_key(|(name, agent)| (std::cmp::Reverse(agent.stuck()), *name));
    lanes
}

fn lane(
    out: &mut String,
    story: &SessionStory,
    name: &str,
    agent: &SessionAgent,
    scale: &TimeScale,
) {
    let working = agent.states.time_in("working");
    let note = match agent.states.spans.last() {
        Some(_) if agent.stuck() > Duration::ZERO => format!("stuck {}", took(agent.stuck())),
        Some(last) if working.is_zero() => last.state.clone(),
        Some(_) => format!("working {}", took(working)),
        None => format!("{} done", agent.settled),
    };
    row_head(out, name, &note, &format!("a:{name}"), scale);
    let states = agent.states.spans.iter().map(|span| {
        let title = format!("{} {}: {}", span.state, took(span.to.since(span.from)), span.why);
        let (class, time) = (state_class(&span.state), (span.from, span.to));
        TimelineBar::new(class, time, span.state.clone(), title, format!("a:{name}"))
    });
    bars(out, "state", states.collect(), scale);
    let holds = agent.holds.iter().map(|hold| {
        let time = took(hold.to.since(hold.from));
        let (class, how) = match (hold.is_dead, hold.is_open) {
            (true, _) => ("dead", "until it was a dead letter"),
            (_, true) => ("held open", "so far"),
            _ => ("held", ""),
        };
        let title = format!("held {} for {time} {how}", hold.label);
        let (label, story) = (hold.label.clone(), hold.story.clone());
        TimelineBar::new(class, (hold.from, hold.to), label, title, story)
    });
    bars(out, "hold", holds.collect(), scale);
    let end = story.end.unwrap_or(scale.start);
    let asked = story.requests.all.iter().filter(|asked| asked.from == *name).map(|asked| {
        let to = asked.closed.as_ref().map_or(end, |(at, _)| *at);
        let title =
            format!("waited {} for {}: {}", took(asked.waited(end)), asked.to, asked.label());
        let (time, story) = ((asked.opened, to), format!("r:{}", asked.id));
        TimelineBar::new("ask", time, String::new(), title, story)
    });
    bars(out, "asked", asked.collect(), scale);
    let bad = story.troubles.iter().filter(|trouble| trouble.weight == TroubleWeight::Bad);
    let mut last = -1.0_f64;
    for trouble in bad.filter(|trouble| trouble.who == *name) {
        let at = trouble.at.map_or(0.0, |at| scale.percent(at));
        if at - last >= MERGE_PERCENT * 4.0 || last < 0.0 {
            let title = escaped(&format!("{name} {}", trouble.what));
            let _ = write!(out, "<i class=\"pin\" style=\"left:{at:.2}%\" title=\"{title}\"></i>");
            last = at;
        }
    }
    out.push_str("</div></div>\n");
}

const fn state_class(state: &str) -> &'static str {
    match state.as_bytes() {
        b"working" => "s-working",
        b"idle" => "s-idle",
        b"waiting" => "s-waiting",
        b"blocked" => "s-blocked",
        b"limited" => "s-limited",
        b"gone" => "s-gone",
        b"shutdown" => "s-shutdown",
        _ => "s-unknown",
    }
}

/// The beginning of a row: its name, a note, and the grid behind its bars.
fn row_head(out: &mut String, name: &str, note: &str, story: &str, scale: &TimeScale) {
    let (name, story) = (escaped(name), escaped(story));
    let _ = write!(
        out,
        "<div class=\"lane\"><div class=\"name\"><button type=\"button\" data-story=\"{story}\">{name}</button>\
         <small>{}</small></div><div class=\"track\">",
        escaped(note),
    );
    for (percent, _) in &scale.ticks {
        let _ = write!(out, "<i class=\"grid\" style=\"left:{percent:.2}%\"></i>");
    }
}

fn axis(out: &mut String, scale: &TimeScale) {
    out.push_str("<div class=\"lane axis\"><div class=\"name\"></div><div class=\"track\">");
    for (percent, label) in &scale.ticks {
        let edge = if *percent > EDGE_PERCENT { " last" } else { "" };
        let millis = scale.millis * percent / 100.0;
        let at = Timestamp::from_unix_millis(scale.start.unix_millis() + millis as i64);
        let _ = write!(
            out,
            "<span class=\"tick{edge}\" style=\"left:{percent:.2}%\">{label}<br>{}</span>",
            clock(at, "short"),
        );
    }
    out.push_str("</div></div>\n");
}

/// Draws the bars of one row; those that touch or overlap are one.
fn bars(out: &mut String, row: &str, mut all: Vec<TimelineBar>, scale: &TimeScale) {
    all.sort_by_key(|bar| bar.from);
    let mut drawn: Vec<TimelineBar> = Vec::new();
    for bar in all {
        let (from, to) = (scale.percent(bar.from), scale.percent(bar.to));
        match drawn.last_mut() {
            Some(last) if is_one(last, &bar, (from, to), scale) => {
                last.to = last.to.max(bar.to);
                last.count += 1;
                // The worst is seen.
                if rank(bar.class) < rank(last.class) {
                    (last.class, last.label, last.story) = (bar.class, bar.label, bar.story);
                }
                last.title = format!("{} × {}", last.count, last.label);
            }
            _ => drawn.push(bar),
        }
    }
    for (index, bar) in drawn.iter().enumerate() {
        draw(out, row, bar, scale, index == 0);
    }
}

fn is_one(
    last: &TimelineBar,
    bar: &TimelineBar,
    (from, to): (f64, f64),
    scale: &TimeScale,
) -> bool {
    let (last_from, last_to) = (scale.percent(last.from), scale.percent(last.to));
    let is_narrow = to - from < MERGE_PERCENT && last_to - last_from < MERGE_PERCENT * 4.0;
    let overlaps = last.class == bar.class && from < last_to - 0.01;
    overlaps || (is_narrow && from - last_to < MERGE_PERCENT)
}

/// The worst first.
fn rank(class: &str) -> usize {
    const WORST_FIRST: [&str; 9] = [
        "s-gone",
        "s-blocked",
        "dead",
        "stopped",
        "s-limited",
        "s-waiting",
        "s-working",
        "held open",
        "held",
    ];
    WORST_FIRST.iter().position(|worst| *worst == class).unwrap_or(WORST_FIRST.len())
}

fn draw(out: &mut String, row: &str, bar: &TimelineBar, scale: &TimeScale, is_first: bool) {
    let (from, to) = (scale.percent(bar.from), scale.percent(bar.to));
    let width = (to - from).max(WIDTH_MIN).min(100.0 - from.min(100.0 - WIDTH_MIN));
    let left = from.min(100.0 - WIDTH_MIN);
    // A label only where there is room for it.
    let label = if bar.count > 1 { format!("{} ×", bar.count) } else { bar.label.clone() };
    let has_room = width > (label.chars().count() + 2) as f64 * LETTER_PERCENT;
    let text = if has_room { escaped(&label) } else { String::new() };
    let (title, story) = (escaped(bar.title.trim()), escaped(&bar.story));
    let _ = write!(
        out,
        "<button type=\"button\" class=\"bar {row} {}\" style=\"left:{left:.2}%;width:{width:.2}%\" \
         data-story=\"{story}\" title=\"{title}\" tabindex=\"{}\">{text}</button>",
        bar.class,
        if is_first { 0 } else { -1 },
    );
}

/// The requests as arrows from the lane of the asker to that of the agent that decides.
fn arrows(
    out: &mut String,
    story: &SessionStory,
    lanes: &[(&String, &SessionAgent)],
    scale: &TimeScale,
) {
    let rows: BTreeMap<&str, usize> =
        lanes.iter().enumerate().map(|(row, (name, _))| (name.as_str(), row)).collect();
    let end = story.end.unwrap_or(scale.start);
    out.push_str("<div class=\"arrows\">");
    for asked in story.requests.all.iter().take(ARROWS_MAX) {
        let SessionRequest { id, from, to, opened, .. } = asked;
        let (Some(&asker), Some(&decider)) = (rows.get(from.as_str()), rows.get(to.as_str()))
        else {
            continue;
        };
        if asker == decider {
            continue;
        }
        let way = if asker < decider { "down" } else { "up" };
        let open = if asked.closed.is_none() { " open" } else { "" };
        let title = escaped(&format!(
            "{from} asked {to}: {}, {} after {}",
            asked.label(),
            asked.outcome(),
            took(asked.waited(end)),
        ));
        let _ = write!(
            out,
            "<button type=\"button\" class=\"arrow {way}{open}\" style=\"left:{:.2}%;--first:{};--rows:{}\" \
             data-story=\"r:{}\" title=\"{title}\"></button>",
            scale.percent(*opened),
            asker.min(decider),
            asker.abs_diff(decider),
            escaped(id),
        );
    }
    out.push_str("</div>\n");
}

/// The tasks of mail, blackboard and steps: those that went wrong first, then those that continue, then the latest.
pub(super) fn tasks(story: &SessionStory) -> Option<String> {
    let scale = TimeScale::of(story)?;
    let mut tracks: Vec<(&String, &TaskTrack)> =
        story.work.tracks.iter().filter(|(_, track)| !track.spans.is_empty()).collect();
    let last = |track: &TaskTrack| track.spans.last().map(|span| span.to);
    tracks.sort_by_key(|(name, track)| (track.rank(), std::cmp::Reverse(last(track)), *name));
    let hidden = story.work.hidden + tracks.len().saturating_sub(TASKS_MAX) as u64;
    let mut out = String::from("<div class=\"lanes tasks\">\n");
    for (name, track) in tracks.iter().take(TASKS_MAX) {
        let held = took(track.time_in(TaskStage::Held));
        let note = format!("{}, {held} in hand", track.outcome());
        row_head(&mut out, name, &note, &format!("t:{name}"), &scale);
        bars(&mut out, "stage", stages(name, track), &scale);
        out.push_str("</div></div>\n");
    }
    axis(&mut out, &scale);
    out.push_str("</div>\n");
    if hidden > 0 {
        let _ = writeln!(out, "<p class=\"more\">and {hidden} more tasks</p>");
    }
    (!tracks.is_empty()).then_some(out)
}

fn stages(name: &str, track: &TaskTrack) -> Vec<TimelineBar> {
    let stage = |span: &super::work::TaskSpan| {
        let time = took(span.to.since(span.from));
        let (class, what) = match span.stage {
            TaskStage::Queued => ("wait", "waited for"),
            TaskStage::Held if span.is_open => ("held open", "is in the hands of"),
            TaskStage::Held => ("held", "was in the hands of"),
            TaskStage::Review => ("review", "was in review by"),
            TaskStage::Stopped => ("stopped", "was stopped by"),
            TaskStage::Dead | TaskStage::Over => ("dead", "is a dead letter of"),
        };
        let who = if span.who.is_empty() { "any agent" } else { &span.who };
        let title = format!("{name} {what} {who}, {time}");
        let span_time = (span.from, span.to);
        TimelineBar::new(class, span_time, span.who.clone(), title, format!("t:{name}"))
    };
    track.spans.iter().map(stage).collect()
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
