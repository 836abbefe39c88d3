//! `sender_quota` in `ensemble.yaml`.

use ensemble_core::message::{Name, RESERVED_NAMES};
use ensemble_core::spool::Quota;
use serde::{Deserialize, Serialize};

/// `sender_quota` in `ensemble.yaml`. It does not count the senders `operator`, `unknown`, and
/// Ensemble's own parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct QuotaConfig {
    /// Number of messages (default 1000); 0 for no limit.
    pub messages: Option<u64>,
    /// Number of bytes, with attachments (default 64 MiB).
    pub bytes: Option<u64>,
}

super::merge::fill_absent!(QuotaConfig: messages, bytes);

impl QuotaConfig {
    /// For programs that send for a sender. The watcher routes without it: it would look again for
    /// each file of a sender that floods the drop box, and other files would wait.
    pub fn quota(self) -> Option<Quota> {
        let mut quota = Quota::default();
        quota.messages = self.messages.unwrap_or(quota.messages);
        quota.bytes = self.bytes.unwrap_or(quota.bytes);
        let exempt = RESERVED_NAMES.iter().filter_map(|name| Name::new(*name).ok());
        (quota.messages > 0).then(|| quota.exempting(exempt))
    }
}
