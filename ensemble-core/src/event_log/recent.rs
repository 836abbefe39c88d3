//! The most recent records of the log.

use std::path::Path;

use super::lines::read_at;
use super::record::Record;
use super::segment;
use crate::durable::{Dir, stat_file};
use crate::error::allow_missing;
use crate::{Error, Result};

/// The last records of the newest file of the log, oldest first: those in its last `bytes_max`
/// bytes. An empty log yields none. Torn lines are skipped.
pub fn recent(dir: &Path, bytes_max: u64) -> Result<Vec<Record>> {
    let Some(dir) = allow_missing(Dir::open(dir))? else { return Ok(Vec::new()) };
    let Some(newest) = segment::list(&dir)?.into_iter().max() else { return Ok(Vec::new()) };
    let Some(file) = dir.open_file(&newest.to_string())? else { return Ok(Vec::new()) };
    let path = dir.path().join(newest.to_string());
    let bytes = stat_file(&file, &path)?.bytes;
    let start = bytes.saturating_sub(bytes_max);
    let room = usize::try_from(bytes - start)
        .map_err(|_| Error::malformed(&path, "file", "is too large to be read"))?;
    let mut content = vec![0; room];
    let read = read_at(&file, &mut content, start, &path)?;
    let lines = content[..read].split(|byte| *byte == b'\n');
    // The first line may have begun before `start`; half a line is not a record.
    Ok(lines.filter_map(|line| Record::parse(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::EventLog;
    use super::*;

    #[test]
    fn the_end_is_read_without_the_half_line_at_its_start() {
        let home = tempfile::tempdir().unwrap();
        let logs = home.path().join("logs");
        assert!(recent(&logs, 100).unwrap().is_empty());
        std::fs::create_dir(&logs).unwrap();
        assert!(recent(&logs, 100).unwrap().is_empty());
        let log = EventLog::open(&logs).unwrap();
        for number in 0..50 {
            log.try_record("nudge.sent", "a", serde_json::json!({ "number": number })).unwrap();
        }
        let all = recent(&logs, u64::MAX).unwrap();
        assert_eq!(all.last().unwrap().data["number"], 49);
        let few = recent(&logs, 1000).unwrap();
        assert!(few.len() > 2 && few.len() < 20, "{}", few.len());
        assert_eq!(few.last(), all.last());
    }
}
