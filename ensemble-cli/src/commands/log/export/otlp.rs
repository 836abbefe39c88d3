#[cfg(feature = "otlp")]
mod follow;

use ensemble_app::team_log::TeamLog;
use ensemble_core::event_log::read_all;
use ensemble_core::message::Timestamp;
#[cfg(feature = "otlp")]
use ensemble_history::export::Collector;
use ensemble_history::export::{FinishedSpans, SPANS_MAX, Span, SpanAssembler, request};
#[cfg(feature = "otlp")]
use serde_json::json;

use super::super::{check_whole, is_session, require_log, require_session, since};
use crate::context::{Context, Outcome};

/// Export messages as OpenTelemetry traces
///
/// A message is a trace: from its publish until it ends, with a span for each delivery, attempt and step. Without
/// `--endpoint`, prints OTLP/JSON, one request a line. A span has the same ids however often it is exported.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble log export otlp > traces.json
  ensemble log export otlp --endpoint http://localhost:4318 --since 1h
  ensemble log export otlp --endpoint http://localhost:4318 --follow")]
pub(super) struct Arguments {
    /// Send them to this collector by OTLP/HTTP; $OTEL_EXPORTER_OTLP_HEADERS has headers for it
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Keep sending what ends from now on, and begin where the last --follow to that collector ended
    #[cfg(feature = "otlp")]
    #[arg(short, long, requires = "endpoint", conflicts_with_all = ["session", "unfinished"])]
    follow: bool,
    /// Only what ended since then: a time like 2026-11-25T14:00:00Z, or an age like 10m
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Only what had ended in one session, as in session-20261121-225001
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Also what is not over, as it is now
    #[arg(long)]
    unfinished: bool,
}

impl Arguments {
    pub(super) fn run(self, context: &Context) -> Outcome {
        require_log(context)?;
        #[cfg(feature = "otlp")]
        if let Some(endpoint) = &self.endpoint {
            let collector = Collector::new(endpoint)?;
            if self.follow {
                return follow::follow(context, &collector, self.since);
            }
            let mut count = 0;
            self.export(context, &mut |namespace, spans| {
                collector.send(&request(namespace, spans))?;
                count += spans.len();
                Ok(())
            })?;
            let url = collector.url();
            let object = json!({ "url": url.to_string(), "spans": count });
            return context.out.print_answer(&object, format!("sent {count} spans to {url}"));
        }
        self.export(context, &mut |namespace, spans| context.out.object(&request(namespace, spans)))
    }

    fn export(&self, context: &Context, sink: &mut dyn FnMut(&str, &[Span]) -> Outcome) -> Outcome {
        let team = TeamLog::open(context)?;
        require_session(team.path(), self.session.as_deref())?;
        let mut records = read_all(team.path())?;
        let (mut assembler, mut now) = (SpanAssembler::default(), 0);
        let mut batch = SpanBatch::new(context)?;
        for record in records.by_ref() {
            now = now.max(u64::try_from(record.timestamp.unix_millis()).unwrap_or(0));
            assembler.add_record(&record, now);
            batch.add(self.wanted(assembler.finished(now)), sink)?;
        }
        batch.add(self.wanted(assembler.rest(self.unfinished)), sink)?;
        batch.empty(sink)?;
        check_whole(&records)
    }

    fn wanted(&self, mut finished: Vec<FinishedSpans>) -> Vec<FinishedSpans> {
        finished.retain(|finished| {
            let is_late = self.since.is_none_or(|since| finished.at >= since);
            let is_of = |wanted: &String| {
                finished.session().is_none_or(|session| is_session(session, wanted))
            };
            is_late && self.session.as_ref().is_none_or(is_of)
        });
        finished
    }
}

struct SpanBatch {
    namespace: String,
    spans: Vec<Span>,
}

impl SpanBatch {
    fn new(context: &Context) -> Outcome<Self> {
        let root = context.project()?.root();
        let name = root.file_name().unwrap_or(root.as_os_str());
        Ok(Self { namespace: name.to_string_lossy().into_owned(), spans: Vec::new() })
    }

    /// Adds spans, and hands over what is enough for a request.
    fn add(
        &mut self,
        finished: Vec<FinishedSpans>,
        sink: &mut dyn FnMut(&str, &[Span]) -> Outcome,
    ) -> Outcome {
        self.spans.extend(finished.into_iter().flat_map(|finished| finished.spans));
        while self.spans.len() >= SPANS_MAX {
            let rest = self.spans.split_off(SPANS_MAX);
            sink(&self.namespace, &std::mem::replace(&mut self.spans, rest))?;
        }
        Ok(())
    }

    fn empty(&mut self, sink: &mut dyn FnMut(&str, &[Span]) -> Outcome) -> Outcome {
        match std::mem::take(&mut self.spans) {
            spans if spans.is_empty() => Ok(()),
            spans => sink(&self.namespace, &spans),
        }
    }
}
