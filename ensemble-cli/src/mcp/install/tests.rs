use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn command() -> ServerCommand {
    ServerCommand { program: "ensemble".to_owned(), arguments: vec!["mcp".to_owned()] }
}

const PROVIDERS: [ConfiguredProgram; 4] = [
    ConfiguredProgram::Claude,
    ConfiguredProgram::Codex,
    ConfiguredProgram::Opencode,
    ConfiguredProgram::Gemini,
];

fn samples(provider: ConfiguredProgram) -> Vec<&'static str> {
    match provider {
        ConfiguredProgram::Codex => {
            vec!["", "model = \"o5\"", "model = \"o5\"\n\n[mcp_servers.other]\ncommand = \"x\"\n"]
        }
        ConfiguredProgram::Claude => vec![
            "{}",
            "{ }\n",
            "{\"mcpServers\":{}}",
            "{\n\t\"mcpServers\" : {\n\t\t\"other\": {\"command\": \"x\"}\n\t}\n}\n",
            "{\"a\": {\"mcpServers\": {\"b\": 1}}, \"s\": \"\\\"mcpServers\\\": {\", \"mcpServers\": {\"o\": {}}}",
        ],
        ConfiguredProgram::Gemini => vec![
            "{}",
            "{\"ui\": {\"theme\": \"GitHub\"},\n \"mcpServers\": {\"other\": {\"command\": \"x\"}}}\n",
        ],
        ConfiguredProgram::Opencode => {
            vec!["{\"$schema\": \"x\"}", "{\"mcp\": {\"other\": {}}, \"z\": [1, {}]}"]
        }
    }
}

#[test]
fn what_was_there_comes_back_byte_for_byte() {
    for provider in PROVIDERS {
        for sample in samples(provider) {
            let home = tempfile::tempdir().unwrap();
            let file = home.path().join("config");
            std::fs::write(&file, sample).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
            // The entry of another version is replaced.
            let older = ServerCommand { program: "/older/ensemble".to_owned(), ..command() };
            assert!(install(home.path(), provider, &file, &older).unwrap());
            assert!(install(home.path(), provider, &file, &command()).unwrap());
            let after = std::fs::read_to_string(&file).unwrap();
            assert!(after.contains("ensemble"), "{after}");
            if provider != ConfiguredProgram::Codex {
                let mut value: serde_json::Value = serde_json::from_str(&after).unwrap();
                let outer =
                    if provider == ConfiguredProgram::Opencode { "mcp" } else { "mcpServers" };
                assert!(value[outer].as_object_mut().unwrap().remove("ensemble").is_some());
            }
            assert!(!install(home.path(), provider, &file, &command()).unwrap());
            guest(home.path(), provider).take_out().unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), sample);
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        }
    }
}

#[test]
fn a_file_that_was_not_there_is_gone_again() {
    for provider in PROVIDERS {
        let home = tempfile::tempdir().unwrap();
        let [here, moved] = ["here", "moved"].map(|name| home.path().join(name));
        let file = "deep/er/config";
        install(&here.join(".ensemble"), provider, &here.join(file), &command()).unwrap();
        assert!(here.join(file).exists());
        let is_moved = std::process::Command::new("mv").args([&here, &moved]).status();
        assert!(is_moved.unwrap().success());
        let guest = guest(&moved.join(".ensemble"), provider);
        assert_eq!(guest.take_out().unwrap(), (moved.join(file), true));
        assert!(!moved.join(file).exists());
        assert!(guest.take_out().is_err(), "there is nothing to take out");
    }
}

#[test]
fn what_was_changed_since_stays_and_only_the_entry_goes() {
    for provider in PROVIDERS {
        let sample = samples(provider)[1];
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config");
        std::fs::write(&file, sample).unwrap();
        install(home.path(), provider, &file, &command()).unwrap();
        let changed = format!("{}\n\n", std::fs::read_to_string(&file).unwrap());
        std::fs::write(&file, &changed).unwrap();
        guest(home.path(), provider).take_out().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{sample}\n\n"));

        install(home.path(), provider, &file, &command()).unwrap();
        let spoilt = std::fs::read_to_string(&file).unwrap().replace("ensemble", "Ensemble");
        std::fs::write(&file, &spoilt).unwrap();
        assert!(guest(home.path(), provider).take_out().is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), spoilt, "nothing was changed");
    }
}

#[test]
fn what_cannot_be_understood_or_says_something_else_is_left_alone() {
    for (provider, text) in [
        (ConfiguredProgram::Claude, "// a comment\n{}"),
        (ConfiguredProgram::Claude, "{\"mcpServers\": {\"ensemble\": {\"command\": \"other\"}}}"),
        (ConfiguredProgram::Claude, "[]"),
        (ConfiguredProgram::Claude, "{\"mcpServers\": []}"),
        (ConfiguredProgram::Codex, "[mcp_servers.\"ensemble\"]\ncommand = \"other\"\n"),
        (ConfiguredProgram::Codex, "mcp_servers = { a = { command = \"x\" } }\n"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config");
        std::fs::write(&file, text).unwrap();
        assert!(install(home.path(), provider, &file, &command()).is_err(), "{text}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}
