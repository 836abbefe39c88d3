use ensemble_app::drop::{LintChecks, OnFindings};

/// Options for the lint of a written file.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckFlags {
    /// How to handle lint findings
    #[arg(long, value_name = "MODE", default_value = "refuse")]
    lint: OnFindings,
    /// A rule or a word that is allowed, with the reason; may be repeated
    #[arg(long = "allow", value_name = "RULE=REASON", value_parser = allowance)]
    allowed: Vec<(String, String)>,
}

impl From<&CheckFlags> for LintChecks {
    fn from(flags: &CheckFlags) -> Self {
        Self { on_findings: flags.lint, allowed: flags.allowed.clone() }
    }
}

fn allowance(text: &str) -> Result<(String, String), String> {
    let (what, why) = text.split_once('=').ok_or("write it as RULE=REASON")?;
    let is_plain = |text: &str| !text.trim().is_empty() && !text.contains(char::is_control);
    match is_plain(what) && is_plain(why) && !what.contains(':') {
        true => Ok((what.trim().to_owned(), why.trim().to_owned())),
        false => Err("write it as RULE=REASON, in one line".to_owned()),
    }
}
