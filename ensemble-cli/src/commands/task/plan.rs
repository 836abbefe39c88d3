use ensemble_core::message::Name;

/// Allow a draft to be claimed
#[derive(Debug, clap::Args)]
pub(super) struct FinalizeTask {
    /// Id of the task
    pub(super) id: Name,
}

/// Let any agent claim a blocked task again
#[derive(Debug, clap::Args)]
pub(super) struct UnblockTask {
    /// Id of the task
    pub(super) id: Name,
}

/// Give up a blocked task that is no longer needed
#[derive(Debug, clap::Args)]
pub(super) struct AbandonTask {
    /// Id of the task
    pub(super) id: Name,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
}
