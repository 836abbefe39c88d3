//! This host's name in a team of several hosts, where none is configured.

use std::fs;
use std::path::Path;

use ensemble_core::message::{Digest, Name};
use ensemble_core::{Error, Result};

/// Digits of the digest in a host's name, which distinguishes projects on one machine.
const DIGITS: usize = 8;
/// Longest part of a machine's name that is used.
const NAME_MAX: usize = 40;

pub(crate) fn machine_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()
}

/// A name for this host's project that no other has: the machine's, and a digest of the directory.
pub(super) fn host_of(state: &Path) -> Result<Name> {
    let machine = machine_name();
    let state = fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
    let digest = Digest::of(format!("{machine}{}", state.display()).as_bytes()).to_string();
    let is_allowed = |c: &char| c.is_ascii_alphanumeric();
    let mut name: String = machine.chars().filter(is_allowed).take(NAME_MAX).collect();
    if name.is_empty() {
        name.push_str("host");
    }
    let digits: String = digest.chars().take(DIGITS).collect();
    Name::new(format!("{name}-{digits}")).map_err(Error::from)
}
