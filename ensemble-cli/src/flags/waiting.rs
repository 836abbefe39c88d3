//! How far, and how long, a command waits: `--until STATE` and `--wait DURATION`, the same everywhere.

use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::args::duration;

/// The flags of a command that can wait for a state.
#[derive(Debug, clap::Args)]
pub(crate) struct Waiting<S: ValueEnum + Clone + Send + Sync + 'static> {
    /// Return only when it has got so far [default with --wait: acked]
    #[arg(long, value_name = "STATE", value_enum)]
    until: Option<S>,
    /// Wait for that at most so long (exit code 3 if it was too short) [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = waited::<S>)]
    wait: Option<Waited<S>>,
    /// The former spelling of --wait, when --wait took the state
    #[arg(long, hide = true, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
}

/// What `--wait` was given: a time, or in the former spelling a state.
#[derive(Clone, Debug)]
enum Waited<S> {
    For(Duration),
    Until(S),
}

impl<S: ValueEnum + Clone + Send + Sync + 'static> Waiting<S> {
    /// The state that is waited for.
    pub(crate) fn until(&self) -> Option<S> {
        match (&self.until, &self.wait) {
            (Some(state), _) | (None, Some(Waited::Until(state))) => Some(state.clone()),
            (None, Some(Waited::For(_))) => S::from_str("acked", false).ok(),
            (None, None) => self.timeout.and_then(|_| S::from_str("acked", false).ok()),
        }
    }

    /// The longest wait.
    pub(crate) const fn patience(&self) -> Option<Duration> {
        match self.wait {
            Some(Waited::For(patience)) => Some(patience),
            _ => self.timeout,
        }
    }

    /// When the wait is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.patience().and_then(|patience| Instant::now().checked_add(patience))
    }
}

fn waited<S: ValueEnum>(text: &str) -> Result<Waited<S>, String> {
    match S::from_str(text, false) {
        Ok(state) => Ok(Waited::Until(state)),
        Err(_) => duration(text).map(Waited::For),
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
        waiting: Waiting<Receipt>,
    }

    #[test]
    fn a_state_and_a_time_in_today_and_former_spelling() {
        let read = |line: &str| {
            let line = Line::parse_from(line.split(' '));
            (line.waiting.until(), line.waiting.patience().map(|time| time.as_secs()))
        };
        assert_eq!(read("x --until settled --wait 1m"), (Some(Receipt::Settled), Some(60)));
        assert_eq!(read("x --wait settled --timeout 1m"), (Some(Receipt::Settled), Some(60)));
        assert_eq!(read("x --wait 1m"), (Some(Receipt::Acked), Some(60)));
        assert_eq!(read("x --until notified"), (Some(Receipt::Notified), None));
        assert_eq!(read("x --timeout 1m"), (Some(Receipt::Acked), Some(60)));
        assert_eq!(read("x").0, None);
        assert!(Line::try_parse_from(["x", "--wait", "soon"]).is_err());
    }
}
