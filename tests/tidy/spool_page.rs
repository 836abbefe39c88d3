//! The page of `Spool` has a table that names every public method, the heading of the block that has it, and its file.
//! The table is in the order in which rustdoc shows the blocks.

use crate::*;

const DIRECTORY: &str = "ensemble-core/src/spool";

struct Row {
    heading: String,
    methods: Vec<String>,
    file: String,
}

fn rows(page: &str) -> Vec<Row> {
    let (_, table) =
        page.split_once("/// | for | call | in |\n/// |---|---|---|\n").expect("a table");
    let rows = table.lines().map_while(|line| line.strip_prefix("/// | ")?.strip_suffix(" |"));
    let row = |line: &str| {
        let [heading, methods, file] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}")
        };
        let methods = methods.split(", ").map(|link| {
            let (name, target) =
                link.trim_start_matches("[`").split_once("`](Self::").expect("a link");
            assert_eq!(target, format!("{name})"));
            name.to_owned()
        });
        let file = file.trim_matches('`').to_owned();
        Row { heading: heading.to_owned(), methods: methods.collect(), file }
    };
    rows.map(row).collect()
}

/// The blocks of `impl Spool` that have public methods: heading and methods.
fn blocks(code: &str) -> Vec<(String, Vec<String>)> {
    let mut blocks = Vec::new();
    for (at, _) in code.match_indices("\nimpl Spool {\n") {
        let before = code[..at].lines().last().unwrap_or_default();
        let block = code[at + 1..].split("\n}\n").next().unwrap_or_default();
        let methods: Vec<String> = block
            .lines()
            .filter_map(|line| line.strip_prefix("    pub "))
            .filter_map(|line| line.trim_start_matches("const ").strip_prefix("fn "))
            .map(|line| line.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
            .collect();
        if !methods.is_empty() {
            blocks.push((before.trim_start_matches("/// # ").to_owned(), methods));
        }
    }
    blocks
}

#[test]
fn the_page_of_a_queue_names_each_method_in_the_order_of_use() {
    let directory = root().join(DIRECTORY);
    let page = std::fs::read_to_string(directory.join("mod.rs")).unwrap();
    let rows = rows(&page);
    assert!(rows.len() > 10, "this test looks in the wrong place");
    let mut wrong = Vec::new();
    let mut place = 0;
    for Row { heading, methods, file } in &rows {
        let module = file.split(['/', '.']).next().unwrap();
        let at = page.find(&format!("mod {module};\n")).expect("a module");
        if at < place {
            wrong.push(format!("{file}: its module stands above that of the row before"));
        }
        place = at;
        let code = std::fs::read_to_string(directory.join(file)).unwrap();
        if blocks(&code) != [(heading.clone(), methods.clone())] {
            wrong.push(format!(
                "{file}: the row says {heading:?} {methods:?}, not {:?}",
                blocks(&code)
            ));
        }
    }
    for source in super::sources() {
        let Some(file) = source.path.strip_prefix(DIRECTORY) else { continue };
        let is_listed = rows.iter().any(|row| row.file == file.trim_start_matches('/'));
        if !is_listed && !blocks(&source.text).is_empty() {
            wrong.push(format!("{file}: {:?} are in no row", blocks(&source.text)));
        }
    }
    assert_none("name the methods of Spool in its table", &wrong);
}
