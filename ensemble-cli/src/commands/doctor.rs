pub(super) mod agents;
mod machine;
mod place;
mod queue;
mod servers;
mod trust;

use ensemble_app::door_hints::name_queue;
use ensemble_app::overview::gather;
use ensemble_app::text::{one_line, plural, wrapped};
use ensemble_project::attention::join_by_cause;
use ensemble_project::overview::{Overview, StateSource};
use serde::Serialize;

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{BAD, GOOD, WARNING};
use crate::printing::overview::columns;

/// Check the environment and say what to do about it
///
/// Looks at the machine, at agents' programs and their hooks, at the queue's place, at git, at the watcher, and at
/// what needs you. Exit code 0 if everything works, 5 if tmux is missing, 1 if something else fails. Warnings are
/// about what works worse than it could.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let project = context.project()?;
        let mut checks = vec![machine::tmux(), machine::clock()];
        checks.extend(machine::multiplexers());
        checks.extend(machine::inotify_limits());
        checks.extend(agents::programs(context));
        checks.extend(agents::configured(context));
        let opened = queue::opens(context);
        let is_open = opened.level == CheckLevel::Ok;
        checks.push(opened);
        if is_open {
            checks.extend(place::network(&project.queue));
            checks.push(place::drop_boxes(project));
            checks.extend(place::git(project));
            checks.extend(queue::checks(project));
            let overview = gather(context, StateSource::Watcher);
            // A look at the blackboard of a mistyped team would create it.
            let is_away = overview.as_ref().is_ok_and(|overview| overview.away.is_some());
            checks.push(needs(overview));
            if !is_away {
                checks.extend(place::merges(context));
            }
            checks.extend(servers::check_steps(context)?);
            // Where the mail is on servers, whether they answer comes first.
            checks.splice(..0, servers::checks(context)?);
        }
        for check in &checks {
            if context.out.is_json() { context.out.object(check)? } else { print(context, check)? }
        }
        conclude(context, &checks)
    }
}

fn needs(gathered: Outcome<Overview>) -> DoctorCheck {
    match gathered {
        Ok(overview) if overview.needs.is_empty() => DoctorCheck::ok("needs you", "nothing"),
        Ok(overview) => {
            let count = plural(join_by_cause(&overview.needs).len() as u64, "thing");
            DoctorCheck::warn("needs you", count, "`ensemble status` says what, and what to do")
        }
        Err(failure) => DoctorCheck::warn("needs you", failure.text(), "`ensemble status`"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckLevel {
    Ok,
    Warn,
    Fail,
    /// A needed program is not there.
    Missing,
}

#[derive(Debug, Serialize)]
struct DoctorCheck {
    check: &'static str,
    level: CheckLevel,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl DoctorCheck {
    fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: CheckLevel::Ok, text: text.into(), remedy: None }
    }

    fn warn(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: CheckLevel::Warn, remedy: Some(remedy.into()), ..Self::ok(check, text) }
    }

    fn fail(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: CheckLevel::Fail, ..Self::warn(check, text, remedy) }
    }
}

fn print(context: &Context, check: &DoctorCheck) -> Outcome {
    let (word, style) = match check.level {
        CheckLevel::Ok => ("ok  ", GOOD),
        CheckLevel::Warn => ("warn", WARNING),
        CheckLevel::Fail | CheckLevel::Missing => ("fail", BAD),
    };
    let out = &context.out;
    out.line(format!("{}  {:<12} {}", out.paint(style, word), check.check, one_line(&check.text)))?;
    let named = check.remedy.iter().map(|it| name_queue(it, context.queue_flag()));
    let remedy = named.map(|it| format!("{:19}-> {}", "", one_line(&it)));
    let width = columns(out).unwrap_or(usize::MAX);
    remedy.flat_map(|line| wrapped(&line, width, 22)).try_for_each(|line| out.line(line))
}

fn conclude(context: &Context, checks: &[DoctorCheck]) -> Outcome {
    let count =
        |level: CheckLevel| checks.iter().filter(|check| check.level == level).count() as u64;
    let (failed, missing) = (count(CheckLevel::Fail), count(CheckLevel::Missing));
    context.out.flush()?;
    let failure =
        |exit| Failure::new(exit, format!("{} failed", plural(failed + missing, "check")));
    match (missing, failed) {
        (0, 0) => Ok(()),
        (0, _) => Err(failure(VerbExit::Failed)),
        _ => Err(failure(VerbExit::MissingProgram)),
    }
}
