//! The alarms that the watcher has raised: `alarms.json` in the state directory.

use std::path::Path;

use ensemble_core::Result;
use ensemble_core::document::{read_json, write_json};
use ensemble_team::board::AlarmKey;
use serde::{Deserialize, Serialize};

use crate::project::Project;

const FILE: &str = "alarms.json";
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AlarmList {
    version: u64,
    /// Alarms whose conditions last.
    pub raised: Vec<AlarmKey>,
    #[serde(default)]
    pub unsent: Vec<UnsentAlarm>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct UnsentAlarm {
    #[serde(flatten)]
    pub key: AlarmKey,
    pub text: String,
}

impl AlarmList {
    pub const fn new(raised: Vec<AlarmKey>, unsent: Vec<UnsentAlarm>) -> Self {
        Self { version: 1, raised, unsent }
    }

    /// Reads the list of the last watcher; empty if there is none.
    pub fn read(state: &Path) -> Result<Self> {
        Ok(read_json(&state.join(FILE), FILE_BYTES_MAX)?.unwrap_or_default())
    }

    pub fn write(&self, state: &Path) -> Result<()> {
        write_json(&state.join(FILE), self)
    }
}

pub(crate) fn list_raised(project: &Project) -> Vec<AlarmKey> {
    AlarmList::read(&project.state).map(|list| list.raised).unwrap_or_default()
}
