//! The page of a session: one file, checked in a real browser.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::bed::{Bed, Running, SaidText as _, objects, program};
use crate::browser::{Browser, Picture, Screen};
use crate::tmux_support::eventually;

const LONG_NAME: &str = "a-reviewer-whose-name-is-as-long-as-the-name-of-an-agent-may-be1";
const MINUTES: u64 = 62;

/// Writes records in the log's own format: minute, type, actor, data.
struct Log {
    all: Vec<(f64, &'static str, String, Value)>,
}

impl Log {
    fn add(&mut self, minute: f64, kind: &'static str, actor: &str, data: Value) {
        self.all.push((minute, kind, actor.to_owned(), data));
    }

    fn state(&mut self, minute: f64, agent: &str, to: &str, why: &str) {
        let data = json!({ "agent": agent, "from": null, "to": to, "why": why });
        self.add(minute, "agent.state", "watcher", data);
    }

    fn stored(&mut self, minute: f64, id: &str, mailbox: &str, task: &str) {
        let data = json!({ "id": id, "mailbox": mailbox, "type": "task", "task_id": task });
        self.add(minute, "message.stored", "dispatch", data);
    }

    fn moved(&mut self, minute: f64, kind: &'static str, id: &str, mailbox: &str) {
        self.add(minute, kind, mailbox, json!({ "id": id, "mailbox": mailbox, "epoch": 1 }));
    }

    fn task(&mut self, from: f64, to: f64, id: &str, mailbox: &str) {
        self.stored(from, id, mailbox, &format!("task-{id}"));
        self.moved(from + 0.5, "message.acked", id, mailbox);
        self.state(from + 0.5, mailbox, "working", "busy");
        self.moved(to, "message.settled", id, mailbox);
        self.state(to, mailbox, "idle", "ready");
    }

    fn write(mut self, bed: &Bed) {
        self.all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let session = "session-20261121-100000";
        let line = |(index, (minute, kind, actor, data)): (usize, (f64, &str, String, Value))| {
            let millis = (minute * 60_000.0) as u64;
            let (hour, minute) = (10 + millis / 3_600_000, millis / 60_000 % 60);
            let stamp = format!(
                "2026-11-21T{hour:02}:{minute:02}:{:02}.{:03}Z",
                millis / 1_000 % 60,
                millis % 1_000
            );
            json!({ "timestamp": stamp, "session_id": session, "seq": index + 1, "type": kind, "actor": actor, "data": data })
                .to_string()
        };
        let lines: Vec<String> = self.all.into_iter().enumerate().map(line).collect();
        let logs = bed.project().join(".ensemble/logs");
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join(format!("{session}.ndjson")), lines.join("\n") + "\n").unwrap();
    }
}

