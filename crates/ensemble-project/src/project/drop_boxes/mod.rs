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
    /// The largest drop-box file, in bytes.
    pub fn report_bytes_max(&self) -> usize {
        usize::try_from(self.report_bytes_max.unwrap_or(1024 * 1024)).unwrap_or(usize::MAX)
    }
}
