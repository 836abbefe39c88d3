//! The journal of every process: one line before each operation and one with its result after it.
//! Each is one `write(2)`, outside of the queue under test. A process killed inside an operation
//! leaves only the first line.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// Nanoseconds of the clock that all processes share and no process sets.
    at: u64,
    who: String,
    /// The same for the two lines of an operation.
    number: u64,
    verb: String,
    key: String,
    /// Only after the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// `ok`, `refused`, `nothing` or another word of its verb.
    pub word: String,
    pub epoch: u64,
}

/// An operation of a process: the interval in which it happened, and its outcome.
#[derive(Clone, Debug)]
pub struct Operation {
    pub who: String,
    pub verb: String,
    pub key: String,
    pub start: u64,
    /// Never, if its process was killed inside.
    pub end: u64,
    pub outcome: Option<Outcome>,
}

impl Operation {
    pub fn is(&self, verb: &str, word: &str) -> bool {
        self.verb == verb && self.outcome.as_ref().is_some_and(|outcome| outcome.word == word)
    }

    pub fn epoch(&self) -> u64 {
        self.outcome.as_ref().map_or(0, |outcome| outcome.epoch)
    }

    /// It was killed inside: the outcome is unknown.
    pub fn is_open(&self, verb: &str) -> bool {
        self.verb == verb && self.outcome.is_none()
    }
}

/// The journal of one life of a process.
#[derive(Debug)]
pub struct Journal {
    file: File,
    who: String,
    number: u64,
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

impl Journal {
    pub fn open(directory: &Path, who: &str) -> Self {
        // Numbers of processes come again in an hour; the time does not.
        let who = format!("{who}.{}.{}", std::process::id(), now());
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(directory.join(&who));
        Self { file: file.expect("a journal can be written"), who, number: 0 }
    }

    fn line(&mut self, verb: &str, key: &str, outcome: Option<Outcome>) {
        let (who, number) = (self.who.clone(), self.number);
        let (verb, key) = (verb.to_owned(), key.to_owned());
        let line = Line { at: now(), who, number, verb, key, outcome };
        let mut text = serde_json::to_vec(&line).expect("a line");
        text.push(b'\n');
        self.file.write_all(&text).expect("a journal can be written");
    }

    /// Does something to `key`, and notes the outcome: the word and the number. If the operation
    /// itself finds out to what it was done, that is noted, too.
    pub fn during<T>(
        &mut self,
        verb: &str,
        key: &str,
        action: impl FnOnce() -> (T, &'static str, u64, Option<String>),
    ) -> T {
        self.number += 1;
        self.line(verb, key, None);
        let (value, word, epoch, found) = action();
        let key = found.unwrap_or_else(|| key.to_owned());
        self.line(verb, &key, Some(Outcome { word: word.to_owned(), epoch }));
        value
    }
}

/// All operations of the processes whose names begin so, by the time of their ends.
pub fn read(directory: &Path, begin: &str) -> Vec<Operation> {
    let mut operations: HashMap<(String, u64), Operation> = HashMap::new();
    for entry in std::fs::read_dir(directory).expect("the journals") {
        let entry = entry.expect("an entry");
        if !entry.file_name().to_string_lossy().starts_with(begin) {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).expect("a journal");
        // The last line may have been cut by a kill.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line: Line = serde_json::from_str(line).expect("a line of a journal");
            let key = (line.who.clone(), line.number);
            let operation = operations.entry(key).or_insert_with(|| Operation {
                who: line.who,
                verb: line.verb,
                key: line.key.clone(),
                start: line.at,
                end: u64::MAX,
                outcome: None,
            });
            if line.outcome.is_some() {
                (operation.end, operation.key) = (line.at, line.key);
                operation.outcome = line.outcome;
            }
        }
    }
    let mut operations: Vec<Operation> = operations.into_values().collect();
    operations.sort_by_key(|operation| (operation.end, operation.start));
    operations
}