/// An hour of eight agents with seven troubles, among ordinary work.
fn hour() -> Log {
    let mut log = Log { all: Vec::new() };
    log.add(0.0, "session_start", "watcher", json!({}));
    for round in 0..5 {
        let from = f64::from(round) * 12.0 + 0.2;
        log.task(from, from + 9.0, &format!("1{round}"), "worker-1");
        log.task(from + 1.0, from + 11.0, &format!("5{round}"), "worker-5");
    }
    log.task(12.0, 60.0, "7", LONG_NAME);
    log.state(0.1, "conductor", "idle", "ready");
    log.state(2.0, "worker-7", "blocked", "a permission prompt <script>: run `rm -rf build`?");
    log.state(51.0, "worker-7", "working", "busy");
    log.state(3.0, "worker-2", "limited", "resets at 3pm");
    log.state(57.0, "worker-2", "working", "busy");
    let plan = json!({ "request_id": "ab12cd34", "kind": "plan", "from": "worker-3", "to": "conductor", "task_id": "task-3" });
    log.add(20.0, "request.opened", "worker-3", plan);
    log.state(20.0, "worker-3", "waiting", "waits for conductor (plan ab12cd34)");
    let quick = json!({ "request_id": "ef56", "kind": "plan", "from": "worker-1", "to": "conductor", "task_id": "task-11" });
    log.add(13.0, "request.opened", "worker-1", quick);
    log.add(
        14.0,
        "request.decided",
        "conductor",
        json!({ "request_id": "ef56", "outcome": "approved" }),
    );
    log.stored(5.0, "4", "coder-4", "task-4");
    log.moved(6.0, "message.acked", "4", "coder-4");
    log.state(6.0, "coder-4", "working", "busy");
    log.state(30.0, "coder-4", "gone", "its process has ended");
    log.add(
        40.0,
        "alarm.raised",
        "watcher",
        json!({ "alarm": "stalled", "about": "t5", "text": "task t5 has stalled" }),
    );
    log.stored(10.0, "6", "worker-6", "task-6");
    log.add(
        14.0,
        "escalation",
        "watcher",
        json!({ "worker_id": "worker-6", "task_id": "task-6", "reason": "no ack", "phase": 3 }),
    );
    log.stored(11.0, "8", "worker-8", "task-8");
    log.add(
        45.0,
        "message.dead",
        "watcher",
        json!({ "id": "8", "mailbox": "worker-8", "reason": "after 5 attempts" }),
    );
    log.add(
        50.0,
        "file.rejected",
        "watcher",
        json!({ "file": "reports/task-20-completed.yaml", "error": "x".repeat(300) }),
    );
    log.state(MINUTES as f64, "conductor", "idle", "ready");
    log
}

/// A project with the page of that session, and a browser; `None` where there is no browser.
fn stage() -> Option<(Bed, PathBuf, Browser)> {
    let bed = Bed::empty();
    bed.ok("init");
    fs::remove_dir_all(bed.project().join(".ensemble/logs")).unwrap();
    hour().write(&bed);
    bed.ok("log report -o page.html").has(["page.html"]);
    let page = bed.project().join("page.html");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("7 things went wrong, 1 more to look at"), "{}", &html[..2_000]);
    assert_eq!(bed.ok("log report -o -"), html, "the same to stdout");
    let browser = Browser::start(&bed.project())?;
    Some((bed, page, browser))
}

pub(crate) const DESK: Screen =
    Screen { width: 1280, is_phone: false, is_dark: false, is_paper: false };
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

struct Colours {
    page: [u8; 3],
    blocked: [u8; 3],
    limited: [u8; 3],
    working: [u8; 3],
    held: [u8; 3],
    waits: [u8; 3],
}

const LIGHT: Colours = Colours {
    page: [0xf6, 0xf6, 0xf3],
    blocked: [0xc8, 0x32, 0x2b],
    limited: [0x7a, 0x5c, 0xc6],
    working: [0x23, 0x80, 0x4b],
    held: [0x2a, 0x68, 0xd4],
    waits: [0xe9, 0xc4, 0x6a],
};
const NIGHT: Colours = Colours {
    page: [0x14, 0x17, 0x1a],
    blocked: [0xc8, 0x45, 0x3e],
    limited: [0x80, 0x63, 0xcf],
    working: [0x2b, 0x7d, 0x4e],
    held: [0x35, 0x70, 0xd6],
    waits: [0xa9, 0x8a, 0x35],
};

#[track_caller]
fn is_painted(picture: &Picture, (x, y): (f64, f64), expected: [u8; 3], what: &str) {
    let found = picture.at(x, y);
    let is_near = found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 3);
    assert!(is_near, "{what}: {found:?} at {x:.0},{y:.0}, not {expected:?}");
}

