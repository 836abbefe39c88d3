//! The verbs that do less for a team whose mailboxes are on servers: each says so, so no verb is silently local.
//! Every other verb works on the servers for all hosts, or concerns this machine by its nature.
//!
//! | word | for a team on servers |
//! |---|---|
//! | `this host` | the verb works on this host alone, and says so on stderr, unless `--json` is given |
//! | `database` | the verb works for all hosts if `steps: {postgres: ADDRESS}` is set. Otherwise, it is refused in one sentence |
//!
//! The table is keyed by the verbs' places. A test compares it with docs/guides/hosts.md.

use ensemble_app::diagnostics::say;
use ensemble_app::transport::{NO_SHARED_STEPS, admit_steps, uses_servers};

use crate::context::{Context, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerSupport {
    ThisHost(&'static str),
    Database(&'static str),
}

use ServerSupport::{Database, ThisHost};

const TABLE: &[(&str, ServerSupport)] = &[
    ("agent usage", ThisHost("this is the usage of the agents of this host")),
    ("task review", ThisHost("this reads the reports that were dropped on this host")),
    ("task summary", ThisHost("this gathers the reports that were dropped on this host")),
    ("step", Database(NO_SHARED_STEPS)),
    (
        "admin fsck",
        ThisHost(
            "this checks the files of this host and the blackboard; a server checks its own store",
        ),
    ),
];

/// Refuses a verb, or says that it is about this host alone, if the team's mailboxes are on servers.
pub(crate) fn admit(context: &Context, place: &str) -> Outcome {
    let Some((_, reach)) = TABLE.iter().find(|(verb, _)| *verb == place) else {
        return Ok(());
    };
    match reach {
        ThisHost(sentence) => {
            if !context.out.is_json() && uses_servers(context) {
                say(&format!("note: {sentence}"));
            }
            Ok(())
        }
        Database(_) => admit_steps(context),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;
    use crate::commands::PLACES;

    const BEGIN: &str = "<!-- verbs: this table is generated -->";
    const END: &str = "<!-- end of verbs -->";

    fn generated() -> String {
        let mut table = String::from("| verb | works for | what it says |\n|---|---|---|\n");
        for (place, reach) in TABLE {
            let (word, sentence) = match reach {
                ThisHost(sentence) => ("this host", *sentence),
                Database(sentence) => ("database", *sentence),
            };
            let _ = writeln!(table, "| `{place}` | {word} | {sentence} |");
        }
        table
    }

    #[test]
    fn every_row_has_a_verb() {
        for (place, _) in TABLE {
            assert!(PLACES.contains(place), "{place}");
        }
    }

    #[test]
    fn the_page_has_the_table() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/hosts.md");
        let page = std::fs::read_to_string(&file).unwrap();
        let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table");
        let (table, after) = rest.split_once(END).expect("the end of the table");
        if std::env::var_os("BLESS").is_some() {
            let page = format!("{before}{BEGIN}\n\n{}\n{END}{after}", generated());
            return std::fs::write(file, page).unwrap();
        }
        assert_eq!(table.trim(), generated().trim(), "BLESS=1 writes it");
    }
}
