//! Mail as all doors use it: verbs, MCP, the API and hooks.
//!
//! | file | what it is |
//! |---|---|
//! | `delivered` | what an agent reads with a message |
//! | `conversation` | what the person reads |
//! | `listing` | messages of a mailbox as they are listed |
//! | `replying` | answers to messages |
//! | `readers` | whether a mailbox has a reader now |
//! | `settling` | the end of a message, by a settle or a report |
//! | `answers` | answers to requests that travel as messages |

pub(crate) mod answers;
pub(crate) mod conversation;
pub(crate) mod delivered;
pub(crate) mod listing;
pub(crate) mod readers;
pub(crate) mod replying;
pub(crate) mod settling;
