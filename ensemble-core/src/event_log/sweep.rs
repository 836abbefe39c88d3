//! Removing old segments.

use std::collections::BTreeSet;
use std::path::Path;

use super::lines::{FileLine, LineReader};
use super::segment;
use crate::Result;
use crate::durable::{Dir, FileStat};

/// Removes the segments that are old by `is_old` and that mention none of the names that `open` returns. The newest
/// segment stays, and so does each one in which the newest session continues. `open` is called once, if a segment is
/// old. Returns the number of removed segments.
///
/// # Errors
/// A segment cannot be read or removed, or `open` fails. Segments removed before an error stay removed.
pub fn sweep(
    dir: &Path,
    is_old: &mut dyn FnMut(&FileStat) -> bool,
    open: &mut dyn FnMut() -> Result<BTreeSet<String>>,
) -> Result<usize> {
    if !dir.is_dir() {
        return Ok(0);
    }
    let logs = Dir::open(dir)?;
    let segments = segment::list(&logs)?;
    let newest = segments.last().map(segment::Segment::session_id);
    let mut names = None;
    let mut removed = 0;
    for segment in segments.iter().filter(|segment| newest != Some(segment.session_id())) {
        let file = segment.to_string();
        if !logs.stat(&file)?.is_some_and(|stat| stat.is_file && is_old(&stat)) {
            continue;
        }
        let names = match &names {
            Some(names) => names,
            None => names.insert(escaped(open()?)),
        };
        if !mentions(&logs, &file, names)? {
            logs.remove(&file)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Names as they are in records: those that are between two quotes, and those with a quote in them.
type QuotedNames = (BTreeSet<Vec<u8>>, Vec<Vec<u8>>);

fn escaped(names: BTreeSet<String>) -> QuotedNames {
    let quoted = names.iter().filter_map(|name| serde_json::to_string(name).ok());
    let inner = quoted.map(|text| text.as_bytes()[1..text.len() - 1].to_vec());
    let (odd, plain): (Vec<_>, Vec<_>) = inner.partition(|name| name.contains(&b'"'));
    (plain.into_iter().collect(), odd)
}

/// Whether a record of a segment mentions one of these names. A line that is too long is not a record.
fn mentions(dir: &Dir, file: &str, (plain, odd): &QuotedNames) -> Result<bool> {
    let Some(opened) = dir.open_file(file)? else { return Ok(true) };
    let mut lines = LineReader::new(opened, &dir.path().join(file), 0, 0);
    if plain.is_empty() && odd.is_empty() {
        return Ok(false);
    }
    while let Some(line) = lines.next()? {
        if let FileLine::Whole(text) = line
            && (text.split(|byte| *byte == b'"').any(|part| plain.contains(part))
                || odd.iter().any(|name| memchr::memmem::find(text, name).is_some()))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::super::{EventLog, LogOptions, Recorder as _};
    use super::*;

    fn no_work() -> Result<BTreeSet<String>> {
        Ok(BTreeSet::new())
    }

    #[test]
    fn old_segments_go_but_those_that_mention_open_work_and_those_of_the_newest_session() {
        let home = tempfile::tempdir().unwrap();
        let options = LogOptions::default().with_segment_bytes_max(1);
        for task in ["done", "open", "last"] {
            let log = EventLog::start_session_with(home.path(), "test", options).unwrap();
            log.record("task_start", "test", serde_json::json!({ "task_id": task }));
        }
        let count = || segment::list(&Dir::open(home.path()).unwrap()).unwrap().len();
        let before = count();
        assert_eq!(sweep(home.path(), &mut |_| false, &mut no_work).unwrap(), 0);
        let mut asked = 0;
        let mut open = || {
            asked += 1;
            Ok(BTreeSet::from(["open".to_owned(), "op".to_owned()]))
        };
        let removed = sweep(home.path(), &mut |_| true, &mut open).unwrap();
        assert_eq!((asked, count()), (1, before - removed));
        let left: Vec<String> = super::super::read_all(home.path())
            .unwrap()
            .filter_map(|record| Some(record.data.get("task_id")?.as_str()?.to_owned()))
            .collect();
        assert_eq!(left, ["open", "last"]);
        sweep(home.path(), &mut |_| true, &mut no_work).unwrap();
        let log = EventLog::open(home.path()).unwrap();
        log.record("task_start", "test", serde_json::json!({}));
        assert!(sweep(home.path(), &mut |_| true, &mut || panic!("nothing is old")).unwrap() == 0);
    }

    #[test]
    fn a_name_with_a_quote_is_found() {
        let home = tempfile::tempdir().unwrap();
        let log = EventLog::start_session(home.path(), "test").unwrap();
        log.record("task_start", "test", serde_json::json!({ "task_id": "a\u{e4}\"b\\c" }));
        EventLog::start_session(home.path(), "test").unwrap();
        let names = || Ok(BTreeSet::from(["a\u{e4}\"b\\c".to_owned()]));
        assert_eq!(sweep(home.path(), &mut |_| true, &mut { names }).unwrap(), 0);
    }
}
