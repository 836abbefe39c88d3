//! Room for changes of state at a server that is full.
//!
//! A change of state is a new version, which the server stores before it removes the old one. So a server
//! without room would refuse receive and settle, too, and could not be drained. The stream therefore contains
//! a reserve of messages without meaning. A change of state that finds no room removes one of them and tries
//! again; a new message does not. Watchers make the reserve again once there is room.

use bytes::Bytes;

use async_nats::HeaderMap;

use super::NatsTransport;
use super::wire::Wire;
use ensemble_core::{Error, Result};

/// Number of messages of the reserve. Each has room for the largest envelope with its header.
const RESERVE_MESSAGES: usize = 8;
const RESERVE_BYTES: usize = 96 * 1024;
const _: () = assert!(RESERVE_BYTES > ensemble_core::message::ENVELOPE_BYTES_MAX);
/// Beginning of the subjects on which versions are removed.
const DELETE: &str = "$JS.API.STREAM.MSG.DELETE.";

impl NatsTransport {
    /// Makes the parts of the reserve that are missing. A server that is full now has none until it has room.
    pub fn keep_reserve(&self) -> Result<()> {
        let (wire, subjects) = (self.wire.clone(), self.subjects.clone());
        self.call("make the reserve", async move {
            let pattern = subjects.reserve_all();
            let there = wire.subjects(&pattern).await?;
            for n in 0..RESERVE_MESSAGES {
                let subject = subjects.reserve(n);
                if there.contains(&subject) {
                    continue;
                }
                let content = Bytes::from(vec![b' '; RESERVE_BYTES]);
                match wire.compare_and_set(&subject, 0, HeaderMap::new(), content).await {
                    Ok(_) => {}
                    Err(error) if Self::is_without_room(&error) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    /// Whether an error says that the server has no room. It answers, and refuses new messages only.
    pub fn is_without_room(error: &Error) -> bool {
        matches!(error, Error::Server { detail, .. } if detail.starts_with(super::wire::FULL))
    }
}

impl Wire {
    /// Removes one message of the reserve; `false` if there is none.
    pub(super) async fn spend_reserve(&self) -> Result<bool> {
        let Some(part) = self.last(&self.reserve).await? else { return Ok(false) };
        let deleted = self.denials.or(DELETE, self.stream.delete_message(part.sequence)).await;
        let deleted = deleted.map_err(|denied| self.refused("use the reserve", denied))?;
        // Another client may have removed it first; then there is room, too.
        Ok(deleted.is_ok()
            || self.last(&self.reserve).await?.is_none_or(|next| next.sequence != part.sequence))
    }
}
