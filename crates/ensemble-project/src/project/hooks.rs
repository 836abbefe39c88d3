//! `hooks` in `ensemble.yaml`.

use serde::{Deserialize, Serialize};

/// What agents learn from their own hooks, and which are started with hooks (docs/guides/ways-in.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HooksConfig {
    /// How many bytes of messages one hook hands over (default 4096, at most 32768). A longer
    /// message is announced and waits to be received. 0 announces every message.
    pub carry_bytes: Option<u32>,
    /// The providers whose agents are started with hooks (default: those whose program asks no person to trust them). An
    /// empty list starts all without hooks and without tools.
    pub providers: Option<Vec<String>>,
}

super::merge::fill_absent!(HooksConfig: carry_bytes, providers);

impl HooksConfig {
    pub const CARRY_BYTES: u32 = 4096;
    /// The largest `carry_bytes`: plain text of this size fits into one pipe.
    pub const CARRY_BYTES_MAX: u32 = 32 * 1024;

    pub fn carry_bytes(&self) -> usize {
        let bytes = self.carry_bytes.unwrap_or(Self::CARRY_BYTES).min(Self::CARRY_BYTES_MAX);
        usize::try_from(bytes).unwrap_or_default()
    }
}
