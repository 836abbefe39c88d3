//! Files that say what is run: only their user and root may be able to change them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ensemble_core::message::{shell_word, yaml};
use ensemble_core::{Error, Result, durable};

use super::{ProjectConfig, USER_CONFIG};

const CONFIG_BYTES_MAX: usize = 1024 * 1024;

pub(super) fn user_config() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME")
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    // With the home of another user, as `sudo` leaves it, there is none of this user.
    let is_out_of_reach = |path: &PathBuf| {
        let kind = path.symlink_metadata().err().map(|error| error.kind());
        matches!(kind, Some(ErrorKind::PermissionDenied | ErrorKind::NotADirectory))
    };
    Some(base.join(USER_CONFIG)).filter(|path| !is_out_of_reach(path))
}

/// Reads a configuration. It holds commands, so no other user may be able to change it.
pub(super) fn read_config(path: &Path, inside: Option<&Path>) -> Result<ProjectConfig> {
    match read_trusted_text(path, inside, CONFIG_BYTES_MAX)? {
        Some(text) => ProjectConfig::parse(&text, path),
        None => refuse_missed(path).map(|()| ProjectConfig::default()),
    }
}

/// Refuses a link to nothing, and a configuration under the other ending of YAML. If it were passed over, the defaults
/// would decide in silence.
fn refuse_missed(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        let detail =
            "is a link to a file that does not exist: restore that file, or remove the link";
        return Err(Error::malformed(path, "file", detail));
    }
    let other = path.with_extension("yml");
    if other.symlink_metadata().is_err() {
        return Ok(());
    }
    let [old, new] = [&*other, path].map(|path| shell_word(&path.to_string_lossy()));
    let detail = format!("is not there, and {} is not read: `mv {old} {new}`", other.display());
    Err(Error::malformed(path, "file", detail))
}

pub(super) fn read_trusted_text(
    path: &Path,
    inside: Option<&Path>,
    bytes_max: usize,
) -> Result<Option<String>> {
    let Some(content) = durable::read_trusted_file(path, inside, bytes_max)? else {
        return Ok(None);
    };
    yaml::decode_text(&content, path).map(|text| Some(text.to_owned()))
}
