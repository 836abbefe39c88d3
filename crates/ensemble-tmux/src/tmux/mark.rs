//! Marks of the lines typed into a pane, stored in tmux options that are deleted with the pane.
//!
//! ```text
//! @ensemble_typed   a line that was typed and not submitted: ours, and no person's draft
//! @ensemble_sent    the last line that was submitted
//! ```
//!
//! Both hold the time on the clock that all processes of a machine share, a blank, and the line. So every process of
//! the team recognises our lines, even if the process that typed one has exited, and two processes that nudge an
//! agent about the same mail share one pace.

use std::time::Duration;

use super::TmuxPane;
use super::quote::quote;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};

pub(super) const TYPED_OPTION: &str = "@ensemble_typed";
pub(super) const SENT_OPTION: &str = "@ensemble_sent";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineMark {
    at: Monotonic,
    pub(super) text: String,
}

impl LineMark {
    /// How long ago it was made; forever, if it is of a time before the machine started.
    pub(super) fn age(&self) -> Duration {
        let now = SystemClock.boottime();
        if self.at > now { Duration::MAX } else { now.since(self.at) }
    }

    fn parse(value: &str) -> Option<Self> {
        let (millis, text) = value.split_once(' ')?;
        let at = Monotonic::from_duration(Duration::from_millis(millis.parse().ok()?));
        Some(Self { at, text: text.to_owned() })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PaneMarks {
    pub(super) typed: Option<LineMark>,
    pub(super) sent: Option<LineMark>,
}

impl TmuxPane {
    /// The marks of the pane; nothing, if it cannot be asked.
    pub(super) fn marks(&self) -> PaneMarks {
        let target = quote(&self.binding.id);
        let line =
            format!("display-message -p -t {target} \"#{{{TYPED_OPTION}}}\\n#{{{SENT_OPTION}}}\"");
        let lines = self.server.query_lines(&line).unwrap_or_default();
        let mark = |row: usize| lines.get(row).and_then(|line| LineMark::parse(line));
        PaneMarks { typed: mark(0), sent: mark(1) }
    }

    /// The command that has the pane remember a line from now on.
    pub(super) fn remembering(&self, option: &str, text: &str) -> String {
        let now = SystemClock.boottime().as_duration().as_millis();
        let value = quote(&format!("{now} {text}"));
        format!("set-option -p -t {} {option} {value}", quote(&self.binding.id))
    }

    pub(super) fn forgetting(&self, option: &str) -> String {
        format!("set-option -p -u -q -t {} {option}", quote(&self.binding.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_a_time_and_a_line() {
        let mark = LineMark::parse("12 ensemble: mail for x").expect("a mark");
        assert_eq!(mark.text, "ensemble: mail for x");
        assert!(mark.age() > Duration::ZERO);
        let later = LineMark::parse("99999999999999 /clear").expect("a mark");
        assert_eq!(later.age(), Duration::MAX, "the machine was started anew");
        for nonsense in ["", "/clear", "x /clear", "-1 /clear"] {
            assert_eq!(LineMark::parse(nonsense), None, "{nonsense}");
        }
    }
}
