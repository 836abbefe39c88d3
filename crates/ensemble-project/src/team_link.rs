//! What the hosts of a team on servers share beyond mail, requests and files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::document::SharedFiles;
use ensemble_core::driver::LadderFile;
use ensemble_core::message::{Name, Timestamp};

pub trait TeamLink: SharedFiles {
    /// The address of the server, without secrets.
    fn server(&self) -> &str;

    /// The version of the server, such as `2.12.1`.
    ///
    /// # Errors
    /// It is too old to keep mail.
    fn server_version(&self) -> Result<String>;

    /// Now, by the servers' clock.
    fn now(&self) -> Timestamp;

    /// Follows all mailboxes by one subscription. Call it before reading all of them.
    fn follow_team(&self) -> Result<()>;

    fn follow_requests(&self) -> Result<()>;

    /// Waits for news of what is followed, after the news with this number. Returns the number of the last news.
    fn wait_for_news(&self, seen: u64, longest: Duration) -> u64;

    /// Waits for mail in a mailbox. Returns whether there may be some.
    fn wait_for_mail(&self, mailbox: &Name, longest: Duration) -> Result<bool>;

    fn host_of_member(&self, agent: &Name) -> Result<Option<Name>>;

    /// Claims an agent's name for a host. Returns the other host that has it, if one does.
    fn claim_member(&self, agent: &Name, host: &Name) -> Result<Option<Name>>;

    /// Calls another host. Returns the name of the call.
    fn call_host(&self, host: &Name, text: &str) -> Result<Name>;

    fn answer_to(&self, host: &Name, call: &Name) -> Result<Option<String>>;

    fn forget_call(&self, host: &Name, call: &Name) -> Result<()>;

    /// The claims of this host, whose state directory this is, on the ladders of mailboxes.
    fn ladder_claims(self: Arc<Self>, state: &Path) -> Box<dyn LadderClaim>;
}

/// Mailboxes that several hosts see, of which one runs the ladders.
pub trait LadderClaim: Send + Sync {
    /// Whether this host runs the ladders of a mailbox. `has_reader` says that an agent of this host reads it, and
    /// `is_handing_out` that one has just stored a task there.
    fn hold(&self, mailbox: &Name, has_reader: bool, is_handing_out: bool) -> Result<bool>;

    /// The escalated ladders of a mailbox that another host runs.
    fn given_up(&self, mailbox: &Name) -> Result<Vec<LadderFile>>;

    /// Whether a task may be waiting there. Costs nothing.
    fn may_have_task(&self, mailbox: &Name) -> bool;
}
