//! The configuration, `ensemble.yaml`.

use std::path::Path;
use std::time::Duration;

use ensemble_core::message::yaml;
use ensemble_project::ProjectConfig;
use ensemble_tmux::provider::Profiles;

/// A parsed configuration round-trips; everything derived from it has an error or a limit.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let path = Path::new("ensemble.yaml");
    let config = match ProjectConfig::parse(text, path) {
        Ok(config) => config,
        Err(error) => return super::check_error(&error.to_string()),
    };
    let written = yaml::render(&config);
    let again = ProjectConfig::parse(&written, path).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert_eq!(again, config);
    assert!(config.poll_interval() >= Duration::from_secs(1));
    assert!(config.handshake().attempts_max >= 1);
    if config.providers.is_empty() {
        return;
    }
    let mut profiles = Profiles::embedded().expect("the built-in profiles");
    for (name, fields) in &config.providers {
        match profiles.amend(name, fields, path) {
            Err(error) => super::check_error(&error.to_string()),
            Ok(()) => {
                let profile = profiles.get(name).expect("what was added");
                let _ = config.ladder_for(Some(&profile));
                // For any template, the typed text stays harmless; `NudgeText` checks itself.
                let line =
                    profile.program().nudge_text(&"worker-1".parse().expect("a name"), 3, true);
                assert!(!line.as_str().is_empty());
            }
        }
    }
}
