//! `ensemble log export otlp --follow`: what has ended goes to a collector as the log grows.
//!
//! ```text
//! log --> assembler --> at most SPANS_MAX spans --> collector --> progress
//! ```
//!
//! While a collector does not answer, the log is read no further: it keeps what is unsent. Each start reads the log
//! from its beginning and passes over what the collector has.

use std::time::{Duration, Instant};

use ensemble_app::diagnostics::say;
use ensemble_app::receipt::LOG_POLL;
use ensemble_core::event_log::Follower;
use ensemble_core::message::Timestamp;
use ensemble_core::watch::Waiter;
use ensemble_history::export::{
    Collector, CollectorRefusal, ExportProgress, Span, SpanAssembler, request,
};

use super::SpanBatch;
use crate::context::{Context, Failure, Outcome};

/// Pause before a collector that does not answer is tried again. It doubles from one to the other.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

pub(super) fn follow(
    context: &Context,
    collector: &Collector,
    since: Option<Timestamp>,
) -> Outcome {
    let project = context.project()?;
    if project.is_shared()? {
        let text = "a team on servers has a log on each host, which --follow does not merge";
        return Err(Failure::refused(text).with_hint("export it now and then, with --since"));
    }
    let logs = project.logs();
    let waiter = Waiter::for_logs(std::slice::from_ref(&logs));
    let mut follower = Follower::from_start(&logs);
    let (mut progress, url) = (ExportProgress::read(&project.state), collector.url().to_string());
    let (mut assembler, mut batch) = (SpanAssembler::default(), SpanBatch::new(context)?);
    // The time by the log, which continues while nothing is written.
    let (mut now, mut before) = (0, Instant::now());
    loop {
        let records = follower.poll()?;
        now += u64::try_from(before.elapsed().as_millis()).unwrap_or(0);
        before = Instant::now();
        for record in &records {
            now = now.max(u64::try_from(record.timestamp.unix_millis()).unwrap_or(0));
            assembler.add_record(record, now);
        }
        let known = progress.of(&url);
        let mut finished = assembler.finished(now);
        finished.retain(|finished| {
            let is_late = since.is_none_or(|since| finished.at >= since);
            is_late && known.is_none_or(|known| finished.is_after(known))
        });
        if let Some(last) = finished.last().and_then(|last| last.mark.clone()) {
            let mut sink = |namespace: &str, spans: &[Span]| deliver(collector, namespace, spans);
            batch.add(finished, &mut sink)?;
            batch.empty(&mut sink)?;
            progress.record_mark(&url, last)?;
        }
        if records.is_empty() {
            waiter.wait(LOG_POLL);
        }
    }
}

fn deliver(collector: &Collector, namespace: &str, spans: &[Span]) -> Outcome {
    let request = request(namespace, spans);
    let mut pause = PAUSE_MIN;
    loop {
        match collector.send(&request) {
            Ok(()) => return Ok(()),
            Err(CollectorRefusal::Later(text)) => {
                say(&format!("warning: {text}: tried again in {} s", pause.as_secs()));
                let _ = crossbeam_channel::after(pause).recv();
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
}
