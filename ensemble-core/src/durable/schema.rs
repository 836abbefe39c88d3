//! The JSON Schema (feature `schema`) of a durability.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::Durability;

impl JsonSchema for Durability {
    fn schema_name() -> Cow<'static, str> {
        "Durability".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "`power` survives a power cut, `process` the death of every process.",
            "type": "string",
            "enum": ["power", "process"],
        })
    }
}