/// Where the row of an agent or task is drawn: left, top, width and height of its track.
fn track(browser: &mut Browser, section: &str, name: &str) -> [f64; 4] {
    let place = browser.evaluate(&format!(
        "(() => {{ for (const lane of document.querySelectorAll('#{section} .lane')) {{
           const button = lane.querySelector('.name button');
           if (button && button.textContent === '{name}') {{
             const r = lane.querySelector('.track').getBoundingClientRect();
             return [r.left, r.top + scrollY, r.width, r.height] }} }} }})()"
    ));
    let number = |index: usize| place[index].as_f64().unwrap_or_else(|| panic!("{name}: {place}"));
    [number(0), number(1), number(2), number(3)]
}

/// Each state and each held task is where its time is, in the row of its agent, in its colour.
fn check_rows(browser: &mut Browser, name: &str, screen: Screen) {
    let picture = browser.picture(name);
    let colours = match (screen.is_dark, screen.is_paper) {
        (true, false) => NIGHT,
        (_, true) => Colours { page: [0xff, 0xff, 0xff], ..LIGHT },
        (false, false) => LIGHT,
    };
    is_painted(&picture, (3.0, 3.0), colours.page, &format!("{name}: the page"));
    let mut check = |section: &str, row: &str, minute: f64, below: f64, colour, what: &str| {
        let [left, top, width, _] = track(browser, section, row);
        let place = (left + minute / MINUTES as f64 * width, top + below);
        is_painted(&picture, place, colour, &format!("{name}: {row}, {what}"));
    };
    let (state, hold, asked, stage) = (5.0, 37.0, 43.0, 9.0);
    check("lanes", "worker-7", 40.0, state, colours.blocked, "waits for a person");
    check("lanes", "worker-2", 45.0, state, colours.limited, "is at its limit");
    check("lanes", "worker-1", 6.0, state, colours.working, "works");
    check("lanes", "worker-1", 6.0, hold, colours.held, "holds a task");
    check("lanes", "worker-3", 40.0, state, colours.waits, "waits for a decision");
    check("lanes", "worker-3", 40.0, asked, colours.waits, "has asked");
    check("tasks", "task-6", 40.0, stage, colours.waits, "waits in its mailbox");
    check("tasks", "task-8", 55.0, stage, colours.blocked, "is a dead letter");
    check("tasks", "task-7", 40.0, stage, colours.held, "is in hand");
}

const OVERFLOW: &str = "(() => { const root = document.documentElement, out = [];
  if (root.scrollWidth > root.clientWidth) out.push('page ' + root.scrollWidth);
  for (const e of document.querySelectorAll('body *')) { const r = e.getBoundingClientRect();
    if (e.closest('.scroll, .track, .arrows, dialog') || !r.width) continue;
    if (r.right > root.clientWidth + 1 || r.left < -1) out.push(e.tagName + '.' + e.className + ' ' + r.right);
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'visible' && e.clientWidth)
      out.push(e.tagName + '.' + e.className + ' holds ' + e.scrollWidth + ' in ' + e.clientWidth); }
  for (const row of document.querySelectorAll('tbody tr'))
    if (row.getBoundingClientRect().height > 130) out.push('row ' + row.getBoundingClientRect().height);
  const ticks = [...document.querySelectorAll('.tick')].map(t => t.getBoundingClientRect()).filter(r => r.width);
  for (let i = 1; i < ticks.length; i++) if (ticks[i].left < ticks[i - 1].right && ticks[i].top === ticks[i - 1].top) out.push('ticks ' + i);
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
#[ignore = "long"]
fn every_screen_shows_states_and_tasks_in_their_places_and_colours() {
    let Some((_bed, page, mut browser)) = stage() else { return };
    for (name, screen) in SCREENS {
        browser.open(&page, screen);
        check_rows(&mut browser, name, screen);
    }
    browser.open(&page, DESK);
    let pdf = browser.print();
    let pages = pdf.windows(11).filter(|part| part == b"/Type /Page").count()
        - pdf.windows(12).filter(|part| part == b"/Type /Pages").count();
    assert!(pdf.starts_with(b"%PDF") && (1..=5).contains(&pages), "{pages} pages");
}

