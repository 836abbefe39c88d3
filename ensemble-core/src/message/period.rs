//! Durations as people write them, at every door: `90`, `90s`, `10m`, `1h 30m`, `500ms`, `30d`.

use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::fields::strip_quotes;

/// What a duration looks like, for errors.
const FORMS: &str = "seconds (90) or units (90s, 5m, \"1h 30m\"), at most 1000 years";
const DAY_SECONDS: u64 = 24 * 60 * 60;
/// Far from where the sum of two durations, or of a time and one, overflows.
const DURATION_MAX: Duration = Duration::from_secs(1_000 * 36_525 * DAY_SECONDS / 100);

/// A duration as people write it: plain seconds, or units as in `1h 30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigDuration(Duration);

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ConfigDuration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConfigDuration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["integer", "string"] })
    }
}

impl From<ConfigDuration> for Duration {
    fn from(period: ConfigDuration) -> Self {
        period.0
    }
}

impl FromStr for ConfigDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Blanks, quotes and capitals are only how it was written, but a capital `M` may be minutes or months.
        let given = text;
        let text = strip_quotes(text);
        let has_months = text.split(|c: char| !c.is_alphabetic()).any(|unit| unit == "M");
        let text = &*text.to_ascii_lowercase();
        let is_number = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let seconds = || Duration::try_from_secs_f64(text.parse().ok()?).ok();
        let read = if is_number { seconds() } else { humantime::parse_duration(text).ok() };
        read.filter(|read| !has_months && *read <= DURATION_MAX)
            .map(Self)
            .ok_or_else(|| format!("`{given}` is not a duration: write {FORMS}"))
    }
}

impl Serialize for ConfigDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for ConfigDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_of(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A field that counts seconds, such as `lease_seconds`: a number, or a duration, rounded up.
///
/// # Errors
/// It is neither, or negative.
pub fn read_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    ConfigDuration::deserialize(deserializer).map(|it| whole_seconds(it.0))
}

/// A field that counts days, such as `done_days`: a number, or a duration, rounded up.
///
/// # Errors
/// It is neither, or negative.
pub fn read_days<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = text_of(deserializer)?;
    let period: ConfigDuration = text.parse().map_err(D::Error::custom)?;
    let seconds = whole_seconds(period.0);
    Ok(if text.contains(char::is_alphabetic) { seconds.div_ceil(DAY_SECONDS) } else { seconds })
}

/// Seconds, rounded up: a period that is too short would end too early.
#[must_use]
pub fn whole_seconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// A number or a text as text.
fn text_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(D::Error::custom(format!("`{other}` is not a duration: write {FORMS}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seconds(text: &str) -> Result<f64, String> {
        text.parse::<ConfigDuration>().map(|period| Duration::from(period).as_secs_f64())
    }

    #[test]
    fn durations_are_seconds_or_have_units() {
        assert_eq!(seconds("90"), Ok(90.0));
        assert_eq!(seconds("0.25"), Ok(0.25));
        assert_eq!(seconds("1h 30m"), Ok(5400.0));
        assert_eq!(seconds("500ms"), Ok(0.5));
        for (text, meant) in
            [("90S", 90.0), ("\"90s\"", 90.0), (" 5 Min\r", 300.0), ("1H 30m", 5400.0)]
        {
            assert_eq!(seconds(text), Ok(meant), "{text:?}");
        }
        for wrong in
            ["5M", "1h 5M", "", ".", "x", "-1", "5 parsecs", "1e9", "1001y", "9223372036854775807"]
        {
            assert!(seconds(wrong).unwrap_err().contains("is not a duration"), "{wrong:?}");
        }
    }

    #[test]
    fn a_field_counts_its_unit_unless_its_value_names_another() {
        let seconds = |value: &Value| read_seconds(value);
        for (value, meant) in [
            (json!(90), 90),
            (json!("90"), 90),
            (json!("1m 30S"), 90),
            (json!("'90s'"), 90),
            (json!(0.5), 1),
            (json!("500ms"), 1),
        ] {
            assert_eq!(seconds(&value).unwrap(), meant, "{value}");
        }
        for (value, meant) in [
            (json!(7), 7),
            (json!("7"), 7),
            (json!("7d"), 7),
            (json!("36h"), 2),
            (json!("2 weeks"), 14),
        ] {
            assert_eq!(read_days(&value).unwrap(), meant, "{value}");
        }
        for wrong in [json!(null), json!(-1), json!([90]), json!(true), json!("soon")] {
            let said = [seconds(&wrong), read_days(&wrong)].map(|it| it.unwrap_err().to_string());
            assert!(said.iter().all(|it| it.contains("is not a duration: write")), "{said:?}");
        }
    }
}
