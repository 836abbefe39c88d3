//! Reads arguments as models and clients write them.
//!
//! | written | read as |
//! |---|---|
//! | `""` or `null` in a field that need not be there | absent: some clients fill in every field |
//! | a number, `true`, a list or an object as text | the value |
//! | `5.0` where an integer is meant | `5` |
//! | a number where a text is meant | its text |

use serde_json::{Map, Value};

use super::Trouble;

/// Arguments with each value in the type that the tool's schema names, or all fields whose value has another one.
pub(in crate::mcp) fn read_arguments(schema: &Value, arguments: Value) -> Result<Value, Trouble> {
    let Value::Object(given) = arguments else {
        return Err(Trouble::new("nothing was done: pass the arguments as an object"));
    };
    let required = |field: &str| {
        schema["required"].as_array().into_iter().flatten().any(|name| *name == field)
    };
    let (mut read, mut faults) = (Map::new(), Vec::new());
    for (field, value) in given {
        if !required(&field) && (value.is_null() || value == "") {
            continue;
        }
        let value = match schema["properties"][&field]["type"].as_str() {
            Some(kind) => read_value(kind, value).unwrap_or_else(|value| {
                faults.push(format!("{field}: {value} is not of type {kind}"));
                value
            }),
            None => value,
        };
        read.insert(field, value);
    }
    match faults.as_slice() {
        [] => Ok(Value::Object(read)),
        faults => Err(Trouble::new(format!("nothing was done: {}", faults.join("; ")))),
    }
}

/// A value of a type of JSON Schema; the same value if it is of another one.
fn read_value(kind: &str, value: Value) -> Result<Value, Value> {
    let is_fit = |value: &Value| match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    let other = match (&value, kind) {
        (value, _) if is_fit(value) => None,
        (Value::Number(number), "string") => Some(Value::String(number.to_string())),
        (Value::Number(number), "integer") => whole_number(number.as_f64()),
        (Value::String(text), "integer") => {
            let text = text.trim();
            text.parse::<i64>().ok().map(Value::from).or_else(|| whole_number(text.parse().ok()))
        }
        (Value::String(text), _) => serde_json::from_str(text).ok(),
        _ => None,
    };
    match other.filter(is_fit) {
        Some(other) => Ok(other),
        None if is_fit(&value) => Ok(value),
        None => Err(value),
    }
}

/// An integer that was written with a fraction of zero.
fn whole_number(number: Option<f64>) -> Option<Value> {
    let number = number.filter(|number| number.fract() == 0.0 && number.abs() < 1e15)?;
    serde_json::from_str(&format!("{number:.0}")).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(arguments: Value) -> Result<Value, String> {
        let schema = json!({ "required": ["to", "message"], "properties": {
            "to": { "type": "string" }, "message": { "type": "string" }, "task_id": { "type": "string" },
            "priority": { "type": "integer" }, "needs_plan": { "type": "boolean" }, "files": { "type": "array" },
        }});
        read_arguments(&schema, arguments).map_err(|trouble| trouble.to_string())
    }

    #[test]
    fn values_are_read_in_the_type_of_the_schema() {
        for priority in [json!(5), json!(5.0), json!("5"), json!("5.0"), json!(" 5 ")] {
            let given = json!({ "to": "a", "priority": priority });
            assert_eq!(read(given), Ok(json!({ "to": "a", "priority": 5 })));
        }
        let given = json!({ "task_id": 7, "needs_plan": "true", "files": "[\"a\"]", "other": "" });
        let wanted = json!({ "task_id": "7", "needs_plan": true, "files": ["a"] });
        assert_eq!(read(given), Ok(wanted));
    }

    #[test]
    fn what_is_empty_counts_as_absent_unless_it_is_required() {
        let given =
            json!({ "to": "a", "message": "", "task_id": "", "priority": null, "files": "" });
        assert_eq!(read(given), Ok(json!({ "to": "a", "message": "" })));
    }

    #[test]
    fn every_value_of_another_type_is_named_with_its_field() {
        let error = read(json!({ "priority": "high", "needs_plan": 7, "to": ["a"] })).unwrap_err();
        for field in ["priority: \"high\"", "needs_plan: 7", "to: [\"a\"]"] {
            assert!(error.contains(field), "{error}");
        }
    }
}
