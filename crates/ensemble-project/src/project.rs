//! The files of a project, and its configuration.
//!
//! Precedence: flag, then environment, then the project's `ensemble.yaml`, then the user's
//! `~/.config/ensemble/config.yaml`, then the default. Unknown keys are errors, so that a typing
//! mistake cannot silently change the behaviour.

mod assigning;
mod board;
mod budget;
mod door;
mod drop_boxes;
mod empty;
mod git;
mod host_name;
mod misplaced;
mod nats;
mod nearest;
mod notify;
mod paths;
mod people;
mod sections;
mod steps;
mod team;
mod trusted;
mod worktrees;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use ensemble_core::dropbox::STATE_DIRECTORY;
use ensemble_core::dropbox::{RouteRule, Routes, WATCH_LOCK};
use ensemble_core::durable::{Durability, make_directory};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{ConfigDuration, Name, ReservedName, yaml};
use ensemble_core::requests::{Kinds, RequestStore, Requests};
use ensemble_core::spool::{Owners, Spool, SpoolOptions};
use ensemble_core::{Error, Result};
use ensemble_reports::contract::DocumentNode;
use ensemble_reports::lint::LintConfig;
use ensemble_team::admission::{MailAdmission, ProjectAdmission};
use ensemble_team::authority::Authority;
use ensemble_team::driver::{ReviewCounts, TaskEnds, departure_note};
use ensemble_team::roster::Roster;
use ensemble_tmux::provider::Profiles;
use ensemble_tmux::session::Sessions;
use serde::{Deserialize, Serialize};

use crate::kinds::RequestsConfig;
use crate::sources::AgentSources;
pub use assigning::{LadderConfig, ReadinessConfig};
pub use budget::BudgetConfig;
pub use drop_boxes::{BoxRule, BoxTable, RouteRefusal};
pub(crate) use host_name::machine_name;
pub use nats::NatsConfig;
pub use notify::{AlertOccasion, AlertRule, QuietHours, TerminalSignal};
pub use sections::{AlarmsConfig, HooksConfig, LeasesConfig, QuotaConfig};
pub use steps::StepsConfig;
pub use team::{AgentConfig, IdentityConfig, ShutdownConfig, TeamConfig};
use trusted::{read_config, user_config};
pub use worktrees::WorktreesConfig;

const HISTORY_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
pub const QUEUE_DEFAULT: &str = "queue";
pub const QUEUE_VARIABLE: &str = "ENSEMBLE_QUEUE";
/// The project's configuration, beside the queue.
pub const CONFIG_FILE: &str = "ensemble.yaml";
/// The user's configuration, below `$XDG_CONFIG_HOME` or `~/.config`.
pub const USER_CONFIG: &str = "ensemble/config.yaml";

/// The keys of `ensemble.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProjectConfig {
    /// Failures that a stored message survives: `power` (default) or `process`.
    pub durability: Option<Durability>,
    /// Interval of full scans without an event (default 30s).
    pub poll_interval: Option<ConfigDuration>,
    /// Limit of one sender's unread messages in one mailbox, for the commands and tools that send.
    pub sender_quota: QuotaConfig,
    /// The largest drop-box file, in bytes (default 1 MiB).
    pub report_bytes_max: Option<u64>,
    /// How long rejected files, counts of reviews, batches and segments of the event log are kept (default 30d).
    pub history: Option<ConfigDuration>,
    /// How long Dispatch waits for reports before it polls (default 3m).
    pub dispatch_patience: Option<ConfigDuration>,
    /// How long Conductor waits for the summary (default 30m).
    pub conductor_patience: Option<ConfigDuration>,
    /// Drop boxes beside `reports/`, `tasks/` and `ack/` (docs/guides/drop-boxes.md).
    pub drop_boxes: Vec<BoxRule>,
    /// Routes that precede the default ones.
    pub routes: Vec<RouteRule>,
    /// The tmux session of the team.
    pub team: TeamConfig,
    /// The people who run the team; mail to `operator` goes to the first of them (default: `operator` itself).
    pub people: Vec<Name>,
    /// The other projects of this user to which agents may write, as `NAME@PROJECT` (docs/guides/other-projects.md).
    pub other_projects: Vec<Name>,
    /// The agents of the team, by name.
    pub agents: BTreeMap<Name, AgentConfig>,
    /// Rules for acting under an agent's name.
    pub identity: IdentityConfig,
    /// The agents that may stop others (docs/cli.md).
    pub authority: Authority,
    /// Fields of provider profiles, by profile: they replace the built-in ones (docs/reference/providers.md).
    pub providers: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
    /// Times of the handshake before an assignment.
    pub readiness: ReadinessConfig,
    /// Times of the ladder after a delivery.
    pub ladder: LadderConfig,
    /// The kinds of requests.
    pub requests: RequestsConfig,
    /// Location of the mailboxes: `directory` (default), or the servers of a team on several hosts,
    /// `nats://host:4222` or `tls://…`, several separated by commas.
    pub transport: Option<String>,
    /// Access to the servers, if `transport` names some.
    pub nats: NatsConfig,
    /// Location of the step queues, for a team on several hosts (docs/guides/steps.md).
    pub steps: StepsConfig,
    /// Forbidden and required content of reports (docs/guides/reports.md).
    pub lint: LintConfig,
    /// How often a task may come back from review before a person or agent must decide (default 3).
    pub review_cycles_max: Option<u32>,
    /// Directories of worktrees, and the branch for approved work (docs/guides/worktrees.md).
    pub worktrees: WorktreesConfig,
    /// Alarms of the blackboard.
    pub alarms: AlarmsConfig,
    /// Extension of leases while their holders are seen working.
    pub leases: LeasesConfig,
    /// What agents learn from their own hooks (docs/guides/ways-in.md).
    pub hooks: HooksConfig,
    /// What agents, tasks and the team may use (docs/guides/usage.md).
    pub budget: BudgetConfig,
    /// How a person is alerted to what needs one (docs/guides/attention.md). The rules of the user apply where the project has none.
    pub notify: Vec<AlertRule>,
}

