//! Times and sizes that documents quote are those of the code.
//!
//! Each row names a document, a sentence of it with `{}` in place of the number, and the constant.
//! The constant has its file (or directory, for `mod.rs`) below `ensemble-` or `crates/ensemble-`,
//! and its name. A sentence that was reworded fails, too, so no row is left without its sentence.

use crate::*;

#[rustfmt::skip]
const QUOTED: &[(&str, &str, &str, &str)] = &[
    ("docs/protocol/receipts.md", "Two lines are at least {} ms apart", "tmux/src/nudge/pace.rs", "NUDGE_INTERVAL_MIN"),
    ("docs/protocol/receipts.md", "after {} ms, doubling to 30 s", "tmux/src/nudge/pace.rs", "RETRY_MIN"),
    ("docs/protocol/receipts.md", "ms, doubling to {} s", "tmux/src/nudge/pace.rs", "RETRY_MAX"),
    ("docs/protocol/receipts.md", "During a turn the pause is at most {} ms", "tmux/src/nudge/pace.rs", "RETRY_BUSY_MAX"),
    ("docs/protocol/receipts.md", "copy-mode it is at most {} s", "tmux/src/nudge/pace.rs", "RETRY_PERSON_MAX"),
    ("docs/protocol/receipts.md", "repeats the line after {}, 120", "tmux/src/nudge/pace.rs", "NUDGE_REPEAT"),
    ("docs/protocol/receipts.md", "120 and {} s in", "tmux/src/nudge/pace.rs", "NUDGE_REPEAT_MAX"),
    ("docs/protocol/limits.md", "| nudge | {} bytes", "core/src/pane.rs", "NUDGE_BYTES_MAX"),
    ("docs/protocol/limits.md", "bytes, {} lines without an answer", "tmux/src/nudge/pace.rs", "NUDGES_MAX"),
    ("docs/protocol/limits.md", "| envelope, body | {} and", "core/src/message/envelope.rs", "ENVELOPE_BYTES_MAX"),
    ("PROTOCOL.md", "An envelope is immutable, at most {} bytes", "core/src/message/envelope.rs", "ENVELOPE_BYTES_MAX"),
    ("docs/protocol/limits.md", "report check, each list | {} bytes", "reports/src/lint/config.rs", "WORD_BYTES_MAX"),
    ("docs/protocol/limits.md", "bytes; {} bytes together", "reports/src/lint/config.rs", "WORDS_BYTES_MAX"),
    ("docs/protocol/limits.md", "| name | {} bytes", "core/src/message/name.rs", "NAME_BYTES_MAX"),
    ("docs/protocol/limits.md", "| attachment | {} bytes", "core/src/spool/attachment.rs", "ATTACHMENT_BYTES_MAX"),
    ("docs/protocol/limits.md", "| lease | 300 s; at most {} s", "core/src/mail.rs", "LEASE_SECONDS_MAX"),
    ("PROTOCOL.md", "counts for at most {} s,", "core/src/proto/lease", "LOOK_GAP_MAX"),
    ("PROTOCOL.md", "a clock jump of {} s or more", "core/src/proto/lease/gap.rs", "CLOCK_GAP_MIN"),
    ("PROTOCOL.md", "a look that is more than {} s late", "core/src/proto/lease", "LOOK_INTERVAL"),
    ("PROTOCOL.md", "to {} s longer, but", "core/src/proto/lease", "HOLD"),
    ("PROTOCOL.md", "and {} s at most", "core/src/proto/lease", "OVERTIME_MAX"),
    ("PROTOCOL.md", "extends in time, usually every {} s", "core/src/proto/lease", "HEARTBEAT"),
    ("PROTOCOL.md", "it is unchanged for {} ms:", "core/src/dropbox/open_boxes.rs", "IN_PLACE_QUIET"),
    ("PROTOCOL.md", "for {} s if it was linked or found without an event", "core/src/dropbox/open_boxes.rs", "FOUND_QUIET"),
    ("PROTOCOL.md", "notified once it is closed and unchanged for {} s.", "core/src/dropbox/open_boxes.rs", "INCOMPLETE_PATIENCE"),
    ("docs/protocol/limits.md", "| a file in `tmp/` | {} s unchanged", "core/src/spool/sweep.rs", "TMP_AGE_MAX"),
    ("docs/protocol/limits.md", "| finishing after an approved shutdown | {} s", "team/src/proto/shutdown", "GRACE"),
    ("docs/protocol/roster.md", "`SIGTERM`, {} s, then", "team/src/proto/shutdown", "TERMINATE_WAIT"),
    ("docs/protocol/limits.md", "| polling in addition to events | {} s", "core/src/proto/reconcile.rs", "SCAN_INTERVAL"),
    ("docs/protocol/limits.md", "| waiting for a lock | {} s (the log", "core/src/spool", "LOCK_PATIENCE"),
    ("docs/protocol/limits.md", "(the log: {} s)", "core/src/event_log", "LOG_LOCK_PATIENCE"),
    ("docs/protocol/limits.md", "| Dispatch waits for reports, Conductor for the summary | {} s", "team/src/proto/patience.rs", "DISPATCH_PATIENCE"),
    ("docs/protocol/limits.md", "Conductor for the summary | 180 s, {} s", "team/src/proto/patience.rs", "CONDUCTOR_PATIENCE"),
    ("docs/protocol/limits.md", "| handshake | {} pings", "core/src/proto/ready", "ATTEMPTS_MAX"),
    ("docs/protocol/limits.md", "pings, {} s for each pong", "core/src/proto/ready", "PONG_WAIT"),
    ("docs/protocol/limits.md", "each pong, {} s between", "core/src/proto/ready", "RETRY_DELAY"),
    ("docs/protocol/limits.md", "| ladder | {} s a phase", "core/src/proto/ack", "PHASE_TIMEOUT"),
    ("docs/protocol/limits.md", "a phase, {} s for a worker", "core/src/proto/ack", "WAIT_MAX"),
    ("docs/protocol/limits.md", "a draft | {} s, 1,800 s, 1,800 s", "team/src/board/alarms.rs", "ORPHAN_GRACE"),
    ("docs/protocol/limits.md", "| steps of a plan, a plan | {}; 4,194,304", "team/src/steps/plan.rs", "STEPS_MAX"),
    ("docs/protocol/limits.md", "a plan | 10,000; {} bytes", "team/src/steps/plan.rs", "PLAN_BYTES_MAX"),
    ("docs/protocol/limits.md", "| log line, actor, type | {}, 128", "core/src/event_log/line.rs", "LINE_BYTES_MAX"),
    ("docs/protocol/limits.md", "| log segment | {} bytes", "core/src/event_log", "SEGMENT_BYTES_DEFAULT"),
    ("docs/protocol/requests.md", "`reason`, `reason` | {} s, every", "core/src/proto/request/kind.rs", "SHUTDOWN_DEADLINE"),
    ("docs/protocol/requests.md", "`reason`, `reason` | 120 s, every {} s", "core/src/proto/request/kind.rs", "SHUTDOWN_REMIND_EVERY"),
    ("docs/protocol/requests.md", "`plan`, `feedback` | {} s, every", "core/src/proto/request/kind.rs", "PLAN_DEADLINE"),
    ("docs/guides/escalation.md", "It waits {} s for", "core/src/proto/ready", "PONG_WAIT"),
    ("docs/guides/escalation.md", "ping follows after {} s", "core/src/proto/ready", "RETRY_DELAY"),
    ("docs/guides/escalation.md", "A phase lasts {} s and", "core/src/proto/ack", "PHASE_TIMEOUT"),
    ("docs/guides/escalation.md", "inspected every {} s, and", "core/src/proto/ack", "INSPECT_INTERVAL"),
    ("docs/guides/escalation.md", "after the ceiling ({} minutes", "core/src/proto/ack", "WAIT_MAX"),
    ("docs/guides/escalation.md", "while its pane shows the limit, for at most {} h", "core/src/proto/ack", "PARK_MAX"),
    ("ensemble-cli/src/commands/down.rs", "all together [default: as configured, {}m each]", "core/src/proto/request/kind.rs", "SHUTDOWN_DEADLINE"),
    ("ensemble-cli/src/commands/instruct.rs", "Wait for the summary [{}m if", "team/src/proto/patience.rs", "CONDUCTOR_PATIENCE"),
];

