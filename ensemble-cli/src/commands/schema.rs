use clap::Command;
use ensemble_app::config_schema::{config_schema, pretty};
use ensemble_app::error_line::ErrorLine;
use ensemble_app::text::one_line;
use ensemble_core::message::EnvelopeFile;
use ensemble_reports::contract::{self, ContractKind};
use ensemble_team::steps::{Notice, StepPlan};
use schemars::Schema;
use serde_json::Value;

use crate::context::{Context, Failure, Outcome};
use crate::printed;

/// Print a JSON Schema, for editors
///
/// `ensemble init` writes the one of `ensemble.yaml` to `.ensemble/ensemble.schema.json`, where the
/// first line of the configuration points editors with a YAML language server to it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble admin schema config > .ensemble/ensemble.schema.json
  ensemble admin schema tools | jq .submit_step_completion
  ensemble admin schema output dead list
  ensemble admin schema commands | jq -r 'select(.place == \"recv\") | .flags[]'")]
pub(crate) struct Arguments {
    /// Schema to print
    what: SchemaKind,
    /// For `output`: the command whose lines are meant
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SchemaKind {
    /// `ensemble.yaml`
    Config,
    /// `tasks/<worker>-task.yaml`
    Task,
    /// `reports/<task>-completed.yaml`
    Report,
    /// `reports/<task>-review.yaml`
    Review,
    /// `reports/escalation-<task>.yaml`
    Escalation,
    /// `reports/completion-summary.yaml`
    Summary,
    /// `dispatch-instruction.yaml`
    Instruction,
    /// A message, as its file has it
    Message,
    /// A plan for `ensemble step add`
    Plan,
    /// A notice to an orchestrator about its steps
    Notice,
    /// A failure under `--json`, on stderr
    Error,
    /// A line that a command prints under `--json`
    Output,
    /// A line that `ensemble admin api` writes
    Api,
    /// All commands with flags, exit codes and the shapes of their lines, one a line
    Commands,
    #[cfg(feature = "mcp")]
    /// The arguments of each tool of `ensemble mcp`
    Tools,
}

impl Arguments {
    pub(crate) fn run(
        self,
        context: &Context,
        program: Command,
        tool_schemas: impl FnOnce() -> Vec<(&'static str, Value)>,
    ) -> Outcome {
        // Without tools there is no schema of them.
        #[cfg(not(feature = "mcp"))]
        drop(tool_schemas);
        let contract =
            |kind| -> Outcome { context.out.content(pretty(&contract::schema(kind))?.as_bytes()) };
        if !self.command.is_empty() && !matches!(self.what, SchemaKind::Output) {
            return Err(Failure::usage("only `output` takes a command"));
        }
        match self.what {
            SchemaKind::Config => context.out.content(config_schema()?.as_bytes()),
            SchemaKind::Task => contract(ContractKind::Task),
            SchemaKind::Report => contract(ContractKind::Report),
            SchemaKind::Review => contract(ContractKind::Review),
            SchemaKind::Escalation => contract(ContractKind::Escalation),
            SchemaKind::Summary => contract(ContractKind::Summary),
            SchemaKind::Instruction => contract(ContractKind::Instruction),
            SchemaKind::Message => print(context, "message", schemars::schema_for!(EnvelopeFile)),
            SchemaKind::Plan => print(context, "plan of steps", schemars::schema_for!(StepPlan)),
            SchemaKind::Notice => {
                print(context, "notice of a step queue", schemars::schema_for!(Notice))
            }
            SchemaKind::Error => print(context, "failure", schemars::schema_for!(ErrorLine)),
            SchemaKind::Output => {
                let place = self.command.join(" ");
                let schema = match place.is_empty() {
                    true => Some(printed::schema()),
                    false => printed::schema_of(&place),
                };
                let unknown = || {
                    Failure::nothing(format!("there is no command `{}`", one_line(&place)))
                        .with_hint("`ensemble help --all` lists all")
                };
                context.out.content(pretty(&schema.ok_or_else(unknown)?)?.as_bytes())
            }
            SchemaKind::Api => {
                print(context, "line of the API", schemars::schema_for!(printed::lines::ApiLine))
            }
            SchemaKind::Commands => {
                let all = printed::commands(program);
                all.iter().try_for_each(|command| context.out.object(command))
            }
            #[cfg(feature = "mcp")]
            SchemaKind::Tools => {
                let tools = tool_schemas();
                let tools: serde_json::Map<String, Value> =
                    tools.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
                context.out.content(format!("{:#}\n", serde_json::json!(tools)).as_bytes())
            }
        }
    }
}

fn print(context: &Context, title: &str, mut schema: Schema) -> Outcome {
    schema.insert("title".to_owned(), title.into());
    context.out.content(format!("{:#}\n", schema.to_value()).as_bytes())
}
