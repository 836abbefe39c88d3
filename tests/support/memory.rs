//! Files that hosts share, in memory: what servers would keep.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use ensemble_core::document::{SharedFile, SharedFiles};
use ensemble_core::{Error, Result};

/// Files that hosts share, in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    files: Mutex<BTreeMap<String, SharedFile>>,
    /// Text of a content whose next write is stored, and gets no answer.
    unanswered: Mutex<Option<&'static str>>,
}

#[allow(dead_code, reason = "each test program uses a part of it")]
impl Memory {
    pub(crate) fn answer_no_write_of(&self, text: &'static str) {
        *self.unanswered.lock().unwrap() = Some(text);
    }
}

impl SharedFiles for Memory {
    fn place_of(&self, path: &str) -> String {
        format!("memory {path}")
    }
    fn read_file(&self, path: &str) -> Result<SharedFile> {
        Ok(self.files.lock().unwrap().get(path).cloned().unwrap_or_default())
    }
    fn list_files(&self, directory: &str) -> Result<Vec<(String, SharedFile)>> {
        let files = self.files.lock().unwrap();
        let below = files.iter().filter_map(|(path, file)| {
            let name = path.strip_prefix(directory)?.strip_prefix('/')?;
            (!file.content.is_empty()).then(|| (name.to_owned(), file.clone()))
        });
        Ok(below.collect())
    }
    fn write_file(&self, path: &str, content: &[u8], note: &str, last: u64) -> Result<Option<u64>> {
        let mut files = self.files.lock().unwrap();
        let file = files.entry(path.to_owned()).or_default();
        if file.revision != last {
            return Ok(None);
        }
        (file.content, file.note) = (content.to_vec(), note.to_owned());
        file.revision += 1;
        let has = |text: &mut &str| content.windows(text.len()).any(|part| part == text.as_bytes());
        if self.unanswered.lock().unwrap().take_if(has).is_some() {
            let (operation, server) = ("store a file", self.place_of(path));
            return Err(Error::Server {
                operation,
                server,
                detail: "no answer".to_owned(),
                unreachable: true,
            });
        }
        Ok(Some(file.revision))
    }
    fn may_have_changed(&self) -> bool {
        true
    }
    fn rest(&self, duration: Duration) {
        std::thread::park_timeout(duration);
    }
}
