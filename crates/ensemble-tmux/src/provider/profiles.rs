//! The profiles that are built in, and those a user puts in their place.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::{Profile, process};
use ensemble_core::message::{nearest, yaml};
use ensemble_core::{Error, Result};

macro_rules! embedded {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("profiles/", $name, ".yaml")))),*]
    };
}

/// Name and text of the built-in profiles, one for each file in `profiles/`, in alphabetical order.
const EMBEDDED: &[(&str, &str)] =
    embedded!["acp" "claude" "codex" "gemini" "generic" "opencode" "shell"];

/// Profiles by name. A built-in one is parsed when it is asked for, since a team has few of them.
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
    by_name: BTreeMap<String, OnceLock<Arc<Profile>>>,
}

impl Profiles {
    /// The built-in profiles: one for each file in `src/provider/profiles/`.
    ///
    /// # Errors
    /// None in a released build: a test reads them all.
    pub fn embedded() -> Result<Self> {
        let all = EMBEDDED.iter().map(|(name, _)| ((*name).to_owned(), OnceLock::new()));
        Ok(Self { by_name: all.collect() })
    }

    /// Adds a profile, or puts it in the place of the one with its name. `path` is where the text
    /// came from, for the error.
    pub fn add(&mut self, text: &str, path: &Path) -> Result<()> {
        let profile = Profile::parse(text, path)?;
        self.by_name.insert(profile.name().to_owned(), Arc::new(profile).into());
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
    pub fn amend(&mut self, name: &str, fields: &Map<String, Value>, path: &Path) -> Result<()> {
        let mut whole: Map<String, Value> = match built_in(name) {
            Some(text) => yaml::parse(text, path)?,
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
        let known = self.by_name.get(name);
        if let Some(profile) = known.and_then(OnceLock::get) {
            return Ok(Arc::clone(profile));
        }
        let Some((known, text)) = known.zip(built_in(name)) else {
            let names: Vec<&str> = self.names().collect();
            let detail = match nearest(name, names.iter().copied()).first() {
                Some(meant) => format!("there is no profile `{name}`: did you mean `{meant}`?"),
                None => format!("there is no profile `{name}`: known are {}", names.join(", ")),
            };
            return Err(Error::malformed("ensemble.yaml", "provider", detail));
        };
        let profile = Arc::new(Profile::parse(text, Path::new(name))?);
        Ok(Arc::clone(known.get_or_init(|| profile)))
    }

    /// The profile whose program is in the foreground of the terminal of `pid`, the first process of a pane. Only
    /// profiles that are called as their program count, such as `claude`. Blocks for some reads of `/proc`.
    ///
    /// ```
    /// let profiles = ensemble_tmux::provider::Profiles::embedded()?;
    /// assert_eq!(profiles.in_foreground(std::process::id()), None);
    /// # Ok::<(), ensemble_core::Error>(())
    /// ```
    pub fn in_foreground(&self, pid: u32) -> Option<&str> {
        let found = process::foreground(pid, |_| false);
        let names: Vec<&str> = found.iter().flat_map(|it| &it.names).map(String::as_str).collect();
        // A profile that names no program takes any.
        let is_it = |it: Arc<Profile>| !it.programs.is_empty() && it.is_program(it.name());
        self.names().find(|name| names.contains(name) && self.get(name).is_ok_and(is_it))
    }

    /// The names of all profiles, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

/// The text of a built-in profile.
fn built_in(name: &str) -> Option<&'static str> {
    EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_in_profile_is_parsed_when_it_is_asked_for() {
        let profiles = Profiles::embedded().unwrap();
        let parsed = || profiles.by_name.values().filter(|it| it.get().is_some()).count();
        assert_eq!(parsed(), 0);
        let first = profiles.get("codex").unwrap();
        assert!(Arc::ptr_eq(&first, &profiles.get("codex").unwrap()));
        assert_eq!(parsed(), 1);
    }

    #[test]
    fn every_file_in_profiles_is_built_in_under_its_own_name() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/provider/profiles");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort_unstable();
        let built_in: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            files, built_in,
            "add the name of the new file to EMBEDDED, in alphabetical order"
        );
        let profiles = Profiles::embedded().unwrap();
        let name = |file| profiles.get(file).unwrap().name().to_owned();
        assert_eq!(profiles.names().map(name).collect::<Vec<_>>(), built_in, "its file's name");
    }
}
