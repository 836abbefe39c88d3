//! The profiles that are built in, and those a user puts in their place.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Profile, process};
use ensemble_core::message::yaml;
use ensemble_core::{Error, Result};

macro_rules! embedded {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("profiles/", $name, ".yaml")))),*]
    };
}

/// Name and text of the built-in profiles, one for each file in `profiles/`, in alphabetical order.
const EMBEDDED: &[(&str, &str)] = embedded!["claude" "codex" "gemini" "generic" "opencode" "shell"];

/// Profiles by name.
///
/// ```
/// use ensemble_tmux::provider::Profiles;
/// let profiles = Profiles::embedded()?;
/// assert_eq!(profiles.get("codex")?.name(), "codex");
/// assert!(profiles.get("emacs").is_err());
/// # Ok::<(), ensemble_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Profiles {
    by_name: BTreeMap<String, Arc<Profile>>,
}

impl Profiles {
    /// The built-in profiles: one for each file in `src/provider/profiles/`.
    ///
    /// # Errors
    /// None in a released build: a test reads them all.
    pub fn embedded() -> Result<Self> {
        let mut profiles = Self { by_name: BTreeMap::new() };
        for (name, text) in EMBEDDED {
            profiles.add(text, Path::new(name))?;
        }
        Ok(profiles)
    }

    /// Adds a profile, or puts it in the place of the one with its name. `path` is where the text
    /// came from, for the error.
    ///
    /// # Errors
    /// See [`Profile::parse`].
    pub fn add(&mut self, text: &str, path: &Path) -> Result<()> {
        let profile = Profile::parse(text, path)?;
        self.by_name.insert(profile.name().to_owned(), Arc::new(profile));
        Ok(())
    }

    /// Changes single fields of the built-in profile `name`, as `ensemble.yaml` does; a name that is
    /// not built in needs all the fields of a profile. `path` is where the fields came from.
    ///
    /// ```
    /// use ensemble_tmux::provider::Profiles;
    /// let mut profiles = Profiles::embedded()?;
    /// let mut fields = serde_json::Map::new();
    /// fields.insert("open".to_owned(), "claude --model sonnet".into());
    /// profiles.amend("claude", &fields, "ensemble.yaml".as_ref())?;
    /// assert_eq!(profiles.get("claude")?.open_command(), Some("claude --model sonnet"));
    /// # Ok::<(), ensemble_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// A field is unknown or wrong, or one is missing; see [`Profile::parse`].
    pub fn amend(&mut self, name: &str, fields: &Map<String, Value>, path: &Path) -> Result<()> {
        let built_in = EMBEDDED.iter().find(|(known, _)| *known == name);
        let mut whole: Map<String, Value> = match built_in {
            Some((_, text)) => yaml::parse(text, path)?,
            None => Map::new(),
        };
        whole.extend(fields.iter().map(|(field, value)| (field.clone(), value.clone())));
        whole.insert("name".to_owned(), name.into());
        // JSON is YAML.
        self.add(&Value::Object(whole).to_string(), path)
    }

    /// The profile of this name.
    ///
    /// # Errors
    /// There is none; the error lists the names there are.
    pub fn get(&self, name: &str) -> Result<Arc<Profile>> {
        self.by_name.get(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            let detail = format!("there is no profile `{name}`: known are {}", names.join(", "));
            Error::malformed("ensemble.yaml", "provider", detail)
        })
    }

    /// The profile whose program is in the foreground of the terminal of `pid`, the first process of a pane. Only
    /// profiles that are called as their program count, such as `claude`. Blocks for some reads of `/proc`.
    ///
    /// ```
    /// let profiles = ensemble_tmux::provider::Profiles::embedded()?;
    /// assert_eq!(profiles.in_foreground(std::process::id()), None);
    /// # Ok::<(), ensemble_core::Error>(())
    /// ```
    #[must_use]
    pub fn in_foreground(&self, pid: u32) -> Option<&str> {
        let found = process::foreground(pid, |_| false);
        let names: Vec<&str> = found.iter().flat_map(|it| &it.names).map(String::as_str).collect();
        let mut profiles = self.by_name.values().map(|profile| &**profile);
        let runs = |it: &&Profile| it.is_program(it.name()) && names.contains(&it.name());
        // A profile that names no program takes any.
        profiles.find(|it| !it.programs.is_empty() && runs(it)).map(Profile::name)
    }

    /// The names of all profiles, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_in_profiles_is_built_in_under_its_own_name() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/provider/profiles");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let built_in: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            files, built_in,
            "add the name of the new file to EMBEDDED, in alphabetical order"
        );
        let profiles = Profiles::embedded().unwrap();
        assert_eq!(
            profiles.names().collect::<Vec<_>>(),
            built_in,
            "its `name` is that of its file"
        );
    }
}
