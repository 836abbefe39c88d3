//! Batches of tasks: reading an instruction, and the queue in which Dispatch gets it.

use std::path::Path;

use ensemble_core::Error;
use ensemble_core::message::Name;
use ensemble_core::spool::Spool;
use ensemble_reports::contract::{self, Instruction, Reading};

use crate::App;
use crate::content::content_of;
use crate::diagnostics::say;
use crate::failure::{Failure, Outcome};
use crate::queue::ProjectQueue;

const INSTRUCTION_HINT: &str = "write `type: start_workers`, `tasks:`, and for each task `- id: …` and \
     `instruction: …`; `ensemble admin schema instruction` has all fields";

/// The queue that has the mailbox of Dispatch. While the servers are away, an instruction waits in this host's
/// directory, from where the watcher carries it.
pub fn open_dispatch(app: &App, spool: &Spool) -> Outcome<ProjectQueue> {
    let dispatch = Name::new("dispatch").map_err(Error::from)?;
    let opened = ProjectQueue::open(app).and_then(|queue| {
        queue.ensure(spool, &dispatch)?;
        Ok(queue)
    });
    match opened {
        Err(failure) if failure.is_busy() => {
            say(&format!("{}: kept on this host until they are back", failure.text()));
            Ok(ProjectQueue::in_directory(app.spool()?))
        }
        opened => opened,
    }
}

pub fn read_instruction(file: &Path) -> Outcome<Instruction> {
    let content = content_of(file)?;
    let text = String::from_utf8_lossy(&content);
    match contract::read_as::<Instruction>(&text, file) {
        Ok(Reading::Whole(instruction)) => Ok(instruction),
        Ok(Reading::Foreign) => {
            let text = format!("{} is not an instruction", file.display());
            Err(Failure::usage(text).with_hint(INSTRUCTION_HINT))
        }
        Err(broken) => Err(Failure::usage(broken.to_string()).with_hint(INSTRUCTION_HINT)),
    }
}