#[test]
fn everything_can_be_read_nothing_is_loaded_keys_open_stories_and_axe_finds_nothing() {
    let Some((_bed, page, mut browser)) = stage() else { return };
    for (name, screen) in SCREENS {
        browser.open(&page, screen);
        assert_eq!(browser.evaluate(OVERFLOW), json!([]), "{name}");
        let read = browser.evaluate(CONTRAST);
        assert!(read[0].as_u64() > Some(100), "{name}: {read}");
        assert_eq!(read[1], json!([]), "{name}");
        let loaded = "performance.getEntriesByType('resource').length";
        assert_eq!(browser.evaluate(loaded), 0, "{name}");
    }
    for screen in [DESK, DARK_PHONE] {
        browser.open(&page, screen);
        assert_eq!(open_story(&mut browser), "");
        browser.click(".bar[title^='task-6 waited']");
        open_story(&mut browser).has(["Task task-6", "has not picked up", "no ack"]);
        browser.press("Escape");
        assert_eq!(open_story(&mut browser), "");
        browser.click(".arrow.open");
        open_story(&mut browser).has(["Request ab12cd34", "asks for a decision"]);
        browser.press("Escape");
        browser.evaluate("document.querySelector('.bar[title^=blocked]').focus()");
        browser.press("ArrowRight");
        let now = browser.evaluate("document.activeElement.title");
        assert!(now.as_str().unwrap().starts_with("working"), "{now}");
        browser.press("Enter");
        open_story(&mut browser).has(["Agent worker-7", "<script>: run"]);
        browser.press("Escape");
    }
    let Some(axe) = axe() else {
        println!("skipped: axe-core cannot be installed (npm install axe-core)");
        return;
    };
    for (name, screen) in [("desk", DESK), ("dark-phone", DARK_PHONE)] {
        browser.open(&page, screen);
        browser.evaluate(&axe);
        let found = browser.promised(
            "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + ' ' + n.failureSummary)))",
        );
        assert_eq!(found, json!([]), "{name}");
    }
}

fn open_story(browser: &mut Browser) -> String {
    let text = "(() => { const d = document.getElementById('story'); return d.open ? d.innerText : '' })()";
    browser.evaluate(text).as_str().unwrap().to_owned()
}

fn axe() -> Option<String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let prefix = target.join("axe");
    let file = prefix.join("node_modules/axe-core/axe.min.js");
    if !file.exists() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(&prefix);
        let _ = npm.arg("axe-core@4.14.1").stdin(Stdio::null()).status();
    }
    let found = fs::read_to_string(file).ok();
    let is_required = std::env::var("ENSEMBLE_TEST_CLIENTS").is_ok_and(|v| v == "required");
    assert!(found.is_some() || !is_required, "axe-core cannot be installed");
    found
}

#[test]
fn a_followed_page_updates_itself_and_keeps_strangers_out() {
    let bed = Bed::empty();
    bed.ok("init");
    bed.ok("mailbox add w1");
    bed.send("first");
    let mut server = Running(
        Command::new(program())
            .args(["--json", "log", "report", "--follow"])
            .current_dir(bed.project())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = objects(&line).remove(0)["url"].as_str().unwrap().to_owned();
    if let Some(mut browser) = Browser::start(&bed.project()) {
        browser.visit(url.split("?").next().unwrap());
        browser.evaluate("document.body.innerText").as_str().unwrap().has(["open the address"]);
        browser.visit(&url);
        let messages = "[...document.querySelectorAll('.figures div')].find(d => d.innerText.includes('messages')).querySelector('dd').innerText";
        assert!(browser.evaluate(messages).as_str().unwrap().starts_with('1'));
        bed.send("second");
        eventually("the page shows the second message", || {
            browser.evaluate(messages).as_str().is_some_and(|text| text.starts_with('2'))
        });
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
    assert!(bed.fails(2, "log report -o - --json").contains("not JSON"));
    bed.ok("log report -o page.html");
    assert!(bed.project().join("page.html").exists());
}
