//! Traces and metrics from the event log, for programs of others. It reads the log and changes nothing.
//!
//! ```text
//! log --> assembler --> span --> otlp     ExportTraceServiceRequest in JSON --> stdout, or collector
//!                       conventions: every name, pinned to one version of the OpenTelemetry conventions
//! log, overview --> meter --> exposition  Prometheus text format 0.0.4
//! ```
//!
//! The state is in memory alone and rebuilt from the log at each start. `progress` is the exception: the last finished
//! thing that a collector has. Ids follow from the records, so a span that is sent twice is the same span.

mod assembler;
#[cfg(feature = "otlp")]
mod collector;
mod conventions;
mod exposition;
mod life;
mod meter;
mod otlp;
#[cfg(feature = "otlp")]
mod progress;
mod span;
mod steps;

#[cfg(feature = "otlp")]
pub use assembler::RecordMark;
pub use assembler::{FinishedSpans, SpanAssembler};
#[cfg(feature = "otlp")]
pub use collector::{Collector, CollectorRefusal};
pub use exposition::{MetricKind, MetricLabels, MetricSample, text};
pub use meter::LogMeter;
pub use otlp::{SPANS_MAX, request};
#[cfg(feature = "otlp")]
pub use progress::ExportProgress;
pub use span::Span;
