//! The layers of the crates that are shipped: docs/internals/layers.md against the imports of the code.
//!
//! Each line of the page's block is `crate/module: imports`. A module comes below all that it imports, so the block
//! reads from the bottom to the top. Modules in circles, and those that import them, follow by name. `BLESS=1` writes
//! the block from the code.

use super::crates::Crate;

use crate::*;

const PAGE: &str = "docs/internals/layers.md";
/// A macro of the module `event_log`, which Rust puts at the root.
const SETTERS: (&str, &str) = ("shared_setters", "event_log");
const BLOCK: (&str, &str) = ("```layers\n", "```\n");
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The names at the root of a crate, and the top module that each belongs to.
fn root_names(of: &Crate) -> BTreeMap<String, String> {
    let modules: BTreeSet<String> =
        of.modules().into_iter().map(|(_, path)| path[0].clone()).collect();
    let root = std::fs::read_to_string(root().join(of.home).join("lib.rs")).unwrap();
    let mut names: BTreeMap<String, String> =
        modules.iter().map(|m| (m.clone(), m.clone())).collect();
    for line in root.split(';').filter_map(|line| line.rsplit_once("use ")) {
        let mut words = line.1.split(|c: char| !c.is_alphanumeric() && c != '_');
        let module = words.next().unwrap_or_default();
        if modules.contains(module) {
            let passed_on = words.filter(|word| !word.is_empty());
            names.extend(passed_on.map(|word| (word.to_owned(), module.to_owned())));
        }
    }
    names.insert(SETTERS.0.to_owned(), SETTERS.1.to_owned());
    names
}

/// What each top module imports.
fn graph() -> &'static Graph {
    static GRAPH: OnceLock<Graph> = OnceLock::new();
    GRAPH.get_or_init(|| {
        let roots = CRATES.each_ref().map(root_names);
        let mut graph = Graph::new();
        for own in &CRATES {
            for (source, path) in own.modules() {
                let module = format!("{}/{}", own.name, path[0]);
                let edges = graph.entry(module.clone()).or_default();
                let code = source.shipped();
                for (other, names) in CRATES.iter().zip(&roots) {
                    let imported = match other.name == own.name {
                        true => imports(code, path.len()),
                        false => imports_by(code, other.path),
                    };
                    let of_module = |name| Some(format!("{}/{}", other.name, names.get(&name)?));
                    edges.extend(imported.into_iter().filter_map(of_module));
                }
                edges.remove(&module);
            }
        }
        assert!(graph.len() > 100, "this test looks in the wrong place");
        graph
    })
}

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
    let in_circles: BTreeSet<&str> = circles(graph).into_iter().flatten().collect();
    let depth = |module: &str| {
        let reached = reached(graph, module);
        let has_order = reached.is_disjoint(&in_circles);
        if has_order { reached.len() } else { usize::MAX }
    };
    let mut modules: Vec<&String> = graph.keys().collect();
    modules.sort_by_cached_key(|module| (depth(module), *module));
    let line = |module: &String| {
        let imports: Vec<&str> = graph[module].iter().map(String::as_str).collect();
        format!("{module}: {}", imports.join(" ")).trim_end().to_owned()
    };
    modules.into_iter().map(line).collect()
}

/// The modules of each crate that import each other, directly or not.
pub(crate) fn measures() -> Vec<Measure> {
    let in_circles: Vec<&str> = circles(graph()).into_iter().flatten().collect();
    let of_crate = |of: &Crate| {
        let own = in_circles.iter().filter(|module| module.split('/').next() == Some(of.name));
        let places = own.map(|module| {
            format!(
                "{}: is in a circle",
                module.replacen(of.name, of.home.trim_end_matches('/'), 1)
            )
        });
        Measure::shrinking(
            &format!("modules in import circles: {}", of.name),
            places.collect(),
            "0",
        )
    };
    CRATES.iter().map(of_crate).collect()
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
    let path = root().join(PAGE);
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BLOCK.0).expect("a block `layers`");
    let (block, after) = rest.split_once(BLOCK.1).unwrap();
    let graph = graph();
    let lines = lines(graph);
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
    let (code, table) = (edges(graph), edges(&table));
    let only =
        |these: &BTreeSet<String>, those| these.difference(those).cloned().collect::<Vec<_>>();
    assert_none(
        "an import that docs/internals/layers.md does not have: run this test with BLESS=1",
        &only(&code, &table),
    );
    assert_none(
        "an import of docs/internals/layers.md that no code has: run this test with BLESS=1",
        &only(&table, &code),
    );
    let order = "the block is in another order: run this test with BLESS=1";
    assert_eq!(block.lines().collect::<Vec<_>>(), lines, "{order}");
}

#[test]
fn a_circle_is_found() {
    let circle = parsed("a: b\nb: c d\nc: a\nd:\n");
    assert_eq!(circles(&circle), BTreeSet::from([vec!["a", "b", "c"]]));
    assert_eq!(circles(&parsed("a: b c\nb: c\nc:\n")), BTreeSet::new());
    assert_eq!(lines(&parsed("a: b c\nb: c\nc:\n")), ["c:", "b: c", "a: b c"]);
}
