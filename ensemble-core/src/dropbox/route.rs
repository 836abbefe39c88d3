//! Which file goes to whom.
//!
//! The defaults are seed 002's table, exactly. Routes of a configuration come before them, then those of
//! configured drop boxes, and the first route that matches decides.

use serde::{Deserialize, Serialize};

use crate::message::Name;
use crate::{Error, Result};

/// A route as it is in a configuration.
///
/// `match` is a path below the queue in which `*` stands for any text without a slash. In `to`,
/// `{1}`, `{2}` … stand for what the first, second … `*` matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RouteRule {
    /// Pattern of file paths, such as `reports/*-completed.yaml`.
    #[serde(rename = "match")]
    pub pattern: String,
    /// To which mailboxes.
    pub to: Vec<String>,
    /// The type of the message that is made from the file.
    #[serde(rename = "type")]
    pub kind: Name,
}

/// The destination of a file, from the route that matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteDestination {
    pub to: Vec<Name>,
    pub kind: Name,
    /// The text that the first `*` matched: in the default routes the task, or the worker.
    pub stem: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Routes {
    routes: Vec<(PathPattern, RouteRule)>,
}

/// A pattern of file names or paths: the texts between its stars, of which each stands for any text without a slash.
#[derive(Clone, Debug)]
pub struct PathPattern(Vec<String>);

impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("*"))
    }
}

impl PathPattern {
    pub fn new(text: &str) -> Self {
        Self(text.split('*').map(str::to_owned).collect())
    }

    /// Whether it matches every name.
    pub fn is_any(&self) -> bool {
        self.0.len() > 1 && self.0.iter().all(String::is_empty)
    }

    pub const fn stars_count(&self) -> usize {
        self.0.len() - 1
    }

    /// The text that each star matches, the first ones as long as possible; `None` if it does not match. From the
    /// right, where the text behind a star is its last occurrence: one pass, no matter what a file is called.
    pub fn stars<'a>(&self, path: &'a str) -> Option<Vec<&'a str>> {
        let (first, more) = self.0.split_first()?;
        let rest = path.strip_prefix(first.as_str())?;
        let Some((last, middle)) = more.split_last() else {
            return rest.is_empty().then(Vec::new);
        };
        let mut rest = rest.strip_suffix(last.as_str())?;
        let mut found = Vec::with_capacity(more.len());
        for text in middle.iter().rev() {
            let (before, star) = rest.rsplit_once(text.as_str())?;
            found.push(star);
            rest = before;
        }
        found.push(rest);
        found.reverse();
        found.iter().all(|star| !star.contains('/')).then_some(found)
    }
}

/// Seed 002's table: pattern, recipient, type. PROTOCOL.md has the same rows.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("reports/completion-summary.yaml", "conductor", "report.summary"),
    ("reports/escalation-*.yaml", "conductor", "report.escalation"),
    ("reports/*-review.yaml", "dispatch", "report.review"),
    ("reports/*-completed.yaml", "dispatch", "report.completed"),
    ("tasks/*-task.yaml", "{1}", "task"),
];

impl Routes {
    pub fn new(rules: &[RouteRule]) -> Result<Self> {
        let defaults = DEFAULTS.iter().map(|(pattern, to, kind)| RouteRule {
            pattern: (*pattern).to_owned(),
            to: vec![(*to).to_owned()],
            kind: Name::new(*kind).unwrap_or_else(|_| unreachable!("`{kind}` is a name")),
        });
        let routes = rules.iter().cloned().chain(defaults).map(compile).collect::<Result<_>>()?;
        Ok(Self { routes })
    }

    /// Where a file (a path below the queue, such as `reports/task-7-completed.yaml`) goes;
    /// `None` if no route matches.
    pub fn destination(&self, path: &str) -> Result<Option<RouteDestination>> {
        let Some((stars, rule)) =
            self.routes.iter().find_map(|(pattern, rule)| Some((pattern.stars(path)?, rule)))
        else {
            return Ok(None);
        };
        let recipients = rule.to.iter().map(|template| Name::new(filled(template, &stars)));
        let to = recipients.collect::<Result<_, _>>();
        Ok(Some(RouteDestination {
            to: to.map_err(|e| Error::malformed(path, "file name", e.to_string()))?,
            kind: rule.kind.clone(),
            stem: stars.first().map(|s| (*s).to_owned()),
        }))
    }
}

