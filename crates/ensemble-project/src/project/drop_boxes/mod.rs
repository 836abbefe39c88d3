//! `drop_boxes` and `routes` in `ensemble.yaml`: one table for the watcher and all commands.
//!
//! A file is valid by itself: its routes lead from built-in boxes and from those of the same file. So a
//! project that works for one user works for the next one.

mod table;
#[cfg(test)]
mod tests;

use std::path::Path;

use ensemble_core::{Error, Result};
use ensemble_reports::contract::{DocumentNode, NodeValue};

use super::ProjectConfig;
pub use table::{BoxRule, BoxTable, RouteRefusal};

/// Refuses drop boxes and routes that cannot work, by line and field.
pub(super) fn check(config: &ProjectConfig, text: &str, path: &Path) -> Result<()> {
    if config.drop_boxes.is_empty() && config.routes.is_empty() {
        return Ok(());
    }
    let refused = |list: &str, index: usize, RouteRefusal { field, detail, .. }: RouteRefusal| {
        let line = line_of(text, path, (list, index, field));
        Error::malformed(path, format!("line {line}, {list}[{index}].{field}"), detail)
    };
    let mut table = BoxTable::default();
    for (index, rule) in config.drop_boxes.iter().enumerate() {
        table.add(rule).map_err(|refusal| refused("drop_boxes", index, refusal))?;
    }
    for (index, rule) in config.routes.iter().enumerate() {
        table.check(rule).map_err(|refusal| refused("routes", index, refusal))?;
    }
    Ok(())
}

/// The line of a field of an item in a list; that of the item where the field is not written.
fn line_of(text: &str, path: &Path, (list, index, field): (&str, usize, &str)) -> u64 {
    let Ok(root) = DocumentNode::parse(text, path) else { return 0 };
    let named = |node: &DocumentNode, name: &str| {
        let field = node.fields()?.iter().find(|it| it.name == name)?;
        Some((field.line, field.node.clone()))
    };
    let Some((line, node)) = named(&root, list) else { return 0 };
    let NodeValue::List(items) = node.value else { return line };
    let Some(item) = items.get(index) else { return line };
    named(item, field).map_or(item.line, |(line, _)| line)
}

/// The boxes of a project, and those of the user whose names and directories it does not use.
pub(super) fn merged(own: Vec<BoxRule>, fallback: Vec<BoxRule>) -> Vec<BoxRule> {
    let mut table = BoxTable::default();
    let is_added = |rule: &BoxRule| table.add(rule).is_ok();
    own.into_iter().chain(fallback).filter(is_added).collect()
}

impl super::ProjectConfig {
    pub fn report_bytes_max(&self) -> usize {
        usize::try_from(self.report_bytes_max.unwrap_or(1024 * 1024)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod line_tests {
    use super::*;

    fn refused(text: &str) -> String {
        ProjectConfig::parse(text, Path::new("ensemble.yaml")).unwrap_err().to_string()
    }

    #[test]
    fn a_route_or_a_box_that_cannot_work_is_refused_with_its_line() {
        for (text, told) in [
            (
                "# mine\nroutes:\n  - match: reports/*.md\n    to: [docs]\n    type: note\n  - to: [lead]\n    type: note\n    match: reviews/*.yaml\n",
                "ensemble.yaml: line 8, routes[1].match: `reviews/` is not watched: add `{name: reviews}` to `drop_boxes`, or begin the pattern with one of `reports/`, `tasks/`",
            ),
            (
                "drop_boxes:\n  - name: reviews\n    files: '*.yaml'\nroutes:\n  - {match: reviews/*.md, to: [lead], type: note}\n",
                "ensemble.yaml: line 5, routes[0].match: no file matches both `*.md` and the pattern `*.yaml` of the drop box `reviews`: change one of them",
            ),
            (
                "drop_boxes:\n  - name: reviews\n  - name: checked\n    directory: reviews\n",
                "ensemble.yaml: line 4, drop_boxes[1].directory: `reviews/` is the directory of the drop box `reviews`: each has its own",
            ),
            (
                "drop_boxes:\n  - name: reviews\n    to: [lead]\n",
                "ensemble.yaml: line 2, drop_boxes[0].type: is missing: say which type the messages to `to` have",
            ),
            (
                "routes: [{match: 'reports/*.md', to: ['{3}'], type: note}]\n",
                "ensemble.yaml: line 1, routes[0].to: `{3}` cannot be a mailbox",
            ),
        ] {
            let error = refused(text);
            assert!(error.starts_with(told), "{error}");
        }
        for (text, place) in [
            ("drop_boxes: reviews\n", "line 1"),
            ("drop_boxes:\n  - name: ../x\n", "line 2"),
            ("drop_boxes:\n  - name: x\n    file: '*'\n", "`file`"),
            ("drop_boxes:\n  - directory: x\n", "`name`"),
            ("routes:\n  - {match: 'reports/*', to: [x], type: 'a b'}\n", "line 2"),
        ] {
            let error = refused(text);
            assert!(error.starts_with("ensemble.yaml: ") && error.contains(place), "{error}");
        }
    }

    #[test]
    fn the_boxes_of_the_user_come_behind_those_of_the_project() {
        let parse = |text: &str| ProjectConfig::parse(text, Path::new("ensemble.yaml")).unwrap();
        let project = parse("drop_boxes: [{name: a, directory: one}]\n");
        let user = parse("drop_boxes: [{name: A}, {name: b, directory: One}, {name: c}]\n");
        let names: Vec<String> =
            project.or(user).drop_boxes.iter().map(|it| it.name.to_string()).collect();
        assert_eq!(names, ["a", "c"]);
    }
}
