//! Draws the points of the row `scale` as curves. `cargo bench -p ensemble-watch --bench curves --
//! FILE.csv DIRECTORY` writes one SVG for each chart and kind of unit. Both axes are logarithmic. A
//! cost that is independent of the size gives a level line. A cost proportional to the size rises
//! by a decade for each decade.
//!
//! Each picture has its own light and dark background and follows the reader's preference, so it
//! can be embedded in any page.
#![allow(missing_docs, reason = "a program")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Width and height of the picture, in SVG units.
const WIDTH: f64 = 930.0;
const HEIGHT: f64 = 440.0;
/// Ends of the axes: left, right, top, bottom.
const FRAME: (f64, f64, f64, f64) = (84.0, 560.0, 48.0, 380.0);
/// Distance between two lines of the legend.
const LEGEND_STEP: f64 = 22.0;
/// Colours of medium lightness, legible on both backgrounds.
const COLOURS: [&str; 9] = [
    "#2f7ed8", "#d9542b", "#2a9d5c", "#a45ad1", "#b8860b", "#d6408f", "#1c9aaa", "#7a7a7a",
    "#8a5a44",
];
/// Chart names and their titles.
const TITLES: [(&str, &str); 4] = [
    ("messages", "Messages that wait in one mailbox"),
    ("mailboxes", "Mailboxes, three messages each"),
    ("files", "Files in a drop box at once"),
    ("log", "Lines of the event log"),
];
const STYLE: &str = "<style>
  .back { fill: #ffffff; stroke: #c8c8c8 } .grid { stroke: #dcdcdc } .axis { stroke: #555555; fill: none }
  text { fill: #222222; font: 13px system-ui, sans-serif } .title { font-size: 16px; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #16181c; stroke: #3a3d44 } .grid { stroke: #33363d } .axis { stroke: #aaaaaa }
    text { fill: #e6e6e6 }
  }
</style>";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// One point, in the base unit of its kind.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
    low: f64,
    high: f64,
}

/// Content of one picture.
#[derive(Default)]
struct Chart {
    x_unit: String,
    /// The curves, in the order of the file.
    series: Vec<(String, Vec<Point>)>,
}

/// Kind of unit; curves of one kind share an axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Microseconds.
    Time,
    /// MiB.
    Memory,
    /// Percent of one processor.
    Processor,
    /// Wake-ups a minute.
    WakeUps,
}

impl Kind {
    /// The kind of a unit, and its size in base units.
    fn of(unit: &str) -> Outcome<(Self, f64)> {
        Ok(match unit {
            "us" => (Self::Time, 1.0),
            "ms" => (Self::Time, 1e3),
            "s" => (Self::Time, 1e6),
            "MiB" => (Self::Memory, 1.0),
            "% CPU" => (Self::Processor, 1.0),
            "a minute" => (Self::WakeUps, 1.0),
            other => return Err(format!("unknown unit `{other}`").into()),
        })
    }

