//! The points of curves: collected, printed as a table, and kept as CSV.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Outcome, Summary, table};

const HEAD: &str = "chart,series,x,x_unit,median,p10,p90,unit,samples";
const FILE: &str = "scale.csv";

/// One point of one curve.
struct Point {
    chart: &'static str,
    series: String,
    x: usize,
    x_unit: &'static str,
    y: Summary,
    unit: &'static str,
    samples: usize,
}

pub struct Points {
    path: PathBuf,
    points: Vec<Point>,
}

impl Points {
    pub fn new() -> Self {
        let usual = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(FILE);
        let path = std::env::var_os("ENSEMBLE_BENCH_CSV").map_or_else(usual, PathBuf::from);
        Self { path, points: Vec::new() }
    }

    /// The points at one position on the axis of one chart.
    pub fn at(&mut self, chart: &'static str, x: usize, x_unit: &'static str) -> At<'_> {
        At { points: self, chart, x, x_unit }
    }

    /// Prints the curves of a chart, one row each, with the ratio of the last point to the first.
    pub fn print(&self, chart: &str, title: &str) {
        let of_chart: Vec<&Point> = self.points.iter().filter(|p| p.chart == chart).collect();
        let mut xs: Vec<usize> = of_chart.iter().map(|p| p.x).collect();
        xs.sort_unstable();
        xs.dedup();
        let mut series: Vec<(&str, &str)> = Vec::new();
        for point in &of_chart {
            if !series.contains(&(&point.series, point.unit)) {
                series.push((&point.series, point.unit));
            }
        }
        let unit = of_chart.first().map_or("", |p| p.x_unit);
        let heads: Vec<String> = xs.iter().map(|x| format!("{x} {unit}")).collect();
        table::curve_heading(title, &heads);
        for (name, unit) in series {
            let at = |x: &usize| {
                let is_it = |p: &&&Point| (p.x, p.series.as_str(), p.unit) == (*x, name, unit);
                of_chart.iter().find(is_it).map(|p| p.y)
            };
            table::curve(name, unit, &xs.iter().map(at).collect::<Vec<_>>());
        }
    }

    /// Writes the points collected so far, so that a failing part loses no other part's points.
    pub fn write(&self) -> Outcome<()> {
        let mut text = format!("{HEAD}\n");
        for Point { chart, series, x, x_unit, y, unit, samples } in &self.points {
            let Summary { median, p10, p90 } = y;
            writeln!(text, "{chart},{series},{x},{x_unit},{median},{p10},{p90},{unit},{samples}")?;
        }
        if let Some(parent) = self.path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&self.path, text)?;
        Ok(())
    }

    pub fn path(&self) -> &std::path::Path {
        &self.path
    }
}

/// Takes the points at one position on the axis.
pub struct At<'a> {
    points: &'a mut Points,
    chart: &'static str,
    x: usize,
    x_unit: &'static str,
}

impl At<'_> {
    pub fn add(&mut self, series: &str, unit: &'static str, samples: &[f64]) -> Outcome<()> {
        let y = Summary::of(samples).ok_or("nothing was measured")?;
        let (chart, x, x_unit) = (self.chart, self.x, self.x_unit);
        let (series, samples) = (series.replace(',', ""), samples.len());
        self.points.points.push(Point { chart, series, x, x_unit, y, unit, samples });
        Ok(())
    }

    /// Memory, from the kernel's KiB.
    pub fn add_memory(&mut self, series: &str, kib: u64) -> Outcome<()> {
        self.add(series, "MiB", &[kib as f64 / 1024.0])
    }
}
