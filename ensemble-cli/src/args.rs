//! Global flags, and how values are read.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_app::diagnostics::say;
use ensemble_app::text::one_line;
use ensemble_core::message::fields::{strip_quotes, unwrap_value};
use ensemble_core::message::{ConfigDuration, Name, PRIORITY_MAX, TraceParent};
use ensemble_reports::contract::{Status, Verdict, read_count};

use crate::completion;

/// Flags of every verb.
#[derive(Debug, clap::Args)]
pub(crate) struct GlobalFlags {
    /// The queue's directory [default: $ENSEMBLE_QUEUE, or that of the project around this directory]
    #[arg(long, global = true, hide = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) queue: Option<PathBuf>,
    /// Act as this agent [default: $ENSEMBLE_AGENT_ID]
    // Not the id `agent`: it would collide with a verb's own argument of that name.
    #[arg(long = "as", id = "acting_as", global = true, hide = true, value_name = "NAME")]
    #[arg(add = completion::mailboxes())]
    pub(crate) agent: Option<Name>,
    /// Print JSON, one object a line
    #[arg(long, global = true, hide = true)]
    pub(crate) json: bool,
}

/// Whether failures are to be printed as JSON. Works before the arguments are parsed, because parsing may fail, too.
pub(crate) fn is_json() -> bool {
    std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json")
}

pub(crate) fn ends_options() -> bool {
    std::env::args_os().any(|word| word == "--")
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<ConfigDuration>().map(Duration::from)
}

pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    let is_fit = ensemble_core::mail::lease_seconds(lease).is_ok();
    is_fit.then_some(lease).ok_or_else(|| ensemble_core::mail::LEASE_RANGE.to_owned())
}

pub(crate) fn header(text: &str) -> Result<String, String> {
    const BYTES_MAX: usize = 256;
    let text = strip_quotes(unwrap_value(text));
    if text.is_empty() || text.len() > BYTES_MAX {
        return Err(format!("has {} bytes, allowed are 1 to {BYTES_MAX}", text.len()));
    }
    if one_line(text) != text {
        return Err("has control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// A priority of a message, from 0 to 9. Programs may write it as `5.0`.
pub(crate) fn priority(text: &str) -> Result<u8, String> {
    let number = read_count(text).and_then(|it| u8::try_from(it).ok());
    number
        .filter(|it| *it <= PRIORITY_MAX)
        .ok_or_else(|| format!("it is not a whole number from 0 to {PRIORITY_MAX}"))
}

/// A share in percent as people and models write it, such as `63.4 %`. Only people read it, so one that makes no sense
/// is only a warning.
pub(crate) fn share(text: &str) -> Option<u64> {
    let number = text.trim().trim_end_matches(['%', '％']).trim_end().parse::<f64>().ok();
    let share = number.filter(|it| (0.0..=100.0).contains(it)).map(|it| it.round() as u64);
    if share.is_none() {
        let text = one_line(text);
        say(&format!("warning: `{text}` is not a share from 0 to 100 percent, and not kept"));
    }
    share
}

pub(crate) fn status(text: &str) -> Result<Status, String> {
    Status::read(text).ok_or_else(|| "it is not success, failed or blocked".to_owned())
}

pub(crate) fn verdict(text: &str) -> Result<Verdict, String> {
    Verdict::read(text).ok_or_else(|| "it is not approved or needs_fix".to_owned())
}

/// The trace that the caller names in the environment. As W3C asks, an invalid one is as good as none.
pub(crate) fn trace_around() -> Option<TraceParent> {
    std::env::var("TRACEPARENT").ok()?.parse().ok()
}
