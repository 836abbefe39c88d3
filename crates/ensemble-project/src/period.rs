//! Durations in `ensemble.yaml` and on the command line: `90`, `90s`, `10m`, `1h 30m`, `500ms`, `30d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ensemble_core::message::fields::strip_quotes;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// What a duration looks like, for errors.
const FORMS: &str = "seconds (90) or units (90s, 5m, \"1h 30m\")";

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
        read.filter(|_| !has_months)
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
        struct DurationVisitor;

        impl Visitor<'_> for DurationVisitor {
            type Value = ConfigDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a duration: {FORMS}")
            }

            fn visit_u64<E: Error>(self, seconds: u64) -> Result<ConfigDuration, E> {
                Ok(ConfigDuration(Duration::from_secs(seconds)))
            }

            fn visit_f64<E: Error>(self, seconds: f64) -> Result<ConfigDuration, E> {
                seconds.to_string().parse().map_err(E::custom)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ConfigDuration, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(DurationVisitor)
    }
}

#[cfg(test)]
mod tests {
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
            ["5M", "1h 5M", "", ".", "x", "-1", "5 parsecs", "1e9", "99999999999999999999999"]
        {
            assert!(seconds(wrong).unwrap_err().contains("is not a duration"), "{wrong:?}");
        }
    }
}
