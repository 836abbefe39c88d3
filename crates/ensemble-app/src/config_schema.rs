//! The schema of `ensemble.yaml`.

use ensemble_project::ProjectConfig;

use crate::failure::{Failure, Outcome};

/// The schema of `ensemble.yaml`, below the state directory.
pub const SCHEMA_FILE: &str = "ensemble.schema.json";

pub fn config_schema() -> Outcome<String> {
    let mut schema = schemars::schema_for!(ProjectConfig);
    schema.insert("title".to_owned(), "ensemble.yaml".into());
    pretty(&schema.into())
}

pub fn pretty(schema: &serde_json::Value) -> Outcome<String> {
    let text = serde_json::to_string_pretty(schema)
        .map_err(|error| Failure::refused(format!("cannot write the schema: {error}")))?;
    Ok(text + "\n")
}
