//! The page of a session: one file, checked in a real browser.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::browser::{Browser, Picture, Screen};

/// The longest allowed name.
const LONG_NAME: &str = "a-reviewer-whose-name-is-as-long-as-the-name-of-an-agent-may-be1";

/// When, what, who, and more.
type Happened = (u64, &'static str, String, Value);

/// A stretch in which a worker held a task, as the page is to draw it.
struct Held {
    worker: &'static str,
    from: u64,
    to: u64,
    is_given_back: bool,
}

/// A task handed to a worker, and its report; when the worker held it.
fn task(
    all: &mut Vec<Happened>,
    number: u64,
    worker: &'static str,
    from: u64,
    ends_with: &'static str,
) -> Held {
    let taken = from + 300 + (number * 7_919) % 9_000;
    let done = taken + 21_000 + (number * 31_337) % 64_000;
    let (id, report, name) =
        (format!("m{number}"), format!("r{number}"), format!("task-{number:02}"));
    let place = json!({ "id": id, "mailbox": worker, "epoch": 1 });
    let reported = json!({ "id": report, "mailbox": "dispatch", "epoch": 1 });
    let mut say = |at: u64, kind: &'static str, actor: &str, data: Value| {
        all.push((at, kind, actor.to_owned(), data));
    };
    say(
        from,
        "message.stored",
        "dispatch",
        json!({ "id": id, "mailbox": worker, "type": "task", "task_id": name }),
    );
    say(
        from + 40,
        "nudge.sent",
        "watcher",
        json!({ "agent": worker, "mailbox": worker, "pane": "%1", "attempt": 1 }),
    );
    say(from + 90, "receipt.submitted", "watcher", json!({ "mailbox": worker, "ids": [id] }));
    say(taken, "message.acked", worker, place.clone());
    say(done, ends_with, worker, place);
    say(
        done + 20,
        "message.stored",
        "watcher",
        json!({ "id": report, "mailbox": "dispatch", "type": "report.completed", "task_id": name }),
    );
    say(done + 270, "message.acked", "dispatch", reported.clone());
    say(done + 1_920, "message.settled", "dispatch", reported);
    Held { worker, from: taken, to: done, is_given_back: ends_with == "message.released" }
}

/// A session with a bit of everything, in the log's own format; what was held, and its length in
/// milliseconds.
fn write_log(bed: &Bed) -> (Vec<Held>, u64) {
    let mut all: Vec<Happened> = vec![(0, "session_start", "ensemble".to_owned(), json!({}))];
    let workers = [
        ("worker-1", 1_200),
        ("worker-2", 2_900),
        ("worker-3", 4_100),
        ("security-reviewer", 260_000),
    ];
    let mut held = Vec::new();
    for (index, (worker, start)) in workers.into_iter().enumerate() {
        let mut clock = start;
        for round in 0..9 {
            let number = round * 4 + index as u64 + 1;
            let end = if number == 18 { "message.released" } else { "message.settled" };
            held.push(task(&mut all, number, worker, clock, end));
            clock = held[held.len() - 1].to + 2_500;
        }
    }
    held.push(task(&mut all, 40, LONG_NAME, 700_000, "message.settled"));
    let mut say = |at: u64, kind: &'static str, actor: &str, data: Value| {
        all.push((at, kind, actor.to_owned(), data));
    };
    say(
        95_000,
        "nudge.deferred",
        "watcher",
        json!({ "agent": "worker-2", "mailbox": "worker-2", "pane": "%2", "reason": "busy", "detail": "it shows a spinner", "waiting": 1 }),
    );
    say(
        310_000,
        "escalation",
        "dispatch",
        json!({ "worker_id": "worker-3", "task_id": "task-19", "reason": "unanswered", "phase": 3 }),
    );
    say(
        402_000,
        "loop_detected",
        "security-reviewer",
        json!({ "task_id": "task-12", "cycles": 3, "limit": 3 }),
    );
    say(
        505_000,
        "file.rejected",
        "watcher",
        json!({ "file": "reports/task-20-completed.yaml", "error": format!("line 3: status is `maybe`: write one of success, failed, blocked {}<script>", "x".repeat(200)) }),
    );
    say(
        610_000,
        "report.vague",
        "watcher",
        json!({ "file": "reports/task-21-completed.yaml", "rules": ["vague-word", "missing-share"] }),
    );
    all.sort_by_key(|(at, ..)| *at);
    let end = all.last().map_or(0, |(at, ..)| *at) + 2_000;
    all.push((end, "session_end", "ensemble".to_owned(), json!({})));
    let line = |(index, (at, kind, actor, data)): (usize, Happened)| {
        let stamp =
            format!("2026-11-21T10:{:02}:{:02}.{:03}Z", at / 60_000, at / 1_000 % 60, at % 1_000);
        let session = "session-20261121-100000";
        json!({ "timestamp": stamp, "session_id": session, "seq": index + 1, "type": kind, "actor": actor, "data": data })
            .to_string()
    };
    let lines: Vec<String> = all.into_iter().enumerate().map(line).collect();
    let logs = bed.project().join(".ensemble/logs");
    fs::create_dir_all(&logs).unwrap();
    fs::write(logs.join("session-20261121-100000.ndjson"), lines.join("\n") + "\n").unwrap();
    (held, end)
}

