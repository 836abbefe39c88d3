use std::path::Path;

use ensemble_app::agent_program::AgentProgram;
use ensemble_app::hook_files::{HookPart, HookTarget};
use serde_json::json;

use crate::context::{Context, Outcome, VerbExit};

/// Install hooks for agents that you start yourself
///
/// `up` and `agent start` need none of this: they pass hooks to the agents that they start.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Install(InstallHooks),
    /// Remove Ensemble's hooks from an agent's configuration
    Uninstall(HooksChoice),
}

/// Add hooks to an agent's configuration
///
/// Hooks of others stay, and run as well; `uninstall` restores the file byte for byte. The program then runs
/// `ensemble hook` in every project. Outside of a project, and for programs that are not agents, it says nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble admin hooks install --provider claude
  ensemble admin hooks install --provider codex --user")]
struct InstallHooks {
    #[command(flatten)]
    which: HooksChoice,
    /// Print the hooks instead
    #[arg(long)]
    print: bool,
}

#[derive(Debug, clap::Args)]
struct HooksChoice {
    /// Program whose configuration to change
    #[arg(long, value_name = "PROVIDER")]
    provider: AgentProgram,
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
            Verb::Uninstall(which) => uninstall(context, &which),
        }
    }
}

impl InstallHooks {
    fn run(self, context: &Context) -> Outcome {
        let profile = context.project()?.profiles()?.get(self.which.provider.word())?;
        let parts = self.which.target().parts(context, profile.hooks())?;
        if self.print {
            let entry: String = parts.iter().map(HookPart::printed).collect();
            let object = json!({ "provider": self.which.provider.word(), "entry": entry });
            return context.out.print_text(&object, &entry);
        }
        context.existing_project()?.ensure_state()?;
        let mut is_any_changed = false;
        for part in &parts {
            let is_changed = part.put_in()?;
            is_any_changed |= is_changed;
            let file = part.file.display();
            let text = match is_changed {
                true => format!("added hooks to {file}"),
                false => format!("the hooks are already in {file}"),
            };
            self.which.say(context, &part.file, is_changed, &text)?;
        }
        if is_any_changed && profile.hooks().asks_trust && !context.out.is_json() {
            let program = self.which.provider.word();
            context.out.line(format!("{program} asks at its next start whether you trust them"))?;
        }
        Ok(())
    }
}

fn uninstall(context: &Context, which: &HooksChoice) -> Outcome {
    let profile = context.project()?.profiles()?.get(which.provider.word())?;
    let (mut is_any_here, mut missing) = (false, None);
    // Remove references to our files before the files.
    for part in which.target().parts(context, profile.hooks())?.iter().rev() {
        let (file, is_changed) = match part.take_out() {
            // The installation failed before this part.
            Err(failure) if failure.exit() == VerbExit::Nothing => {
                missing = Some(failure);
                continue;
            }
            taken => taken?,
        };
        is_any_here = true;
        let text = match is_changed {
            true => format!("{} is as it was without the hooks", file.display()),
            false => format!("the hooks were no longer in {}", file.display()),
        };
        which.say(context, &file, is_changed, &text)?;
    }
    missing.filter(|_| !is_any_here).map_or(Ok(()), Err)
}

impl HooksChoice {
    const fn target(&self) -> HookTarget {
        HookTarget { program: self.provider, is_of_user: self.user }
    }

    fn say(&self, context: &Context, file: &Path, is_changed: bool, text: &str) -> Outcome {
        let provider = self.provider.word();
        let object = json!({ "provider": provider, "file": file, "changed": is_changed });
        context.out.print_answer(&object, text)
    }
}
