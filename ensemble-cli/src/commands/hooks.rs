//! `ensemble admin hooks`: hooks for agents that a person starts.

use std::path::{Path, PathBuf};

use ensemble_core::durable::read_chosen_file;
use ensemble_tmux::provider::{COMMAND, HookConfig, PROGRAM, file_text, filled};
use serde_json::{Map, Value, json};

use crate::config_edit::{Edit, Guest};
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::hooks::{Program, install};
use crate::own_program::own_program;

/// The largest settings file of an agent that is read, in bytes.
const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Install hooks for agents that you start yourself
///
/// `up` and `spawn` need none of this: they pass hooks to the agents that they start.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Install(Install),
    Uninstall(Uninstall),
}

/// Put hooks into an agent's configuration
///
/// Hooks of others stay, and run as well; `uninstall` restores the file byte for byte. The program then runs
/// `ensemble hook` in every project. Outside of a project, and for programs that are no agents, it says nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble admin hooks install --provider claude
  ensemble admin hooks install --provider codex --user")]
struct Install {
    #[command(flatten)]
    which: Which,
    /// Print the hooks instead
    #[arg(long)]
    print: bool,
}

/// Take our hooks out of an agent's configuration again
#[derive(Debug, clap::Args)]
struct Uninstall {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Program whose configuration to change
    #[arg(long, value_name = "PROVIDER")]
    provider: Program,
    /// The configuration of this user, for all projects
    #[arg(long, conflicts_with = "project")]
    user: bool,
    /// The configuration of this project (default)
    #[arg(long)]
    project: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Install(install) => install.run(context),
            Verb::Uninstall(uninstall) => uninstall.run(context),
        }
    }
}

impl Install {
    fn run(self, context: &Context) -> Outcome {
        let project = context.project()?;
        let profile = project.profiles()?.get(self.which.provider.word())?;
        let parts = self.which.parts(context, profile.hooks())?;
        if self.print {
            let text: String = parts.iter().map(Part::printed).collect();
            return context.out.content(text.as_bytes());
        }
        project.ensure_state()?;
        let mut is_any_changed = false;
        for part in &parts {
            part.remove_older()?;
            let is_changed = part.guest.put_in(&part.file, |text| part.content.put_into(text))?;
            is_any_changed |= is_changed;
            let file = part.file.display();
            self.which.say(
                context,
                &part.file,
                is_changed,
                &match is_changed {
                    true => format!("added hooks to {file}"),
                    false => format!("the hooks are in {file} already"),
                },
            )?;
        }
        if is_any_changed && profile.hooks().asks_trust && !context.out.is_json() {
            let program = self.which.provider.word();
            context.out.line(format!("{program} asks at its next start whether you trust them"))?;
        }
        Ok(())
    }
}

impl Uninstall {
    fn run(self, context: &Context) -> Outcome {
        let profile = context.project()?.profiles()?.get(self.which.provider.word())?;
        // What refers to a file of ours goes before it.
        for part in self.which.parts(context, profile.hooks())?.iter().rev() {
            let (file, is_changed) = part.guest.take_out()?;
            let text = match is_changed {
                true => format!("{} is as it was without the hooks", file.display()),
                false => format!("the hooks were not in {} any more", file.display()),
            };
            self.which.say(context, &file, is_changed, &text)?;
        }
        Ok(())
    }
}

/// The configurations (`project`, `user`) that have our hooks for a program.
pub(crate) fn hooks_in_place(context: &Context, program: Program) -> Vec<&'static str> {
    let has = |user: bool| -> Outcome<bool> {
        let which = Which { provider: program, user, project: !user };
        let profile = context.project()?.profiles()?.get(program.word())?;
        Ok(which.parts(context, profile.hooks())?.iter().all(Part::is_in_place))
    };
    let places = [("project", false), ("user", true)].into_iter();
    places.filter(|(_, user)| has(*user).unwrap_or(false)).map(|(place, _)| place).collect()
}

/// One file that is changed.
struct Part {
    file: PathBuf,
    guest: Guest,
    content: Content,
}

/// What is put into a file.
enum Content {
    /// The hooks of all events.
    Events(Map<String, Value>),
    /// A file of ours.
    Whole(String),
    /// An entry of a list of this name.
    Entry(String, String),
}

