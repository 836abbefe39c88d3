//! `steps` in `ensemble.yaml`: where the step queues are, in a file of this host or on a PostgreSQL server.

use std::path::PathBuf;
use std::sync::Arc;

use ensemble_core::event_log::Recorder;
use ensemble_core::message::{ConfigDuration, Name};
use ensemble_core::requests::ESCALATED_TO;
use ensemble_core::{Error, Result};
use ensemble_team::steps::prompt::Leftovers;
use ensemble_team::steps::{STEPS_FILE, StepOptions, StepStore};
use ensemble_team::worktree::changed_files;
use serde::{Deserialize, Serialize};

use super::{CONFIG_FILE, Project};

/// `steps` in `ensemble.yaml`. Files are relative to the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StepsConfig {
    /// The PostgreSQL server that has the step queues of all hosts, `postgres://USER@HOST:5432/DATABASE`, without
    /// a password. `?sslmode=disable` switches encryption off (default: the file `.ensemble/steps.db`).
    pub postgres: Option<String>,
    /// A file whose first line is the password (default: the file that `PGPASSFILE` names, or `~/.pgpass`).
    #[serde(deserialize_with = "super::paths::read")]
    pub password_file: Option<PathBuf>,
    /// Certificates trusted in addition to the system's, as PEM.
    #[serde(deserialize_with = "super::paths::read")]
    pub root_certificates: Option<PathBuf>,
    /// Time limit of a statement (default 5s).
    pub patience: Option<ConfigDuration>,
}

super::sections::fill_absent!(StepsConfig: postgres, password_file, root_certificates, patience);

impl Project {
    pub const fn has_shared_steps(&self) -> bool {
        self.config.steps.postgres.is_some()
    }

    /// Whether there may be step queues: on a server, or in a file that exists. A directory or a link of
    /// that name counts, since opening it says what is wrong.
    pub fn has_steps(&self) -> bool {
        self.has_shared_steps() || self.state.join(STEPS_FILE).symlink_metadata().is_ok()
    }

    /// Options of the step queues. The conductor is notified of stuck steps in queues without an orchestrator.
    /// Prompts name what a worker that lost its step has left in its directory.
    pub fn step_options(&self, recorder: Arc<dyn Recorder>) -> StepOptions {
        let (roster, root) = (self.roster(), self.root().to_owned());
        let leftovers = move |agent: &Name| {
            let member = roster.get(agent).ok().flatten();
            let directory =
                member.and_then(|member| member.directory).unwrap_or_else(|| root.clone());
            let files = changed_files(&directory)?;
            Some(Leftovers { directory, files })
        };
        let has_conductor = self.queue.join("mailbox").join(ESCALATED_TO).is_dir();
        StepOptions {
            door: Some(self.doorkeeper()),
            durability: self.config.durability.unwrap_or_default(),
            recorder,
            leftovers: Some(Arc::new(leftovers)),
            orchestrator: Name::new(ESCALATED_TO).ok().filter(|_| has_conductor),
            ..StepOptions::new(self.root())
        }
    }

    /// Opens the step queues. Those on a server are connected to when they are first used.
    pub fn open_steps(&self, options: StepOptions) -> Result<StepStore> {
        match &self.config.steps.postgres {
            Some(address) => self.steps_on_server(address, options),
            None => StepStore::open(&self.state.join(STEPS_FILE), options),
        }
    }

    fn wrong_steps(&self, detail: String) -> Error {
        Error::malformed(self.root().join(CONFIG_FILE), "steps.postgres", detail)
    }

    #[cfg(not(feature = "postgres"))]
    fn steps_on_server(&self, _address: &str, _options: StepOptions) -> Result<StepStore> {
        Err(self.wrong_steps("this program was built without the feature `postgres`".to_owned()))
    }

    #[cfg(feature = "postgres")]
    fn steps_on_server(&self, address: &str, options: StepOptions) -> Result<StepStore> {
        use std::time::Duration;

        use ensemble_team::steps::{BUSY_PATIENCE, PostgresOptions};

        let config = &self.config.steps;
        let mut server = PostgresOptions::new(address, &self.team_name()?)
            .map_err(|detail| self.wrong_steps(detail))?;
        let file = |path: &PathBuf| self.root().join(path);
        server.password_file = config.password_file.as_ref().map(file);
        server.root_certificates = config.root_certificates.as_ref().map(file);
        server.passwords = passwords();
        let least = Duration::from_secs(1);
        let configured = config.patience.map_or(BUSY_PATIENCE, |set| least.max(set.into()));
        // A caller that must not wait for long says so.
        let is_impatient = options.patience < BUSY_PATIENCE;
        server.patience = if is_impatient { configured.min(options.patience) } else { configured };
        Ok(StepStore::on_server(server, options))
    }
}

/// The file of passwords that the clients of PostgreSQL share.
#[cfg(feature = "postgres")]
fn passwords() -> Option<PathBuf> {
    let file = std::env::var_os("PGPASSFILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    file.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass")))
}
