//! The JSON Schema (feature `schema`) of a path in a plan.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

impl JsonSchema for super::FilePath {
    fn schema_name() -> Cow<'static, str> {
        "FilePath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A path below the project's directory.",
            "type": "string",
            "minLength": 1,
            "maxLength": super::PATH_BYTES_MAX,
        })
    }
}