    fn word(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Processor => "processor",
            Self::WakeUps => "wake-ups",
        }
    }

    /// Formats a value in the unit that gives the shortest text.
    fn label(self, value: f64) -> String {
        let (scaled, unit) = match self {
            Self::Time if value >= 1e6 => (value / 1e6, "s"),
            Self::Time if value >= 1e3 => (value / 1e3, "ms"),
            Self::Time => (value, "us"),
            Self::Memory if value >= 1024.0 => (value / 1024.0, "GiB"),
            Self::Memory => (value, "MiB"),
            Self::Processor => (value, "% CPU"),
            Self::WakeUps => (value, "a minute"),
        };
        let digits = (2 - scaled.abs().max(1e-9).log10().floor() as i32).clamp(0, 4);
        let text = format!("{scaled:.*}", usize::try_from(digits).unwrap_or(0));
        let short = if text.contains('.') { text.trim_end_matches(['0']) } else { &text };
        format!("{} {unit}", short.trim_end_matches('.'))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [csv, directory] = &arguments[..] else {
        println!("curves: `-- FILE.csv DIRECTORY` draws the points measured by `table -- scale`");
        return ExitCode::SUCCESS;
    };
    match draw_all(Path::new(csv), Path::new(directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("curves: {csv}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw_all(csv: &Path, directory: &Path) -> Outcome<()> {
    std::fs::create_dir_all(directory)?;
    for ((name, kind), chart) in read(&std::fs::read_to_string(csv)?)? {
        let path = directory.join(format!("{name}-{}.svg", kind.word()));
        let known = TITLES.iter().find(|(chart, _)| *chart == name);
        let title = format!("{}: {}", known.map_or(name.as_str(), |(_, title)| title), kind.word());
        std::fs::write(&path, draw(&title, kind, &chart)?)?;
        println!("{}", path.display());
    }
    Ok(())
}

fn read(text: &str) -> Outcome<BTreeMap<(String, Kind), Chart>> {
    let mut charts: BTreeMap<(String, Kind), Chart> = BTreeMap::new();
    for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
        let [name, series, x, x_unit, y, low, high, unit, _] =
            line.split(',').collect::<Vec<_>>()[..]
        else {
            return Err(format!("expected nine fields: {line}").into());
        };
        let (kind, factor) = Kind::of(unit)?;
        let number = |text: &str| Ok::<_, Box<dyn Error>>(text.parse::<f64>()? * factor);
        let (y, low, high) = (number(y)?, number(low)?, number(high)?);
        let chart = charts.entry((name.to_owned(), kind)).or_default();
        x_unit.clone_into(&mut chart.x_unit);
        let point = Point { x: x.parse()?, y, low, high };
        match chart.series.iter_mut().find(|(other, _)| other == series) {
            Some((_, points)) => points.push(point),
            None => chart.series.push((series.to_owned(), vec![point])),
        }
    }
    // A logarithmic axis has no zero.
    for chart in charts.values_mut() {
        chart.series.iter_mut().for_each(|(_, points)| points.retain(|p| p.y > 0.0 && p.x > 0.0));
        chart.series.retain(|(_, points)| !points.is_empty());
    }
    charts.retain(|_, chart| !chart.series.is_empty());
    Ok(charts)
}

/// A logarithmic axis over whole decades, and its position in the picture.
struct Axis {
    decades: (i32, i32),
    ends: (f64, f64),
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Self {
        let (low, high) =
            values.fold((f64::MAX, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        let first = low.log10().floor() as i32;
        Self { decades: (first, (high.log10().ceil() as i32).max(first + 1)), ends }
    }

    fn at(&self, value: f64) -> f64 {
        let (first, last) = (f64::from(self.decades.0), f64::from(self.decades.1));
        let share = ((value.max(1e-12).log10() - first) / (last - first)).clamp(0.0, 1.0);
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    fn ticks(&self) -> impl Iterator<Item = (f64, f64)> {
        (self.decades.0..=self.decades.1).map(|decade| {
            let value = 10_f64.powi(decade);
            (value, self.at(value))
        })
    }
}

fn draw(title: &str, kind: Kind, chart: &Chart) -> Outcome<String> {
    let points = || chart.series.iter().flat_map(|(_, points)| points);
    let (left, right, top, bottom) = FRAME;
    let x = Axis::over(points().map(|p| p.x), (left, right));
    let y = Axis::over(points().map(|p| p.y), (bottom, top));
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">"#
    )?;
    writeln!(svg, "<title>{}</title>\n{STYLE}", escaped(title))?;
    let (width, height) = (WIDTH - 1.0, HEIGHT - 1.0);
    writeln!(
        svg,
        r#"<rect class="back" x="0.5" y="0.5" width="{width}" height="{height}" rx="6"/>"#
    )?;
    writeln!(svg, r#"<text class="title" x="{left}" y="28">{}</text>"#, escaped(title))?;
    for (value, at) in x.ticks() {
        writeln!(svg, r#"<path class="grid" d="M{at:.1} {top}V{bottom}"/>"#)?;
        let (label, below) = (grouped(value), bottom + 20.0);
        writeln!(svg, r#"<text x="{at:.1}" y="{below}" text-anchor="middle">{label}</text>"#)?;
    }
    for (value, at) in y.ticks() {
        writeln!(svg, r#"<path class="grid" d="M{left} {at:.1}H{right}"/>"#)?;
        let (label, beside, middle) = (kind.label(value), left - 8.0, at + 4.5);
        writeln!(svg, r#"<text x="{beside}" y="{middle:.1}" text-anchor="end">{label}</text>"#)?;
    }
    writeln!(svg, r#"<path class="axis" d="M{left} {top}V{bottom}H{right}"/>"#)?;
    let (middle, below) = (f64::midpoint(left, right), bottom + 44.0);
    let unit = escaped(&chart.x_unit);
    writeln!(svg, r#"<text x="{middle}" y="{below}" text-anchor="middle">{unit}</text>"#)?;
    for (index, (name, points)) in chart.series.iter().enumerate() {
        svg.push_str(&curve(index, points, &x, &y)?);
        svg.push_str(&legend(index, name, points, kind)?);
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The line through the medians, a mark at each, and a bar from the 10th to the 90th percentile.
fn curve(index: usize, points: &[Point], x: &Axis, y: &Axis) -> Outcome<String> {
    let colour = COLOURS[index % COLOURS.len()];
    let mut svg = String::new();
    let line: Vec<String> =
        points.iter().map(|p| format!("{:.1},{:.1}", x.at(p.x), y.at(p.y))).collect();
    let (line, dashes) = (line.join(" "), dashes(index));
    writeln!(
        svg,
        r#"<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>"#
    )?;
    for p in points {
        let (at, low, high) = (x.at(p.x), y.at(p.low), y.at(p.high));
        writeln!(svg, r#"<path d="M{at:.1} {low:.1}V{high:.1}" stroke="{colour}"/>"#)?;
        svg.push_str(&mark(index, at, y.at(p.y))?);
    }
    Ok(svg)
}

/// Writes a curve's name and last value beside the frame.
fn legend(index: usize, name: &str, points: &[Point], kind: Kind) -> Outcome<String> {
    let colour = COLOURS[index % COLOURS.len()];
    let (left, right) = (FRAME.1 + 14.0, FRAME.1 + 40.0);
    let (at, text) = (FRAME.2 + LEGEND_STEP * index as f64, FRAME.1 + 48.0);
    let last = points.last().map(|p| kind.label(p.y)).unwrap_or_default();
    let (name, dashes, baseline) = (escaped(name), dashes(index), at + 4.5);
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<path d="M{left} {at}H{right}" stroke="{colour}" stroke-width="2"{dashes}/>"#
    )?;
    svg.push_str(&mark(index, f64::midpoint(left, right), at)?);
    writeln!(svg, r#"<text x="{text}" y="{baseline}">{name}: {last}</text>"#)?;
    Ok(svg)
}

/// Marks differ in shape, for readers who cannot tell the colours apart.
fn mark(index: usize, x: f64, y: f64) -> Outcome<String> {
    let colour = COLOURS[index % COLOURS.len()];
    let mut svg = String::new();
    let path = match index % 4 {
        0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", x - 4.0),
        1 => format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5),
        2 => format!("M{x:.1} {:.1}l4.5 8h-9z", y - 5.0),
        _ => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0),
    };
    writeln!(svg, r#"<path d="{path}" fill="{colour}"/>"#)?;
    Ok(svg)
}

fn dashes(index: usize) -> &'static str {
    if index < 4 { "" } else { r#" stroke-dasharray="6 4""# }
}

/// Formats a number as `10,000`.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