/// A project with the page of that session, a browser, and what the page has to show; `None` where there
/// is no browser.
fn stage() -> Option<(Bed, PathBuf, Browser, Vec<Held>, u64)> {
    let bed = Bed::empty();
    bed.ok("init");
    fs::remove_dir_all(bed.project().join(".ensemble/logs")).unwrap();
    let (held, end) = write_log(&bed);
    let said = bed.ok("log report -o page.html");
    assert!(said.contains("page.html"), "{said}");
    let page = bed.project().join("page.html");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("3 things went wrong, 2 more to look at"), "{}", &html[..2_000]);
    assert!(html.contains("2026-11-21 10:00:00 – 10:16:02 UTC"), "{}", &html[..2_000]);
    assert_eq!(bed.ok("log report -o -"), html, "the same to stdout");
    let browser = Browser::start(&bed.project())?;
    Some((bed, page, browser, held, end))
}

const DESK: Screen = Screen { width: 1280, is_phone: false, is_dark: false, is_paper: false };
const DARK: Screen = Screen { is_dark: true, ..DESK };
const PHONE: Screen = Screen { width: 390, is_phone: true, ..DESK };
const DARK_PHONE: Screen = Screen { is_dark: true, ..PHONE };
const SMALL: Screen = Screen { width: 320, ..PHONE };
const PAPER: Screen = Screen { width: 718, is_paper: true, ..DESK };
/// A reader with a dark theme also prints on white paper.
const DARK_PAPER: Screen = Screen { is_dark: true, ..PAPER };
const SCREENS: [(&str, Screen); 7] = [
    ("desk", DESK),
    ("dark", DARK),
    ("phone", PHONE),
    ("dark-phone", DARK_PHONE),
    ("small", SMALL),
    ("paper", PAPER),
    ("dark-paper", DARK_PAPER),
];

/// The colours of the page.
struct Colours {
    page: [u8; 3],
    card: [u8; 3],
    held: [u8; 3],
    back: [u8; 3],
    wait: [u8; 3],
    bad: [u8; 3],
}

const LIGHT: Colours = Colours {
    page: [0xf6, 0xf6, 0xf3],
    card: [0xff, 0xff, 0xff],
    held: [0x2a, 0x68, 0xd4],
    back: [0x7a, 0x5c, 0xc6],
    wait: [0xe9, 0xc4, 0x6a],
    bad: [0xc8, 0x32, 0x2b],
};
const NIGHT: Colours = Colours {
    page: [0x14, 0x17, 0x1a],
    card: [0x1d, 0x21, 0x25],
    held: [0x35, 0x70, 0xd6],
    back: [0x80, 0x63, 0xcf],
    wait: [0xa9, 0x8a, 0x35],
    bad: [0xff, 0x7b, 0x72],
};

