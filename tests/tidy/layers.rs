//! The layers of the library crates: the block `layers` of ARCHITECTURE.md against the imports of the code.
//!
//! Each line of the block is `crate/module: imports`. A module stands below all that it imports, so the
//! block reads from the bottom to the top. `BLESS=1` writes the block from the code.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, assert_none, root, sources};

/// The library crates: the name in the block, the sources, and the name in code.
const CRATES: [(&str, &str, &str); 3] = [
    ("core", "ensemble-core/src/", "ensemble_core::"),
    ("tmux", "crates/ensemble-tmux/src/", "ensemble_tmux::"),
    ("team", "crates/ensemble-team/src/", "ensemble_team::"),
];
/// What `ensemble-core` passes on at its root from its module `error`.
const ERRORS: [&str; 4] = ["Error", "Result", "AreaError", "printable"];
/// A macro of the module `event_log`, which Rust puts at the root.
const SETTERS: &str = "shared_setters";
const BLOCK: (&str, &str) = ("```layers\n", "```\n");
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The path of a source file's module, from the root of the crate; `None` for code that is not shipped.
fn module(source: &Source, home: &str, tests: &BTreeSet<String>) -> Option<Vec<String>> {
    let below = source.path.strip_prefix(home)?.strip_suffix(".rs")?;
    let path: Vec<String> = below.split('/').map(str::to_owned).collect();
    let is_test = (1..=path.len()).any(|length| tests.contains(&path[..length].join("/")));
    if is_test || below == "lib" {
        return None;
    }
    let is_directory = path.last().is_some_and(|last| last == "mod");
    Some(if is_directory { path[..path.len() - 1].to_vec() } else { path })
}

/// Modules in files of their own that are compiled for tests only, as `spool/tests`.
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
fn imports(code: &str, depth: usize) -> Vec<String> {
    let root = "super::".repeat(depth);
    [imports_by(code, "crate::"), imports_by(code, &root)].concat()
}

/// What the code names directly below this path.
fn imports_by(code: &str, path: &str) -> Vec<String> {
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

/// What each top module of the library crates imports.
fn graph() -> Graph {
    let sources = sources();
    let mut graph = Graph::new();
    for (own, home, _) in CRATES {
        let tests = test_modules(&sources, home);
        for source in &sources {
            let Some(path) = module(source, home, &tests) else { continue };
            let module = format!("{own}/{}", path[0]);
            let edges = graph.entry(module.clone()).or_default();
            let code = source.shipped();
            let mut add = |from: &str, names: Vec<String>| {
                edges.extend(names.into_iter().map(|name| match name.as_str() {
                    name if ERRORS.contains(&name) => "core/error".to_owned(),
                    SETTERS => "core/event_log".to_owned(),
                    name => format!("{from}/{name}"),
                }));
            };
            add(own, imports(code, path.len()));
            for (other, _, name) in CRATES.iter().filter(|(other, ..)| *other != own) {
                add(other, imports_by(code, name));
            }
            edges.remove(&module);
        }
    }
    assert!(graph.len() > 25, "this test looks in the wrong place");
    graph
}

/// All that a module imports, directly or not.
fn reached<'g>(graph: &'g Graph, from: &'g str) -> BTreeSet<&'g str> {
    let (mut found, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(module) = left.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if found.insert(next.as_str()) {
                left.push(next);
            }
        }
    }
    found
}

/// Modules that import each other, directly or not; each circle once.
fn circles(graph: &Graph) -> BTreeSet<Vec<&str>> {
    let reach: BTreeMap<_, _> = graph.keys().map(|m| (m.as_str(), reached(graph, m))).collect();
    let circle = |module: &str| {
        let both = reach[module]
            .iter()
            .filter(|other| reach.get(*other).is_some_and(|back| back.contains(module)));
        both.copied().collect::<Vec<_>>()
    };
    graph.keys().map(|module| circle(module)).filter(|circle| !circle.is_empty()).collect()
}

/// The lines of the block, each module below all that it imports.
fn lines(graph: &Graph) -> Vec<String> {
    let depth = |module: &str| reached(graph, module).len();
    let mut modules: Vec<&String> = graph.keys().collect();
    modules.sort_by_key(|module| (depth(module), module.as_str()));
    let line = |module: &String| {
        let imports: Vec<&str> = graph[module].iter().map(String::as_str).collect();
        format!("{module}: {}", imports.join(" ")).trim_end().to_owned()
    };
    modules.into_iter().map(line).collect()
}

fn parsed(block: &str) -> Graph {
    let parts = |line: &str| {
        let (module, imports) = line.split_once(':').expect("`module: imports`");
        (module.to_owned(), imports.split_whitespace().map(str::to_owned).collect())
    };
    block.lines().map(parts).collect()
}

#[test]
fn imports_are_those_of_the_layer_table() {
    let path = root().join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BLOCK.0).expect("ARCHITECTURE.md has a block `layers`");
    let (block, after) = rest.split_once(BLOCK.1).unwrap();
    let graph = graph();
    let lines = lines(&graph);
    if std::env::var_os("BLESS").is_some() {
        let block = format!("{}\n", lines.join("\n"));
        let text = format!("{before}{}{block}{}{after}", BLOCK.0, BLOCK.1);
        return std::fs::write(&path, text).unwrap();
    }
    let table = parsed(block);
    let edges = |graph: &Graph| -> BTreeSet<String> {
        let edge = |(from, to): (&String, &BTreeSet<String>)| {
            to.iter().map(|to| format!("{from} -> {to}")).collect::<Vec<_>>()
        };
        graph.iter().flat_map(edge).chain(graph.keys().cloned()).collect()
    };
    let (code, table) = (edges(&graph), edges(&table));
    let only =
        |these: &BTreeSet<String>, those| these.difference(those).cloned().collect::<Vec<_>>();
    assert_none("an import that ARCHITECTURE.md does not allow", &only(&code, &table));
    assert_none("ARCHITECTURE.md allows an import that no code has", &only(&table, &code));
    let order = "the block is in another order: run this test with BLESS=1";
    assert_eq!(block.lines().collect::<Vec<_>>(), lines, "{order}");
}

#[test]
fn no_modules_import_each_other() {
    let graph = graph();
    let found: Vec<String> = circles(&graph).into_iter().map(|circle| circle.join(", ")).collect();
    assert_none("modules that import each other, directly or not", &found);
}

#[test]
fn an_import_is_found_in_every_form() {
    let code = "use crate::a::B;\nuse crate::{c::{D, E}, f, g::H};\nfn x() { crate::i::j(); super::k::l() }\n";
    assert_eq!(imports(code, 1), ["a", "c", "f", "g", "i", "k"]);
    assert_eq!(imports("use super::super::{m, n::O};\nuse super::p;\n", 2), ["m", "n"]);
    assert_eq!(imports("pub(crate) fn q() {}\nlet my_crate::r = 1;\n", 1), Vec::<String>::new());
}

#[test]
fn a_circle_is_found() {
    let circle = parsed("a: b\nb: c d\nc: a\nd:\n");
    assert_eq!(circles(&circle), BTreeSet::from([vec!["a", "b", "c"]]));
    assert_eq!(circles(&parsed("a: b c\nb: c\nc:\n")), BTreeSet::new());
    assert_eq!(lines(&parsed("a: b c\nb: c\nc:\n")), ["c:", "b: c", "a: b c"]);
}
