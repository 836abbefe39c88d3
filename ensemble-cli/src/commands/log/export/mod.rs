mod otlp;
mod prometheus;

use std::path::PathBuf;

use crate::context::{Context, Outcome};

/// Export the event log as traces or metrics
///
/// Nothing is exported, and no address is contacted, unless you ask. No content of messages is in the log, so none
/// leaves it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble log export otlp --endpoint http://localhost:4318 --follow
  ensemble log export prometheus -o /var/lib/node_exporter/ensemble.prom")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: ExportVerb,
}

#[derive(Debug, clap::Subcommand)]
enum ExportVerb {
    Otlp(otlp::Arguments),
    /// Print metrics of the log, the mailboxes and the agents as Prometheus reads them
    ///
    /// Counters and histograms come from the log, and gauges from the present state. With `-o`, a complete file replaces
    /// the former one, as node_exporter's textfile collector wants it.
    #[command(after_help = "Examples:
  ensemble log export prometheus | promtool check metrics
  ensemble log export prometheus -o /var/lib/node_exporter/ensemble.prom")]
    Prometheus {
        /// File to write the metrics to, or `-` for stdout; node_exporter reads names that end in `.prom`
        #[arg(short, long, value_name = "FILE|-", default_value = "-", hide_default_value = true)]
        #[arg(value_hint = clap::ValueHint::FilePath)]
        output: PathBuf,
    },
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.what {
            ExportVerb::Otlp(otlp) => otlp.run(context),
            ExportVerb::Prometheus { output } => prometheus::export(context, &output),
        }
    }
}
