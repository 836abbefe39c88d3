//! Installs our hooks and plugins in the configuration of agents' programs, and removes them again. Where there is no
//! project, they do nothing.

use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, SaidText as _};

#[test]
fn hooks_are_installed_where_each_program_reads_them_and_taken_out_again() {
    let bed = Bed::new();
    for (provider, place, file) in [
        ("claude", "--project", bed.project().join(".claude/settings.local.json")),
        ("claude", "--user", bed.project().join("../.claude/settings.json")),
        ("gemini", "--project", bed.project().join(".gemini/settings.json")),
        ("codex", "--user", bed.project().join("../.codex/hooks.json")),
    ] {
        let install = format!("admin hooks install --provider {provider} {place}");
        let uninstall = format!("admin hooks uninstall --provider {provider} {place}");
        assert!(bed.ok(&install).starts_with("added hooks to "), "{provider}");
        let text = std::fs::read_to_string(&file).unwrap();
        let hooks: Value = serde_json::from_str(&text).unwrap();
        let stop = if provider == "gemini" { "AfterAgent" } else { "Stop" };
        let command = hooks["hooks"][stop][0]["hooks"][0]["command"].as_str().unwrap();
        command.finishes(&format!("hook stop --provider {provider}"));
        assert!(bed.ok(&install).contains("already"));
        bed.ok(&uninstall);
        assert!(!file.exists(), "{}", file.display());
        bed.fails(3, &uninstall);
    }
    let printed = bed.ok("admin hooks install --provider codex --print");
    printed.has(["UserPromptSubmit"]);
    assert_eq!(bed.object("admin hooks install --provider codex --print")["entry"], printed);
}

#[test]
fn plugins_of_opencode_are_installed_and_taken_out_again() {
    let bed = Bed::new();
    for (place, dir) in [
        ("", bed.project().join(".opencode")),
        (" --user", bed.project().join("../.config/opencode")),
    ] {
        let install = format!("admin hooks install --provider opencode{place}");
        let uninstall = format!("admin hooks uninstall --provider opencode{place}");
        let (events, waiter) = (dir.join("plugins/ensemble.js"), dir.join("ensemble/waiter.js"));
        let tui = dir.join("tui.json");
        let theirs = "{ \"theme\": \"x\",\n\t\"plugin\" : [ \"their-own\" ] }";
        // An installation that fails at the last file is taken back.
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(&tui, "// theirs\n{}").unwrap();
        assert_eq!(bed.run(&install).code, 1);
        assert!(events.exists());
        bed.ok(&uninstall);
        assert!(!events.exists() && !waiter.exists());
        bed.fails(3, &uninstall);
        std::fs::remove_file(&tui).unwrap();
        for before in [None, Some(theirs)] {
            if let Some(before) = before {
                std::fs::write(&tui, before).unwrap();
            }
            assert_eq!(bed.ok(&install).matches("added hooks to").count(), 3);
            for plugin in [&events, &waiter] {
                let text = std::fs::read_to_string(plugin).unwrap();
                let own = env!("CARGO_BIN_EXE_ensemble");
                text.has([&format!("const PROGRAM = \"{own}\"")]);
            }
            let list: Value =
                serde_json::from_str(&std::fs::read_to_string(&tui).unwrap()).unwrap();
            assert_eq!(list["plugin"][0], "./ensemble/waiter.js");
            assert_eq!(bed.ok(&install).matches("already").count(), 3);
            // A plugin that a person has changed is not overwritten.
            let ours = std::fs::read_to_string(&events).unwrap();
            std::fs::write(&events, ours.replace("10_000", "9_000")).unwrap();
            bed.run_with(&install, b"").ends(1).says(["was changed"]);
            std::fs::write(&events, ours).unwrap();
            bed.ok(&uninstall);
            assert!(!events.exists() && !waiter.exists());
            assert_eq!(std::fs::read_to_string(&tui).ok().as_deref(), before);
        }
        std::fs::write(&events, "export default {}\n").unwrap();
        bed.run_with(&install, b"").ends(1).says(["not ours"]);
        assert_eq!(std::fs::read_to_string(&events).unwrap(), "export default {}\n");
    }
    assert!(bed.ok("admin hooks install --provider opencode --print").contains("\"plugin\""));
}

/// A plugin's directory is installed by itself, so that it has copies. `ENSEMBLE_UPDATE_SNAPSHOTS=1` writes them.
#[track_caller]
fn is_copy(file: &std::path::Path, source: &str) {
    let source = format!("{}\n", source.trim_end());
    if std::env::var_os("ENSEMBLE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(file, &source).unwrap();
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), source, "{}", file.display());
}

