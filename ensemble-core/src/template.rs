//! Forms of prompts, which users may replace: text in which `{{name}}` stands for a value.

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It names something that this prompt does not have.
    #[error("`{{{{{name}}}}}` is not known: use {known}")]
    Unknown {
        /// What it names.
        name: String,
        /// What it may name.
        known: String,
    },
    /// A `{{` has no `}}`.
    #[error("has a `{{{{` without `}}}}`")]
    Open,
    /// It leaves out what the reader must be told.
    #[error("has no `{{{{{name}}}}}`: {why}")]
    Missing {
        /// What it must name.
        name: &'static str,
        /// Why.
        why: &'static str,
    },
}

/// What templates of one kind may name, and what they must.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// All names.
    pub(crate) names: &'static [&'static str],
    /// Those that may not be left out, each with the reason.
    pub(crate) required: &'static [(&'static str, &'static str)],
}

impl Form {
    /// Fills a template in one pass: what is filled in is not looked at again.
    pub(crate) fn fill(
        &self,
        template: &str,
        value: impl Fn(&str) -> Option<String>,
    ) -> Result<String, TemplateError> {
        let (mut text, mut rest) = (String::with_capacity(template.len()), template);
        let mut used: Vec<&str> = Vec::new();
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, behind) = after.split_once("}}").ok_or(TemplateError::Open)?;
            let name = name.trim();
            used.push(name);
            text.push_str(before);
            let unknown = || TemplateError::Unknown {
                name: name.chars().take(64).collect(),
                known: self.names.join(", "),
            };
            text.push_str(&value(name).ok_or_else(unknown)?);
            rest = behind;
        }
        text.push_str(rest);
        match self.required.iter().find(|(name, _)| !used.contains(name)) {
            Some(&(name, why)) => Err(TemplateError::Missing { name, why }),
            None => Ok(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form =
        Form { names: &["role", "goal", "output"], required: &[("output", "say how to report")] };

    #[test]
    fn what_is_filled_in_is_not_looked_at_again() {
        let value = |name: &str| FORM.names.contains(&name).then(|| "{{goal}}".to_owned());
        let filled = FORM.fill("a {{ role }} b {{output}}", value);
        assert_eq!(filled.unwrap(), "a {{goal}} b {{goal}}");
        let unknown = FORM.fill("{{x}}", value).unwrap_err().to_string();
        assert_eq!(unknown, "`{{x}}` is not known: use role, goal, output");
        assert_eq!(FORM.fill("{{role", value), Err(TemplateError::Open));
        let missing = FORM.fill("{{role}}", value).unwrap_err().to_string();
        assert_eq!(missing, "has no `{{output}}`: say how to report");
    }
}
