//! Writing a report, a review or a summary into the drop box, after it was linted.

use ensemble_core::document::{DocumentOptions, LockedDocument};
use ensemble_core::spool::LOCK_PATIENCE;
use ensemble_project::Project;
use ensemble_reports::contract::{self, Contract};
use ensemble_reports::lint::{LintFinding, Linter, TextShape};

use crate::exit_code::VerbExit;
use crate::failure::{Failure, Outcome};

/// The treatment of lint findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnFindings {
    /// Refuse to write the file
    Refuse,
    /// Write the file, and print the findings
    Warn,
    /// Do not check the file
    Off,
}

#[derive(Debug)]
pub struct LintChecks {
    pub on_findings: OnFindings,
    /// Each rule or word that is allowed, with the reason.
    pub allowed: Vec<(String, String)>,
}

impl LintChecks {
    /// Nothing vague is written, and nothing is allowed.
    pub const STRICT: Self = Self { on_findings: OnFindings::Refuse, allowed: Vec::new() };
}

/// Lints a document as it would be in its file. Each finding is one line with a suggestion. Findings are refused, or
/// only printed as warnings if `checks` says so.
pub fn lint<T: Contract>(
    project: &Project,
    document: &T,
    file: &str,
    checks: &LintChecks,
) -> Outcome<String> {
    let text = with_allowed(&contract::write(document), &checks.allowed);
    let on_findings = checks.on_findings;
    if on_findings == OnFindings::Off {
        return Ok(text);
    }
    let root = project.queue.parent().map(std::path::Path::to_owned);
    let linter = Linter::new(&project.config.lint.options(root));
    let shape = TextShape::Fields(Some(T::KIND));
    let findings = linter.file(file.as_ref(), text.as_bytes(), shape).findings;
    let line = |finding: &LintFinding| format!("{finding} [{}]", finding.rule);
    let lines: Vec<String> = findings.iter().map(line).collect();
    match (findings.is_empty(), on_findings) {
        (true, _) => Ok(text),
        (false, OnFindings::Warn | OnFindings::Off) => {
            lines.iter().for_each(|line| crate::diagnostics::say(&format!("warning: {line}")));
            Ok(text)
        }
        (false, OnFindings::Refuse) => {
            let noun = T::KIND.as_str();
            let what = format!("the {noun} is not written: it is vague or incomplete");
            let hint = "say it exactly; or, with a reason, `--allow RULE=REASON`; or `--lint warn`";
            let told = lines.join("\n  ");
            Err(Failure::new(VerbExit::Failed, format!("{what}\n  {told}")).with_hint(hint))
        }
    }
}

/// Puts a document into `reports/`, by a rename; the name below the queue.
pub fn land(project: &Project, file: &str, text: &str) -> Outcome<String> {
    let options = DocumentOptions {
        tmp: Some(project.queue.join("tmp")),
        durability: project.config.durability.unwrap_or_default(),
        ..DocumentOptions::default()
    };
    let path = project.queue.join("reports").join(file);
    let document = LockedDocument::lock_with(path, LOCK_PATIENCE, options)?;
    document.replace(text.as_bytes())?;
    Ok(format!("reports/{file}"))
}

/// Suppressions from the command line, as comments before the document: `RULE=REASON`.
fn with_allowed(text: &str, allowed: &[(String, String)]) -> String {
    let comment =
        |(what, why): &(String, String)| format!("# ensemble-lint: allow-file {what}: {why}\n");
    allowed.iter().map(comment).chain([text.to_owned()]).collect()
}
