//! The verbs, one file each. A new one is its file, its line in the list of modules and its line
//! in the list of verbs; what it takes and its help stand in its `Arguments`.

mod analyze;
mod assign;
mod attach;
mod bind;
mod board;
mod broadcast;
mod completions;
mod dead;
mod demo;
mod doctor;
mod down;
mod escalations;
mod extend;
mod fsck;
mod inbox;
mod init;
mod join;
mod lint;
mod log;
mod log_report;
mod mailbox;
mod man;
mod nudge;
mod pane;
mod ping;
mod plan;
mod pong;
mod recv;
mod release;
mod report;
mod request;
mod requests;
mod respond;
mod review;
mod schema;
mod send;
mod settle;
mod spawn;
mod status;
mod summary;
mod task;
mod team;
mod up;
mod watch;
mod whoami;

use ensemble_watch::project::Project;

use crate::context::Context;
use crate::exit::Outcome;

macro_rules! verbs {
    ($($variant:ident => $module:ident,)*) => {
        /// What to do.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Verb {
            $(
                // Its help is that of its arguments.
                #[allow(missing_docs, clippy::allow_attributes)]
                $variant($module::Arguments),
            )*
        }

        impl Verb {
            /// Does it.
            pub(crate) fn run(self, context: &Context) -> Outcome {
                match self {
                    $(Self::$variant(arguments) => arguments.run(context),)*
                }
            }
        }
    };
}

// In the order of `ensemble --help`.
verbs! {
    Init => init,
    Demo => demo,
    Up => up,
    Down => down,
    Spawn => spawn,
    Join => join,
    Attach => attach,
    Team => team,
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
    Analyze => analyze,
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
    Report => report,
    Review => review,
    Summary => summary,
    Lint => lint,
    Log => log,
    Dead => dead,
    Fsck => fsck,
    Doctor => doctor,
    Schema => schema,
    Completions => completions,
    Man => man,
}

/// Whether a watcher looks after the project.
pub(crate) fn watcher_runs(project: &Project) -> bool {
    status::Watcher::look(project).holder.is_some()
}
