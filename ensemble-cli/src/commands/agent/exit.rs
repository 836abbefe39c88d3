use ensemble_app::acting;
use ensemble_app::board_agents::directory_of;
use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_team::board::SignContent;
use ensemble_team::driver::supervise::seated;
use serde_json::json;

use crate::context::Context;

/// Announce your exit status, and exit with it
///
/// For programs that cannot choose their own exit status: the supervisor replaces the program's 0
/// or 42 with the announced status. An agent without a supervisor is unregistered at once, and its
/// work is released.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: exec ensemble agent exit 42")]
pub(super) struct AnnounceExit {
    /// 0: done; 42: a fresh agent should continue; 1: something is wrong
    #[arg(value_name = "CODE", default_value = "0", value_parser = ["0", "1", "42"])]
    code: String,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl AnnounceExit {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let board = context.board()?;
        let state = board.read()?;
        let agent = acting::check_registered(context, &state)?;
        let code: i32 = self.code.parse().unwrap_or(1);
        let directory = directory_of(&board);
        let is_supervised = seated(directory, &agent.by)?
            .is_some_and(|(seated, lives)| lives && seated.epoch == Some(agent.epoch));
        match is_supervised {
            true => {
                let say = SignContent::Leaving { code, reason: &self.reason };
                board.give_sign(&agent, &say, state.config.lease_duration())?;
            }
            false => {
                let reason = Some(self.reason.as_str()).filter(|reason| !reason.is_empty());
                let mut locked = board.lock()?;
                locked.unregister(&agent, reason.unwrap_or("it has ended"))?;
                locked.commit()?;
            }
        }
        let how = if is_supervised { "said so to its supervisor" } else { "unregistered" };
        let at = SystemClock.wall();
        let object =
            json!({ "agent": agent.by, "code": code, "at": at, "supervised": is_supervised });
        context.out.print_answer(&object, format!("{} ends with {code}: {how}", agent.by))?;
        let text = if self.reason.is_empty() { format!("exit {code}") } else { self.reason };
        match code {
            0 => Ok(()),
            42 => Err(Failure::new(VerbExit::Aborted, text)),
            _ => Err(Failure::refused(text)),
        }
    }
}
