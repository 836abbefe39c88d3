use clap_complete::env::Shells;

use crate::completion::VARIABLE;
use crate::context::{Context, Failure, Outcome};

/// Print a completion script for a shell
///
/// The script asks `ensemble` itself, so that mailboxes are completed, too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(ensemble admin completions bash)            in ~/.bashrc
  source <(ensemble admin completions zsh)             in ~/.zshrc
  ensemble admin completions fish | source             in ~/.config/fish/config.fish
  eval (ensemble admin completions elvish | slurp)     in ~/.config/elvish/rc.elv
  ensemble admin completions powershell | Out-String | Invoke-Expression")]
pub(crate) struct Arguments {
    /// Shell to complete for
    #[arg(value_name = "SHELL", value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let unknown = || Failure::usage(format!("there is no script for `{}`", self.shell));
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell).ok_or_else(unknown)?;
        // Into memory first: the generators do not expect a reader that goes away.
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, "ensemble", "ensemble", "ensemble", &mut script)?;
        context.out.content(&script)
    }
}
