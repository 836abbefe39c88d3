//! `ensemble schema`: what stands in a file, for editors.

use ensemble_core::contract::Kind;
use ensemble_watch::project::Config;

use crate::context::Context;
use crate::exit::{Failure, Outcome};

/// The schema of `ensemble.yaml`, below the state directory.
pub(super) const SCHEMA_FILE: &str = "ensemble.schema.json";

/// Print a JSON Schema, for editors
///
/// `ensemble init` writes the one of `ensemble.yaml` to `.ensemble/ensemble.schema.json`, where the
/// first line of the configuration tells editors with a YAML language server to look.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble schema config > .ensemble/ensemble.schema.json")]
pub(crate) struct Arguments {
    /// Of what
    what: What,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
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
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let kind = match self.what {
            What::Config => return context.out.content(config_schema()?.as_bytes()),
            What::Task => Kind::Task,
            What::Report => Kind::Report,
            What::Review => Kind::Review,
            What::Escalation => Kind::Escalation,
            What::Summary => Kind::Summary,
            What::Instruction => Kind::Instruction,
        };
        context.out.content(pretty(&ensemble_core::contract::schema(kind))?.as_bytes())
    }
}

/// The schema of `ensemble.yaml`.
pub(super) fn config_schema() -> Outcome<String> {
    let mut schema = schemars::schema_for!(Config);
    schema.insert("title".to_owned(), "ensemble.yaml".into());
    pretty(&schema.into())
}

fn pretty(schema: &serde_json::Value) -> Outcome<String> {
    let text = serde_json::to_string_pretty(schema)
        .map_err(|error| Failure::refused(format!("cannot write the schema: {error}")))?;
    Ok(text + "\n")
}
