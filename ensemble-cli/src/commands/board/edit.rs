use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use ensemble_core::{Error, durable};
use ensemble_team::board::BoardError;
use serde_json::json;

use crate::context::{Context, Failure, Outcome, VerbExit};

const EDITED_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(super) fn edit(context: &Context, editor: Option<String>) -> Outcome {
    let editor = editor.or_else(editor_of_user).ok_or_else(|| {
        Failure::usage("no editor is known").with_hint("set EDITOR, or use `--editor COMMAND`")
    })?;
    let board = context.board()?;
    let draft = board.draft()?;
    let directory = board.path().parent().unwrap_or_else(|| Path::new("."));
    // Without a lock: a person may take hours.
    let mut copy = tempfile::Builder::new()
        .prefix("state.edit.")
        .suffix(".yaml")
        .tempfile_in(directory)
        .map_err(|error| failed("create a copy in", directory, &error))?;
    copy.write_all(draft.text().as_bytes())
        .map_err(|error| failed("write", copy.path(), &error))?;
    let path = copy.into_temp_path();
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(&path)
        .status()
        .map_err(|error| failed("start the editor for", &path, &error))?;
    let broken = || Failure::refused(format!("the editor failed: {status}"));
    let edited = durable::read_file(&path, EDITED_BYTES_MAX)?.unwrap_or_default();
    let outcome = match String::from_utf8(edited) {
        Ok(text) if text == draft.text() => {
            return if status.success() { print_revision(context, None) } else { Err(broken()) };
        }
        Ok(_) if !status.success() => Err(broken()),
        Ok(text) => draft.apply(&board, &text).map_err(|error| match error.into_area() {
            Ok(BoardError::Invalid { violations, .. }) => {
                let lines = violations.iter().map(|v| format!("\n  {v}")).collect::<String>();
                Failure::new(VerbExit::Corrupt, format!("the edited copy breaks rules:{lines}"))
            }
            Ok(other) => Failure::from(Error::from(other)),
            Err(other) => Failure::from(other),
        }),
        Err(_) => Err(Failure::new(VerbExit::Corrupt, "the edited copy is not UTF-8")),
    };
    match outcome {
        Ok(state) => print_revision(context, state.map(|state| state.revision)),
        Err(failure) => {
            let kept = path
                .keep()
                .map_err(|error| Failure::refused(format!("cannot keep the copy: {error}")))?;
            Err(failure
                .with_hint(format!("the board is as it was; your copy is {}", kept.display())))
        }
    }
}

fn print_revision(context: &Context, revision: Option<u64>) -> Outcome {
    let said = revision.map(|revision| format!("changed, revision {revision}"));
    let object = json!({ "revision": revision, "changed": revision.is_some() });
    context.out.print_answer(&object, said.as_deref().unwrap_or("not changed"))
}

fn editor_of_user() -> Option<String> {
    let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    ["VISUAL", "EDITOR"].iter().find_map(set)
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(format!("cannot {what} {}: {error}", path.display()))
}
