//! The profiles that are built in, and those a user puts in their place.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::profile::version_numbers;
use super::{Profile, process};
use ensemble_core::durable::read_chosen_file;
use ensemble_core::message::{nearest, yaml};
use ensemble_core::{Error, Result};

const PACKAGE_BYTES_MAX: usize = 1024 * 1024;

macro_rules! embedded {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("profiles/", $name, ".yaml")))),*]
    };
}

/// Name and text of the built-in profiles, one for each file in `profiles/`, in alphabetical order.
const EMBEDDED: &[(&str, &str)] =
    embedded!["acp" "claude" "codex" "copilot" "gemini" "generic" "kimi" "opencode" "qwen" "shell"];

/// Profiles by name. A built-in one is parsed when it is asked for, since a team has few of them.
#[derive(Clone, Debug)]
pub struct Profiles {
    by_name: BTreeMap<String, OnceLock<Arc<Profile>>>,
    path: Option<OsString>,
}

impl Profiles {
    /// The built-in profiles: one for each file in `src/provider/profiles/`.
    pub fn embedded() -> Result<Self> {
        let all = EMBEDDED.iter().map(|(name, _)| ((*name).to_owned(), OnceLock::new()));
        Ok(Self { by_name: all.collect(), path: None })
    }

    /// The same profiles, for the versions of the programs that are installed in the directories of this `PATH`. Without
    /// it, they are for the newest versions.
    pub fn for_programs_on(self, path: Option<OsString>) -> Self {
        Self { path, ..self }
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
    pub fn amend(&mut self, name: &str, fields: &Map<String, Value>, path: &Path) -> Result<()> {
        let mut whole =
            built_in(name).map_or_else(|| Ok(Map::new()), |text| self.read_fields(text, path))?;
        whole.extend(fields.iter().map(|(field, value)| (field.clone(), value.clone())));
        whole.insert("name".to_owned(), name.into());
        // JSON is YAML.
        self.add(&Value::Object(whole).to_string(), path)
    }

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
        let fields = self.read_fields(text, Path::new(name))?;
        let profile = Profile::parse(&Value::Object(fields).to_string(), Path::new(name))?;
        let profile = Arc::new(profile);
        Ok(Arc::clone(known.get_or_init(|| profile)))
    }

    /// The profile whose program is in the foreground of the terminal of `pid`, the first process of a pane. Only
    /// profiles that are called as their program count, such as `claude`. Blocks for some reads of `/proc`.
    pub fn in_foreground(&self, pid: u32) -> Option<&str> {
        let found = process::foreground(pid, |_| false);
        let names: Vec<&str> = found.iter().flat_map(|it| &it.names).map(String::as_str).collect();
        // A profile that names no program takes any.
        let is_it = |it: Arc<Profile>| !it.programs.is_empty() && it.is_program(it.name());
        self.names().find(|name| names.contains(name) && self.get(name).is_ok_and(is_it))
    }

