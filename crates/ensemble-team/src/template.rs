//! Templates of prompts, which users may replace: text in which `{{name}}` stands for a value.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("`{{{{{name}}}}}` is unknown: use {known}")]
    Unknown { name: String, known: String },
    #[error("has a `{{{{` without `}}}}`")]
    Open,
    #[error("has no `{{{{{name}}}}}`: {why}")]
    Missing { name: &'static str, why: &'static str },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateForm {
    pub(crate) names: &'static [&'static str],
    pub(crate) required: &'static [(&'static str, &'static str)],
}

impl TemplateForm {
    /// Fills a template in one pass: inserted values are not expanded again.
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

    const FORM: TemplateForm = TemplateForm {
        names: &["role", "goal", "output"],
        required: &[("output", "say how to report")],
    };

    #[test]
    fn inserted_values_are_not_expanded() {
        let value = |name: &str| FORM.names.contains(&name).then(|| "{{goal}}".to_owned());
        let filled = FORM.fill("a {{ role }} b {{output}}", value);
        assert_eq!(filled.unwrap(), "a {{goal}} b {{goal}}");
        let unknown = FORM.fill("{{x}}", value).unwrap_err().to_string();
        assert_eq!(unknown, "`{{x}}` is unknown: use role, goal, output");
        assert_eq!(FORM.fill("{{role", value), Err(TemplateError::Open));
        let missing = FORM.fill("{{role}}", value).unwrap_err().to_string();
        assert_eq!(missing, "has no `{{output}}`: say how to report");
    }
}
