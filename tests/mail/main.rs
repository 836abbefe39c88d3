//! Mail in a directory: queues, documents and the event log, in one process and in many, which are killed and stopped.

#[path = "../support/children.rs"]
mod children;
#[path = "../support/queue.rs"]
mod queue;
#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod document;
mod embedding;
mod event_log;
mod handle;
mod many_at_once;
mod race;
mod requests_killed;
mod shared_syncs;
mod shell_worker;
mod spool;
mod syscalls;
mod vectors;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_core::durable::{Dir, Durability};
use ensemble_core::env::{Clock as _, Delivery, PublishOutcome, SystemClock};
use ensemble_core::event_log::{EventLog, Record, Recorder as _, read_all};
use ensemble_core::message::{Envelope, MessageId, Name, Timestamp};
use ensemble_core::proto::calendar::DOUBT;
use ensemble_core::requests::{NewRequest, Requests};
use ensemble_core::sim::SimClock;
use ensemble_core::spool::{Settings, Spool, SpoolOptions, State};
use ensemble_core::{Error, Queue};
use rustix::process::Signal;
use serde_json::json;

use children::{Child, DEADLINE, Dice, cast, say, wait_for_parent, wait_until};
use event_log::{home, writers};
use queue::{QueueBed, QueueSetup, name};
use support::traced::{between_marks, calls, has_strace};
use support::{Bed, given};
