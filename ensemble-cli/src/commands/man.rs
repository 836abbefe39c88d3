//! `ensemble man`: the manual, made from the same words as `--help`.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::text::plural;

/// Print the man page, or write one for each verb
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble man | man -l -
  ensemble man --dir ~/.local/share/man/man1")]
pub(crate) struct Arguments {
    /// Write ensemble.1 and a page for each verb into this directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let mut command = Cli::command();
        let Some(dir) = &self.dir else {
            return context.out.content(&page(&command)?);
        };
        command.build();
        let fail = |error: std::io::Error| {
            Failure::refused(format!("cannot write to {}: {error}", dir.display()))
        };
        std::fs::create_dir_all(dir).map_err(fail)?;
        let written = write_pages(dir, &command, "ensemble")?;
        if context.out.is_json() {
            return context.out.object(&serde_json::json!({ "dir": dir, "pages": written }));
        }
        context.out.line(format!("wrote {} to {}", plural(written, "page"), dir.display()))
    }
}

/// Writes the page of a command and of all below it; says how many.
fn write_pages(dir: &Path, command: &clap::Command, name: &str) -> Outcome<u64> {
    let path = dir.join(format!("{name}.1"));
    let fail = |error| Failure::refused(format!("cannot write {}: {error}", path.display()));
    std::fs::write(&path, page(&command.clone().display_name(name.to_owned()))?).map_err(fail)?;
    let mut written = 1;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        written += write_pages(dir, verb, &format!("{name}-{}", verb.get_name()))?;
    }
    Ok(written)
}

fn page(command: &clap::Command) -> Outcome<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}
