//! What each verb does for a team whose mailboxes are on servers. No verb is silently local.
//!
//! | word | for a team on servers |
//! |---|---|
//! | `servers` | the verb works on the servers, for all hosts |
//! | `here` | by its nature, the verb concerns this host, or no team at all |
//! | `this host` | the verb works on this host alone, and says so on stderr, unless `--json` is given |
//! | `database` | the verb works for all hosts if `steps: {postgres: ADDRESS}` is set. Otherwise, it is refused in one sentence |
//!
//! The table is keyed by the verbs' places. Tests compare it with the list of verbs and with docs/guides/hosts.md.

use ensemble_app::diagnostics::say;
use ensemble_app::failure::Outcome;
use ensemble_app::transport::{NO_SHARED_STEPS, admit_steps, uses_servers};

use crate::context::Context;

/// What a verb does for a team on servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerSupport {
    /// It works on the servers, for all hosts.
    Servers,
    /// By its nature it concerns this host, or no team at all.
    Here,
    /// It works on this host alone, and says this.
    ThisHost(&'static str),
    /// It works for all hosts if these share a database, and else is refused, with this sentence.
    Database(&'static str),
}

use ServerSupport::{Database, Here, Servers, ThisHost};

/// All verbs by their places, in the order of the list of verbs.
pub(crate) const TABLE: &[(&str, ServerSupport)] = &[
    ("claude", Here),
    ("codex", Here),
    ("opencode", Here),
    ("gemini", Here),
    ("up", Here),
    ("down", Here),
    ("team", Servers),
    ("agent", Servers),
    ("agent start", Here),
    ("agent restart", Here),
    ("agent join", Here),
    ("agent adopt", Here),
    ("agent attach", Here),
    ("agent whoami", Here),
    ("agent prime", Servers),
    ("agent inspect", Here),
    ("agent nudge", Servers),
    ("agent ping", Servers),
    ("agent pong", Here),
    ("agent instruct", Servers),
    ("agent supervise", Servers),
    ("agent usage", ThisHost("this is the usage of the agents of this host")),
    ("status", Servers),
    ("top", Servers),
    ("why", Servers),
    ("log", Servers),
    ("log escalations", Servers),
    ("log export", Servers),
    ("send", Servers),
    ("recv", Servers),
    ("reply", Servers),
    ("settle", Servers),
    ("inbox", Servers),
    ("dead", Servers),
    ("mailbox", Servers),
    ("mailbox extend", Servers),
    ("mailbox release", Servers),
    ("mailbox recall", Servers),
    ("assign", Servers),
    ("report", Servers),
    ("task", Servers),
    ("task review", ThisHost("this reads the reports that were dropped on this host")),
    ("task summary", ThisHost("this gathers the reports that were dropped on this host")),
    ("task dispatch", Servers),
    ("request", Servers),
    ("request plan", Servers),
    ("request answer", Servers),
    ("request list", Servers),
    ("pause", Servers),
    ("resume", Servers),
    ("board", Servers),
    ("board goal", Servers),
    ("board sprint", Servers),
    ("board discover", Servers),
    ("board anomaly", Servers),
    ("board analyze", Servers),
    ("board prompt", Servers),
    ("board checkpoint", Servers),
    ("board abort", Servers),
    ("step", Database(NO_SHARED_STEPS)),
    ("init", Here),
    ("doctor", Servers),
    ("demo", Here),
    ("admin watch", Here),
    ("admin hooks", Here),
    ("admin hook", Here),
    ("admin mcp", Servers),
    ("admin api", Servers),
    ("admin projects", Here),
    ("admin notify", Here),
    ("admin tmux-status", Here),
    ("admin migrate", Servers),
    (
        "admin fsck",
        ThisHost(
            "this checks the files of this host and the blackboard; a server checks its own store",
        ),
    ),
    ("admin lint", Here),
    ("admin schema", Here),
    ("admin conformance", Here),
    ("admin completions", Here),
    ("admin man", Here),
    ("help", Here),
];

/// Refuses a verb, or says that it is about this host alone, if the team's mailboxes are on servers.
pub(crate) fn admit(context: &Context, place: &str) -> Outcome {
    let Some((_, reach)) = TABLE.iter().find(|(verb, _)| *verb == place) else {
        return Ok(());
    };
    match reach {
        Servers | Here => Ok(()),
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

    /// Lines around the table in docs/guides/hosts.md.
    const BEGIN: &str = "<!-- verbs: this table is generated -->";
    const END: &str = "<!-- end of verbs -->";

    fn generated() -> String {
        let mut table = String::from("| verb | on servers | said |\n|---|---|---|\n");
        for (place, reach) in TABLE {
            let (word, sentence) = match reach {
                Servers => ("servers", ""),
                Here => ("here", ""),
                ThisHost(sentence) => ("this host", *sentence),
                Database(sentence) => ("database", *sentence),
            };
            let _ = writeln!(table, "| `{place}` | {word} | {sentence} |");
        }
        table
    }

    #[test]
    fn every_verb_has_a_row_and_every_row_a_verb() {
        let rows: Vec<&str> = TABLE.iter().map(|(place, _)| *place).collect();
        let mut verbs = PLACES.to_vec();
        if cfg!(not(feature = "mcp")) {
            let place = rows.iter().position(|row| *row == "admin mcp").unwrap();
            verbs.insert(place, "admin mcp");
        }
        assert_eq!(rows, verbs);
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
