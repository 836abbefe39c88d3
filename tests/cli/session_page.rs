//! The page of a session: one file, checked in a real browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::bed::Bed;

/// When, what, who, and more.
type Happened = (u64, &'static str, String, Value);

/// A task handed to a worker, and its report; when the worker is done.
fn task(
    all: &mut Vec<Happened>,
    number: u64,
    worker: &str,
    from: u64,
    ends_with: &'static str,
) -> u64 {
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
    done + 2_500
}

/// A session with a bit of everything, in the log's own format.
fn write_log(bed: &Bed) {
    let mut all: Vec<Happened> = vec![(0, "session_start", "ensemble".to_owned(), json!({}))];
    let workers = [
        ("worker-1", 1_200),
        ("worker-2", 2_900),
        ("worker-3", 4_100),
        ("security-reviewer", 260_000),
    ];
    for (index, (worker, start)) in workers.into_iter().enumerate() {
        let mut clock = start;
        for round in 0..9 {
            let number = round * 4 + index as u64 + 1;
            let end = if number == 18 { "message.released" } else { "message.settled" };
            clock = task(&mut all, number, worker, clock, end);
        }
    }
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
        json!({ "file": "reports/task-20-completed.yaml", "error": "line 3: status is `maybe`: write one of success, failed, blocked" }),
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
}

/// A picture of the page; `None` if there is no browser here.
fn screenshot(bed: &Bed, page: &Path, name: &str, size: &str, more: &[&str]) -> Option<(u32, u32)> {
    let picture = bed.project().join(name);
    let profile = bed.project().join("profile");
    let ran = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={size}"))
        .arg(format!("--screenshot={}", picture.display()))
        .args(more)
        .arg(format!("file://{}", page.display()))
        .env("HOME", bed.project())
        .output();
    let output = match ran {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: chromium is not installed");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let png = fs::read(&picture)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    if let Some(kept) = std::env::var_os("ENSEMBLE_KEEP_SCREENSHOTS") {
        fs::copy(&picture, Path::new(&kept).join(name)).unwrap();
    }
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert!(png.len() > 10_000, "{name} is all but empty: {} bytes", png.len());
    Some((number(16), number(20)))
}

/// What the browser makes of the page, measured by itself: how wide it is, in how wide a window.
fn measured(bed: &Bed, html: &str, width: u32) -> Option<(u32, u32)> {
    // Only for the measuring: the page itself has no script and allows none.
    let policy = html.find("<meta http-equiv").unwrap();
    let end = policy + html[policy..].find('>').unwrap() + 1;
    let script = "<script>addEventListener('load',()=>{document.title=document.documentElement.scrollWidth+'x'+innerWidth})</script></body>";
    let probe = format!("{}{}", &html[..policy], &html[end..]).replace("</body>", script);
    let page = bed.project().join("probe.html");
    fs::write(&page, probe).unwrap();
    let ran = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            "--disable-dev-shm-usage",
        ])
        .arg(format!("--user-data-dir={}", bed.project().join("profile").display()))
        .arg(format!("--window-size={width},900"))
        .arg(format!("file://{}", page.display()))
        .env("HOME", bed.project())
        .output();
    let output = ran.ok()?;
    let dom = String::from_utf8_lossy(&output.stdout);
    let title = dom.split("<title>").nth(1)?.split("</title>").next()?;
    let (page, window) = title.split_once('x').unwrap_or_else(|| panic!("no measure: {title}"));
    Some((page.parse().unwrap(), window.parse().unwrap()))
}

#[test]
fn the_page_looks_right_in_a_browser_wide_narrow_and_dark() {
    let bed = Bed::empty();
    bed.ok("init");
    fs::remove_dir_all(bed.project().join(".ensemble/logs")).unwrap();
    write_log(&bed);
    let said = bed.ok("log report -o page.html");
    assert!(said.contains("page.html"), "{said}");
    let page = bed.project().join("page.html");
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        html.contains("3 things went wrong") && !html.contains("<script"),
        "{}",
        &html[..2_000]
    );
    assert_eq!(bed.ok("log report -o -"), html, "the same to stdout");
    for width in [1280, 700, 500] {
        let Some((page, window)) = measured(&bed, &html, width) else {
            println!("skipped: chromium is not installed");
            return;
        };
        assert!(page <= window, "at {width} px the page is {page} px wide in {window}");
    }
    let wide = screenshot(&bed, &page, "wide.png", "1280,1500", &[]).unwrap();
    assert_eq!(wide, (1280, 1500));
    let _ = screenshot(&bed, &page, "narrow.png", "500,2400", &[]);
    let _ = screenshot(
        &bed,
        &page,
        "dark.png",
        "1280,1500",
        &["--force-dark-mode", "--blink-settings=preferredColorScheme=0"],
    );
    let print = bed.project().join("page.pdf");
    let ran = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"])
        .arg(format!("--user-data-dir={}", bed.project().join("profile").display()))
        .arg(format!("--print-to-pdf={}", print.display()))
        .arg(format!("file://{}", page.display()))
        .env("HOME", bed.project())
        .output()
        .unwrap();
    let pdf = fs::read(&print).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    if let Some(kept) = std::env::var_os("ENSEMBLE_KEEP_SCREENSHOTS") {
        fs::copy(&print, Path::new(&kept).join("page.pdf")).unwrap();
    }
    assert!(pdf.starts_with(b"%PDF"), "it prints");
}

#[test]
fn without_a_log_or_a_session_it_says_so() {
    let bed = Bed::empty();
    bed.fails(3, "log report");
    bed.ok("init");
    bed.ok("mailbox add w1");
    bed.send("hello");
    bed.fails(3, "log report --session 19990101-000000");
    bed.ok("log report -o page.html");
    assert!(bed.project().join("page.html").exists());
}