impl ProjectConfig {
    /// Parses a configuration; `path` is the source of the text, for the error.
    ///
    /// The text is not YAML, has an unknown key or an invalid value; the error names the line.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let config = Self::read(text)
            .or_else(|fault| Self::read(&empty::without_empty(text)).map_err(|_| fault));
        let config = config.map_err(|mut fault| {
            fault.detail = misplaced::with_places(fault.detail);
            let field = fault.place.and_then(|place| DocumentNode::field_at(text, place));
            fault.at(path, field.as_deref())
        })?;
        drop_boxes::check(&config, text, path)?;
        config.check_counts(path)?;
        config.budget.check(path)?;
        config.worktrees.check(path)?;
        config.requests.kinds(path)?;
        if let Some((field, detail)) = config.lint.fault() {
            return Err(Error::malformed(path, field, detail));
        }
        config.notify.iter().enumerate().try_for_each(|(at, rule)| rule.check(at, path))?;
        team::refuse_twins(&config.agents, path)?;
        for person in &config.people {
            ReservedName::refuse_mailbox(person)
                .map_err(|reserved| Error::malformed(path, "people", reserved.to_string()))?;
        }
        for (agent, settings) in &config.agents {
            settings.check_names(agent, &config.people, path)?;
            let field = || format!("agents.{agent}.server");
            settings.server.check().map_err(|detail| Error::malformed(path, field(), detail))?;
        }
        Ok(config)
    }

    fn read(text: &str) -> std::result::Result<Self, yaml::YamlFault> {
        let is_said = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        match text.lines().any(is_said) {
            true => yaml::read(text),
            false => Ok(Self::default()),
        }
    }

    pub fn poll_interval(&self) -> Duration {
        let usual = Duration::from_secs(30);
        self.poll_interval.map_or(usual, Duration::from).max(Duration::from_secs(1))
    }

    /// How long rejected files, counts of reviews, batches and segments of the event log are kept.
    pub fn history_kept(&self) -> Duration {
        self.history.map_or(HISTORY_DEFAULT, Duration::from)
    }

    fn or(self, fallback: Self) -> Self {
        let mut agents = fallback.agents;
        agents.extend(self.agents);
        let mut providers = fallback.providers;
        for (name, fields) in self.providers {
            providers.entry(name).or_default().extend(fields);
        }
        Self {
            durability: self.durability.or(fallback.durability),
            poll_interval: self.poll_interval.or(fallback.poll_interval),
            sender_quota: self.sender_quota.or(fallback.sender_quota),
            report_bytes_max: self.report_bytes_max.or(fallback.report_bytes_max),
            history: self.history.or(fallback.history),
            dispatch_patience: self.dispatch_patience.or(fallback.dispatch_patience),
            conductor_patience: self.conductor_patience.or(fallback.conductor_patience),
            drop_boxes: drop_boxes::merged(self.drop_boxes, fallback.drop_boxes),
            routes: self.routes.into_iter().chain(fallback.routes).collect(),
            team: self.team.or(fallback.team),
            people: if self.people.is_empty() { fallback.people } else { self.people },
            other_projects: match self.other_projects.is_empty() {
                true => fallback.other_projects,
                false => self.other_projects,
            },
            agents,
            identity: self.identity.or(fallback.identity),
            authority: team::authority(self.authority, fallback.authority),
            providers,
            requests: self.requests.or(fallback.requests),
            transport: self.transport.or(fallback.transport),
            nats: self.nats.or(fallback.nats),
            steps: self.steps.or(fallback.steps),
            lint: self.lint.or(fallback.lint),
            review_cycles_max: self.review_cycles_max.or(fallback.review_cycles_max),
            worktrees: self.worktrees.or(fallback.worktrees),
            alarms: self.alarms.or(fallback.alarms),
            leases: self.leases.or(fallback.leases),
            hooks: self.hooks.or(fallback.hooks),
            budget: self.budget.or(fallback.budget),
            notify: if self.notify.is_empty() { fallback.notify } else { self.notify },
            readiness: self.readiness.or(fallback.readiness),
            ladder: self.ladder.or(fallback.ladder),
        }
    }
}

