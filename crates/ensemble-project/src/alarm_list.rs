//! The alarms that the watcher has raised: `alarms.json` in the state directory.

use std::path::Path;

use ensemble_core::durable::{Dir, Durability, write_document};
use ensemble_core::message::describe_json_fault;
use ensemble_core::{Error, Result};
use ensemble_team::board::AlarmKey;
use serde::{Deserialize, Serialize};

use crate::project::Project;

/// File beside the queue that lists the raised alarms.
const FILE: &str = "alarms.json";
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The alarms, as the next watcher needs them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AlarmList {
    version: u64,
    /// Alarms whose conditions last.
    pub raised: Vec<AlarmKey>,
    /// Alarms whose message is not stored yet.
    #[serde(default)]
    pub unsent: Vec<UnsentAlarm>,
}

/// An alarm whose message is not stored yet.
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
        let Some(bytes) = Dir::open(state)?.read(FILE, FILE_BYTES_MAX)? else {
            return Ok(Self::default());
        };
        serde_json::from_slice(&bytes).map_err(|error| Error::Malformed {
            path: state.join(FILE),
            field: "raised".to_owned(),
            detail: describe_json_fault(&error),
        })
    }

    pub fn write(&self, state: &Path) -> Result<()> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        write_document(&state.join(FILE), &text, Durability::Process)
    }
}

/// The alarms that the watcher of this project has raised, and whose conditions last.
pub(crate) fn list_raised(project: &Project) -> Vec<AlarmKey> {
    AlarmList::read(&project.state).map(|list| list.raised).unwrap_or_default()
}
