use std::time::Duration;

use anstyle::Style;
use ensemble_app::ids;
use ensemble_app::mail::conversation::{ensure_person, list_unfinished};
use ensemble_app::mail::message_view::MessageView;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::{elapsed, plural};
use ensemble_core::Error;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Found, State};
use ensemble_project::overview::COUNT_MAX;
use ensemble_project::short_ids::ShortIds;

use crate::completion;
use crate::context::{Context, Outcome};
use crate::output::{BAD, FAINT, WARNING};
use crate::printing::overview::counted;

const WORDS_MAX: usize = 40;
const THREAD_MAX: usize = 5;

/// Show what waits in a mailbox and what is held
///
/// Nothing is received by looking. Above an answer is what it answers.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Mailbox to show [default: your own; without an agent's name that of the person]
    #[arg(add = completion::mailboxes())]
    name: Option<Name>,
    /// How many messages to show at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = ProjectQueue::open(context)?;
        // Looking takes nothing, so that a name is not checked.
        let named = self.name.or_else(|| context.agent_flag().cloned());
        let name = match named {
            Some(name) => context.project()?.mailbox_of(&name),
            None => context.own_mailbox()?,
        };
        if context.project()?.is_person(&name) {
            ensure_person(&*queue, &name)?;
        }
        show(context, &queue, &name, self.limit)
    }
}

fn show(context: &Context, queue: &ProjectQueue, mailbox: &Name, limit: usize) -> Outcome {
    let mut found = list_unfinished(context, queue, mailbox, limit.saturating_add(1))?;
    let is_cut = found.len() > limit;
    found.truncate(limit);
    let short = match found.is_empty() || context.out.is_json() {
        true => ShortIds::default(),
        false => ids::short_ids(queue)?,
    };
    let mut rows = Vec::with_capacity(found.len());
    for found in &found {
        let envelope = match queue.peek(&found.mailbox, &found.id) {
            // It was received or moved since it was listed.
            Err(Error::NoMessage { .. }) => continue,
            other => other,
        };
        if context.out.is_json() {
            context.out.object(&MessageView::listed(found, envelope).to_json())?;
        } else {
            let asked = envelope.as_ref().map_or_else(|_| Vec::new(), |it| asked_before(queue, it));
            rows.extend(asked);
            rows.push((style(&found.state, envelope.is_err()), as_row(found, &short, envelope)));
        }
    }
    if context.out.is_json() {
        return Ok(());
    }
    let waiting = queue.waiting(mailbox, COUNT_MAX)?;
    if !rows.is_empty() {
        context.out.styled_table(&["id", "state", "from", "type", "task", "age", "text"], rows)?;
    } else if waiting == 0 {
        context.out.line(format!("mailbox {mailbox} is empty"))?;
    }
    if is_cut {
        context.out.line(format!("… {} wait: `--limit N` shows more", counted(waiting)))?;
    }
    if let Some(overflow) = queue.directory().map_or(Ok(None), |spool| spool.overflow(mailbox))? {
        let refused = plural(overflow.refused, "message");
        let note = format!(
            "full: {refused} refused, the last at {} from {}",
            overflow.last_at, overflow.last_from
        );
        context.out.line(context.out.paint(WARNING, note))?;
    }
    Ok(())
}

fn asked_before(queue: &ProjectQueue, envelope: &Envelope) -> Vec<(Style, Vec<String>)> {
    let (mut rows, mut answer) = (Vec::new(), envelope.clone());
    while rows.len() < THREAD_MAX
        && let Some(id) = answer.causation_id.as_deref().and_then(|id| id.parse().ok())
        // It was in the mailbox of the agent that has answered it.
        && let Ok(asked) = queue.peek(&queue.mailbox_of(&answer.from), &id)
    {
        let mut row = vec![String::new(), "before".to_owned()];
        row.extend(about(&asked));
        rows.push((FAINT, row));
        answer = asked;
    }
    rows.reverse();
    rows
}

fn about(envelope: &Envelope) -> [String; 5] {
    [
        envelope.sender_address(),
        envelope.kind.to_string(),
        envelope.task_id.clone().unwrap_or_else(|| "-".to_owned()),
        elapsed(SystemClock.wall().since(envelope.created_at)),
        envelope.first_words(WORDS_MAX),
    ]
}

fn as_row(found: &Found, short: &ShortIds, envelope: Result<Envelope, Error>) -> Vec<String> {
    let id = short.shorten(found.id.as_str()).to_owned();
    let mut row = vec![id, state_text(&found.state)];
    match envelope {
        Ok(envelope) => row.extend(about(&envelope)),
        Err(error) => row.push(error.to_string()),
    }
    row
}

const fn style(state: &State, is_broken: bool) -> Style {
    match state {
        _ if is_broken => BAD,
        State::Dead => BAD,
        State::Queued { epoch: 1.., .. } => WARNING,
        _ => Style::new(),
    }
}

fn state_text(state: &State) -> String {
    let now = u64::try_from(SystemClock.wall().unix_millis()).unwrap_or(0);
    match state {
        State::Acked { holder, .. } => format!("held by {holder}"),
        State::Queued { not_before, .. } if *not_before > now => {
            format!("due in {}", elapsed(Duration::from_millis(not_before - now)))
        }
        State::Queued { epoch: 0, .. } => "waits".to_owned(),
        State::Queued { epoch, .. } => format!("waits, delivery {}", epoch + 1),
        other => other.word().to_owned(),
    }
}