/// The product of a constant's factors, such as `30 * 60` or `1 << 30`; as it is written.
fn value(expression: &str) -> Option<u64> {
    let factor = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    expression.split('*').map(factor).product()
}

/// The constant in its unit: bytes, a count, or milliseconds.
fn constant(place: &str, name: &str) -> (u64, bool) {
    let below_crates = ["reports/", "team/", "tmux/"].iter().any(|home| place.starts_with(home));
    let crates = if below_crates { "crates" } else { "" };
    let path = root().join(crates).join(format!("ensemble-{place}"));
    let path = if path.is_dir() { path.join("mod.rs") } else { path };
    let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{place}: {error}"));
    let start =
        source.find(&format!("const {name}: ")).unwrap_or_else(|| panic!("{place}: no {name}"));
    let (declared, _) = source[start..].split_once(';').unwrap();
    let (_, expression) = declared.split_once(" = ").unwrap();
    for (call, milliseconds) in [("Duration::from_secs(", 1_000), ("Duration::from_millis(", 1)] {
        if let Some(inner) = expression.strip_prefix(call).and_then(|rest| rest.strip_suffix(')')) {
            let value = value(inner).unwrap_or_else(|| panic!("{name}: {expression}"));
            return (value * milliseconds, true);
        }
    }
    (value(expression).unwrap_or_else(|| panic!("{name}: {expression}")), false)
}

