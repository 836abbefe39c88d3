//! Metrics in Prometheus' text format, version 0.0.4.

use std::fmt::Write as _;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

pub type MetricLabels = Vec<(&'static str, String)>;

#[derive(Clone, Debug)]
pub struct MetricSample {
    pub kind: MetricKind,
    pub name: &'static str,
    pub(super) help: &'static str,
    /// How a series of a histogram continues behind its name.
    pub part: &'static str,
    pub labels: MetricLabels,
    pub value: f64,
}

impl MetricSample {
    pub const fn new(
        kind: MetricKind,
        name: &'static str,
        help: &'static str,
        labels: MetricLabels,
        value: f64,
    ) -> Self {
        Self { kind, name, help, part: "", labels, value }
    }
}

/// Samples of one name must follow each other.
pub fn text(samples: &[MetricSample]) -> String {
    let mut out = String::new();
    let mut before = "";
    for sample in samples {
        let MetricSample { kind, name, help, part, labels, value } = sample;
        // Writing to a string cannot fail.
        if *name != before {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {}", kind.word());
            before = name;
        }
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = match labels.is_empty() {
            true => writeln!(out, "{name}{part} {value}"),
            false => writeln!(out, "{name}{part}{{{}}} {value}", labels.join(",")),
        };
    }
    out
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_explained_once_and_labels_are_escaped() {
        let sample = |value| {
            let labels = vec![("mailbox", "a\"b\\c\nd".to_owned())];
            MetricSample::new(MetricKind::Gauge, "ensemble_x", "Help.", labels, value)
        };
        assert_eq!(
            text(&[sample(1.0), sample(0.25)]),
            "# HELP ensemble_x Help.\n# TYPE ensemble_x gauge\n\
             ensemble_x{mailbox=\"a\\\"b\\\\c\\nd\"} 1\nensemble_x{mailbox=\"a\\\"b\\\\c\\nd\"} 0.25\n"
        );
    }
}
