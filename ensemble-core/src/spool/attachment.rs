//! Content that is too large for an envelope: `attachments/<sha256>`, stored before the message that names it. The
//! same content is stored once. A sender that stores it again gives it a new time, so that it is not removed before the
//! message is stored ([`history`](crate::history)).

use std::path::PathBuf;

use super::Spool;
use crate::message::{Attachment, Digest};
use crate::{Error, Result};

pub const ATTACHMENT_BYTES_MAX: usize = 256 * 1024 * 1024;
pub(crate) const ATTACHMENTS: &str = "attachments";

/// # Attachments
impl Spool {
    pub fn attach(&self, content: &[u8]) -> Result<Attachment> {
        if content.len() > ATTACHMENT_BYTES_MAX {
            return Err(Error::too_large("the attachment", content.len(), ATTACHMENT_BYTES_MAX));
        }
        let queue = self.queue_dir()?;
        let attachments = queue.ensure_child(ATTACHMENTS, self.options.modes)?;
        let tmp = queue.ensure_child("tmp", self.options.modes)?;
        let attachment = Attachment { sha256: Digest::of(content), bytes: content.len() as u64 };
        let name = attachment.sha256.to_string();
        // It replaces an existing file, which may be unsynced, or cut by a power cut.
        attachments.replace(&name, content, &tmp, self.options.modes, self.options.durability)?;
        // The first attachment of a queue makes the directory, and who made it may have been killed.
        self.sync_power(&queue)?;
        Ok(attachment)
    }

    pub fn attachment_path(&self, attachment: &Attachment) -> PathBuf {
        self.root.join(ATTACHMENTS).join(attachment.sha256.to_string())
    }

    /// Reads an attachment and checks that it is what the message named.
    pub fn read_attachment(&self, attachment: &Attachment) -> Result<Vec<u8>> {
        let path = self.attachment_path(attachment);
        let missing = || Error::malformed(&path, "attachment", "is missing");
        let attachments = self.queue_dir()?.open_child(ATTACHMENTS).map_err(|_| missing())?;
        let name = attachment.sha256.to_string();
        let content = attachments.read(&name, ATTACHMENT_BYTES_MAX)?.ok_or_else(missing)?;
        let altered = || Error::malformed(&path, "attachment", "was altered after it was stored");
        (Digest::of(&content) == attachment.sha256).then_some(content).ok_or_else(altered)
    }
}
