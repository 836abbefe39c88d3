//! The records of one agent, read as they grow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::lines::{FilePosition, ReadingLimit, UnreadReason, read_new};
use super::{ReadMessages, UsageEntry, claude, codex, gemini, opencode};

/// Most transcripts of subagents that are read beside one transcript.
const SUBAGENTS_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordedProgram {
    Claude,
    Codex,
    Gemini,
    Opencode,
}

impl RecordedProgram {
    pub fn of_provider(provider: &str) -> Option<Self> {
        match provider {
            "claude" => Some(Self::Claude),
            "codex" => Some(Self::Codex),
            "gemini" => Some(Self::Gemini),
            "opencode" | "acp" => Some(Self::Opencode),
            _ => None,
        }
    }
}

/// The records of one agent. Each call of [`UsageRecords::update`] reads what was written since the last one.
#[derive(Debug)]
pub struct UsageRecords {
    program: RecordedProgram,
    known: ReadRecords,
    replaced: u64,
}

#[derive(Debug, Default)]
struct ReadRecords {
    files: BTreeMap<PathBuf, FilePosition>,
    entries: Vec<UsageEntry>,
    claude: claude::ClaudeRequests,
    codex: BTreeMap<PathBuf, codex::CodexSession>,
    gemini: ReadMessages,
    opencode: ReadMessages,
}

impl UsageRecords {
    /// Those of an agent that runs `program`. Nothing is read yet.
    pub fn new(program: RecordedProgram) -> Self {
        Self { program, known: ReadRecords::default(), replaced: 0 }
    }

    pub const fn program(&self) -> RecordedProgram {
        self.program
    }

    /// Reads what is new in these files, as far as `limit` allows. For a file that cannot be read, what was read
    /// before counts.
    pub fn update(&mut self, files: &[PathBuf], limit: &mut ReadingLimit) {
        let before = self.known.entries.len();
        self.read(files, limit);
        // Entries are in the order of their time, but for those of several files.
        if self.known.entries.len() != before && !self.known.entries.is_sorted_by_key(|it| it.at) {
            self.known.entries.sort_by_key(|entry| entry.at);
        }
    }

    fn read(&mut self, files: &[PathBuf], limit: &mut ReadingLimit) {
        let mut all = files.to_vec();
        if self.program == RecordedProgram::Claude {
            all.extend(files.iter().flat_map(|file| subagents(file)));
        }
        let program = self.program;
        let is_replaced = |known: &mut ReadRecords, limit: &mut ReadingLimit| {
            all.iter()
                .any(|file| matches!(known.read(program, file, limit), Err(UnreadReason::Replaced)))
        };
        if is_replaced(&mut self.known, limit) {
            // Some of what is known came from a file that is gone.
            self.known = ReadRecords::default();
            self.replaced += 1;
            let _ = is_replaced(&mut self.known, limit);
        }
    }

    pub fn entries(&self) -> &[UsageEntry] {
        &self.known.entries
    }

    /// Grows with each entry, and whenever a file was replaced.
    pub(super) const fn changes(&self) -> (u64, usize) {
        (self.replaced, self.known.entries.len())
    }
}

impl ReadRecords {
    fn read(
        &mut self,
        program: RecordedProgram,
        path: &Path,
        limit: &mut ReadingLimit,
    ) -> Result<(), UnreadReason> {
        let position = self.files.entry(path.to_owned()).or_default();
        let entries = &mut self.entries;
        match program {
            RecordedProgram::Claude => read_new(path, position, limit, |line| {
                claude::read(line, &mut self.claude, entries)
            }),
            RecordedProgram::Codex => {
                let session = self.codex.entry(path.to_owned()).or_default();
                read_new(path, position, limit, |line| codex::read(line, session, entries))
            }
            RecordedProgram::Gemini => read_new(path, position, limit, |line| {
                gemini::read(line, &mut self.gemini, entries)
            }),
            RecordedProgram::Opencode => read_new(path, position, limit, |line| {
                opencode::read(line, &mut self.opencode, entries)
            }),
        }
    }
}

/// Transcripts of the subagents of a session: `<session>/subagents/*.jsonl` beside `<session>.jsonl`.
fn subagents(transcript: &Path) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(transcript.with_extension("").join("subagents")) else {
        return Vec::new();
    };
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let is_record = |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl");
    let mut found: Vec<PathBuf> = paths.filter(is_record).take(SUBAGENTS_MAX).collect();
    found.sort_unstable();
    found
}
