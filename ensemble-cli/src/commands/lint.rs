use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use ensemble_app::diagnostics::say;
use ensemble_app::text::plural;
use ensemble_core::durable::Dir;
use ensemble_reports::lint::{
    FILE_BYTES_MAX, FindingFormat, Language, LintConfig, LintMode, LintedFile, Linter, OwnWord,
    RequiredFact, TextShape, render,
};
use serde_json::Value;

use crate::context::{Context, Failure, Outcome, VerbExit};

/// Check reports for vague wording and missing facts
///
/// Banned words are found in Japanese, English and Chinese; words in quotation marks, in code and in
/// paths are passed over. Reports (`*-completed.yaml`, `*-review.yaml`, `completion-summary.yaml`)
/// must also keep their contract. They must say who, how many, what share and where; a place
/// `path:line` must exist. The lists are in docs/guides/reports.md. A word that must stay is allowed with a
/// reason, in a comment on its line or on the line before:
/// `ensemble-lint: allow some: the ticket's own word`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble admin lint queue/reports/*.yaml
  ensemble admin lint --format sarif docs/*.md > lint.sarif
  git log -1 --format=%B | ensemble admin lint --require who,count -")]
pub(crate) struct Arguments {
    /// Files to check; `-` for stdin
    #[arg(required = true, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Format of the findings
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: LintFormat,
    /// Whether findings fail the run (`refuse`) or not (`warn`)
    #[arg(long, value_name = "MODE", default_value = "refuse")]
    mode: LintStrictness,
    /// What every file has to say, reports or not: who, count, share, where; or `none`
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(["who", "count", "share", "where", "none"]).map(fact))]
    require: Vec<Option<RequiredFact>>,
    /// The languages whose words are banned: ja, en, zh [default: all]
    #[arg(long = "lang", value_name = "LANGUAGE", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(["ja", "en", "zh"]).try_map(language))]
    languages: Vec<Language>,
    /// A further banned word; may be repeated
    #[arg(long = "ban", value_name = "WORD")]
    banned: Vec<String>,
    /// The directory in which `path:line` has to exist [default: the current one]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    root: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LintFormat {
    /// Lines for people
    Text,
    /// A JSON object a line
    Json,
    /// SARIF 2.1.0
    Sarif,
    /// Annotations for GitHub's runners
    Github,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LintStrictness {
    /// Findings are warnings; exit code 0
    Warn,
    /// Findings are errors; exit code 1
    Refuse,
}

/// `None` for the word `none`.
fn fact(word: String) -> Option<RequiredFact> {
    serde_json::from_value(Value::String(word)).ok()
}

fn language(word: String) -> serde_json::Result<Language> {
    serde_json::from_value(Value::String(word))
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let linter = self.linter(&context.project()?.config.lint)?;
        let mut linted = Vec::with_capacity(self.files.len());
        let mut unreadable: Option<Failure> = None;
        for file in &self.files {
            match self.check(&linter, file) {
                Ok(one) => linted.push(one),
                // The others are checked anyway.
                Err(failure) => {
                    if let Some(earlier) = unreadable.replace(failure) {
                        say(&earlier.text());
                    }
                }
            }
        }
        let mode = match self.mode {
            LintStrictness::Warn => LintMode::Warn,
            LintStrictness::Refuse => LintMode::Refuse,
        };
        context.out.content(render(&linted, self.format(context), mode).as_bytes())?;
        // Before what is said about them on stderr.
        context.out.flush()?;
        if let Some(failure) = unreadable {
            return Err(failure);
        }
        let found: usize = linted.iter().map(|one| one.findings.len()).sum();
        match (found, self.mode) {
            (0, _) | (_, LintStrictness::Warn) => Ok(()),
            (found, LintStrictness::Refuse) => {
                let files = linted.iter().filter(|one| !one.findings.is_empty()).count() as u64;
                let found = plural(found as u64, "finding");
                let text = format!("{found} in {}", plural(files, "file"));
                Err(Failure::new(VerbExit::Failed, text).with_hint(
                    "say it exactly, or allow it with a reason: `ensemble-lint: allow WORD: REASON`",
                ))
            }
        }
    }

    fn format(&self, context: &Context) -> FindingFormat {
        match self.format {
            LintFormat::Text if context.out.is_json() => FindingFormat::Json,
            LintFormat::Text => FindingFormat::Text,
            LintFormat::Json => FindingFormat::Json,
            LintFormat::Sarif => FindingFormat::Sarif,
            LintFormat::Github => FindingFormat::Github,
        }
    }

    fn linter(&self, config: &LintConfig) -> Outcome<Linter> {
        let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        let mut options = config.options(Some(self.root.clone().unwrap_or_else(here)));
        if !self.languages.is_empty() {
            options.languages = self.languages.clone();
        }
        for word in &self.banned {
            if word.trim().is_empty() {
                return Err(Failure::usage("`--ban` needs a word"));
            }
            options.words.push(OwnWord { word: word.clone(), instead: None, language: None });
        }
        if self.require.contains(&None) && self.require.len() > 1 {
            return Err(Failure::usage("`--require none` excludes the others"));
        }
        if !self.require.is_empty() {
            options.require = self.require.iter().copied().flatten().collect();
        }
        Ok(Linter::new(&options))
    }

    fn check(&self, linter: &Linter, file: &Path) -> Outcome<LintedFile> {
        if file == Path::new("-") {
            let fail = |e: io::Error| Failure::refused(format!("cannot read stdin: {e}"));
            let mut content = Vec::new();
            let limit = FILE_BYTES_MAX as u64 + 1;
            ensemble_app::content::check_stdin()?;
            io::stdin().lock().take(limit).read_to_end(&mut content).map_err(fail)?;
            return Ok(linter.file(file, &content, self.shape(file)));
        }
        Ok(linter.file(file, &read(file)?, self.shape(file)))
    }

    fn shape(&self, file: &Path) -> TextShape {
        match TextShape::of(file) {
            TextShape::Text if !self.require.is_empty() => TextShape::ReportText,
            shape => shape,
        }
    }
}

/// A file's content, never waiting for a pipe, and at most one byte more than is checked.
fn read(file: &Path) -> Outcome<Vec<u8>> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let absent = || Failure::refused(format!("there is no file {}", file.display()));
    let name = file.file_name().and_then(|name| name.to_str()).ok_or_else(absent)?;
    // A link given as an argument is followed, as by any other program.
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let (dir, name) = match (real.parent(), real.file_name().and_then(|name| name.to_str())) {
        (Some(dir), Some(name)) if !dir.as_os_str().is_empty() => (dir.to_owned(), name.to_owned()),
        _ => (parent.unwrap_or_else(|| Path::new(".")).to_owned(), name.to_owned()),
    };
    Dir::open(&dir)?.read(&name, FILE_BYTES_MAX)?.ok_or_else(absent)
}
