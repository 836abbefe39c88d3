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
pub(crate) use assembler::Mark;
pub(crate) use assembler::{Assembler, Finished};
#[cfg(feature = "otlp")]
pub(crate) use collector::{Collector, Refusal};
pub(crate) use exposition::{Kind, Labels, Sample, text};
pub(crate) use meter::Meter;
pub(crate) use otlp::{SPANS_MAX, request};
#[cfg(feature = "otlp")]
pub(crate) use progress::Progress;
pub(crate) use span::Span;
