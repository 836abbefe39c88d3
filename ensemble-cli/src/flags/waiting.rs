//! How far, and how long, a command waits: `--until STATE` and `--wait DURATION`, the same everywhere.

use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::args::duration;

/// The flags of a command that can wait for a state.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitFlags<S: ValueEnum + Clone + Send + Sync + 'static> {
    /// Return when it is in this state [default with --wait: acked]
    #[arg(long, value_name = "STATE", value_enum)]
    until: Option<S>,
    /// Give up after DURATION, with exit code 3 [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
}

impl<S: ValueEnum + Clone + Send + Sync + 'static> WaitFlags<S> {
    pub(crate) fn until(&self) -> Option<S> {
        let acked = || self.wait.and_then(|_| S::from_str("acked", false).ok());
        self.until.clone().or_else(acked)
    }

    pub(crate) const fn patience(&self) -> Option<Duration> {
        self.wait
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.patience().and_then(|patience| Instant::now().checked_add(patience))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use ensemble_app::receipt::Receipt;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        waiting: WaitFlags<Receipt>,
    }

    #[test]
    fn a_time_alone_waits_until_it_is_acked() {
        let read = |line: &str| {
            let line = Line::parse_from(line.split(' '));
            (line.waiting.until(), line.waiting.patience().map(|time| time.as_secs()))
        };
        assert_eq!(read("x --until settled --wait 1m"), (Some(Receipt::Settled), Some(60)));
        assert_eq!(read("x --wait 1m"), (Some(Receipt::Acked), Some(60)));
        assert_eq!(read("x --until notified"), (Some(Receipt::Notified), None));
        assert_eq!(read("x").0, None);
        assert!(Line::try_parse_from(["x", "--wait", "soon"]).is_err());
    }
}
