//! The flags of a decision: `--approve`, or `--reject` with its reason, and what silence means.

use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::proto::request::AtExpiry;

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
