//! The prompt's form, which a queue may replace.

/// The seed's form.
pub const TEMPLATE: &str = "\
ROLE: {{role}}
GOAL: {{goal}}
CONTEXT FILES:
{{context_files}}

INSTRUCTIONS:
{{instructions}}

CONSTRAINTS:
{{constraints}}

OUTPUT REQUIREMENT:
{{output_requirement}}
";

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It names something that a step does not have.
    #[error(
        "`{{{{{name}}}}}` is not known: use role, goal, context_files, instructions, constraints, output_requirement, task_id, step_index, attempt or attempts_max"
    )]
    Unknown {
        /// What it names.
        name: String,
    },
    /// A `{{` has no `}}`.
    #[error("has a `{{{{` without `}}}}`")]
    Open,
    /// It does not say how to report.
    #[error("has no `{{{{output_requirement}}}}`: a worker must be told how to report")]
    NoRequirement,
}

/// Fills a template in one pass: what is filled in is not looked at again.
pub(super) fn fill(
    template: &str,
    value: impl Fn(&str) -> Option<String>,
) -> Result<String, TemplateError> {
    let (mut text, mut rest) = (String::with_capacity(template.len()), template);
    let mut told = false;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after.split_once("}}").ok_or(TemplateError::Open)?;
        let name = name.trim();
        told |= name == "output_requirement";
        text.push_str(before);
        let unknown = || TemplateError::Unknown { name: name.chars().take(64).collect() };
        text.push_str(&value(name).ok_or_else(unknown)?);
        rest = behind;
    }
    text.push_str(rest);
    if told { Ok(text) } else { Err(TemplateError::NoRequirement) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_not_looked_at_again() {
        let value = |name: &str| (name != "x").then(|| "{{goal}}".to_owned());
        let filled = fill("a {{ role }} b {{output_requirement}}", value);
        assert_eq!(filled.unwrap(), "a {{goal}} b {{goal}}");
        let unknown = fill("{{x}}", value).unwrap_err().to_string();
        assert!(unknown.starts_with("`{{x}}` is not known"), "{unknown}");
        assert_eq!(fill("{{role", value), Err(TemplateError::Open));
        assert_eq!(fill("{{role}}", value), Err(TemplateError::NoRequirement));
    }
}