impl Screen {
    const fn colours(self) -> Colours {
        match (self.is_dark, self.is_paper) {
            (true, false) => NIGHT,
            (_, true) => Colours { page: [0xff, 0xff, 0xff], ..LIGHT },
            (false, false) => LIGHT,
        }
    }
}

#[track_caller]
fn is_painted(picture: &Picture, x: f64, y: f64, expected: [u8; 3], what: &str) {
    let found = picture.at(x, y);
    let is_near = found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 3);
    assert!(is_near, "{what}: {found:?} at {x:.0},{y:.0}, not {expected:?}");
}

/// Where the lane of an agent is drawn: left, top, width and height of its track.
fn track(browser: &mut Browser, agent: &str) -> [f64; 4] {
    let place = browser.evaluate(&format!(
        "(() => {{ for (const lane of document.querySelectorAll('.lane')) {{
           const name = lane.querySelector('.name b');
           if (name && name.textContent === '{agent}') {{
             const r = lane.querySelector('.track').getBoundingClientRect();
             return [r.left, r.top + scrollY, r.width, r.height] }} }} }})()"
    ));
    let number = |index: usize| place[index].as_f64().unwrap_or_else(|| panic!("{agent}: {place}"));
    [number(0), number(1), number(2), number(3)]
}

/// Each stretch of work is where its time is, in the lane of its agent, in the colour of its end.
/// Before, between and behind them there is nothing.
fn check_timeline(browser: &mut Browser, name: &str, screen: Screen, held: &[Held], end: u64) {
    let picture = browser.picture(name);
    let colours = screen.colours();
    is_painted(&picture, 3.0, 3.0, colours.page, &format!("{name}: the page"));
    for (index, span) in held.iter().enumerate() {
        let [left, top, width, height] = track(browser, span.worker);
        let x = |at: u64| left + at as f64 / end as f64 * width;
        let what = format!("{name}: {} from {} to {}", span.worker, span.from, span.to);
        let colour = if span.is_given_back { colours.back } else { colours.held };
        // Above the label, below the marks.
        let row = top + 14.0;
        is_painted(&picture, x(u64::midpoint(span.from, span.to)), row, colour, &what);
        is_painted(&picture, x(span.from) + 5.0, row + 7.0, colour, &what);
        is_painted(&picture, x(span.to) - 5.0, row, colour, &what);
        let gap = held.get(index + 1).filter(|next| next.worker == span.worker);
        if let Some(next) = gap.filter(|next| x(next.from) - x(span.to) > 7.0) {
            let middle = f64::midpoint(x(span.to), x(next.from));
            // A line of the grid may be there, but no bar.
            let found = picture.at(middle, row + 7.0);
            assert!(colours.held != found && colours.back != found, "{what}: {found:?}");
        }
        if span.is_given_back {
            let waits = x(u64::midpoint(span.to, end));
            is_painted(
                &picture,
                waits,
                top + height - 6.0,
                colours.wait,
                &format!("{what}: waits"),
            );
        }
    }
    let [left, top, width, _] = track(browser, "security-reviewer");
    let early = left + width * 0.1;
    is_painted(&picture, early, top + 20.0, colours.card, &format!("{name}: nothing yet"));
    // The escalation of worker-3, 310 s after the beginning, in front of everything else.
    let [left, top, width, _] = track(browser, "worker-3");
    let at = left + 310_000.0 / end as f64 * width;
    is_painted(&picture, at, top + 6.0, colours.bad, &format!("{name}: the escalation"));
    let title = browser.evaluate(
        "(() => { const r = document.querySelector('h1').getBoundingClientRect();
           return [r.left, r.top + scrollY, r.right, r.bottom + scrollY] })()",
    );
    let title = [0, 1, 2, 3].map(|index| title[index].as_f64().unwrap());
    assert!(picture.colours(title) > 10, "{name}: the heading is not drawn");
}

