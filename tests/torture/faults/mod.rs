//! Faults of disks, limits, permissions and clocks. Each gives a clear error that names the path
//! and the remedy, and leaves nothing lost or half-written. Work continues when the fault ends.
//!
//! | module | faults | how they are made |
//! |---|---|---|
//! | `refusals` | ENOSPC, EDQUOT, EIO, EMFILE, EINTR, slow calls, writes that store nothing, at each operation | strace |
//! | `places` | read-only and full file systems, files cut short, descriptors used up, permissions | mounts, limits, another user |
//! | `week` | seven days of a busy team | a time namespace, libfaketime |
//! | `machine` | clocks set both ways, a machine that slept, locks that do not lock | namespaces, a library loaded before the C library |
//!
//! A test whose requirement is missing prints `skipped:` with the reason.

#![allow(unreachable_pub, reason = "modules of one test program")]

mod machine;
mod operations;
mod places;
mod refusals;
mod week;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::durable::Durability;
use ensemble_core::env::SystemClock;
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::{Envelope, MessageId};
use ensemble_core::requests::{NewRequest, Requests};
use ensemble_core::spool::{Settings, Spool};
use ensemble_team::steps::{ClaimRequest, PlannedStep, StepOptions, StepPlan, StepStore};

use crate::support;
use crate::support::{Bed, PATIENCE, eventually, eventually_true, given, name, role_command};
use crate::watcher::{WATCHER, Watcher};
use operations::{EXIT_REFUSED, OPERATIONS, SAID, assert_clear, judge, prepared};

#[test]
fn a_child_process_plays_its_role() {
    if let Some(role) = support::role() {
        match role.strip_prefix("machine ") {
            Some(role) => machine::play(role),
            None => operations::play(&role),
        }
    }
}
