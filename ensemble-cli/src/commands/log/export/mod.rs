mod otlp;
mod prometheus;

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
    Prometheus(prometheus::Arguments),
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.what {
            ExportVerb::Otlp(otlp) => otlp.run(context),
            ExportVerb::Prometheus(prometheus) => prometheus.run(context),
        }
    }
}
