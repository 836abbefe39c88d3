//! Agents in panes: what is typed to them and what is not, in a real tmux server and over scripted panes.

#[path = "../support/panes/agent.rs"]
mod agent;
#[path = "../support/panes/herdr.rs"]
mod herdr;
#[path = "../support/panes/hosts.rs"]
mod hosts;
#[path = "../support/http.rs"]
mod http_server;
#[path = "../support/queue.rs"]
mod queue;
#[path = "../support/panes/stage.rs"]
mod stage;
#[path = "../support/tmux.rs"]
mod tmux_support;

mod drivers;
mod key_clients;
mod nudge;
mod panes;
mod refusals;
mod scripted;
mod server;
#[path = "../support/panes/zellij.rs"]
mod zellij;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ensemble_core::agent::{
    AgentDiagnosis, AgentPane, AgentState, ProgramSettings, TypedLine, TypingStep,
};
use ensemble_core::driver::{AckDriver, DeliveryOrder, Ended};
use ensemble_core::env::{Clock as _, Pane};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::pane::{Deferral, Key, NudgeOutcome, NudgeText, PaneState};
use ensemble_core::proto::ack::{LadderSettings, Phase};
use ensemble_core::proto::ready;
use ensemble_core::sim::SimClock;
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_tmux::provider::Profiles;
use ensemble_tmux::tmux::{TextOutcome, TmuxPane};
use serde_json::Value;

use tmux_support::{PROMPT, TestServer, eventually, refusal, text_for};