/// A project: a queue, its state directory and its configuration.
#[derive(Clone, Debug)]
pub struct Project {
    pub queue: PathBuf,
    /// The state directory `.ensemble/` beside the queue.
    pub state: PathBuf,
    pub config: ProjectConfig,
}

impl Project {
    /// Finds a project. The queue comes from the flag, the environment, or the nearest one at or above the working
    /// directory; if there is none, it is `./queue`. The configuration is beside it and in the user's directory.
    pub fn discover(queue_flag: Option<&Path>) -> Result<Self> {
        let queue = queue_flag
            .map(Path::to_owned)
            .or_else(|| {
                std::env::var_os(QUEUE_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from)
            })
            .or_else(|| nearest::nearest(&std::env::current_dir().ok()?))
            .unwrap_or_else(|| PathBuf::from(QUEUE_DEFAULT));
        let queue = std::path::absolute(&queue).map_err(|source| match source.kind() {
            ErrorKind::NotFound => {
                let source = io::Error::new(ErrorKind::NotFound, "it was deleted: `cd` to another");
                Error::io("use", "the working directory", source)
            }
            _ => Error::io("use", "the working directory", source),
        })?;
        let root = queue.parent().unwrap_or_else(|| Path::new("/")).to_owned();
        let project = read_config(&root.join(CONFIG_FILE), Some(&root))?;
        let user = match user_config() {
            // People keep the files of their home elsewhere, and link to them.
            Some(path) => read_config(&path, None)?,
            None => ProjectConfig::default(),
        };
        Ok(Self { queue, state: root.join(STATE_DIRECTORY), config: project.or(user) })
    }

    /// The built-in profiles with the changes of the configuration.
    pub fn profiles(&self) -> Result<Profiles> {
        let mut profiles = Profiles::embedded()?.for_programs_on(std::env::var_os("PATH"));
        for (name, fields) in &self.config.providers {
            profiles.amend(
                name,
                fields,
                &PathBuf::from(format!("{CONFIG_FILE}: providers.{name}")),
            )?;
        }
        Ok(profiles)
    }

    pub fn sources(&self) -> AgentSources {
        let root = self.state.parent().unwrap_or_else(|| Path::new("/")).to_owned();
        let agents = &self.config.agents;
        let servers = agents.iter().map(|(agent, it)| (agent.clone(), it.server.clone())).collect();
        AgentSources::new(root, servers, self.sessions())
    }

    /// The drop boxes: the built-in and the configured ones.
    pub fn drop_boxes(&self) -> Result<BoxTable> {
        BoxTable::new(&self.config.drop_boxes)
    }

    pub fn routes(&self) -> Result<Routes> {
        self.drop_boxes()?.routes(&self.config.routes)
    }

    /// The directories of drop boxes, other than `reports/`, whose files are reviews.
    pub fn review_dirs(&self) -> Result<Vec<PathBuf>> {
        let dirs = self.drop_boxes()?.directories_of("report.review", &self.config.routes);
        let further = dirs.into_iter().filter(|dir| dir != "reports");
        Ok(further.map(|dir| self.queue.join(dir)).collect())
    }

    /// The kinds of requests: the built-in and the configured ones.
    pub fn kinds(&self) -> Result<Kinds> {
        self.config.requests.kinds(Path::new(CONFIG_FILE))
    }

