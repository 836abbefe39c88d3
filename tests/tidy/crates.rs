//! The crates that are shipped: their files, and what a file imports.

use crate::*;

/// A crate of the workspace that is published.
pub(crate) struct Crate {
    /// What it is called in tables.
    pub(crate) name: &'static str,
    pub(crate) home: &'static str,
    /// Its paths in the code of other crates begin so.
    pub(crate) path: &'static str,
}

const fn named(name: &'static str, home: &'static str, path: &'static str) -> Crate {
    Crate { name, home, path }
}

pub(crate) const CRATES: [Crate; 12] = [
    named("core", "ensemble-core/src/", "ensemble_core::"),
    named("tmux", "crates/ensemble-tmux/src/", "ensemble_tmux::"),
    named("team", "crates/ensemble-team/src/", "ensemble_team::"),
    named("nats", "crates/ensemble-nats/src/", "ensemble_nats::"),
    named("project", "crates/ensemble-project/src/", "ensemble_project::"),
    named("watch", "ensemble-watch/src/", "ensemble_watch::"),
    named("app", "crates/ensemble-app/src/", "ensemble_app::"),
    named("cli", "ensemble-cli/src/", "ensemble_cli::"),
    named("history", "crates/ensemble-history/src/", "ensemble_history::"),
    named("reports", "crates/ensemble-reports/src/", "ensemble_reports::"),
    named("usage", "crates/ensemble-usage/src/", "ensemble_usage::"),
    named("conformance", "crates/ensemble-conformance/src/", "ensemble_conformance::"),
];
/// Roots of crates, which are not modules.
const ROOTS: [&str; 2] = ["lib", "main"];

impl Crate {
    /// The files of its shipped modules, with the paths of these from the root of the crate.
    pub(crate) fn modules(&self) -> Vec<(&'static Source, Vec<String>)> {
        let tests = test_modules(sources(), self.home);
        let path = |source| Some((source, module(source, self.home, &tests)?));
        sources().iter().filter_map(path).collect()
    }

    /// Its shipped files, roots included.
    pub(crate) fn files(&self) -> Vec<&'static Source> {
        let is_root = |source: &&Source| {
            let file = source.path.strip_prefix(self.home).and_then(|p| p.strip_suffix(".rs"));
            file.is_some_and(|file| ROOTS.contains(&file))
        };
        let modules = self.modules().into_iter().map(|(source, _)| source);
        sources().iter().filter(is_root).chain(modules).collect()
    }
}

/// The path of a source file's module, from the root of the crate; `None` for code that is not shipped.
fn module(source: &Source, home: &str, tests: &BTreeSet<String>) -> Option<Vec<String>> {
    let below = source.path.strip_prefix(home)?.strip_suffix(".rs")?;
    let path: Vec<String> = below.split('/').map(str::to_owned).collect();
    let is_test = (1..=path.len()).any(|length| tests.contains(&path[..length].join("/")));
    if is_test || ROOTS.contains(&below) {
        return None;
    }
    let is_directory = path.last().is_some_and(|last| last == "mod");
    Some(if is_directory { path[..path.len() - 1].to_vec() } else { path })
}

/// Modules in their own files that are compiled for tests only, as `spool/tests`.
fn test_modules(sources: &[Source], crate_home: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in sources {
        let Some(below) = source.path.strip_prefix(crate_home) else { continue };
        let file = below.trim_end_matches(".rs");
        let home = file.strip_suffix("/mod").unwrap_or(file);
        for (at, attribute) in source.code.match_indices("#[cfg(test)]") {
            let next = source.code[at + attribute.len()..].trim_start();
            let next = next.trim_start_matches("pub(crate) ");
            let name = next.strip_prefix("mod ").and_then(|rest| rest.split_once(';'));
            if let Some((name, _)) = name.filter(|(name, _)| !name.contains('{')) {
                found.insert(format!("{home}/{name}"));
            }
        }
    }
    found
}

/// The names that follow `crate::`, directly or in braces: `a` of `crate::a::B`, `a` and `c` of `crate::{a::B, c}`.
fn names(after: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(list) = after.strip_prefix('{') else { return vec![word(after)] };
    let (mut names, mut depth) = (vec![word(list)], 0_u32);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(word(&list[at + 1..])),
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// What the code names at the root of its crate, by `crate::` or by as many `super::` as it is deep.
pub(crate) fn imports(code: &str, depth: usize) -> Vec<String> {
    let root = "super::".repeat(depth);
    [imports_by(code, "crate::"), imports_by(code, &root)].concat()
}

/// What the code names directly below this path.
pub(crate) fn imports_by(code: &str, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(path) {
        let is_whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        let after = &code[at + path.len()..];
        if is_whole && !after.starts_with("super::") {
            found.extend(names(after));
        }
    }
    found
}

#[test]
fn an_import_is_found_in_every_form() {
    let code = "use crate::a::B;\nuse crate::{c::{D, E}, f, g::H};\nfn x() { crate::i::j(); super::k::l() }\n";
    assert_eq!(imports(code, 1), ["a", "c", "f", "g", "i", "k"]);
    assert_eq!(imports("use super::super::{m, n::O};\nuse super::p;\n", 2), ["m", "n"]);
    assert_eq!(imports("pub(crate) fn q() {}\nlet my_crate::r = 1;\n", 1), Vec::<String>::new());
}
