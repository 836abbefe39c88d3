//! Loops over all mailboxes: one that cannot be read does not end them for the others.

use crate::message::Name;
use crate::{Error, Result};

/// A mailbox that a loop has left out, and why.
#[derive(Debug)]
pub struct BadMailbox {
    pub name: Name,
    /// Why it could not be read.
    pub error: Error,
}

/// Calls `visit` for each of these mailboxes, and returns those in which it failed. A mailbox that was removed since
/// it was listed does not count as a failure. Only servers that do not answer end the loop.
///
/// ```
/// use ensemble_core::Error;
/// use ensemble_core::mailboxes::visit_mailboxes;
/// use ensemble_core::message::Name;
///
/// let names = [Name::new("good")?, Name::new("bad")?, Name::new("fine")?];
/// let mut seen = Vec::new();
/// let bad = visit_mailboxes(names, |name| match name.as_str() {
///     "bad" => Err(Error::malformed("mailbox.yaml", "file", "is a pipe")),
///     word => Ok(seen.push(word.to_owned())),
/// })?;
/// assert_eq!((seen, bad[0].name.as_str()), (vec!["good".to_owned(), "fine".to_owned()], "bad"));
/// # Ok::<(), Error>(())
/// ```
pub fn visit_mailboxes(
    mailboxes: impl IntoIterator<Item = Name>,
    mut visit: impl FnMut(&Name) -> Result<()>,
) -> Result<Vec<BadMailbox>> {
    let mut bad = Vec::new();
    for name in mailboxes {
        match visit(&name) {
            Ok(()) | Err(Error::NoMailbox { .. }) => {}
            Err(error) if error.is_server_away() => return Err(error),
            Err(error) => bad.push(BadMailbox { name, error }),
        }
    }
    Ok(bad)
}

/// As [`visit_mailboxes`], with the first failure as an error once all mailboxes were visited.
pub fn visit_all_mailboxes(
    mailboxes: impl IntoIterator<Item = Name>,
    visit: impl FnMut(&Name) -> Result<()>,
) -> Result<()> {
    let bad = visit_mailboxes(mailboxes, visit)?;
    bad.into_iter().next().map_or(Ok(()), |bad| Err(bad.error))
}
