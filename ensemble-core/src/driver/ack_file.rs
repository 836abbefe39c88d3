//! Who has written an `ack/` file.
//!
//! | its first line with text | means |
//! |---|---|
//! | the name of a mailbox, in any case | that agent |
//! | a number | `worker-N`, as in a report, if there is such a mailbox |
//! | anything else, or nothing | the agent that has the task, which the file's name says |
//!
//! Quotes, a byte order mark, `worker_id:` and `Ack from` before a name are left out.

use crate::message::Name;
use crate::message::fields::agent_among;

/// Fields by which a line names its agent.
const FIELDS: [&str; 6] = ["worker_id", "worker", "agent", "from", "by", "name"];
/// Words that may be before a name.
const WORDS: [&str; 6] = ["ack", "acked", "acknowledged", "from", "by", "agent"];

/// The agent that an `ack/` file names among these mailboxes; `None` if it names none of them.
pub fn ack_signer<'a>(content: &[u8], mailboxes: &'a [Name]) -> Option<&'a Name> {
    let text = String::from_utf8_lossy(content);
    let line = text.trim_start_matches('\u{feff}').lines().find(|line| !line.trim().is_empty())?;
    let is_mark = |c: char| c.is_whitespace() || ['"', '\'', '`', '.', '!', ','].contains(&c);
    let value = line.split_once([':', '：']).filter(|(field, _)| {
        FIELDS.iter().any(|known| field.trim_matches(is_mark).eq_ignore_ascii_case(known))
    });
    let mut words = value.map_or(line, |(_, value)| value).split_whitespace();
    let is_said = |word: &&str| {
        WORDS.iter().any(|known| word.trim_matches([':', '：', ',']).eq_ignore_ascii_case(known))
    };
    agent_among(words.by_ref().find(|word| !is_said(word))?, mailboxes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_named_as_agents_write_it() {
        let mailboxes = ["worker-1", "cora"].map(|name| Name::new(name).unwrap());
        let signer = |text: &str| ack_signer(text.as_bytes(), &mailboxes).map(Name::as_str);
        for text in [
            "worker-1",
            "\u{feff}worker-1",
            "worker_id: \"worker-1\"\ntime: now",
            "Ack from worker-1.",
            "ACK: worker-1",
            "worker_id：worker-1",
            "worker_id: 1",
        ] {
            assert_eq!(signer(text), Some("worker-1"), "{text:?}");
        }
        for text in ["", "\n", "ack", "ACK", "ok", "2026-11-28T10:00:00Z", "7", "I have read it"] {
            assert_eq!(signer(text), None, "{text:?}");
        }
    }
}
