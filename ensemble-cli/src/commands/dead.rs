use ensemble_app::diagnostics::say;
use ensemble_app::ids;
use ensemble_app::mail::message_view::MessageView;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::{one_line, plural, with_members};
use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::{DeadLetter, State};
use ensemble_project::panes::read_all;
use ensemble_project::short_ids::ShortIds;
use serde_json::json;

use crate::completion;
use crate::context::{Context, Failure, Outcome};
use crate::output::STRONG;
use crate::printing::print_content;

/// List dead letters, retry them or drop them
///
/// A message dies when it was delivered too often, has expired or cannot be read.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List dead letters with their reasons, oldest first
    List {
        /// Only those of this mailbox
        #[arg(value_name = "MAILBOX", add = completion::mailboxes())]
        mailbox: Option<Name>,
    },
    /// Show a dead letter: why it died, and what it says
    Show {
        /// The message's id, or a unique beginning of it
        #[arg(add = completion::dead_letters())]
        id: MessageId,
        /// Its mailbox, if the id alone is ambiguous
        #[arg(long, value_name = "NAME", add = completion::mailboxes())]
        mailbox: Option<Name>,
    },
    /// Return a dead letter to its mailbox, with its attempts counted from 0 again
    Retry(DeadLetterChoice),
    /// Remove a dead letter for good
    Drop {
        #[command(flatten)]
        which: DeadLetterChoice,
        /// Really all of them
        #[arg(long)]
        yes: bool,
    },
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::List { mailbox } => list(context, mailbox.as_ref()),
            Verb::Show { id, mailbox } => show(context, &id, mailbox.as_ref()),
            Verb::Retry(which) => retry(context, &which),
            Verb::Drop { which, yes } => drop_letters(context, &which, yes),
        }
    }
}

fn list(context: &Context, mailbox: Option<&Name>) -> Outcome {
    let places = DeadLetterPlaces::open(context)?;
    let letters = places.letters(mailbox)?;
    if context.out.is_json() {
        return letters
            .iter()
            .try_for_each(|(place, letter)| context.out.object(&described(place.word, letter)));
    }
    if letters.is_empty() {
        return context.out.line("no dead letters");
    }
    let short: ShortIds = places.letters(None)?.into_iter().map(|(_, letter)| letter.id).collect();
    let row = |(place, letter): &(&DeadLetterPlace, DeadLetter)| {
        let id = short.shorten(letter.id.as_str()).to_owned();
        let at = letter.at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let reason = match place.word {
            OUTBOX | DIRECTORY if places.0.len() > 1 => {
                format!("{} ({} of this host)", letter.reason, place.word)
            }
            _ => letter.reason.clone(),
        };
        vec![id, letter.mailbox.to_string(), at, reason]
    };
    context.out.table(&["id", "mailbox", "since", "reason"], letters.iter().map(row).collect())
}

fn show(context: &Context, id: &MessageId, mailbox: Option<&Name>) -> Outcome {
    let places = DeadLetterPlaces::open(context)?;
    let (place, letter) = places.one(id, mailbox)?;
    let (queue, place) = (&place.queue, place.word);
    let envelope = match queue.peek(&letter.mailbox, &letter.id) {
        Ok(envelope) => Ok(envelope),
        // Why it cannot be read is what makes it interesting.
        Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })) => Err(error),
        Err(error) => return Err(error.into()),
    };
    if context.out.is_json() {
        let object = described(place, &letter);
        let view = match envelope {
            Ok(it) => {
                let place = (&letter.mailbox, Some(State::Dead));
                MessageView::read(context, queue, place, &it)?.to_json()
            }
            Err(error) => json!({ "state": "dead", "error": error.to_string() }),
        };
        return context.out.object(&with_members(object, &view));
    }
    let out = &context.out;
    out.line(format!("id       {}", out.paint(STRONG, &letter.id)))?;
    out.line(format!("mailbox  {}", letter.mailbox))?;
    out.line(format!("reason   {}", one_line(&letter.reason)))?;
    if let Some(at) = letter.at {
        out.line(format!("since    {at}"))?;
    }
    if let Some(holder) = &letter.holder {
        out.line(format!("holder   {holder}, delivery {}", letter.epoch))?;
    }
    match envelope {
        Ok(envelope) => {
            out.line(format!("from     {}", envelope.sender_address()))?;
            out.line(format!("type     {}", envelope.kind))?;
            print_content(out, &envelope)
        }
        Err(error) => out.line(format!("error    {}", one_line(&error.to_string()))),
    }
}

