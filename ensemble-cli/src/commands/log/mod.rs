pub(super) mod escalations;
pub(super) mod export;
#[cfg(feature = "mcp")]
mod follow;
mod record;
mod replay;
mod report;

use std::path::{Path, PathBuf};

use anstyle::Style;
use ensemble_app::diagnostics::say;
use ensemble_app::receipt::LOG_POLL;
use ensemble_app::team_log::TeamLog;
use ensemble_app::text::plural;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{
    Follower, LogPosition, LogRecords, Record, RecordType, last, read_all, types,
};
use ensemble_core::message::Timestamp;
use ensemble_core::watch::Waiter;
use serde_json::Value;

use crate::args;
use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{BAD, STRONG};
use crate::printing::record_line;

const FOLLOW_FROM: usize = 10;

/// Show the event log
///
/// With `--json`, the records as they are in the log.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  ensemble log --follow --type 'message.*' --type escalation
  ensemble log --json --limit 100 | jq .data")]
pub(crate) struct Arguments {
    /// Show the last records, then new ones as they are written
    #[arg(short, long)]
    follow: bool,
    /// Only records of this type, or of a namespace as in `message.*`; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
    /// Only the last N records [default: all; with --follow: 10]
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Only records since then: a time like 2026-11-25T14:00:00Z, or an age like 10m
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Only records of one session, as in session-20261121-225001
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    #[command(subcommand)]
    what: Option<LogVerb>,
}

#[derive(Debug, clap::Subcommand)]
enum LogVerb {
    /// Write one event to the event log
    ///
    /// TYPE is one of task_start, task_complete, task_failed, worker_assign, worker_release, review_start,
    /// review_result, escalation, loop_detected, or your own type with a dot in it. The actor is you.
    /// session_start, session_end and the types in which Ensemble itself writes, such as message.settled, are
    /// refused: `ensemble log replay` rebuilds the state from them.
    ///
    /// A value is a text, unless it is a whole number, `true` or `false`.
    #[command(after_help = "Examples:
  ensemble log record task_start task_id=task-001 worker_id=1 --as worker-1
  ensemble log record deploy.done host=web-3 seconds=41 --as conductor --json")]
    Record {
        /// The type of the event
        #[arg(value_name = "TYPE", value_parser = record::record_type)]
        kind: RecordType,
        /// Data of the event
        #[arg(value_name = "KEY=VALUE", value_parser = record::member)]
        members: Vec<(String, Value)>,
    },
    /// Rebuild the state from the event log alone and compare it with what is on disk
    ///
    /// Messages with their holders and epochs, requests, tasks, agents and steps. A contradiction is a
    /// state to which no allowed move can have led. A state ahead of the log comes from a script, or
    /// from a process that was killed before it could record its move (docs/evidence/reliability.md).
    ///
    /// Exit code 0 if nothing contradicts the log, 4 if something does, 1 if the log is not whole or a part of the project
    /// cannot be read. Everything else is compared.
    #[command(after_help = "Example: ensemble log replay --strict --json | jq 'select(.kind)'")]
    Replay {
        /// Count changes without a record as well: for projects in which no script moves files
        #[arg(long)]
        strict: bool,
    },
    Report(report::Arguments),
}

/// The directory of the log, which must exist.
fn require_log(context: &Context) -> Outcome<PathBuf> {
    let logs = context.project()?.logs();
    if logs.is_dir() {
        return Ok(logs);
    }
    let text = format!("there is no event log at {}", logs.display());
    Err(Failure::nothing(text).with_hint("`ensemble init` creates a queue"))
}

pub(super) fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago =
        args::duration(text).map_err(|_| format!("`{text}` is neither a time nor a duration"))?;
    let millis = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    Ok(Timestamp::from_unix_millis(SystemClock.wall().unix_millis().saturating_sub(millis)))
}

