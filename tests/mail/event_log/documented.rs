//! The table of docs/protocol/event-log.md is that of `event_log::types`.

use ensemble_core::event_log::types::{EventType, TABLE};

use crate::*;

const HEADER: &str = "| type | data | written by | meaning |\n|---|---|---|---|\n";

#[test]
fn the_documentation_has_the_table_of_types() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join("docs/protocol/event-log.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(HEADER).expect("the header of the table");
    let (table, after) = rest.split_at(rest.find("\n\n").map_or(rest.len(), |at| at + 1));
    let row = |row: &EventType| {
        format!("| `{}` | {} | {} | {} |\n", row.name, row.fields, row.writer, row.meaning)
    };
    let rows: String = TABLE.iter().map(row).collect();
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(&path, format!("{before}{HEADER}{rows}{after}")).unwrap();
    }
    let hint =
        "docs/protocol/event-log.md differs from event_log/types.rs: run this test with BLESS=1";
    assert_eq!(table.lines().collect::<Vec<_>>(), rows.lines().collect::<Vec<_>>(), "{hint}");
}
