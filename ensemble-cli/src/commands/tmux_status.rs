use ensemble_app::failure::Outcome;
use ensemble_app::overview::gather;
use ensemble_app::text::one_line;
use ensemble_project::attention::join_by_cause;
use ensemble_project::overview::{Overview, StateSource};

use crate::context::Context;
use crate::printing::overview::cut;

const TEXT_CHARS_MAX: usize = 40;

/// Print what needs you in a few words, for the status line of tmux
///
/// Nothing is printed while nothing needs you. tmux asks every `status-interval` seconds; a rule of `notify` with
/// `tmux: true` redraws the line at once.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: tmux set -g status-right '#(ensemble --queue ~/project/queue tmux-status)'"
)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let overview = gather(context, StateSource::Watcher)?;
        if context.out.is_json() {
            let object = serde_json::json!({
                "urgent": overview.urgent(), "text": text(&overview), "needs": overview.needs,
            });
            return context.out.object(&object);
        }
        match text(&overview) {
            Some(text) => {
                // tmux takes `#` as the start of a style.
                let text = one_line(&text).replace('#', "##");
                context.out.line(format!("#[fg=red,bold]{text}#[default]"))
            }
            None => Ok(()),
        }
    }
}

fn text(overview: &Overview) -> Option<String> {
    let worst = join_by_cause(&overview.needs).into_iter().find(|need| need.need.is_urgent())?;
    Some(format!("! {} {}", overview.urgent(), cut(&worst.text, TEXT_CHARS_MAX)))
}
