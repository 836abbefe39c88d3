use serde_json::{Map, Value, json};

use super::shapes::OutputShape;

fn plain(word: &str) -> Option<Value> {
    Some(match word {
        "text" => json!({ "type": "string" }),
        "name" | "id" => json!({ "type": "string", "minLength": 1 }),
        "stamp" => json!({ "type": "string", "format": "date-time" }),
        "count" => json!({ "type": "integer", "minimum": 0 }),
        "number" => json!({ "type": "number" }),
        "flag" => json!({ "type": "boolean" }),
        "object" => json!({ "type": "object" }),
        "any" => json!({}),
        _ => return None,
    })
}

fn value(text: &str) -> Value {
    let inner = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close);
    if let Some(present) = text.strip_suffix('?') {
        return json!({ "anyOf": [value(present), { "type": "null" }] });
    }
    if let Some(item) = inner('[', ']') {
        return json!({ "type": "array", "items": value(item) });
    }
    if let Some(item) = inner('{', '}') {
        return json!({ "type": "object", "additionalProperties": value(item) });
    }
    if let Some(words) = text.strip_prefix("word(").and_then(|rest| rest.strip_suffix(')')) {
        return json!({ "enum": words.split_whitespace().collect::<Vec<_>>() });
    }
    match (text.strip_prefix('@'), text.strip_prefix('=')) {
        (Some(shape), _) => json!({ "$ref": format!("#/$defs/{shape}") }),
        (_, Some("true")) => json!({ "const": true }),
        (_, Some("false")) => json!({ "const": false }),
        (_, Some(word)) => json!({ "const": word }),
        _ => plain(text).unwrap_or_else(|| json!({ "const": format!("no type `{text}`") })),
    }
}

#[derive(Default)]
struct ShapeMembers {
    properties: Map<String, Value>,
    required: Vec<String>,
    is_open: bool,
}

fn members(fields: &str, all: &[OutputShape], into: &mut ShapeMembers) {
    for field in fields.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        if field == "..." {
            into.is_open = true;
        } else if let Some(name) = field.strip_prefix("..") {
            let shape = all.iter().find(|(known, ..)| *known == name);
            shape.into_iter().for_each(|(_, _, fields)| members(fields, all, into));
        } else if let Some((key, kind)) = field.split_once(": ") {
            let name = key.trim_end_matches('?');
            into.properties.insert(name.to_owned(), value(kind));
            if name == key {
                into.required.push(name.to_owned());
            }
        }
    }
}

pub(super) fn schema((_, about, fields): &OutputShape, all: &[OutputShape]) -> Value {
    let mut found = ShapeMembers::default();
    members(fields, all, &mut found);
    let mut schema = json!({
        "description": about, "type": "object", "properties": found.properties,
        "required": found.required,
    });
    // Readers accept members that later versions add. `x-open` says that the shape names only some of today's.
    if found.is_open {
        schema["x-open"] = json!(true);
    }
    schema
}
