use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_app::text::{one_line, plural};
use ensemble_conformance::{self as conformance, ClientCheck, LoadFigures, LoadRun};
use ensemble_project::QUEUE_VARIABLE;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};
use crate::output::{BAD, FAINT, GOOD};

/// Check that a client keeps the queue protocol
///
/// A CLIENT is a command line for `sh`. It is started with a queue as its last argument, and answers each
/// line of JSON with one. The page conformance/README.md describes these lines. Each failure names the
/// sentence of PROTOCOL.md that it breaks.
///
/// Exit code 0 if each client keeps the protocol, 1 if one does not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble admin conformance 'python3 clients/python/adapter.py'
  ensemble admin conformance --only load --messages 5000 ./my-client 'sh clients/sh/adapter.sh'")]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["clients", "serve"]))]
pub(crate) struct Arguments {
    /// Clients to check
    #[arg(value_name = "CLIENT")]
    clients: Vec<String>,
    /// Stages to run; all by default
    #[arg(long, value_name = "STAGE", value_delimiter = ',')]
    only: Vec<ConformanceStage>,
    /// Run only the vectors whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Messages of the load
    #[arg(long, value_name = "N", default_value_t = 400)]
    messages: u64,
    /// Processes of the load: the clients in turns, and then our own
    #[arg(long, value_name = "N", default_value_t = 4)]
    processes: usize,
    /// Sending ends after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Average time between two kills or stops
    #[arg(long, value_name = "MS", default_value_t = 300)]
    trouble_ms: u64,
    /// Seed of all random choices of the load; a fresh one by default
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Be a client: serve this queue over stdin and stdout
    #[arg(long, value_name = "QUEUE", conflicts_with = "clients", hide = true)]
    serve: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ConformanceStage {
    /// The test vectors of conformance/
    Vectors,
    /// Order of system calls, under strace
    Traces,
    /// The mailbox lock
    Locks,
    /// No room for a file
    Disk,
    /// Many processes, killed and stopped
    Load,
}

const ALONE: [(ConformanceStage, &str); 3] = [
    (ConformanceStage::Traces, "traces"),
    (ConformanceStage::Locks, "locks"),
    (ConformanceStage::Disk, "disk"),
];

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if let Some(queue) = &self.serve {
            return conformance::serve(queue).map_err(Failure::refused);
        }
        let mut failed = 0;
        for client in &self.clients {
            let mut checks = Vec::new();
            if self.runs(ConformanceStage::Vectors) {
                checks.extend(conformance::vectors(client, &self.case));
            }
            for (_, name) in ALONE.iter().filter(|(stage, _)| self.runs(*stage)) {
                checks.extend(conformance::stage(name, client));
            }
            failed += show(context, client, &checks)?;
        }
        if self.runs(ConformanceStage::Load) {
            failed += self.load(context)?;
        }
        context.out.flush()?;
        match failed {
            0 => Ok(()),
            _ => Err(Failure::refused(format!("{} failed", plural(failed, "check")))
                .with_hint("each names the sentence of PROTOCOL.md that it breaks")),
        }
    }

    fn runs(&self, stage: ConformanceStage) -> bool {
        self.only.is_empty() || self.only.contains(&stage)
    }

    fn load(&self, context: &Context) -> Outcome<u64> {
        let fresh =
            || std::time::UNIX_EPOCH.elapsed().map_or(1, |now| u64::from(now.subsec_nanos()));
        let own = std::env::current_exe().map_err(|error| Failure::refused(error.to_string()))?;
        let own = format!("'{}' admin conformance --serve", own.display());
        let turns = self.clients.iter().chain(std::iter::once(&own)).cycle();
        let load = LoadRun {
            processes: turns.take(self.processes.max(self.clients.len() + 1)).cloned().collect(),
            messages: self.messages,
            budget: Duration::from_secs(self.seconds),
            trouble: Duration::from_millis(self.trouble_ms),
            seed: self.seed.unwrap_or_else(fresh),
        };
        let home = tempfile::tempdir().map_err(|error| Failure::refused(error.to_string()))?;
        let (played, mut checks) = load.play(home.path()).map_err(Failure::refused)?;
        checks.push(replayed(home.path()));
        let object = json!({ "seed": load.seed, "load": played });
        context.out.print_answer(&object, sentence(&played, load.seed))?;
        show(context, "all", &checks)
    }
}

fn sentence(played: &LoadFigures, seed: u64) -> String {
    let mut clients: Vec<_> = played.by_client.iter().collect();
    clients.sort_unstable();
    let clients: Vec<_> =
        clients.iter().map(|(client, count)| format!("{client} {count}")).collect();
    format!(
        "load: seed {seed}, {} processes, {:.1} s; {} sent (and {} unknown), {} done, {} settled (and {} unknown; {}), \
         {} released, {} extended, {} abandoned, {} expired, {} leases lost; {} kills, {} stops",
        played.processes,
        played.seconds,
        played.sent,
        played.sends_unknown,
        played.done,
        played.settled,
        played.settles_unknown,
        clients.join(", "),
        played.released,
        played.extended,
        played.abandoned,
        played.expired,
        played.leases_lost,
        played.kills,
        played.stops,
    )
}

/// Whether the event log, which our own processes wrote, contradicts the files.
fn replayed(home: &Path) -> ClientCheck {
    let run = || -> Result<(), String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut replay = std::process::Command::new(own);
        replay.env(QUEUE_VARIABLE, home.join("queue")).args(["log", "replay"]).current_dir(home);
        let output = replay.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => {
                Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
            }
        }
    };
    conformance::log_check(run())
}

/// Prints what failed, and a summary. Returns the number of failures.
fn show(context: &Context, client: &str, checks: &[ClientCheck]) -> Outcome<u64> {
    let out = &context.out;
    let count =
        |verdict: &str| checks.iter().filter(|check| check.verdict == verdict).count() as u64;
    for check in checks {
        if out.is_json() {
            out.object(check)?;
        } else if check.verdict == "failed" {
            out.line(format!("{} {}/{}", out.paint(BAD, "failed"), check.stage, check.name))?;
            out.line(format!("  {}", one_line(&check.detail)))?;
            out.line(format!("  PROTOCOL.md, {}: {}", check.section, check.rule))?;
        } else if check.verdict == "skipped" && !check.detail.starts_with("needs the mailbox lock")
        {
            let line = format!("skipped {}/{}: {}", check.stage, check.name, check.detail);
            out.line(out.paint(FAINT, line))?;
        }
    }
    let failed = count("failed");
    if !checks.is_empty() && !out.is_json() {
        let style = if failed == 0 { GOOD } else { BAD };
        out.line(out.paint(
            style,
            format!(
                "{client}: {} passed, {failed} failed, {} odd envelopes refused, {} skipped",
                count("passed"),
                count("refused"),
                count("skipped"),
            ),
        ))?;
    }
    Ok(failed)
}
