//! The mail of an agent, as the multiplexer of its pane shows it beside the agent.

use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_tmux::terminal::hosted::MailCount;

/// How often an unchanged count is sent again, before it expires there.
const REPEAT_INTERVAL: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, Default)]
pub(crate) struct SidebarMail {
    pub(crate) held: u64,
    /// The count that was sent last, and when.
    sent: Option<(MailCount, Monotonic)>,
}

impl SidebarMail {
    /// The count to send now; `None` if it was sent lately.
    pub(crate) fn mail_to_show(&mut self, now: Monotonic, unread: u64) -> Option<MailCount> {
        let mail = MailCount { unread, held: self.held };
        let is_shown =
            self.sent.is_some_and(|(sent, at)| sent == mail && now.since(at) < REPEAT_INTERVAL);
        if is_shown {
            return None;
        }
        self.sent = Some((mail, now));
        Some(mail)
    }
}