/// The overflowing elements, by the browser's own layout.
const OVERFLOW: &str = "(() => { const root = document.documentElement, out = [];
  if (root.scrollWidth > root.clientWidth) out.push('page ' + root.scrollWidth);
  for (const e of document.querySelectorAll('body *')) { const r = e.getBoundingClientRect();
    if (e.closest('.scroll, .track') || !r.width) continue;
    if (r.right > root.clientWidth + 1 || r.left < -1) out.push(e.tagName + '.' + e.className + ' ' + r.right);
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'visible' && e.clientWidth)
      out.push(e.tagName + '.' + e.className + ' holds ' + e.scrollWidth + ' in ' + e.clientWidth); }
  for (const row of document.querySelectorAll('tbody tr'))
    if (row.getBoundingClientRect().height > 130) out.push('row ' + row.getBoundingClientRect().height);
  const ticks = [...document.querySelectorAll('.tick')].map(t => t.getBoundingClientRect()).filter(r => r.width);
  for (let i = 1; i < ticks.length; i++) if (ticks[i].left < ticks[i - 1].right) out.push('ticks ' + i);
  return out })()";

/// Each text that is hard to read (WCAG: 4.5, or 3 if it is large; at least 11 px), and how many there are.
const CONTRAST: &str = "(() => { const out = []; let count = 0;
  const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n };
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) { const e = walk.currentNode.parentElement, style = getComputedStyle(e);
    const size = parseFloat(style.fontSize), r = e.getBoundingClientRect();
    if (!walk.currentNode.textContent.trim() || !r.width || !r.height || !size) continue;
    let under = e; while (under && !parse(getComputedStyle(under).backgroundColor)[3]) under = under.parentElement;
    const back = under ? parse(getComputedStyle(under).backgroundColor) : [255, 255, 255];
    const a = light(parse(style.color)), b = light(back);
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    count++;
    const large = size >= 24 || size >= 18.66 && style.fontWeight >= 600;
    if (ratio < (large ? 3 : 4.5) || size < 11)
      out.push(walk.currentNode.textContent.slice(0, 30) + ' ' + ratio.toFixed(2) + ' ' + size + 'px'); }
  return [count, out] })()";

#[test]
fn every_screen_shows_the_bars_of_the_log_in_their_places_and_colours() {
    let Some((_bed, page, mut browser, held, end)) = stage() else { return };
    for (name, screen) in SCREENS {
        browser.open(&page, screen);
        check_timeline(&mut browser, name, screen, &held, end);
    }
    let pdf = browser.print();
    let pages = pdf.windows(11).filter(|part| part == b"/Type /Page").count()
        - pdf.windows(12).filter(|part| part == b"/Type /Pages").count();
    assert!(pdf.starts_with(b"%PDF") && (1..=3).contains(&pages), "{pages} pages");
}

#[test]
fn nothing_overflows_everything_can_be_read_and_nothing_is_loaded() {
    let Some((_bed, page, mut browser, ..)) = stage() else { return };
    for (name, screen) in SCREENS {
        browser.open(&page, screen);
        assert_eq!(browser.evaluate(OVERFLOW), json!([]), "{name}");
        let read = browser.evaluate(CONTRAST);
        assert!(read[0].as_u64() > Some(100), "{name}: {read}");
        assert_eq!(read[1], json!([]), "{name}");
        let loaded = "performance.getEntriesByType('resource').length + document.scripts.length";
        assert_eq!(browser.evaluate(loaded), 0, "{name}");
    }
}

#[test]
fn the_page_reports_a_missing_log_or_session() {
    let bed = Bed::empty();
    bed.fails(3, "log report");
    bed.ok("init");
    bed.ok("mailbox add w1");
    bed.send("hello");
    bed.fails(3, "log report --session 19990101-000000");
    bed.ok("log report -o page.html");
    assert!(bed.project().join("page.html").exists());
}
