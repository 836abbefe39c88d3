//! A project of Ensemble: finds its files, reads its configuration, starts its agents, and reports its situation.
//!
//! ```text
//! project, team           where everything is, what is configured, how an agent is started
//! panes, members, rows    the agents: where each runs, what it does
//! workload, troubles      what they hold, and what is stuck
//! overview, attention     the whole, and what needs a person
//! departure, agent_host   how an agent leaves; ladder_host: who reads a mailbox
//! ```
//!
//! Everything here reads files and asks servers when it is called; nothing runs in the background. The sidecar
//! (`ensemble-watch`) and the command are built on it.
#![forbid(unsafe_code)]

pub mod agent_host;
pub mod alarm_list;
pub mod attention;
pub mod consumption;
pub mod departure;
pub mod hosts;
mod kinds;
pub mod ladder_host;
pub mod mail_starts;
pub mod members;
mod need_kind;
mod open_queue;
mod opening;
pub mod overview;
pub mod panes;
mod project;
pub mod registry;
pub mod rows;
#[cfg_attr(not(feature = "nats"), path = "no_servers.rs")]
mod servers;
pub mod sessions;
pub mod short_ids;
pub mod sources;
pub mod status;
pub mod stranded;
pub mod team;
mod team_link;
pub mod troubles;
pub mod workload;
pub mod wrapped_terminal;

pub use need_kind::NeedKind;
pub use open_queue::{OpenQueue, QueueAccess};
pub use project::{
    AgentConfig, AlarmsConfig, AlertOccasion, AlertRule, BoxRule, BoxTable, BudgetConfig,
    CONFIG_FILE, HooksConfig, IdentityConfig, LadderConfig, LeasesConfig, NatsConfig, Project,
    ProjectConfig, QUEUE_DEFAULT, QUEUE_VARIABLE, QuietHours, QuotaConfig, ReadinessConfig,
    RouteRefusal, STATE_DIRECTORY, ShutdownConfig, StepsConfig, TeamConfig, TerminalSignal,
    USER_CONFIG, WorktreesConfig,
};
pub use status::ACTOR;
pub use team_link::{LadderClaim, TeamLink};
