//! What embedders see of ensemble-core: everything that its root exports without the feature `internals`.
//!
//! The root's page names each of these types and modules. Their number, with methods, is a measure.

use crate::*;

const ROOT: &str = "ensemble-core/src/lib.rs";
/// Files of which each method belongs to a feature.
const OF_FEATURES: [&str; 2] = ["src/queue/incoming.rs", "src/queue/ack_manager_async.rs"];

/// The end of the attribute of methods that only our own crates call; texts are left out of the code.
const HIDDEN: &str = ", doc(hidden))]";

fn page_and_code() -> (String, String) {
    let text = std::fs::read_to_string(root().join(ROOT)).unwrap();
    let (page, code) = text.split_once("#![forbid(unsafe_code)]").expect("a page");
    (page.to_owned(), code.to_owned())
}

/// The items of the root, without those behind a feature.
fn items(code: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut is_gated = false;
    let mut rest = code;
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        let item = line.trim_start();
        if let Some(path) = item.strip_prefix("pub use ") {
            let statement = match path.split_once(';') {
                Some((statement, _)) => statement,
                None => {
                    let (more, after) = rest.split_once(';').expect("an end");
                    rest = after;
                    more
                }
            };
            let names = statement.rsplit(['{', ':']).next().unwrap().trim_end_matches(['}', '\n']);
            items.extend(
                names
                    .split(',')
                    .map(str::trim)
                    .filter(|n| !n.is_empty() && !is_gated)
                    .map(str::to_owned),
            );
        } else if let Some(module) = item.strip_prefix("pub mod ").filter(|_| !is_gated) {
            items.push(module.trim_end_matches([' ', '{', ';']).to_owned());
        }
        is_gated = item.starts_with("#[cfg(") || is_gated && item.starts_with("#[");
    }
    items
}

/// The public methods of a type, or the methods of a trait, in one file.
fn methods(source: &Source, name: &str) -> Vec<String> {
    let starts = [
        (format!("impl {name} {{"), "    pub "),
        (format!("impl<S> {name}<S> {{"), "    pub "),
        (format!("pub trait {name}"), "    fn "),
    ];
    let mut found = Vec::new();
    for (start, member) in starts {
        for (at, _) in source.code.match_indices(&start) {
            // What rustdoc hides, and traits whose names only begin alike.
            let is_word =
                source.code[at + start.len()..].starts_with(|c: char| !c.is_alphanumeric());
            if source.code[..at].trim_end().ends_with(HIDDEN) || !is_word {
                continue;
            }
            let block = source.code[at..].split("\n}").next().unwrap_or_default();
            let first = source.code[..at].lines().count();
            let members =
                (first + 1..).zip(block.lines()).filter(|(_, line)| line.starts_with(member));
            found.extend(
                members.map(|(number, line)| format!("{}:{number}: {}", source.path, line.trim())),
            );
        }
    }
    found
}

/// Every item that an embedder can name, with methods.
pub(crate) fn public_items() -> Vec<String> {
    let (_, code) = page_and_code();
    let files = CRATES[0].files();
    let is_gated = |source: &&Source| OF_FEATURES.iter().any(|file| source.path.ends_with(file));
    let of = |item: String| {
        let files = files.iter().filter(|source| !is_gated(source));
        let methods = files.flat_map(|source| methods(source, &item)).collect::<Vec<_>>();
        std::iter::once(format!("{ROOT}:1: {item}")).chain(methods)
    };
    items(&code).into_iter().flat_map(of).collect()
}

#[test]
fn the_page_of_the_crate_names_every_type_and_module() {
    let (page, code) = page_and_code();
    let items = items(&code);
    assert!(items.len() > 20, "this test looks in the wrong place: {items:?}");
    let is_type = |name: &&String| !name.chars().all(|c| c.is_uppercase() || c == '_');
    let is_alias = |name: &&String| *name == "Result";
    // The items of a module are on the page of the module.
    let of_modules = ["EventLog", "Follower", "Record", "Recorder"];
    let (_, table) = page.split_once("# Types, in reading order").expect("a table");
    let (table, _) = table.split_once("# Guarantees").expect("what follows the table");
    let is_named = |name: &&String| table.contains(&format!("[`{name}`]"));
    let unnamed: Vec<String> = items
        .iter()
        .filter(is_type)
        .filter(|name| !is_alias(name) && !of_modules.contains(&name.as_str()) && !is_named(name))
        .cloned()
        .collect();
    assert_none("name these on the page of the crate", &unnamed);
}

/// The documentation above a line, and whether rustdoc hides the item.
fn docs_above(text: &str, line: usize) -> (String, bool) {
    let above: Vec<&str> = text.lines().take(line - 1).map(str::trim).collect();
    let is_of_item =
        |l: &&&str| l.starts_with("///") || !l.is_empty() && !l.ends_with(['{', '}', ';']);
    let mut of_item: Vec<&str> = above.iter().rev().take_while(is_of_item).copied().collect();
    of_item.reverse();
    let docs = of_item.iter().filter_map(|line| line.strip_prefix("///"));
    (docs.fold(String::new(), |all, line| all + line + "\n"), of_item.contains(&"#[doc(hidden)]"))
}

/// Whether an example in this documentation calls or implements a method.
fn has_example_of(docs: &str, method: &str) -> bool {
    let calls = [(".", "("), ("::", "("), ("fn ", "("), (".", "::<")]
        .map(|(before, after)| format!("{before}{method}{after}"));
    docs.split("```").skip(1).step_by(2).any(|code| calls.iter().any(|call| code.contains(call)))
}

