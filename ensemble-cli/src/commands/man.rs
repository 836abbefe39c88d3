use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ensemble_app::text::plural;

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::spellings::described;

/// Show or print the manual of a command, or write a page for each
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble admin man
  ensemble admin man agent join
  ensemble admin man --dir ~/.local/share/man/man1")]
pub(crate) struct Arguments {
    /// The command [default: the program itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write ensemble.1 and a page for each command into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    #[arg(value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context, mut program: clap::Command) -> Outcome {
        program.build();
        let Some(dir) = &self.dir else {
            return show(context, program, &self.command);
        };
        let fail = |error: std::io::Error| {
            Failure::refused(format!("cannot write to {}: {error}", dir.display()))
        };
        std::fs::create_dir_all(dir).map_err(fail)?;
        let written = write_pages(dir, &program, "ensemble")?;
        context.out.print_answer(
            &serde_json::json!({ "dir": dir, "pages": written }),
            format!("wrote {} to {}", plural(written, "page"), dir.display()),
        )
    }
}

fn show(context: &Context, program: clap::Command, words: &[String]) -> Outcome {
    let unknown = || {
        Failure::usage(format!("there is no command `{}`", words.join(" ")))
            .with_hint("`ensemble help --all` lists all")
    };
    let command = described(program, words).ok_or_else(unknown)?;
    let name = command.get_bin_name().unwrap_or("ensemble").replace(' ', "-");
    let page = page(&command.display_name(name))?;
    match std::io::stdout().is_terminal() {
        true => through_man(&page),
        false => context.out.content(&page),
    }
}

fn through_man(page: &[u8]) -> Outcome {
    let fail = |error| {
        let text = format!("cannot run man: {error}");
        Failure::new(VerbExit::MissingProgram, text)
            .with_hint("`ensemble help COMMAND` says the same without it")
    };
    let mut man =
        Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn().map_err(fail)?;
    if let Some(mut stdin) = man.stdin.take() {
        // A reader who leaves early has read enough.
        let _ = stdin.write_all(page);
    }
    man.wait().map_err(fail)?;
    Ok(())
}

/// Writes the page of a command and of all below it; returns how many.
fn write_pages(dir: &Path, command: &clap::Command, name: &str) -> Outcome<u64> {
    let path = dir.join(format!("{name}.1"));
    let fail = |error| Failure::refused(format!("cannot write {}: {error}", path.display()));
    std::fs::write(&path, page(&command.clone().display_name(name.to_owned()))?).map_err(fail)?;
    let mut written = 1;
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        written += write_pages(dir, verb, &format!("{name}-{}", verb.get_name()))?;
    }
    Ok(written)
}

fn page(command: &clap::Command) -> Outcome<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}
