//! Which program is at the other end of a pane, what it is doing, and what may be done with it. See
//! seed 002, P0-3, and seed 000's readiness.
//!
//! Programs are described by data, one YAML file each (docs/reference/providers.md), so a new one or a new
//! version of one needs no code. Everything here but [`machine`]'s readers is pure.
//!
//! * [`Profiles`] holds them by name; a user's own profiles replace those built in.
//! * [`diagnose`] says what an agent is doing, with its evidence and where that comes from.
//! * [`objection`] says why something must not be typed or pressed now.
//! * [`reset_instant`] reads when a usage limit ends.

pub mod cells;
mod composer;
mod diagnose;
mod file;
#[cfg(test)]
mod foreground;
mod hooks;
pub mod machine;
mod observer;
pub mod process;
pub mod profile;
mod profiles;
#[cfg(test)]
mod recorded;
mod reset;
#[cfg(test)]
mod screens;
mod server;
mod turn_sign;
#[cfg(test)]
mod widths;

pub use composer::{UnsentLine, stands_alone};
pub use diagnose::{
    DiagnosisContext, Judgement, TypingPurpose, diagnose, diagnose_with, objection,
};
pub use hooks::{
    COMMAND, HookConfig, InstallPlaces, PROGRAM, everyday_verbs, file_text, filled, plugin,
};
pub use observer::AgentObserver;
pub use profile::{MachineSource, PASTE_BEGINS, PASTE_ENDS, Profile};
pub use profiles::Profiles;
pub use reset::{UsageLimit, Zones, reset_instant};
pub use server::ServerConfig;
pub use turn_sign::TurnSign;