#[test]
fn the_plugins_of_codex_gemini_and_opencode_have_what_is_installed() {
    let plugins = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins");
    let read = |file: &str| std::fs::read_to_string(plugins.join(file)).unwrap();
    let object = |file: &str| serde_json::from_str::<Value>(&read(file)).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let bed = Bed::new();
    for (provider, manifest, servers) in [
        ("codex", "codex/.codex-plugin/plugin.json", "codex/.mcp.json"),
        ("gemini", "gemini/gemini-extension.json", "gemini/gemini-extension.json"),
    ] {
        let printed = bed.ok(&format!("admin hooks install --provider {provider} --print"));
        let printed = printed.replace(env!("CARGO_BIN_EXE_ensemble"), "ensemble");
        let installed: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(object(&format!("{provider}/hooks/hooks.json"))["hooks"], installed["hooks"]);
        assert_eq!(object(manifest)["version"], version);
        let server = &object(servers)["mcpServers"]["ensemble"];
        server.fits(json!({ "command": "ensemble", "args": ["mcp"] }));
        let skill = format!("{provider}/skills/ensemble/SKILL.md");
        is_copy(&plugins.join(skill), &read("claude/skills/ensemble/SKILL.md"));
    }
    assert_eq!(object("opencode/package.json")["version"], version);
    bed.ok("admin hooks install --provider opencode");
    let installed = [("plugins/ensemble.js", "events.js"), ("ensemble/waiter.js", "waiter.js")];
    for (file, source) in installed {
        let text = std::fs::read_to_string(bed.project().join(".opencode").join(file)).unwrap();
        let program = env!("CARGO_BIN_EXE_ensemble");
        text.has([program]);
        let named = text.replace(program, "ensemble");
        assert_eq!(named, read(&format!("opencode/{source}")));
    }
}

#[test]
fn the_plugin_of_claude_has_the_hooks_that_are_installed() {
    let plugin = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/claude");
    let read = |file: &str| std::fs::read_to_string(plugin.join(file)).unwrap();
    let object = |file: &str| serde_json::from_str::<Value>(&read(file)).unwrap();
    let bed = Bed::new();
    let printed = bed.ok("admin hooks install --provider claude --print");
    let printed = printed.replace(env!("CARGO_BIN_EXE_ensemble"), "ensemble");
    let installed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(object("hooks/hooks.json"), installed);
    let server = &object(".mcp.json")["mcpServers"]["ensemble"];
    server.fits(json!({ "command": "ensemble", "args": ["mcp"] }));
    assert_eq!(object(".claude-plugin/plugin.json")["version"], env!("CARGO_PKG_VERSION"));
    // A token of English text has about four characters.
    let skill = read("skills/ensemble/SKILL.md");
    assert!(skill.len() <= 4 * 700, "{} bytes", skill.len());
    let verbs = skill.split("`ensemble ").skip(1).filter_map(|rest| rest.split([' ', '`']).next());
    for verb in verbs.filter(|verb| *verb != "CMD") {
        bed.ok(&format!("{verb} --help"));
    }
}

#[test]
fn a_program_in_a_directory_with_a_blank_is_one_word_of_each_hook() {
    let bed = Bed::new();
    let tools = bed.project().join("My Tools");
    std::fs::create_dir(&tools).unwrap();
    let own = tools.join("ensemble");
    if std::fs::hard_link(crate::bed::program(), &own).is_err() {
        std::fs::copy(crate::bed::program(), &own).unwrap();
    }
    for (provider, file) in
        [("claude", ".claude/settings.local.json"), ("codex", ".codex/hooks.json")]
    {
        let install = ["admin", "hooks", "install", "--provider", provider];
        let mut command = std::process::Command::new(&own);
        command.args(install).current_dir(bed.project()).env("HOME", bed.project());
        assert!(command.output().unwrap().status.success(), "{provider}");
        let text = bed.read_file(file);
        let hooks: Value = serde_json::from_str(&text).unwrap();
        let hook = hooks["hooks"]["Stop"][0]["hooks"][0]["command"].as_str().unwrap();
        let first = format!("set -- {hook}; printf %s \"$1\"");
        let ran = std::process::Command::new("sh").args(["-c", &first]).output().unwrap();
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), own.to_str().unwrap(), "{hook}");
    }
}

#[test]
fn agents_without_hooks_are_told_once_in_their_instructions() {
    let bed = Bed::empty();
    let file = bed.project().join("AGENTS.md");
    std::fs::write(&file, "# Rules\nBe kind.").unwrap();
    bed.ok("init --agents-md").has(["added the team's rules to AGENTS.md"]);
    let text = std::fs::read_to_string(&file).unwrap();
    text.begins("# Rules\nBe kind.\n\n<!-- ensemble -->\n");
    text.has(["`ensemble agent prime`", "ensemble settle ID"]);
    bed.ok("init --agents-md").has(["the team's rules are already in AGENTS.md"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn outside_of_a_project_a_hook_does_nothing() {
    let bed = Bed::empty();
    let ran = bed.run_with("hook start --provider claude", b"{\"session_id\": \"s1\"}");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
    assert!(!bed.project().join(".ensemble").exists());
    // In a project, a program that is none of its agents hears nothing.
    let bed = Bed::new();
    let ran = bed.run_with("hook start --provider claude", b"{\"session_id\": \"s1\"}");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
    assert!(!bed.project().join(".ensemble/sessions").exists());
}
