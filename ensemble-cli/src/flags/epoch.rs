use ensemble_app::acting::given_number;
use ensemble_app::failure::Outcome;

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
