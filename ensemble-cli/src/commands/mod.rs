//! The verbs, one file each. A new one is its file, its line in the list of modules and its line in
//! the list of verbs. Its arguments and its help stand in its `Arguments`.

mod abort;
mod adopt;
mod agent;
mod analyze;
mod anomaly;
mod assign;
mod attach;
mod bind;
mod board;
mod bridge;
mod broadcast;
mod checkpoint;
mod completions;
mod controls;
mod dead;
mod demo;
mod discover;
mod dispatch;
mod doctor;
mod down;
mod escalations;
mod extend;
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
mod plan;
mod pong;
mod prime;
mod prompt;
mod recv;
mod release;
mod report;
mod request;
mod requests;
mod respond;
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
mod up;
mod usage;
mod watch;
mod whoami;
mod why;
mod wrapped;

use ensemble_watch::project::Project;

pub(crate) use agent::{Live, hand_over, live};
pub(crate) use help::{FIRST_DAY, meant_by};
pub(crate) use init::queue_or_new;
pub(crate) use recv::{described as describe_delivery, needed_plan, sender_of};
pub(crate) use request::{OnSilence, SHUTDOWN_REASON};
pub(crate) use send::{fill, fill_for_servers};
pub(crate) use step::{open as open_steps, sentence as step_sentence};
pub(crate) use task::{judge as judge_task, submit as submit_task, take as take_task};
pub(crate) use up::open as open_team;
pub(crate) use usage::{UsageReader, allowance_hint, cost, count as token_count};
pub(crate) use why::story_lines;

use wrapped::{claude, codex, gemini, opencode};

use crate::context::Context;
use crate::exit::Outcome;

macro_rules! verbs {
    ($($(#[$condition:meta])? $variant:ident => $module:ident,)*) => {
        /// The verb to run.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Verb {
            $(
                // Its help is that of its arguments.
                $(#[$condition])?
                #[allow(missing_docs, clippy::allow_attributes)]
                $variant($module::Arguments),
            )*
        }

        impl Verb {
            /// One verb as the parser needs it; `None` if there is no such verb.
            pub(crate) fn described(name: &str) -> Option<clap::Command> {
                $($(#[$condition])? {
                    let verb = verb_of(stringify!($module));
                    if name == verb {
                        let command = clap::Command::new(verb);
                        return Some(<$module::Arguments as clap::Args>::augment_args(command));
                    }
                })*
                None
            }

            /// Does it.
            pub(crate) fn run(self, context: &Context) -> Outcome {
                match self {
                    $($(#[$condition])? Self::$variant(arguments) => arguments.run(context),)*
                }
            }
        }
    };
}

/// The verb of a module: it is called as the module is.
const fn verb_of(module: &'static str) -> &'static str {
    match module.as_bytes() {
        b"tmux_status" => "tmux-status",
        _ => module,
    }
}

// In the order of `ensemble --help`.
verbs! {
    Init => init,
    Demo => demo,
    Claude => claude,
    Codex => codex,
    Opencode => opencode,
    Gemini => gemini,
    Up => up,
    Down => down,
    Spawn => spawn,
    Join => join,
    Adopt => adopt,
    Attach => attach,
    Team => team,
    Top => top,
    Whoami => whoami,
    Watch => watch,
    Mailbox => mailbox,
    Pane => pane,
    Send => send,
    Broadcast => broadcast,
    Recv => recv,
    Settle => settle,
    Release => release,
    Extend => extend,
    Assign => assign,
    Board => board,
    Task => task,
    Supervise => supervise,
    Agent => agent,
    Goal => goal,
    Sprint => sprint,
    Discover => discover,
    Anomaly => anomaly,
    Analyze => analyze,
    Pause => pause,
    Checkpoint => checkpoint,
    Abort => abort,
    Resume => resume,
    Prompt => prompt,
    Step => step,
    Report => report,
    Prime => prime,
    Hook => hook,
    Hooks => hooks,
    #[cfg(feature = "mcp")]
    Mcp => mcp,
    Request => request,
    Plan => plan,
    Respond => respond,
    Requests => requests,
    Ping => ping,
    Pong => pong,
    Nudge => nudge,
    Escalations => escalations,
    Inbox => inbox,
    Status => status,
    Notify => notify,
    TmuxStatus => tmux_status,
    Review => review,
    Instruct => instruct,
    Dispatch => dispatch,
    Summary => summary,
    Lint => lint,
    Log => log,
    Why => why,
    Usage => usage,
    Dead => dead,
    Bridge => bridge,
    Migrate => migrate,
    Fsck => fsck,
    Doctor => doctor,
    Schema => schema,
    Completions => completions,
    Man => man,
    Help => help,
}

/// Whether a watcher looks after the project.
pub(crate) fn watcher_runs(project: &Project) -> bool {
    ensemble_watch::overview::WatcherView::of(project).runs()
}

/// The author of an entry on the blackboard.
pub(crate) fn reporter(context: &Context) -> Outcome<String> {
    Ok(context.actor()?.to_string())
}