impl Part {
    /// Takes out our own file of another version: it is none of the user's that would have to be restored.
    fn remove_older(&self) -> Outcome {
        let Content::Whole(ours) = &self.content else { return Ok(()) };
        let is_older = self.text().is_some_and(|text| text != *ours && install::is_ours(&text));
        match is_older {
            true => self.guest.take_out().map(drop),
            false => Ok(()),
        }
    }

    fn is_in_place(&self) -> bool {
        self.text().is_some_and(|text| matches!(self.content.put_into(&text), Ok(None)))
    }

    /// The file as it is; `None` if it cannot be read.
    fn text(&self) -> Option<String> {
        String::from_utf8(read_chosen_file(&self.file, FILE_BYTES_MAX).ok()??).ok()
    }

    fn printed(&self) -> String {
        match &self.content {
            Content::Events(events) => format!("{:#}\n", json!({ "hooks": events })),
            Content::Whole(text) => format!("// {}\n{text}", self.file.display()),
            Content::Entry(list, entry) => {
                format!("// {}\n{:#}\n", self.file.display(), json!({ list: [entry] }))
            }
        }
    }
}

impl Content {
    fn put_into(&self, text: &str) -> Result<Option<Edit>, String> {
        match self {
            Self::Events(events) => install::with_hooks(text, events),
            Self::Whole(whole) => install::whole(text, whole),
            Self::Entry(list, entry) => install::with_entry(text, list, entry),
        }
    }
}

impl Which {
    /// The name of the note of what was done.
    fn note(&self) -> String {
        format!("{}-{}", self.provider.word(), if self.user { "user" } else { "project" })
    }

    fn object(&self, file: &Path, is_changed: bool) -> Value {
        json!({ "provider": self.provider.word(), "file": file, "changed": is_changed })
    }

    fn say(&self, context: &Context, file: &Path, is_changed: bool, text: &str) -> Outcome {
        match context.out.is_json() {
            true => context.out.object(&self.object(file, is_changed)),
            false => context.out.line(text),
        }
    }

    /// All that is put in, in that order. The first one has the note by which older versions know it.
    fn parts(&self, context: &Context, hooks: &HookConfig) -> Outcome<Vec<Part>> {
        let (state, place) = (&context.project()?.state, self.file(context, hooks)?);
        let install = &hooks.install;
        let contents: Vec<(PathBuf, Content)> = match install.files.is_empty() {
            true => vec![(place, Content::Events(self.events(hooks)?))],
            false => {
                let own = own_program();
                let files = install.files.iter().map(|(name, content)| {
                    (place.join(name), Content::Whole(file_text(content, &own, &own)))
                });
                let lists = install.lists.iter().flat_map(|(file, lists)| {
                    let file = place.join(file);
                    let entry = |(list, entry): (&String, &String)| {
                        Content::Entry(list.clone(), entry.clone())
                    };
                    lists.iter().map(move |named| (file.clone(), entry(named)))
                });
                files.chain(lists).collect()
            }
        };
        let parts = contents.into_iter().enumerate().map(|(index, (file, content))| {
            let suffix = if index == 0 { String::new() } else { format!("-{index}") };
            let guest = install::guest(state, &format!("{}{suffix}", self.note()));
            Part { file, guest, content }
        });
        Ok(parts.collect())
    }

    /// The hooks of the program, with our own command in them.
    fn events(&self, hooks: &HookConfig) -> Outcome<Map<String, Value>> {
        let none = || Failure::refused(format!("{} has no hooks", self.provider.word()));
        let events = Value::from(hooks.events().ok_or_else(none)?.clone());
        let program = own_program();
        let events = filled(&filled(&events, PROGRAM, &program), COMMAND, &program);
        events.as_object().cloned().ok_or_else(none)
    }

    fn file(&self, context: &Context, hooks: &HookConfig) -> Outcome<PathBuf> {
        let none = || Failure::refused(format!("{} has no such file", self.provider.word()));
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let places = &hooks.install;
        if !self.user {
            let place = places.project.as_ref().ok_or_else(none)?;
            return Ok(context.project()?.root().join(place));
        }
        let place = places.user.as_ref().ok_or_else(none)?;
        let own = places.home_variable.as_deref().and_then(variable);
        if let (Some(home), Some((_, last))) = (own, place.rsplit_once('/')) {
            return Ok(PathBuf::from(home).join(last));
        }
        let home = variable("HOME").ok_or_else(|| Failure::usage("HOME is not set"))?;
        Ok(PathBuf::from(home).join(place))
    }
}
