use ensemble_app::held::HeldMessage;
use ensemble_core::message::{MessageId, Name};

use crate::completion;

/// Which held message is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct HeldFlags {
    /// The message's id, as `recv` has printed it, or a unique beginning of it
    #[arg(value_name = "ID", add = completion::messages())]
    id: MessageId,
    /// Its mailbox, if the id alone is ambiguous
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    mailbox: Option<Name>,
    /// Refuse unless this is still the delivery that `recv` has printed
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
}

impl From<HeldFlags> for HeldMessage {
    fn from(flags: HeldFlags) -> Self {
        let HeldFlags { id, mailbox, epoch } = flags;
        Self { id, mailbox, epoch }
    }
}
