//! The table of Ensemble's performance promises: each row measures ours against its limit, in
//! turns, in one run. `cargo bench -p ensemble-watch -- detect store` measures some rows.
//! benches/README.md describes how to read them.
#![allow(missing_docs, unreachable_pub, reason = "a program of several files")]

mod rows;
mod support;

use std::process::ExitCode;

use support::process::ROLE;
use support::{Outcome, go_on};

type Row = (&'static str, fn() -> Outcome<()>);

/// Rows that leave many deleted files behind come last.
const ROWS: [Row; 14] = [
    ("detect", rows::detect::run),
    ("watchers", rows::watchers::run),
    ("waiting", rows::waiting::run),
    ("nudge", rows::nudge::run),
    ("idle", rows::idle::run),
    ("start", rows::start::run),
    ("top", rows::top::run),
    ("lint", rows::lint::run),
    ("store", rows::store::run),
    ("queues", rows::queues::run),
    ("shared", rows::shared::run),
    ("steps", rows::steps::run),
    ("depth", rows::depth::run),
    ("burst", rows::burst::run),
];

/// Rows that take minutes, measured only if named.
const LONG_ROWS: [Row; 1] = [("scale", rows::scale::run)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == ROLE) {
        return match in_role(&arguments[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {error}", arguments[1..].join(" "));
                ExitCode::FAILURE
            }
        };
    }
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let is_named = |name: &str| wanted.iter().any(|w| *w == name);
    let is_wanted = |name: &str| wanted.is_empty() || is_named(name);
    let usual = ROWS.into_iter().filter(|(name, _)| is_wanted(name));
    let long = LONG_ROWS.into_iter().filter(|(name, _)| is_named(name));
    let mut failed = false;
    for (name, run) in usual.chain(long) {
        if let Err(error) = go_on().and_then(|()| run()) {
            println!("  {name}: {error}");
            failed = true;
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn in_role(arguments: &[String]) -> Outcome<()> {
    let rest: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    match (arguments.first().map(String::as_str), &rest[..]) {
        (Some("raw"), [dir, stamps]) => rows::detect::raw_reader(dir, stamps),
        (Some("polled"), [dir, stamps]) => rows::detect::polled_reader(dir, stamps),
        (Some("fs-watcher"), [dir, stamps]) => rows::detect::fs_watcher_reader(dir, stamps),
        (Some("notify-8"), [dir, stamps]) => rows::watchers::notify_8(dir, stamps),
        (Some("notify-9"), [dir, stamps]) => rows::watchers::notify_9(dir, stamps),
        (Some("poll"), [dir, stamps, millis]) => rows::watchers::poll(dir, stamps, millis),
        (Some("consumer"), [queue, stamps]) => rows::waiting::consumer(queue, stamps),
        (Some("bare-consumer"), [home, stamps]) => rows::waiting::bare_consumer(home, stamps),
        (Some("peer-consumer"), [subject, address, stamps]) => {
            rows::waiting::peer_consumer(subject, address, stamps)
        }
        (Some("busy"), []) => support::latency::busy(),
        (Some("pane"), [stamps]) => rows::nudge::pane_reader(stamps),
        (Some("bare-pane-worker"), [dir, server, pane, stamps, condition]) => {
            rows::nudge::bare_nudger(dir, server, pane, stamps, condition)
        }
        (Some("spawning-pane-worker"), [dir, server, pane, stamps]) => {
            rows::nudge::spawning_nudger(dir, server, pane, stamps)
        }
        (Some("load"), [subject, side, address, until, stamps]) => {
            rows::shared::load(subject, side, address, until.parse()?, stamps)
        }
        _ => Err("no such role".into()),
    }
}