    /// The fields of a built-in profile, for the version of its program that is installed.
    fn read_fields(&self, text: &str, path: &Path) -> Result<Map<String, Value>> {
        let fields: Map<String, Value> = yaml::parse(text, path)?;
        let open = fields.get("open").and_then(Value::as_str).unwrap_or_default();
        let version = match (&self.path, open.split(' ').next()) {
            (Some(path), Some(program)) if fields.contains_key("older") => {
                find_version(path, program)
            }
            _ => None,
        };
        Ok(choose_fields(fields, version.as_deref()))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

fn built_in(name: &str) -> Option<&'static str> {
    EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The fields of a profile for this version. Those under `older` replace some for versions below a bound, the oldest
/// first. A version that is not known is the newest.
fn choose_fields(mut fields: Map<String, Value>, version: Option<&str>) -> Map<String, Value> {
    let older = fields.remove("older").unwrap_or_default();
    let has = version.and_then(version_numbers);
    let is_below = |variant: &&Value| {
        let below = variant["below"].as_str().and_then(version_numbers);
        has.as_ref().zip(below).is_some_and(|(has, below)| *has < below)
    };
    let variant = older.as_array().into_iter().flatten().find(is_below);
    let changed = variant.and_then(Value::as_object).into_iter().flatten();
    let changed = changed.filter(|(name, _)| *name != "below");
    fields.extend(changed.map(|(name, value)| (name.clone(), value.clone())));
    fields
}

/// The version of the program of this name in these directories. The program is not asked, because some take seconds
/// to answer.
fn find_version(path: &OsStr, program: &str) -> Option<String> {
    let mut files = std::env::split_paths(path).map(|dir| dir.join(program));
    read_version(&files.find(|file| file.is_file())?.canonicalize().ok()?)
}

/// The version of a program, by npm's `package.json` above its file, or by a directory that is named after the version.
fn read_version(file: &Path) -> Option<String> {
    file.ancestors().find_map(|place| {
        let package =
            read_chosen_file(&place.join("package.json"), PACKAGE_BYTES_MAX).ok().flatten();
        let package: Option<Value> = package.and_then(|it| serde_json::from_slice(&it).ok());
        let said = package.and_then(|it| Some(it.get("version")?.as_str()?.to_owned()));
        let named = || Some(place.file_name()?.to_str()?.to_owned());
        said.or_else(|| named().filter(|name| version_numbers(name).is_some()))
    })
}

/// The newest profile of this name, and those of older versions of its program.
#[cfg(test)]
pub(super) fn of_all_versions(name: &str) -> Vec<Profile> {
    let path = Path::new(name);
    let fields: Map<String, Value> = yaml::parse(built_in(name).unwrap(), path).unwrap();
    let older = fields.get("older").and_then(Value::as_array).into_iter().flatten();
    let seen = older.map(|variant| Some(variant["seen"].as_str().expect("`seen`")));
    let of = |version| {
        let fields = choose_fields(fields.clone(), version);
        Profile::parse(&Value::Object(fields).to_string(), path).unwrap()
    };
    std::iter::once(None).chain(seen).map(of).collect()
}

#[cfg(test)]
mod tests {
    use ensemble_core::message::{NAME_BYTES_MAX, Name};

    use super::*;

    #[test]
    fn an_older_version_has_the_profile_of_its_range() {
        let text =
            "{reset: /new, open: a, older: [{below: '1.0', reset: /old}, {below: '2.0', open: b}]}";
        let fields: Map<String, Value> = yaml::parse(text, Path::new("p")).unwrap();
        for (version, reset, open) in [
            (Some("0.9.30"), "/old", "a"),
            (Some("1.0.0"), "/new", "b"),
            (Some("2.0"), "/new", "a"),
            (Some("17.3"), "/new", "a"),
            (Some("nightly"), "/new", "a"),
            (None, "/new", "a"),
        ] {
            let fields = choose_fields(fields.clone(), version);
            assert_eq!(
                (&fields["reset"], &fields["open"]),
                (&reset.into(), &open.into()),
                "{version:?}"
            );
            assert_eq!(fields.len(), 2, "{fields:?}");
        }
    }

    #[test]
    fn a_version_is_read_from_where_the_program_is() {
        let home = tempfile::tempdir().unwrap();
        let package = home.path().join("lib/node_modules/a");
        std::fs::create_dir_all(package.join("bin")).unwrap();
        std::fs::write(package.join("package.json"), r#"{"name": "a", "version": "0.9.1"}"#)
            .unwrap();
        assert_eq!(read_version(&package.join("bin/a.js")).as_deref(), Some("0.9.1"));
        let named = home.path().join("share/a/versions/2.1.332");
        assert_eq!(read_version(&named).as_deref(), Some("2.1.332"));
        assert_eq!(read_version(&home.path().join("bin/a")), None);
        // Without a version, the newest profile is the one.
        let qwen =
            |profiles: Profiles| profiles.get("qwen").unwrap().seen_version().map(str::to_owned);
        let newest = qwen(Profiles::embedded().unwrap());
        std::fs::rename(package.join("bin"), package.join("0.15.10")).unwrap();
        std::fs::write(package.join("0.15.10/qwen"), "").unwrap();
        for (place, seen) in [("0.15.10", Some("0.15.10".to_owned())), (".", newest)] {
            let path = Some(package.join(place).into());
            let profiles = Profiles::embedded().unwrap().for_programs_on(path);
            assert_eq!(qwen(profiles), seen, "{place}");
        }
    }

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

    #[test]
    fn every_profile_has_a_line_for_every_name() {
        let profiles = Profiles::embedded().expect("the embedded profiles");
        for profile in profiles.names().map(|name| profiles.get(name).expect("a profile")) {
            for length in 1..=NAME_BYTES_MAX {
                let mailbox = Name::new("n".repeat(length)).expect("a name");
                for (count, more) in [(1, false), (0, true), (usize::MAX, true)] {
                    let text = profile.program().nudge_text(&mailbox, count, more);
                    assert!(text.as_str().contains(mailbox.as_str()), "{text}");
                }
            }
        }
    }

    #[test]
    fn the_line_says_how_many() {
        let profiles = Profiles::embedded().expect("the embedded profiles");
        let claude = profiles.get("claude").expect("claude");
        let mailbox = Name::new("dispatch").expect("a name");
        let line = |count, more| claude.program().nudge_text(&mailbox, count, more).to_string();
        let run = "for dispatch. Run: ensemble recv --as dispatch";
        assert_eq!(line(1, false), format!("ensemble: 1 message {run}"));
        assert_eq!(line(3, false), format!("ensemble: 3 messages {run}"));
        assert_eq!(line(100, true), format!("ensemble: 100 or more messages {run}"));
    }
}
