//! `ensemble claude`, `codex`, `opencode` and `gemini`: agents in the terminal of a person.

use ensemble_core::message::Name;

use crate::context::{Context, Outcome};
use crate::wrap::{self, WrapOptions};

macro_rules! wrappers {
    ($($module:ident => $program:literal, $about:literal, $example:literal;)*) => {$(
        pub(super) mod $module {
            #[doc = $about]
            ///
            /// Creates the project if there is none. The agent gets mail and the tools of `ensemble mcp`; other arguments go to
            /// its program. This command ends with the agent and its exit code. Unread mail stays.
            ///
            /// Works in any terminal, with or without tmux. A hint that mail waits is typed only while you are not typing. A watcher starts with the first agent and ends with the last.
            #[derive(Debug, clap::Args)]
            #[command(after_help = $example)]
            pub(crate) struct Arguments {
                #[command(flatten)]
                flags: super::WrapperFlags,
            }

            impl Arguments {
                pub(crate) fn run(self, context: &super::Context) -> super::Outcome {
                    self.flags.run(context, $program)
                }
            }
        }
    )*};
}

wrappers! {
    claude => "claude", "Start Claude Code in this terminal, as a member of the team", "Examples:
  ensemble claude
  ensemble claude --name lead --role conductor --model opus";
    codex => "codex", "Start Codex in this terminal, as a member of the team", "Example: ensemble codex --name reviewer";
    opencode => "opencode", "Start OpenCode in this terminal, as a member of the team", "Example: ensemble opencode";
    gemini => "gemini", "Start Gemini CLI in this terminal, as a member of the team", "Example: ensemble gemini";
}

/// Our flags, and the arguments of the agent.
#[derive(Debug, clap::Args)]
pub(super) struct WrapperFlags {
    /// Its name [default: that of the program, or the next free one such as claude-2]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// Its role [default: its name if that is a role, otherwise worker]
    #[arg(long, value_name = "ROLE")]
    role: Option<Name>,
    /// Arguments of the agent's program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    arguments: Vec<String>,
}

impl WrapperFlags {
    fn run(self, context: &Context, program: &str) -> Outcome {
        let Self { name, role, arguments } = self;
        wrap::run(context, program, WrapOptions { name, role, arguments })
    }
}
