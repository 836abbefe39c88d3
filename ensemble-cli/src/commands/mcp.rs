use std::path::PathBuf;

use ensemble_app::door_hints::HintReader;
use ensemble_app::environment::own_program;
use serde_json::json;

use crate::context::{Context, Outcome};
use crate::mcp::install::{self, ConfiguredProgram, ServerCommand};
use crate::mcp::{ToolContext, serve_http, serve_stdio};

/// Serve the tools for agents over MCP
///
/// Without a subcommand it serves one client on stdin and stdout, as agents start it. With `--http`
/// it serves any number of clients on the loopback interface, each of which must send the bearer
/// token. All calls act as the agent that starts the server (see `ensemble agent whoami`).
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  ensemble admin mcp install --provider claude
  ensemble admin mcp --as Tara
  ensemble admin mcp --as Tara --http 8765 --token-file .ensemble/mcp-token")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Serve HTTP on 127.0.0.1 at this port; 0 takes a free one
    #[arg(long, value_name = "PORT")]
    http: Option<u16>,
    /// The file with the bearer token; made, with a fresh one, if there is none
    #[arg(long, value_name = "FILE", requires = "http", value_hint = clap::ValueHint::FilePath)]
    token_file: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Install(InstallServer),
    Uninstall(UninstallServer),
}

/// Add the server to an agent's configuration
///
/// Existing content stays as it is; `uninstall` restores it byte for byte.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble admin mcp install --provider codex --print
  ensemble admin mcp install --provider opencode")]
struct InstallServer {
    /// Program whose configuration to change
    #[arg(long, value_name = "PROVIDER")]
    provider: ConfiguredProgram,
    /// Print the entry instead
    #[arg(long)]
    print: bool,
    /// The configuration file [default: where the program looks]
    #[arg(long = "settings", alias = "file", value_name = "FILE")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
}

/// Remove the server from an agent's configuration
#[derive(Debug, clap::Args)]
struct UninstallServer {
    /// Program whose configuration to change
    #[arg(long, value_name = "PROVIDER")]
    provider: ConfiguredProgram,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context, read_hint: HintReader) -> Outcome {
        match (self.verb, self.http) {
            (Some(Verb::Install(install)), _) => install.run(context),
            (Some(Verb::Uninstall(uninstall)), _) => uninstall.run(context),
            (None, Some(port)) => {
                let desk = ToolContext::open(context, read_hint)?;
                serve_http(context, desk, port, self.token_file.as_deref())
            }
            (None, None) => serve_stdio(ToolContext::open(context, read_hint)?),
        }
    }
}

impl InstallServer {
    fn run(self, context: &Context) -> Outcome {
        let command = command(context);
        if self.print {
            let (provider, entry) = (self.provider.word(), self.provider.entry(&command));
            let object = json!({ "provider": provider, "entry": entry });
            return context.out.print_text(&object, &entry);
        }
        let project = context.existing_project()?;
        project.ensure_state()?;
        let file = match self.file {
            Some(file) => std::path::absolute(&file).unwrap_or(file),
            None => self.provider.file(project.root())?,
        };
        let is_changed = install::install(&project.state, self.provider, &file, &command)?;
        let said = match is_changed {
            true => format!("added server `ensemble` to {}", file.display()),
            false => format!("server `ensemble` is already in {}", file.display()),
        };
        let provider = self.provider.word();
        let object = json!({ "provider": provider, "file": file, "changed": is_changed });
        context.out.print_answer(&object, said)
    }
}

impl UninstallServer {
    fn run(self, context: &Context) -> Outcome {
        let guest = install::guest(&context.project()?.state, self.provider);
        let (file, is_changed) = guest.take_out()?;
        let said = match is_changed {
            true => format!("{} is as it was without the server", file.display()),
            false => format!("the server was no longer in {}", file.display()),
        };
        let provider = self.provider.word();
        let object = json!({ "provider": provider, "file": file, "changed": is_changed });
        context.out.print_answer(&object, said)
    }
}

fn command(context: &Context) -> ServerCommand {
    let mut arguments = Vec::new();
    if let Some(queue) = context.queue_flag() {
        let queue = std::path::absolute(queue).unwrap_or_else(|_| queue.to_owned());
        arguments.extend(["--queue".to_owned(), queue.to_string_lossy().into_owned()]);
    }
    if let Some(agent) = context.agent_flag() {
        arguments.extend(["--as".to_owned(), agent.to_string()]);
    }
    arguments.push("mcp".to_owned());
    ServerCommand { program: own_program(), arguments }
}

pub(crate) fn tool_schemas() -> Vec<(&'static str, serde_json::Value)> {
    crate::mcp::schemas()
}