impl Arguments {
    pub(crate) fn run(mut self, context: &Context) -> Outcome {
        match self.what.take() {
            Some(LogVerb::Report(report)) => return report.run(context),
            Some(LogVerb::Replay { strict }) => return replay::replay(context, strict),
            Some(LogVerb::Record { kind, members }) => {
                return record::record(context, &kind, members);
            }
            None => {}
        }
        let logs = require_log(context)?;
        if self.follow {
            // Begun before the past is read, so that nothing falls in between.
            let mut follower = Follower::from_end(&logs)?.only(self.types.clone());
            let waiter = Waiter::new(std::slice::from_ref(&logs));
            if let Some(position) = follower.position() {
                let limit = self.limit.unwrap_or(FOLLOW_FROM);
                self.show_last(context, &logs, Some(&position), limit)?;
            }
            loop {
                for record in follower.poll()? {
                    self.show(context, &record)?;
                }
                context.out.flush()?;
                waiter.wait(LOG_POLL);
            }
        }
        let team = TeamLog::open(context)?;
        require_session(team.path(), self.session.as_deref())?;
        if let Some(limit) = self.limit {
            return self.show_last(context, team.path(), None, limit);
        }
        let mut records = read_all(team.path())?;
        for record in records.by_ref() {
            self.show(context, &record)?;
        }
        check_whole(&records)
    }

    fn show_last(
        &self,
        context: &Context,
        logs: &Path,
        before: Option<&LogPosition>,
        limit: usize,
    ) -> Outcome {
        let last = last(logs, before, limit, |record| self.is_wanted(record))?;
        last.records.iter().try_for_each(|record| self.show(context, record))?;
        if before.is_none() {
            warn(last.bad_lines);
        }
        Ok(())
    }

    fn is_wanted(&self, record: &Record) -> bool {
        let is_of_type =
            self.types.is_empty() || self.types.iter().any(|pattern| record.kind.matches(pattern));
        let is_late = self.since.is_none_or(|since| record.timestamp >= since);
        let session = &record.session_id;
        let is_of_session = self.session.as_ref().is_none_or(|wanted| is_session(session, wanted));
        is_of_type && is_late && is_of_session
    }

    fn show(&self, context: &Context, record: &Record) -> Outcome {
        if !self.is_wanted(record) {
            return Ok(());
        }
        let out = &context.out;
        out.line(match out.is_json() {
            true => record.to_line(),
            false => record_line(out, record, style(&record.kind)),
        })
    }
}

/// Whether a session is the wanted one, with or without the word before its time.
pub(super) fn is_session(session: &str, wanted: &str) -> bool {
    session == wanted || session.strip_prefix("session-") == Some(wanted)
}

pub(super) fn require_session(logs: &Path, session: Option<&str>) -> Outcome {
    let Some(wanted) = session else { return Ok(()) };
    match read_all(logs)?.any(|record| is_session(&record.session_id, wanted)) {
        true => Ok(()),
        false => Err(no_session(&format!(" {wanted}"))),
    }
}

fn no_session(which: &str) -> Failure {
    Failure::nothing(format!("there are no records of a session{which}"))
        .with_hint("`ensemble log` shows what there is")
}

fn style(kind: &RecordType) -> Style {
    const WRONG: [&str; 6] = [
        types::MESSAGE_DEAD,
        types::ESCALATION,
        types::TASK_FAILED,
        types::FILE_REJECTED,
        types::ALARM_RAISED,
        types::LEASE_HOLDER_GONE,
    ];
    const ENDS: [&str; 3] = [".failed", ".refused", "_failed"];
    let kind = kind.as_str();
    match WRONG.contains(&kind) || ENDS.iter().any(|end| kind.ends_with(end)) {
        true => STRONG.fg_color(BAD.get_fg_color()),
        false => STRONG,
    }
}

/// Warns of lines that are not records; fails if the log could not be read whole.
fn check_whole(records: &LogRecords) -> Outcome {
    warn(records.bad_lines().count());
    match records.failure() {
        Some(failure) => Err(Failure::new(VerbExit::Failed, failure.to_string())),
        None => Ok(()),
    }
}

pub(super) fn warn(bad_lines: u64) {
    if bad_lines > 0 {
        say(&format!("warning: {} passed over: not records", plural(bad_lines, "line")));
    }
}
