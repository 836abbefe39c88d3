//! Mail, requests and a blackboard on NATS servers, for a team on several hosts: the contract of a queue, and what
//! happens when servers, links and clients fail.

#[path = "../support/children.rs"]
mod children;
mod conformance;
#[path = "../support/nats/mod.rs"]
mod nats_support;
#[path = "../support/queue.rs"]
mod queue;
#[path = "../support/mod.rs"]
mod support;

mod access;
mod failures;
mod ladders;
mod moving;
mod network;
mod requests;
mod room;
mod shared_board;
mod transports;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::document::SharedFiles as _;
use ensemble_core::durable::Durability;
use ensemble_core::env::{Clock as _, Delivery, Lease, PublishOutcome, SystemClock};
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::{Attachment, BODY_BYTES_MAX, Envelope, MessageId, Name, Timestamp};
use ensemble_core::proto::request::{DecisionRefusal, Outcome};
use ensemble_core::requests::{GateState, NewRequest, RequestFile, Requests};
use ensemble_core::sim::{SimClock, SimRecorder};
use ensemble_core::spool::{DeadLetter, Quota, Settings, Spool, SpoolOptions, State};
use ensemble_core::transfer::{Bridge, Outbox, PostOutcome, UnknownMailbox};
use ensemble_nats::{NatsOptions, NatsTransport};
use serde_json::Value;

use conformance::bed::{MAILBOX, id, message, name, settle_all};
use nats_support::{
    Link, PATIENCE, Server, cluster_program, connect_impatient, free_port, fresh_team, monitored,
};
use queue::{AheadClock, hand_clock};