/// The number in a sentence and how many milliseconds its unit has, if it is a time.
fn quoted(document: &str, sentence: &str) -> Option<(u64, u64)> {
    let (before, after) = sentence.split_once("{}")?;
    let mut rest = document;
    while let Some(at) = rest.find(before) {
        rest = &rest[at + before.len()..];
        let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
        let number = number.trim_end_matches(',');
        if !number.is_empty() && rest[number.len()..].starts_with(after) {
            let unit = rest[number.len()..].trim_start();
            let unit = match unit {
                unit if unit.starts_with("ms") => 1,
                unit if unit.starts_with("min") || unit.starts_with('m') => 60_000,
                unit if unit.starts_with('h') => 3_600_000,
                _ => 1_000,
            };
            return Some((number.replace(',', "").parse().ok()?, unit));
        }
    }
    None
}

#[test]
fn documents_quote_the_constants_of_the_code() {
    let mut wrong = Vec::new();
    for (document, sentence, place, name) in QUOTED {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (real, is_time) = constant(place, name);
        match quoted(&text, sentence) {
            None => wrong.push(format!("{document} no longer says `{sentence}` ({name})")),
            Some((number, unit)) => {
                let said = if is_time { number * unit } else { number };
                if said != real {
                    wrong.push(format!("{document}: `{sentence}` says {said}, {name} is {real}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_number_and_a_lost_sentence_are_seen() {
    assert_eq!(quoted("waits 5 s for", "waits {} s for"), Some((5, 1_000)));
    assert_eq!(quoted("at most 65,536 bytes", "at most {} bytes"), Some((65_536, 1_000)));
    assert_eq!(quoted("[default: 2m]", "default: {}m]"), Some((2, 60_000)));
    assert_eq!(quoted("waits long", "waits {} s for"), None);
    assert_eq!(value("30 * 60"), Some(1_800));
}
