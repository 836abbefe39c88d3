//! Latencies of several subjects measured in turns, and processes that keep the machine busy
//! in the meantime.

use std::process::Command;

use super::process::{Guard, ROLE, end_with_parent};
use super::{Outcome, Summary, table};

/// One subject's samples in microseconds, one list for each round.
#[derive(Debug, Default)]
pub struct Latency {
    rounds: Vec<Vec<f64>>,
}

impl Latency {
    /// Adds a sample to a round; rounds come in order.
    pub fn push(&mut self, round: usize, sample: f64) {
        self.rounds.resize(self.rounds.len().max(round + 1), Vec::new());
        self.rounds[round].push(sample);
    }

    fn all(&self) -> Vec<f64> {
        let mut all = self.rounds.concat();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Ratio of a round's median to that of another subject, round by round.
    fn ratio_to(&self, ours: &Self) -> Option<Summary> {
        let median = |samples: &Vec<f64>| Summary::of(samples).map(|summary| summary.median);
        let both = self.rounds.iter().zip(&ours.rounds);
        let ratios = both.filter_map(|(own, ours)| Some(median(own)? / median(ours)?));
        Summary::of(&ratios.collect::<Vec<_>>())
    }
}

pub fn heading(title: &str) {
    println!("\n{title}");
    println!(
        "  {:<40} {:>10} {:>10} {:>10} {:>6}  p50 / p50 of ours, by round",
        "subject", "p50 us", "p99 us", "p99.9 us", "n"
    );
}

/// Prints one subject against ours.
pub fn line(what: &str, subject: &Latency, ours: &Latency) {
    let all = subject.all();
    let Some(last) = all.len().checked_sub(1) else {
        return table::note(&format!("{what}: no samples"));
    };
    // The smallest sample with at most this share of samples above it. With few samples the last
    // two percentiles equal the maximum.
    let at = |share: f64| all[((share * all.len() as f64).ceil() as usize).clamp(1, last + 1) - 1];
    let ratio = subject.ratio_to(ours).map_or_else(String::new, |ratio| {
        format!("{:.2} x ({:.2}-{:.2})", ratio.median, ratio.p10, ratio.p90)
    });
    println!(
        "  {what:<40} {:>10.1} {:>10.1} {:>10.1} {:>6}  {ratio}",
        at(0.5),
        at(0.99),
        at(0.999),
        all.len()
    );
}

/// One busy process of usual priority for each processor.
pub fn load() -> Outcome<Vec<Guard>> {
    let processors = std::thread::available_parallelism()?.get();
    let mut busy = Vec::new();
    for _ in 0..processors {
        // A bench started with a higher priority must not raise theirs.
        let mut command = match super::peer::find("chrt") {
            Ok(chrt) => {
                let mut command = Command::new(chrt);
                command.args(["--other", "0"]).arg(std::env::current_exe()?);
                command
            }
            Err(_) => Command::new(std::env::current_exe()?),
        };
        busy.push(Guard::start(command.args([ROLE, "busy"]))?);
    }
    Ok(busy)
}

pub fn busy() -> Outcome<()> {
    end_with_parent();
    let mut number = 1_u64;
    loop {
        number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) | 1);
    }
}
