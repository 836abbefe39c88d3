//! The verbs, one file each. A new one is its file, its line in the list of modules and its line
//! in the list of verbs; what it takes and its help stand in its `Arguments`.

mod analyze;
mod assign;
mod bind;
mod board;
mod completions;
mod dead;
mod demo;
mod doctor;
mod escalations;
mod extend;
mod fsck;
mod inbox;
mod init;
mod log;
mod mailbox;
mod man;
mod nudge;
mod pane;
mod ping;
mod pong;
mod recv;
mod release;
mod send;
mod settle;
mod status;
mod task;
mod watch;

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
    Watch => watch,
    Mailbox => mailbox,
    Pane => pane,
    Send => send,
    Recv => recv,
    Settle => settle,
    Release => release,
    Extend => extend,
    Assign => assign,
    Board => board,
    Task => task,
    Analyze => analyze,
    Ping => ping,
    Pong => pong,
    Nudge => nudge,
    Escalations => escalations,
    Inbox => inbox,
    Status => status,
    Log => log,
    Dead => dead,
    Fsck => fsck,
    Doctor => doctor,
    Completions => completions,
    Man => man,
}
