use ensemble_core::event_log::RecordType;
use serde_json::{Map, Value, json};

use crate::context::{Context, Failure, Outcome};

const KEY_BYTES_MAX: usize = 64;

pub(super) fn record(
    context: &Context,
    kind: &RecordType,
    members: Vec<(String, Value)>,
) -> Outcome {
    let actor = context.agent_required()?;
    if kind.is_reserved() {
        let text = format!("`{kind}` is written by Ensemble itself");
        let hint = "use your own type, as in `deploy.done`";
        return Err(Failure::refused(text).with_hint(hint));
    }
    let mut data = Map::new();
    for (key, value) in members {
        if data.insert(key.clone(), value).is_some() {
            return Err(Failure::usage(format!("`{key}` is given twice")));
        }
    }
    let data = Value::Object(data);
    context.existing_project()?;
    // Said, not only counted: the event is all that was asked for.
    context.event_log()?.try_record(kind.as_str(), actor.as_str(), data.clone())?;
    let said = json!({ "type": kind, "actor": actor, "data": data });
    context.out.print_answer(&said, format!("recorded {kind}"))
}

pub(super) fn record_type(text: &str) -> Result<RecordType, String> {
    RecordType::new(text).map_err(|error| error.to_string())
}

pub(super) fn member(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    let is_key = key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        && key.len() <= KEY_BYTES_MAX;
    if !is_key {
        return Err(format!(
            "a key has 1 to {KEY_BYTES_MAX} of a-z 0-9 _ and begins with a letter"
        ));
    }
    Ok((key.to_owned(), scalar(value)))
}

/// Only what is written as a number usually is: `007` and `1e5` are texts.
fn scalar(text: &str) -> Value {
    match (text, text.parse::<i64>()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Ok(number)) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_flags_are_themselves_and_all_else_is_text() {
        for (text, value) in [
            ("n=7", json!(7)),
            ("n=-7", json!(-7)),
            ("n=007", json!("007")),
            ("n=1e5", json!("1e5")),
            ("n=true", json!(true)),
            ("n=a=b", json!("a=b")),
            ("n=", json!("")),
        ] {
            assert_eq!(member(text), Ok(("n".to_owned(), value)), "{text}");
        }
        let long = format!("{}=x", "k".repeat(KEY_BYTES_MAX + 1));
        for bad in ["n", "=x", "N=x", "a-b=x", "1=x", "a b=x", &long] {
            assert!(member(bad).is_err(), "{bad}");
        }
    }
}
