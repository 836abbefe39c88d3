//! JSON Schemas (feature `schema`) of types that check themselves while they are read.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::durable::Durability;
use crate::message::{NAME_BYTES_MAX, Name};

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Letters, digits and . _ -, not beginning with a dot or a dash.",
            "type": "string",
            "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]*$",
            "maxLength": NAME_BYTES_MAX,
        })
    }
}

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

#[cfg(feature = "steps")]
impl JsonSchema for crate::steps::FilePath {
    fn schema_name() -> Cow<'static, str> {
        "FilePath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A path below the project's directory.",
            "type": "string",
            "minLength": 1,
            "maxLength": crate::steps::PATH_BYTES_MAX,
        })
    }
}