    /// The requests of a queue, of the kinds that are configured. An agent that agrees to its shutdown
    /// is `leaving` in the roster before any side is notified.
    pub fn requests<'a>(&self, store: &'a dyn RequestStore) -> Result<Requests<'a>> {
        let requests = Requests::new(store).with_kinds(self.kinds()?);
        Ok(requests.with_note(departure_note(self.roster())))
    }

    pub fn logs(&self) -> PathBuf {
        self.state.join("logs")
    }

    pub fn panes(&self) -> PathBuf {
        self.state.join("panes")
    }

    /// Number of times each task came back from review.
    pub fn reviews(&self) -> ReviewCounts {
        ReviewCounts::new(&self.queue, &self.state, self.config.review_cycles_max)
    }

    pub fn task_ends(&self) -> TaskEnds {
        TaskEnds::new(&self.queue, &self.state, self.reviews())
    }

    pub fn ready(&self) -> PathBuf {
        self.state.join("ready")
    }

    pub fn roster(&self) -> Roster {
        Roster::open(&self.state).with_people(&self.config.people)
    }

    /// The sessions that the agents' hooks have reported.
    pub fn sessions(&self) -> Sessions {
        Sessions::open(&self.state)
    }

    pub fn root(&self) -> &Path {
        self.state.parent().unwrap_or(&self.state)
    }

    /// The name of the team, by default that of its directory: in titles, addresses and for its session.
    pub fn display_name(&self) -> String {
        let root = self.root();
        let directory = || root.file_name().unwrap_or(root.as_os_str()).to_string_lossy();
        self.config.team.name.clone().unwrap_or_else(|| directory().into_owned())
    }

    /// The locks of panes and of workers during an assignment.
    pub fn locks(&self) -> PathBuf {
        self.state.join("locks")
    }

    /// Lock held by the project's only watcher.
    pub fn watch_lock(&self) -> PathBuf {
        self.state.join(WATCH_LOCK)
    }

    /// The watcher's state file, read by `status`.
    pub fn watch_status(&self) -> PathBuf {
        self.state.join("watch.json")
    }

    /// Creates the state directory, private to its owner, and the project's directory if that is missing.
    pub fn create_state(&self) -> Result<()> {
        let root = self.root();
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root);
        made.map_err(|source| Error::io("create directory", root, source))?;
        self.ensure_state()
    }

    /// Creates the state directory in a project that exists.
    pub fn ensure_state(&self) -> Result<()> {
        make_directory(&self.logs())?;
        make_directory(&self.panes())
    }

    pub fn admissions(&self) -> ProjectAdmission {
        ProjectAdmission::new(self.root(), &self.state).with_copy(self.shared_copy())
    }

    pub fn spool_options(&self, recorder: Arc<dyn Recorder>) -> SpoolOptions {
        let durability = self.config.durability.unwrap_or_default();
        let mut options = SpoolOptions { durability, recorder, ..SpoolOptions::default() };
        let users = self.config.agents.iter().filter_map(|(name, a)| Some((name.clone(), a.user?)));
        options.owners = Owners::new(users);
        options.admission = Some(Arc::new(MailAdmission::new(self.admissions())));
        options.addresses = Some(self.addresses());
        options
    }

    /// Opens the queue.
    ///
    /// The queue does not exist; the error names the command that creates it.
    pub fn open_spool(&self, recorder: Arc<dyn Recorder>) -> Result<Spool> {
        Spool::open(&self.queue, self.spool_options(recorder))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn project_settings_override_user_settings_and_errors_name_the_line() {
        let home = tempfile::Builder::new().prefix("my project").tempdir().unwrap();
        let file = home.path().join(CONFIG_FILE);
        std::fs::write(&file, "durability: process\nroutes:\n  - match: reports/*.md\n    to: [docs]\n    type: note\n").unwrap();
        let project = read_config(&file, None).unwrap();
        let user = ProjectConfig {
            durability: Some(Durability::Power),
            poll_interval: "5s".parse().ok(),
            ..ProjectConfig::default()
        };
        let both = project.or(user);
        assert_eq!(both.durability, Some(Durability::Process));
        assert_eq!(both.poll_interval(), Duration::from_secs(5));
        assert_eq!(both.routes.len(), 1);
        std::fs::write(&file, "# nothing yet\n").unwrap();
        assert_eq!(read_config(&file, None).unwrap(), ProjectConfig::default());
        std::fs::write(&file, "durabilty: process\n").unwrap();
        assert!(read_config(&file, None).unwrap_err().to_string().contains("durabilty"));
        std::fs::write(&file, "agents: {Worker-1: {command: a}, worker-1: {command: b}}\n")
            .unwrap();
        let refused = read_config(&file, None).unwrap_err().to_string();
        assert!(
            refused.contains("agents.worker-1: differs only in case from `Worker-1`"),
            "{refused}"
        );
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        let refused = read_config(&file, None).unwrap_err().to_string();
        assert!(refused.contains("`chmod go-w '/"), "{refused}");
        std::fs::rename(&file, file.with_extension("yml")).unwrap();
        let refused = read_config(&file, None).unwrap_err().to_string();
        assert!(refused.contains("ensemble.yml is not read: `mv '/"), "{refused}");
        std::os::unix::fs::symlink("missing.yaml", &file).unwrap();
        let refused = read_config(&file, None).unwrap_err().to_string();
        assert!(refused.contains("is a link to a file that does not exist"), "{refused}");
    }
}