/// The items that documentation links to, as `Type` or `Type::method`. `of_type` is the type that it belongs to.
fn linked_items(docs: &str, of_type: &str) -> Vec<String> {
    let texts = docs.split("```").step_by(2);
    let links = texts.flat_map(|text| text.split('[').skip(1)).filter_map(|link| {
        let (label, rest) = link.split_once(']')?;
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        Some(target.map_or_else(|| label.trim_matches('`'), |(target, _)| target))
    });
    let items = links.flat_map(|path| {
        let path = path.replace("Self", of_type);
        let parts: Vec<&str> = path.split("::").collect();
        [parts[parts.len() - 1..].join("::"), parts[parts.len().saturating_sub(2)..].join("::")]
    });
    items.collect()
}

#[test]
fn every_public_item_has_an_example_or_a_link_to_one() {
    let (_, code) = page_and_code();
    let files = CRATES[0].files();
    let mut documented = std::collections::BTreeMap::new();
    let of_features = ["Incoming".to_owned()];
    for name in items(&code).into_iter().chain(of_features).filter(|name| name != "Result") {
        let declared = ["struct", "enum", "trait", "type"].map(|kind| format!("pub {kind} {name}"));
        for source in &files {
            let is_declared = |line: &str| {
                let rest = declared.iter().find_map(|start| line.strip_prefix(start));
                let is_whole = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
                // The names of messages and mailboxes are made by a macro.
                rest.is_some_and(is_whole) || line.strip_prefix("    ") == Some(&name)
            };
            for (at, _) in source.text.lines().enumerate().filter(|(_, line)| is_declared(line)) {
                let (docs, _) = docs_above(&source.text, at + 1);
                documented.entry((name.clone(), String::new())).or_insert((docs, String::new()));
            }
            for found in methods(source, &name) {
                let (place, declaration) = found.split_once(": ").unwrap();
                let line = place.rsplit_once(':').unwrap().1.parse().unwrap();
                let (_, method) = declaration.split_once("fn ").unwrap_or(("", declaration));
                let method = method.split(|c: char| !c.is_alphanumeric() && c != '_').next();
                let (docs, is_hidden) = docs_above(&source.text, line);
                if !is_hidden && declaration.contains("fn ") {
                    let key = (name.clone(), method.unwrap().to_owned());
                    documented.insert(key, (docs, place.to_owned()));
                }
            }
        }
    }
    let page_of = |of_type: &String| {
        documented.get(&(of_type.clone(), String::new())).map_or("", |(docs, _)| docs)
    };
    let has_example = |(of_type, method): &(String, String), docs: &str| {
        docs.contains("```") || has_example_of(page_of(of_type), method) && !method.is_empty()
    };
    let shown: Vec<String> = documented
        .iter()
        .filter(|(key, (docs, _))| has_example(key, docs))
        .map(|((of_type, method), _)| match method.as_str() {
            "" => of_type.clone(),
            method => format!("{of_type}::{method}"),
        })
        .collect();
    let is_linked = |of_type: &str, docs: &str| {
        linked_items(docs, of_type).iter().any(|item| shown.contains(item))
    };
    let bare: Vec<String> = documented
        .iter()
        .filter(|(key, (docs, _))| !has_example(key, docs) && !is_linked(&key.0, docs))
        .map(|((of_type, method), (_, place))| format!("{place}: {of_type}::{method}"))
        .collect();
    assert!(documented.len() > 150, "this test looks in the wrong place: {}", documented.len());
    assert_none("give an example, or a link to one: `[`Type`] has an example`", &bare);
}

fn parameter_types(declaration: &str) -> Vec<String> {
    let mut types = vec![String::new()];
    let mut depth = 0;
    let from = declaration.find('(').unwrap_or(declaration.len());
    for c in declaration[from..].replace("->", "=").chars() {
        match c {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth -= 1,
            _ => {}
        }
        match (c, depth) {
            (_, 0) => break,
            (',', 1) => types.push(String::new()),
            _ => types.last_mut().unwrap().push(c),
        }
    }
    let named = types.iter().filter_map(|parameter| parameter.split_once(':'));
    named.map(|(_, of_type)| of_type.split_whitespace().collect()).collect()
}

#[test]
fn no_call_of_the_face_has_two_parameters_that_can_be_swapped() {
    let (_, code) = page_and_code();
    let (files, names) = (CRATES[0].files(), items(&code));
    let mut found = Vec::new();
    let mut checked = 0;
    for source in files.iter().filter(|source| source.path.contains("src/queue/")) {
        for declaration in source.code.split("    pub fn ").skip(1) {
            let types = parameter_types(declaration.split('{').next().unwrap());
            checked += 1;
            if (1..types.len()).any(|at| types[..at].contains(&types[at])) {
                found.push(format!("{}: {}", source.path, declaration.lines().next().unwrap()));
            }
        }
    }
    assert!(checked > 100 && names.len() > 20, "this test looks in the wrong place: {checked}");
    assert_none("two parameters of one type", &found);
    assert_eq!(
        parameter_types("f(&self, a: &str, b: impl Fn(u8) -> u8)"),
        ["&str", "implFn(u8)=u8"]
    );
}

#[test]
fn what_a_feature_adds_is_not_counted() {
    let code = "pub use a::{B, C};\n#[cfg(feature = \"internals\")]\npub mod d;\npub mod e {\n    pub use f::G;\n}\npub use h::{\n    I,\n    J,\n};\n";
    assert_eq!(items(code), ["B", "C", "e", "G", "I", "J"]);
}
