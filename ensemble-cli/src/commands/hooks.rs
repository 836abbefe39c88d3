//! `ensemble hooks`: hooks for agents that a person starts.

use std::path::PathBuf;

use ensemble_tmux::provider::{COMMAND, HookConfig, PROGRAM, filled};
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::hooks::{Program, install};
use crate::own_program::own_program;

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
  ensemble hooks install --provider claude
  ensemble hooks install --provider codex --user")]
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
        let events = self.which.events(profile.hooks())?;
        if self.print {
            let text = format!("{:#}\n", json!({ "hooks": events }));
            return context.out.content(text.as_bytes());
        }
        let file = self.which.file(context, profile.hooks())?;
        project.ensure_state()?;
        let guest = install::guest(&project.state, &self.which.note());
        let is_changed = guest.put_in(&file, |text| install::with_hooks(text, &events))?;
        if context.out.is_json() {
            return context.out.object(&self.which.object(&file, is_changed));
        }
        context.out.line(match is_changed {
            true => format!("added hooks to {}", file.display()),
            false => format!("the hooks are in {} already", file.display()),
        })?;
        if is_changed && profile.hooks().asks_trust {
            let program = self.which.provider.word();
            context.out.line(format!("{program} asks at its next start whether you trust them"))?;
        }
        Ok(())
    }
}

impl Uninstall {
    fn run(self, context: &Context) -> Outcome {
        let guest = install::guest(&context.project()?.state, &self.which.note());
        let (file, is_changed) = guest.take_out()?;
        if context.out.is_json() {
            return context.out.object(&self.which.object(&file, is_changed));
        }
        context.out.line(match is_changed {
            true => format!("{} is as it was without the hooks", file.display()),
            false => format!("the hooks were not in {} any more", file.display()),
        })
    }
}

impl Which {
    /// The name of the note of what was done.
    fn note(&self) -> String {
        format!("{}-{}", self.provider.word(), if self.user { "user" } else { "project" })
    }

    fn object(&self, file: &std::path::Path, is_changed: bool) -> Value {
        json!({ "provider": self.provider.word(), "file": file, "changed": is_changed })
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
