//! Lines of the event log.
//!
//! The bench writes lines as the library does: same members, same order, same segment sizes and
//! continuations. It writes many at once, because the library would take minutes for ten million.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use ensemble_core::event_log::{EventLog, SEGMENT_BYTES_DEFAULT, recent};
use ensemble_core::message::{MessageId, Timestamp};
use serde_json::json;

use super::project::{Project, timed};
use crate::support::points::{At, Points};
use crate::support::{Outcome, go_on, sizes};

const SIZES: [usize; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
const APPENDS: usize = 1_000;
/// An upper bound of a line's length.
const LINE_BYTES: u64 = 256;
/// Event types in a message's life.
const LIFE: [&str; 3] = ["message.stored", "message.acked", "message.settled"];
/// Time stamp of the first line: 2026-01-01.
const BEGIN_MILLIS: i64 = 1_767_225_600_000;
const SESSION: &str = "session-20260101-000000";
/// Interval between two checks for Ctrl-C.
const CHUNK: usize = 100_000;
const CHART: &str = "log";

pub fn run(points: &mut Points) -> Outcome<()> {
    let mut place = "";
    for lines in sizes("ENSEMBLE_BENCH_SCALE_LINES", &SIZES)? {
        let project = Project::new(lines as u64 * LINE_BYTES)?;
        place = project.place;
        project.mailbox("worker-1")?;
        let id = write(&project, lines)?;
        measure(&project, &id, &mut points.at(CHART, lines, "lines"))?;
    }
    points.print(CHART, &format!("lines of the event log ({place})"));
    Ok(())
}

fn measure(project: &Project, id: &MessageId, at: &mut At<'_>) -> Outcome<()> {
    let none = || Ok(());
    project.command(at, "log --limit 10", &["log", "--limit", "10"], none)?;
    project.command(at, "why ID", &["why", id.as_str()], none)?;
    let (open, log) = timed(|| Ok(EventLog::open(&project.logs())?))?;
    let mut appends = Vec::new();
    for number in 0..APPENDS {
        go_on()?;
        let data = json!({ "id": id, "mailbox": "worker-1", "number": number });
        appends.push(timed(|| Ok(log.try_record("message.noted", "bench", data)?))?.0);
    }
    // The reader must see the appended lines continue the written ones.
    let last = recent(&project.logs(), 4096)?.pop().ok_or("an empty log")?;
    if last.data["number"] != APPENDS - 1 || last.session_id != SESSION {
        return Err("the log did not continue after its last line".into());
    }
    at.add("append", "us", &appends)?;
    at.add("open for appending", "us", &[open])?;
    project.watcher(at).map(drop)
}

/// Writes a log of this many lines. Returns the id of a message in its middle.
fn write(project: &Project, lines: usize) -> Outcome<MessageId> {
    let logs = project.logs();
    std::fs::create_dir_all(&logs)?;
    let name = |part: usize| match part {
        0 => format!("{SESSION}.ndjson"),
        part => format!("{SESSION}.{part}.ndjson"),
    };
    let open = |part| Ok::<_, std::io::Error>(BufWriter::new(File::create(logs.join(name(part)))?));
    let (mut part, mut bytes, mut segment) = (0, 0, open(0)?);
    let (mut id, mut middle) = (MessageId::generate(), None);
    for seq in 1..=lines {
        if seq.is_multiple_of(CHUNK) {
            go_on()?;
        }
        let stage = (seq - 1) % LIFE.len();
        if stage == 0 {
            id = MessageId::generate();
        }
        if seq == lines / 2 {
            middle = Some(id.clone());
        }
        let data = match stage {
            0 => format!(r#"{{"id":"{id}","mailbox":"worker-1","type":"task","bytes":512}}"#),
            _ => format!(r#"{{"id":"{id}","mailbox":"worker-1","epoch":1}}"#),
        };
        let is_full = bytes >= SEGMENT_BYTES_DEFAULT;
        let (kind, actor, data) = match is_full {
            true => {
                let next = format!(r#"{{"next":"{}"}}"#, name(part + 1));
                ("log.continued", "ensemble", next)
            }
            false => (LIFE[stage], "worker-1", data),
        };
        let at = Timestamp::from_unix_millis(BEGIN_MILLIS + i64::try_from(seq)?);
        let line = format!(
            r#"{{"timestamp":"{at}","session_id":"{SESSION}","seq":{seq},"type":"{kind}","actor":"{actor}","data":{data}}}"#
        );
        writeln!(segment, "{line}")?;
        bytes += line.len() as u64 + 1;
        if is_full {
            segment.flush()?;
            part += 1;
            (bytes, segment) = (0, open(part)?);
        }
    }
    segment.flush()?;
    middle.ok_or_else(|| "too few lines".into())
}
