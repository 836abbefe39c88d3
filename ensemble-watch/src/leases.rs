//! Messages whose holders have fallen silent return to their mailboxes.
//!
//! The observer is [`MailboxLeases`] of `ensemble-core`. Its observations are kept in
//! `.ensemble/leases/observed.json`, so a restarted watcher does not give every holder a new lease.

use std::path::Path;

use ensemble_core::Result;
use ensemble_core::broker::Broker;
use ensemble_core::env::SystemClock;
use ensemble_core::event_log::Recorder;
use ensemble_core::leases::MailboxLeases;
use ensemble_core::message::Name;
use ensemble_project::status::ACTOR;

/// Continues where an observer of this boot with the same state directory has stopped.
pub(crate) fn open(state: &Path) -> MailboxLeases {
    let directory = state.join("leases");
    // Without it nothing is remembered across a restart, which only lengthens leases.
    let _ = std::fs::create_dir_all(&directory);
    MailboxLeases::remembered(ACTOR, &SystemClock, &directory.join("observed.json"))
}

/// Looks at the leases of all mailboxes and takes back what is due. Returns the mailboxes that got mail
/// back.
pub(crate) fn look(
    leases: &mut MailboxLeases,
    broker: &dyn Broker,
    recorder: &dyn Recorder,
) -> Result<Vec<Name>> {
    let returned = leases.look(&SystemClock, broker, &broker.mailboxes()?, recorder)?;
    if let Some(error) = leases.take_trouble() {
        tracing::warn!(%error, "cannot remember what was observed of leases");
    }
    Ok(returned)
}