// Which dead letters are meant; the help is that of the verbs.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("letters").required(true).multiple(true).args(["id", "all"]))]
struct DeadLetterChoice {
    /// The message's id, or a unique beginning of it
    #[arg(add = completion::dead_letters())]
    id: Option<MessageId>,
    /// All of them, of one mailbox if `--mailbox` names it
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Their mailbox
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    mailbox: Option<Name>,
}

impl DeadLetterChoice {
    fn letters<'p>(
        &self,
        places: &'p DeadLetterPlaces,
    ) -> Outcome<Vec<(&'p DeadLetterPlace, DeadLetter)>> {
        match &self.id {
            Some(id) => Ok(vec![places.one(id, self.mailbox.as_ref())?]),
            None => places.letters(self.mailbox.as_ref()),
        }
    }

    fn each(
        &self,
        context: &Context,
        (done, state): (impl Fn(&str, &str) -> String, &str),
        act: impl Fn(&dyn Broker, &DeadLetter) -> ensemble_core::Result<()>,
    ) -> Outcome {
        let places = DeadLetterPlaces::open(context)?;
        let (mut changed, mut left) = (Vec::new(), 0);
        for (place, letter) in self.letters(&places)? {
            match act(&*place.queue, &letter) {
                Ok(()) => {}
                // The others do not depend on it.
                Err(error) if self.all && !error.is_server_away() => {
                    say(&format!("warning: {} in {}: {error}", letter.id, letter.mailbox));
                    left += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if context.out.is_json() {
                let now = json!({ "id": letter.id, "mailbox": letter.mailbox, "state": state });
                context.out.object(&now)?;
            }
            changed.push(letter);
        }
        if !context.out.is_json() {
            context.out.line(match &changed[..] {
                [letter] => done(letter.id.as_str(), letter.mailbox.as_str()),
                [] if left == 0 => "no dead letters".to_owned(),
                all => done(&plural(all.len() as u64, "dead letter"), "their mailboxes"),
            })?;
        }
        match left {
            0 => Ok(()),
            _ => Err(Failure::refused(plural(left, "dead letter") + " left as before")),
        }
    }
}

fn retry(context: &Context, which: &DeadLetterChoice) -> Outcome {
    let done = |what: &str, mailbox: &str| {
        let unread = if is_unread(context, mailbox) { "; no running agent reads it" } else { "" };
        format!("returned {what} to {mailbox}{unread}")
    };
    which
        .each(context, (done, "queued"), |queue, letter| queue.redrive(&letter.mailbox, &letter.id))
}

fn is_unread(context: &Context, mailbox: &str) -> bool {
    let (Ok(mailbox), Ok(project)) = (Name::new(mailbox), context.project()) else { return false };
    let members = project.roster().entries().map(|(members, _)| members).unwrap_or_default();
    let panes = read_all(&project.panes()).map(|(panes, _)| panes).unwrap_or_default();
    let is_read = members.iter().any(|it| it.is_present() && it.mailbox == mailbox)
        || panes.iter().any(|pane| pane.mailbox == mailbox);
    !is_read
}

fn drop_letters(context: &Context, which: &DeadLetterChoice, yes: bool) -> Outcome {
    if which.all && !yes {
        let text = "dropping all dead letters cannot be undone: nothing was removed";
        return Err(Failure::refused(text).with_hint("`--yes` does it"));
    }
    let done = |what: &str, _: &str| format!("dropped {what}");
    which.each(context, (done, "dropped"), |queue, letter| {
        queue.drop_dead(&letter.mailbox, &letter.id)
    })
}

const OUTBOX: &str = "outbox";
const DIRECTORY: &str = "directory";
const SERVERS: &str = "servers";

struct DeadLetterPlace {
    word: &'static str,
    queue: ProjectQueue,
}

/// All places with dead letters: the queue, and beside servers the outbox and the directory of this host.
struct DeadLetterPlaces(Vec<DeadLetterPlace>);

impl DeadLetterPlaces {
    fn open(context: &Context) -> Outcome<Self> {
        let queue = ProjectQueue::open(context)?;
        if queue.directory().is_some() {
            return Ok(Self(vec![DeadLetterPlace { word: DIRECTORY, queue }]));
        }
        let mut places = vec![DeadLetterPlace { word: SERVERS, queue }];
        let outbox = ProjectQueue::in_directory(context.project()?.open_outbox()?.into_spool());
        places.push(DeadLetterPlace { word: OUTBOX, queue: outbox });
        if let Ok(spool) = context.spool() {
            let queue = ProjectQueue::in_directory(spool);
            places.push(DeadLetterPlace { word: DIRECTORY, queue });
        }
        Ok(Self(places))
    }

    fn letters(&self, mailbox: Option<&Name>) -> Outcome<Vec<(&DeadLetterPlace, DeadLetter)>> {
        let (mut all, mut unknown, mut is_known) = (Vec::new(), None, false);
        for place in &self.0 {
            let mailboxes = match mailbox {
                Some(mailbox) => vec![mailbox.clone()],
                None => {
                    place.queue.overlook()?;
                    place.queue.mailboxes()?
                }
            };
            for name in mailboxes {
                match place.queue.dead_letters(&name) {
                    Ok(letters) => {
                        is_known = true;
                        all.extend(letters.into_iter().map(|letter| (place, letter)));
                    }
                    Err(error @ Error::NoMailbox { .. }) => drop(unknown.get_or_insert(error)),
                    // The others are listed.
                    Err(error) if mailbox.is_none() && !error.is_server_away() => {
                        say(&format!("warning: mailbox {name}: {error}"));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        match unknown {
            Some(error) if !is_known => Err(error.into()),
            _ => Ok(all),
        }
    }

    /// The dead letter with this id, or the only one whose id begins so.
    fn one(
        &self,
        id: &MessageId,
        mailbox: Option<&Name>,
    ) -> Outcome<(&DeadLetterPlace, DeadLetter)> {
        let mut holding = self.letters(mailbox)?;
        let all: Vec<String> = holding.iter().map(|(_, letter)| letter.id.to_string()).collect();
        let unique = match all.iter().any(|whole| whole == id.as_str()) {
            true => None,
            false => ids::unique(id.as_str(), all.into_iter())?,
        };
        let id = unique.unwrap_or_else(|| id.to_string());
        holding.retain(|(_, letter)| letter.id.as_str() == id);
        if let [(first, _), (second, _), ..] = &holding[..]
            && first.word == second.word
        {
            let mailboxes = holding.into_iter().map(|(_, letter)| letter.mailbox.into()).collect();
            return Err(Error::Ambiguous { id, mailboxes }.into());
        }
        let place = "among the dead letters".to_owned();
        holding.into_iter().next().ok_or_else(|| Error::NoMessage { id, place }.into())
    }
}

fn described(place: &str, letter: &DeadLetter) -> serde_json::Value {
    json!({
        "id": letter.id,
        "mailbox": letter.mailbox,
        "reason": letter.reason,
        "at": letter.at,
        "holder": letter.holder,
        "epoch": letter.epoch,
        "place": place,
    })
}
