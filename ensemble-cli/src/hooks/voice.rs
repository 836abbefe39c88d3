//! How our words reach an agent: as the answer of its hook, or through its server.

use std::io::Write as _;

use ensemble_app::failure::Outcome;
use ensemble_tmux::session::DeliveryWay;

use super::carry::CarriedMail;
use super::{Event, Hook, answer};

pub(super) trait Voice {
    /// Says `said` to the agent and `shown` to the person at its screen. Once this has returned, the words have left
    /// this process.
    fn say(&self, hook: &Hook<'_>, said: &str, shown: &str) -> Outcome;

    /// Pid and start of the agent's process, where this process need not be below it.
    fn process(&self) -> Option<(u32, u64)> {
        None
    }

    /// Whether messages themselves may be said this way, or only that they wait.
    fn hands_over(&self, _: DeliveryWay) -> bool {
        true
    }

    /// Takes mail that was said and that the agent may still miss; returns mail that has arrived.
    fn await_arrival(&self, _: &Hook<'_>, mail: CarriedMail) -> Option<CarriedMail> {
        Some(mail)
    }
}

/// The answer of a hook on stdout. A waiter speaks on stderr.
pub(super) struct HookAnswer;

impl Voice for HookAnswer {
    fn say(&self, hook: &Hook<'_>, said: &str, shown: &str) -> Outcome {
        if hook.event == Event::Wait {
            let mut stderr = std::io::stderr().lock();
            stderr.write_all(said.as_bytes())?;
            return Ok(stderr.flush()?);
        }
        let name = hook.input.name.as_deref();
        let object = answer::object(hook.program, hook.event, name, said, shown);
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{object}")?;
        Ok(stdout.flush()?)
    }
}
