//! The commands, one file each. A new one is its file, its line in the list of modules and its line in
//! `verbs`, which says where it stands. Its arguments and its help stand in its `Arguments`.

mod abort;
mod adopt;
mod agent;
mod analyze;
mod anomaly;
mod api;
mod assign;
mod attach;
mod bind;
mod board;
mod bridge;
mod checkpoint;
mod completions;
mod conformance;
mod controls;
mod dead;
mod demo;
mod discover;
mod dispatch;
mod doctor;
mod down;
mod escalations;
mod export;
mod extend;
mod former;
mod fsck;
mod goal;
mod help;
mod hook;
mod hooks;
mod inbox;
mod init;
mod instruct;
mod join;
mod lint;
mod log;
#[cfg(feature = "mcp")]
mod log_follow;
mod log_record;
mod log_replay;
mod log_report;
mod mailbox;
mod man;
#[cfg(feature = "mcp")]
mod mcp;
mod migrate;
mod notify;
mod nudge;
mod pane;
mod pause;
mod ping;
mod plan_submit;
mod pong;
mod prime;
mod prompt;
mod recv;
mod release;
mod reply;
mod report;
mod request;
mod requests;
mod respond;
mod restart;
mod resume;
mod review;
mod schema;
mod send;
mod settle;
mod spawn;
mod sprint;
mod status;
mod step;
mod summary;
mod supervise;
mod task;
mod team;
mod tmux_status;
mod top;
mod topics;
mod up;
mod usage;
mod verbs;
mod watch;
mod whoami;
mod why;
mod wrapped;

pub(crate) use agent::{Live, hand_over, live};
pub(crate) use former::{canonical, former_spellings, meant_by};
pub(crate) use help::FIRST_DAY;
pub(crate) use hooks::hooks_in_place;
pub(crate) use inbox::listed as listed_message;
pub(crate) use init::queue_or_new;
pub(crate) use request::{OnSilence, SHUTDOWN_REASON};
pub(crate) use step::{handed as handed_prompt, open as open_steps, sentence as step_sentence};
pub(crate) use task::{judge as judge_task, submit as submit_task, take as take_task};
pub(crate) use team::states as agent_states;
pub(crate) use usage::{cost, count as token_count, reader as usage_reader};
#[cfg(test)]
pub(crate) use verbs::PLACES;
pub(crate) use verbs::{Verb, place_among, whole, with_one_verb};
pub(crate) use why::story_lines;

use crate::context::Context;
use crate::exit::Outcome;

/// The author of an entry on the blackboard.
pub(crate) fn reporter(context: &Context) -> Outcome<String> {
    Ok(context.actor()?.to_string())
}
