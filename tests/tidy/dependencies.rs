//! Dependencies come from crates.io, have licences that deny.toml allows, and are not banned there.
//! `make deny` checks the same with cargo-deny, where that is installed; this test needs only
//! cargo.

use serde_json::Value;

use crate::*;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The quoted texts behind `key` in deny.toml, up to the closing bracket.
fn listed(key: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, list) = text.split_once(&format!("\n{key} = [\n")).unwrap();
    let (list, _) = list.split_once("\n]").unwrap();
    let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(|line| Some(line.split('"').nth(1)?.to_owned())).collect()
}

/// Whether a licence expression can be met: one side of each OR, both sides of each AND.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.trim();
    let is_one = |text: &str| {
        let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        inner.filter(|inner| !inner.contains(['(', ')'])).map(str::to_owned)
    };
    if let Some(inner) = is_one(expression) {
        return is_allowed(&inner, allowed);
    }
    // Nothing is nested deeper than once, and AND binds more tightly.
    for (word, all) in [(" OR ", false), ("/", false), (" AND ", true)] {
        let mut parts = Vec::new();
        let (mut depth, mut start) = (0, 0);
        for (at, c) in expression.char_indices() {
            depth += i32::from(c == '(') - i32::from(c == ')');
            if depth == 0 && at >= start && expression[at..].starts_with(word) {
                parts.push(&expression[start..at]);
                start = at + word.len();
            }
        }
        if !parts.is_empty() {
            parts.push(&expression[start..]);
            let mut met = parts.iter().map(|part| is_allowed(part, allowed));
            return if all { met.all(|met| met) } else { met.any(|met| met) };
        }
    }
    allowed.iter().any(|licence| licence == expression)
}

#[test]
fn dependencies_are_from_crates_io_under_licences_that_are_allowed() {
    let (allowed, banned) = (listed("allow"), listed("deny"));
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--all-features", "--locked", "--offline"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    // Crates for other systems need not be downloaded; a machine with only the built ones skips
    // this.
    if error.contains("offline") || error.contains("failed to download") {
        println!("skipped, not all crates are here: {}", error.lines().next().unwrap_or_default());
        return;
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).expect(&error);
    let mut found = Vec::new();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "this test looks in the wrong place");
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let (name, licence, source) = (text("name"), text("license"), text("source"));
        if !is_allowed(&licence, &allowed) {
            found.push(format!("{name}: the licence `{licence}`"));
        }
        // Our own have no source.
        if !source.is_empty() && source != CRATES_IO {
            found.push(format!("{name}: from {source}"));
        }
        if banned.contains(&name) {
            found.push(format!("{name} is banned"));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The crates of examples/embedders must be short and use only ensemble-core of this workspace.
#[test]
fn embedders_need_ensemble_core_alone_and_under_100_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let packages = workspace_packages(&root);
    let named = |name: &str| packages.iter().find(|package| package["name"] == name).unwrap();
    let dependencies = |package: &Value, ours: bool| -> Vec<String> {
        let all = package["dependencies"].as_array().unwrap().iter();
        let wanted = all.filter(|dependency| dependency["path"].is_string() == ours);
        wanted.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect()
    };
    let core = named("ensemble-broker-core");
    assert_eq!(dependencies(core, true), ["ensemble-broker-core"], "itself, for its tests");
    let runtimes = core["dependencies"].as_array().unwrap().iter();
    let mut runtimes = runtimes.filter(|dependency| dependency["name"] == "tokio");
    assert!(runtimes.all(|tokio| tokio["optional"] == true), "only by its feature");
    for embedder in ["basics", "programs", "tokio"] {
        let package = named(&format!("embedder-{embedder}"));
        assert_eq!(dependencies(package, true), ["ensemble-broker-core"], "{embedder}");
        let programs = package["targets"].as_array().unwrap();
        assert!(!programs.is_empty());
        let mut all_lines = 0;
        for source in programs.iter().map(|program| program["src_path"].as_str().unwrap()) {
            let text = std::fs::read_to_string(source).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with("//!")).count();
            assert!(lines < 100, "{source} has {lines} lines");
            assert!(!text.contains("allow(") && !text.contains("expect(clippy"), "{source}");
            all_lines += lines;
        }
        // Half of what the same seven took by the calls that the handle is built from.
        assert!(embedder != "programs" || all_lines <= 309 / 2, "{all_lines}");
    }
}

/// What an embedder compiles without any feature: the list of the crates grows by a decision, never by an update.
#[test]
fn an_embedder_of_the_default_features_builds_at_most_45_crates() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "ensemble-broker-core", "--edges", "normal"])
        .args(["--prefix", "none", "--locked", "--offline"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .unwrap();
    let tree = String::from_utf8_lossy(&output.stdout);
    let names = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    let crates: BTreeSet<&str> = names.filter(|line| !line.is_empty()).collect();
    assert!(crates.len() > 20, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(crates.len() <= 45, "{}: {crates:#?}", crates.len());
    let is_runtime = |line: &&&str| line.starts_with("tokio") || line.starts_with("async");
    assert_eq!(crates.iter().find(is_runtime), None);
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = ["MIT", "ISC", "Apache-2.0"].map(str::to_owned);
    for fine in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "MIT AND ISC", "(MIT OR GPL-3.0) AND ISC"]
    {
        assert!(is_allowed(fine, &allowed), "{fine}");
    }
    for wrong in ["", "GPL-3.0", "MIT AND GPL-3.0", "(GPL-2.0 OR GPL-3.0) AND MIT"] {
        assert!(!is_allowed(wrong, &allowed), "{wrong}");
    }
}

/// What the registry and its documentation show of a crate.
#[test]
fn each_crate_has_a_page_licence_texts_and_settings_for_its_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let packages = workspace_packages(&root);
    let published: Vec<_> =
        packages.iter().filter(|package| package["publish"].is_null()).collect();
    assert_eq!(published.len(), 12, "crates that can be published");
    for package in published {
        let name = package["name"].as_str().unwrap();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            let text = std::fs::read_to_string(manifest.with_file_name(file)).unwrap_or_default();
            assert!(text.lines().count() > 5, "{name} has no {file}");
        }
        for field in ["description", "license", "repository", "homepage"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        assert_eq!(package["readme"], "README.md", "{name}");
        let shown = &package["metadata"]["docs"]["rs"];
        assert!(shown.is_object(), "{name} has no settings of docs.rs");
        let is_core = name == "ensemble-broker-core";
        assert!(!is_core || shown["features"] == serde_json::json!(["tokio"]), "shows internals");
    }
}

/// A panic ends the program, and a watcher starts again: see the profile's comment.
#[test]
fn release_builds_are_small_and_end_at_a_panic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, after) = manifest.split_once("\n[profile.release]\n").expect("a release profile");
    let profile = after.split("\n[").next().unwrap();
    for line in ["opt-level = \"z\"", "lto = \"fat\"", "strip = true", "panic = \"abort\""] {
        assert!(profile.lines().any(|found| found == line), "no `{line}` in: {profile}");
    }
}

fn workspace_packages(root: &Path) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(root)
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    metadata["packages"].as_array().unwrap().clone()
}
