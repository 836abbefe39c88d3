//! A project inside a git repository.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};

use ensemble_core::{Error, Result};

use super::Project;

/// A file that keeps its directory out of git, including itself.
const GITIGNORE: &str = "# Mail and state of Ensemble are not committed.\n*\n";

impl Project {
    /// Keeps mail and state out of git: an agent's `git add -A` commits neither. A `.gitignore` that
    /// exists stays as it is, and a queue that is itself the top of a repository gets none.
    pub fn keep_out_of_git(&self) -> Result<()> {
        for directory in [&self.queue, &self.state] {
            if directory.join(".git").exists() {
                continue;
            }
            let path = directory.join(".gitignore");
            let mut options = OpenOptions::new();
            let written = options
                .write(true)
                .create_new(true)
                .open(&path)
                .and_then(|mut file| file.write_all(GITIGNORE.as_bytes()));
            match written {
                Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                    return Err(Error::Io { operation: "write", path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }
}
