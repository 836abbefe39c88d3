use std::collections::BTreeMap;
use std::path::Path;

use ensemble_app::content::write_output;
use ensemble_app::overview::{observe_team, open};
use ensemble_app::team_log::TeamLog;
use ensemble_core::event_log::read_all;
use ensemble_core::spool::Spool;
use ensemble_history::export::{LogMeter, MetricKind, MetricLabels, MetricSample, text};
use ensemble_project::attention::WatcherState;
use ensemble_project::overview::{Overview, OverviewSource, StateSource, since_millis};
use serde_json::{Map, Value, json};

use super::super::{check_whole, require_log};
use crate::context::{Context, Outcome};

const STATES: [&str; 3] = ["queued", "acked", "dead"];
/// Mode of the written file: node_exporter runs as another user.
const FILE_MODE: u32 = 0o644;

pub(super) fn export(context: &Context, file: &Path) -> Outcome {
    require_log(context)?;
    let team = TeamLog::open(context)?;
    let mut records = read_all(team.path())?;
    let mut meter = LogMeter::default();
    records.by_ref().for_each(|record| meter.count_record(&record));
    check_whole(&records)?;
    let mut samples = meter.samples();
    let queue = open(context)?;
    let overview = observe_team(context, &queue, StateSource::Watcher)?;
    let spool = match queue.source() {
        OverviewSource::Here(spool) => Some(spool),
        OverviewSource::Remote(_) | OverviewSource::Away(_) => None,
    };
    samples.extend(gauges(&overview, spool));
    if context.project()?.is_shared()? {
        samples.insert(0, of_servers(overview.away.is_none()));
    }
    let is_json = context.out.is_json();
    match (file.as_os_str() == "-", is_json) {
        (true, true) => samples.iter().try_for_each(|sample| context.out.object(&line(sample))),
        (true, false) => context.out.content(text(&samples).as_bytes()),
        (false, _) => {
            let text = text(&samples);
            write_output(file, text.as_bytes(), FILE_MODE)?;
            match is_json {
                true => context.out.object(&json!({ "file": file, "bytes": text.len() })),
                false => Ok(()),
            }
        }
    }
}

/// While the servers are away, the gauges of mailboxes are missing: a missing number is not known, and 0 would be.
fn of_servers(is_up: bool) -> MetricSample {
    let help = "Whether the servers that have the mailboxes can be asked.";
    MetricSample::new(
        MetricKind::Gauge,
        "ensemble_servers_up",
        help,
        Vec::new(),
        f64::from(u8::from(is_up)),
    )
}

fn gauges(overview: &Overview, spool: Option<&Spool>) -> Vec<MetricSample> {
    let mut samples = Vec::new();
    let mut add = |name, help, labels: MetricLabels, value: f64| {
        samples.push(MetricSample::new(MetricKind::Gauge, name, help, labels, value));
    };
    for view in &overview.mailboxes {
        let (glance, mailbox) = (&view.glance, view.name.to_string());
        // A look at everything counts up to a limit.
        let exact = spool.and_then(|spool| spool.counts(&view.name).ok());
        let counts = exact.map_or([glance.waiting, glance.held, glance.dead], |exact| {
            [exact.queued, exact.acked, exact.dead]
        });
        for (state, count) in STATES.into_iter().zip(counts) {
            let labels = vec![("mailbox", mailbox.clone()), ("state", state.to_owned())];
            let help = "Messages in a mailbox, by state.";
            add("ensemble_mailbox_messages", help, labels, count as f64);
        }
    }
    for view in &overview.mailboxes {
        let age = view.glance.oldest_millis.map_or(0.0, |at| since_millis(at).as_secs_f64());
        let labels = vec![("mailbox", view.name.to_string())];
        let help = "Age of the oldest queued message; 0 without one.";
        add("ensemble_mailbox_oldest_queued_seconds", help, labels, age);
    }
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    for agent in &overview.agents {
        let state = serde_json::to_value(agent.presence.state).unwrap_or_default();
        *states.entry(state.as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    for (state, count) in states {
        let help = "Agents, by state.";
        add("ensemble_agents", help, vec![("state", state)], count as f64);
    }
    let help = "Needs that a person must see to.";
    add("ensemble_needs", help, Vec::new(), overview.urgent() as f64);
    let help = "Whether a watcher runs, and does its work.";
    let is_up = overview.watcher.state() == WatcherState::Runs;
    add("ensemble_watcher_up", help, Vec::new(), f64::from(u8::from(is_up)));
    let (help, version) = ("The version of ensemble.", env!("CARGO_PKG_VERSION").to_owned());
    add("ensemble_build_info", help, vec![("version", version)], 1.0);
    samples
}

fn line(sample: &MetricSample) -> Value {
    let labels = sample.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    let labels: Map<String, Value> = labels.collect();
    json!({
        "name": format!("{}{}", sample.name, sample.part), "type": sample.kind,
        "labels": labels, "value": sample.value,
    })
}
