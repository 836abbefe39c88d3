use ensemble_project::AlertRule;
use ensemble_watch::alerts;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};
use crate::output::{BAD, GOOD};

/// Try the alerts that `notify` in ensemble.yaml configures
///
/// The watcher sends an alert when an agent is blocked or gone, a plan waits, a task is a dead letter, or work has
/// ended. It goes to a command, to terminals, or to the status line of tmux. `docs/guides/attention.md` has the rules.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble admin notify test")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Send a test alert by each rule now, at any hour, and print the outcome
    Test,
}

const EXAMPLE: &str = "add `notify: [{terminal: bell, tmux: true}]` to ensemble.yaml";

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let Verb::Test = self.verb;
        let project = context.project()?;
        let rules = &project.config.notify;
        if rules.is_empty() {
            return Err(
                Failure::nothing("no rule says how a person is notified").with_hint(EXAMPLE)
            );
        }
        let mut failed = 0;
        for (number, rule) in (1..).zip(rules) {
            let outcome = alerts::test(project, rule);
            failed += u32::from(outcome.is_err());
            print(context, number, rule, &outcome)?;
        }
        match failed {
            0 => Ok(()),
            count => Err(Failure::refused(format!("{count} of {} rules failed", rules.len()))),
        }
    }
}

fn print(
    context: &Context,
    number: u32,
    rule: &AlertRule,
    outcome: &Result<usize, String>,
) -> Outcome {
    let object = json!({
        "rule": number, "channels": channels(rule), "sent": outcome.is_ok(),
        "reached": outcome.as_ref().ok(), "error": outcome.as_ref().err(),
    });
    let said = match outcome {
        Ok(1) => context.out.paint(GOOD, "sent"),
        Ok(terminals) => context.out.paint(GOOD, format!("sent to {terminals} terminals")),
        Err(error) => context.out.paint(BAD, error.clone()),
    };
    let line = format!("rule {number} ({}): {said}", channels(rule).join(", "));
    context.out.print_answer(&object, line)
}

fn channels(rule: &AlertRule) -> Vec<&'static str> {
    let ways = [
        (rule.command.is_some(), "command"),
        (rule.terminal.is_some(), "terminal"),
        (rule.tmux, "tmux"),
    ];
    ways.into_iter().filter_map(|(is_used, way)| is_used.then_some(way)).collect()
}
