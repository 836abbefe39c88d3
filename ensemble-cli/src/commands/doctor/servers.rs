use std::time::Duration;

use ensemble_app::queue::{OpeningPurpose, access_for};
use ensemble_app::text::plural;
use ensemble_app::transport::uses_servers;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_project::OpenQueue;
use ensemble_project::attention::AwayServers;

use super::DoctorCheck;
use crate::context::{Context, Outcome};

const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

pub(super) fn checks(context: &Context) -> Outcome<Vec<DoctorCheck>> {
    if !uses_servers(context) {
        return Ok(Vec::new());
    }
    let project = context.project()?;
    let outbox = project.open_outbox()?;
    let opened = project.open(access_for(context, project, OpeningPurpose::Look));
    let mut checks = match opened.and_then(|queue| connected(&queue)) {
        Ok(checks) => checks,
        Err(error) => {
            let AwayServers { why, help, .. } = AwayServers::from(&error);
            vec![DoctorCheck::fail("servers", why, help)]
        }
    };
    let (waiting, dead) = (outbox.waiting()?, outbox.dead()?);
    let text = format!("{} to send", plural(waiting, "message"));
    checks.push(match dead {
        0 => DoctorCheck::ok("outbox", text),
        dead => {
            let text = format!("{text}, {} that could not be sent", plural(dead, "dead letter"));
            DoctorCheck::warn("outbox", text, "`ensemble dead list` says why")
        }
    });
    Ok(checks)
}

fn connected(queue: &OpenQueue) -> ensemble_core::Result<Vec<DoctorCheck>> {
    let Some(servers) = queue.team_link() else { return Ok(Vec::new()) };
    let mailboxes = queue.mailboxes()?;
    let text = format!("{} at {}", plural(mailboxes.len() as u64, "mailbox"), servers.server());
    let (there, here) = (servers.now(), SystemClock.wall());
    let apart = there.since(here).max(here.since(there));
    let clock = if apart <= CLOCK_TOLERANCE {
        DoctorCheck::ok("server time", "agrees with this host's clock")
    } else {
        let apart = humantime::format_duration(Duration::from_secs(apart.as_secs()));
        let text = format!("this host's clock is {apart} off the servers'");
        let remedy = "the servers' time counts for delays and deadlines; set this host's clock";
        DoctorCheck::warn("server time", text, remedy)
    };
    let version = format!("nats-server {}", servers.server_version()?);
    Ok(vec![DoctorCheck::ok("servers", text), clock, DoctorCheck::ok("server version", version)])
}

const STEPS_PATIENCE: Duration = Duration::from_secs(2);

/// Whether the server answers and has the tables; nothing for queues in a file.
pub(super) fn check_steps(context: &Context) -> Outcome<Option<DoctorCheck>> {
    let project = context.project()?;
    if !project.has_shared_steps() {
        return Ok(None);
    }
    let mut options = project.step_options(context.recorder()?);
    options.patience = STEPS_PATIENCE;
    let store = project.open_steps(options)?;
    Ok(Some(match store.queues() {
        Ok(queues) => {
            let text = plural(queues.len() as u64, "queue");
            DoctorCheck::ok("step queues", format!("{text} at {}", store.path().display()))
        }
        Err(error) => {
            let remedy = match error.is_transient() {
                true => "start the server, or fix `steps: {postgres: ADDRESS}` in ensemble.yaml",
                false => {
                    "correct `steps` in ensemble.yaml, the password's file, or the rights at the server"
                }
            };
            DoctorCheck::fail("step queues", error.to_string(), remedy)
        }
    }))
}