fn compile(rule: RouteRule) -> Result<(PathPattern, RouteRule)> {
    let fail = |detail: &str| Error::malformed("routes", rule.pattern.clone(), detail);
    if rule.to.is_empty() {
        return Err(fail("has no recipient: name one under `to`"));
    }
    if !rule.pattern.contains('/') {
        return Err(fail(
            "is not below a drop box: begin it with the name of one, such as `reports/`",
        ));
    }
    Ok((PathPattern::new(&rule.pattern), rule))
}

/// A recipient in which `{1}`, `{2}` … are replaced by what the stars matched.
pub fn filled(template: &str, stars: &[&str]) -> String {
    let mut name = template.to_owned();
    for (index, text) in stars.iter().enumerate() {
        name = name.replace(&format!("{{{}}}", index + 1), text);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(path: &str) -> Option<String> {
        let routes = Routes::new(&[]).unwrap();
        let destination = routes.destination(path).unwrap()?;
        Some(format!("{} {}", destination.to[0], destination.stem.unwrap_or_default()))
    }

    #[test]
    fn the_protocol_has_a_row_for_each_default_route() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../PROTOCOL.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (pattern, to, kind) in DEFAULTS {
            let start = format!("| `{pattern}` |");
            let row = page.lines().find(|line| line.starts_with(&start));
            let row = row.unwrap_or_else(|| panic!("PROTOCOL.md lacks a row for `{pattern}`"));
            let recipient = if *to == "{1}" { "the mailbox that `*` names" } else { *to };
            assert!(row.contains(recipient) && row.ends_with(&format!("`{kind}` |")), "{row}");
        }
    }

    #[test]
    fn the_seeds_table() {
        assert_eq!(to("reports/task-1-completed.yaml").as_deref(), Some("dispatch task-1"));
        assert_eq!(to("reports/task-1-review.yaml").as_deref(), Some("dispatch task-1"));
        assert_eq!(to("reports/completion-summary.yaml").as_deref(), Some("conductor "));
        assert_eq!(to("reports/escalation-task-1.yaml").as_deref(), Some("conductor task-1"));
        assert_eq!(
            to("reports/escalation-task-1-review.yaml").as_deref(),
            Some("conductor task-1-review")
        );
        assert_eq!(to("tasks/worker-1-task.yaml").as_deref(), Some("worker-1 worker-1"));
        for unrouted in [
            "reports/task-1.yaml",
            "reports/notes.txt",
            "reports/x-completed.yml",
            "x-completed.yaml",
            "reports/a/b-completed.yaml",
        ] {
            assert_eq!(to(unrouted), None, "{unrouted}");
        }
    }

    #[test]
    fn configured_routes_come_first_and_may_have_several_recipients() {
        let rule = RouteRule {
            pattern: "reports/*.*.yaml".to_owned(),
            to: vec!["{2}".to_owned(), "audit".to_owned()],
            kind: Name::new("custom").unwrap(),
        };
        let routes = Routes::new(&[rule]).unwrap();
        let destination = routes.destination("reports/t1.worker-2.yaml").unwrap().unwrap();
        assert_eq!(
            destination.to.iter().map(Name::as_str).collect::<Vec<_>>(),
            ["worker-2", "audit"]
        );
        let destination = routes.destination("reports/a.b.c.yaml").unwrap().unwrap();
        assert_eq!((destination.to[0].as_str(), destination.stem.as_deref()), ("c", Some("a.b")));
        assert!(routes.destination("reports/t1.-rf.yaml").is_err(), "an option is not a mailbox");
        assert!(routes.destination("reports/t1-completed.yaml").unwrap().is_some());
    }

    #[test]
    fn impossible_rules_are_refused() {
        for (pattern, to) in [("reports/*", vec![]), ("nowhere", vec!["x".to_owned()])] {
            let rule = RouteRule { pattern: pattern.to_owned(), to, kind: Name::new("k").unwrap() };
            assert!(Routes::new(&[rule]).is_err());
        }
    }
}
