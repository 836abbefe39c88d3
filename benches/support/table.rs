//! Prints one line of the table.

use super::{Pairs, Summary};

/// The required bound of a ratio or a number.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// Shown for comparison.
    None,
}

impl Goal {
    fn verdict(self, value: f64) -> String {
        match self {
            Self::AtMost(limit) if value <= limit => format!("<= {limit}  met"),
            Self::AtMost(limit) => format!("<= {limit}  MISSED"),
            Self::AtLeast(limit) if value >= limit => format!(">= {limit}  met"),
            Self::AtLeast(limit) => format!(">= {limit}  MISSED"),
            Self::None => String::new(),
        }
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn cell(summary: Option<Summary>, unit: &str) -> String {
    summary.map_or_else(
        || "-".to_owned(),
        |s| format!("{} {unit} ({}-{})", number(s.median), number(s.p10), number(s.p90)),
    )
}

pub fn heading(title: &str) {
    heading_against(title, "limit");
}

/// As [`heading`], for a comparison that is not a limit.
pub fn heading_against(title: &str, what: &str) {
    println!("\n{title}");
    println!(
        "  {:<46} {:<30} {:<30} {:<24} goal",
        "subject",
        "ours: median (p10-p90)",
        format!("{what}: median (p10-p90)"),
        format!("ours / {what}")
    );
}

/// Prints a row of samples measured in turns.
pub fn pairs(what: &str, unit: &str, pairs: &Pairs, goal: Goal) {
    let ratio = pairs.ratio();
    println!(
        "  {what:<46} {:<30} {:<30} {:<24} {}",
        cell(pairs.ours(), unit),
        cell(pairs.limit(), unit),
        cell(ratio, "x"),
        ratio.map_or_else(String::new, |r| goal.verdict(r.median)),
    );
}

pub fn value(what: &str, value: f64, unit: &str, goal: Goal) {
    println!("  {what:<46} {:<30} {}", format!("{} {unit}", number(value)), goal.verdict(value));
}

pub fn note(text: &str) {
    println!("  note: {text}");
}

pub fn curve_heading(title: &str, places: &[String]) {
    println!("\n{title}");
    let cells: String = places.iter().map(|place| format!("{place:<26} ")).collect();
    println!("  {:<38} {cells}last / first", "median (p10-p90)");
}

/// Prints one curve as a row, with the ratio of its last point to its first.
pub fn curve(what: &str, unit: &str, points: &[Option<Summary>]) {
    let cells: String = points.iter().map(|point| format!("{:<26} ", cell(*point, unit))).collect();
    let ends = (points.first().copied().flatten(), points.last().copied().flatten());
    let growth = match ends {
        (Some(first), Some(last)) if first.median > 0.0 => {
            format!("{} x", number(last.median / first.median))
        }
        _ => "-".to_owned(),
    };
    println!("  {what:<38} {cells}{growth}");
}
