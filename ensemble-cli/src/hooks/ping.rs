//! Delivers the ping of a handshake to an agent through its hooks.
//!
//! | the agent | receives it from |
//! |---|---|
//! | works | the hook after its next tool: nothing can be typed there |
//! | is idle, and a waiter of its session lives | the waiter; nothing is typed for the first attempt |
//! | is idle otherwise | a typed line |
//!
//! The file `.ensemble/ready/NAME.ping` exists while an answer is expected. Each ping is delivered once. The agent
//! answers with `ensemble agent pong`, as to a typed one.

use ensemble_core::driver::PongBox;
use ensemble_core::proto::ready::Ping;
use ensemble_tmux::session::AgentSession;

use super::{Event, Hook};

pub(super) struct AwaitedPing {
    ping: Ping,
    /// Which one of all: attempts are counted again in each handshake.
    mark: String,
}

impl AwaitedPing {
    pub(super) fn untold(hook: &Hook<'_>, session: Option<&AgentSession>) -> Option<Self> {
        if !matches!(hook.event, Event::Tool | Event::Wait) || hook.input.is_subagent() {
            return None;
        }
        let place = hook.context.project().ok()?.ready();
        let written =
            std::fs::metadata(place.join(format!("{}.ping", hook.agent))).ok()?.modified().ok()?;
        let ping = PongBox::open(place).ok()?.asked(&hook.agent).ok().flatten()?;
        let since = written.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos();
        let mark = format!("{} {since}", ping.attempt);
        let is_told = session.is_some_and(|session| session.pinged.as_ref() == Some(&mark));
        (!is_told && ping.worker == hook.agent).then_some(Self { ping, mark })
    }

    pub(super) fn text(&self) -> String {
        let Ping { worker, attempt } = &self.ping;
        format!(
            "[ensemble] {}: can you take an assignment now? If so, answer at once: `ensemble agent pong {worker} {attempt}`\n",
            self.ping
        )
    }

    pub(super) fn mark_told(self, session: &mut AgentSession) {
        session.pinged = Some(self.mark);
        session.mark_hand_over();
    }
}
