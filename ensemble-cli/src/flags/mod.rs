//! Flags that several verbs share.

use ensemble_app::acting::given_number;
use ensemble_app::drop::{LintChecks, OnFindings};
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::proto::request::AtExpiry;

pub(crate) mod content;
pub(crate) mod waiting;

/// Options for the lint of a written file.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckFlags {
    /// How to handle lint findings
    #[arg(long, value_name = "MODE", default_value = "refuse")]
    lint: OnFindings,
    /// A rule or a word that is allowed, with the reason; may be repeated
    #[arg(long = "allow", value_name = "RULE=REASON", value_parser = allowance)]
    allowed: Vec<(String, String)>,
}

impl From<&CheckFlags> for LintChecks {
    fn from(flags: &CheckFlags) -> Self {
        Self { on_findings: flags.lint, allowed: flags.allowed.clone() }
    }
}

fn allowance(text: &str) -> Result<(String, String), String> {
    let (what, why) = text.split_once('=').ok_or("write it as RULE=REASON")?;
    let is_plain = |text: &str| !text.trim().is_empty() && !text.contains(char::is_control);
    match is_plain(what) && is_plain(why) && !what.contains(':') {
        true => Ok((what.trim().to_owned(), why.trim().to_owned())),
        false => Err("write it as RULE=REASON, in one line".to_owned()),
    }
}

pub(crate) fn check_answer(is_approved: bool, is_rejected: bool) -> Outcome {
    match is_approved || is_rejected {
        true => Ok(()),
        false => Err(Failure::usage("what is the answer?")
            .with_hint("`--approve`, or `--reject --reason TEXT`")),
    }
}

/// What silence until the deadline means. The help is in attributes: the schema of the tool stays a
/// plain list of words.
#[derive(Clone, Copy, Debug, clap::ValueEnum, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnSilence {
    #[value(help = "The agent is ended without its consent")]
    Force,
    #[value(help = "Notify you")]
    Tell,
    #[value(help = "Notify you and the conductor")]
    Escalate,
}

impl From<OnSilence> for AtExpiry {
    fn from(on_silence: OnSilence) -> Self {
        match on_silence {
            OnSilence::Force => Self::Force,
            OnSilence::Tell => Self::Tell,
            OnSilence::Escalate => Self::Escalate,
        }
    }
}

/// A flag of verbs that act under a claim or a review.
#[derive(Debug, clap::Args)]
pub(crate) struct EpochFlag {
    /// The number of the claim or the review it acts under [default: $ENSEMBLE_TASK_EPOCH, or the one on the
    /// blackboard]
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
}

impl EpochFlag {
    pub(crate) fn given(&self) -> Outcome<Option<u64>> {
        match self.epoch {
            Some(epoch) => Ok(Some(epoch)),
            None => given_number(),
        }
    }
}
