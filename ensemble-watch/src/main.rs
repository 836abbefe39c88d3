//! The sidecar as its own program; `ensemble admin watch` runs the same.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use ensemble_core::Error;
use ensemble_project::Project;
use ensemble_watch::run_process;

const USAGE: &str = "usage: ensemble-watch [--queue DIR]

Watches a queue (default: $ENSEMBLE_QUEUE or ./queue), routes what lands in its drop boxes and
wakes the agents. Ends on SIGTERM or SIGINT. One watcher runs for each queue.";

/// Another watcher runs, or the queue is busy: try again.
const EXIT_BUSY: u8 = 75;

fn main() -> ExitCode {
    #[cfg(all(target_os = "linux", feature = "notify"))]
    if std::env::var_os("ENSEMBLE_FILE_EVENTS").is_some_and(|backend| backend == "notify") {
        ensemble_core::watch::choose_notify();
    }
    let queue = match arguments() {
        Ok(queue) => queue,
        Err(code) => return code,
    };
    let project = Project::discover(queue.as_deref());
    let outcome = project.and_then(|project| {
        run_process(&project, || say(&format!("watching {}", project.queue.display())))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(if matches!(error, Error::Locked { .. }) { EXIT_BUSY } else { 1 })
        }
    }
}

/// A line on stderr. One that cannot be written is not a reason to end.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "ensemble-watch: {text}");
}

fn arguments() -> Result<Option<PathBuf>, ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (None, _, _) => Ok(None),
        (Some(flag), Some(queue), None) if flag == "--queue" => Ok(Some(queue.into())),
        (Some(flag), None, _) if flag == "--help" || flag == "-h" => {
            println!("{USAGE}");
            Err(ExitCode::SUCCESS)
        }
        _ => {
            let _ = writeln!(std::io::stderr(), "{USAGE}");
            Err(ExitCode::from(2))
        }
    }
}
