//! Mail as all doors use it: verbs, MCP, the API and hooks.
//!
//! | file | what it is |
//! |---|---|
//! | `awaiting` | waiting for the answer to a message |
//! | `delivered` | what an agent reads with a message |
//! | `conversation` | what the person reads |
//! | `elsewhere` | addresses in other projects |
//! | `message_view` | a message as every door shows it |
//! | `outgoing` | where a message goes: a mailbox, or the outbox of this host |
//! | `recalling` | taking back what was not read yet |
//! | `receiving` | waiting for a message, and why there is none |
//! | `replying` | answers to messages |
//! | `readers` | whether a mailbox has a reader now |
//! | `sending` | who gets a message, and its headers |
//! | `settling` | the end of a message, by a settle or a report |
//! | `answers` | answers to requests that travel as messages |

pub mod answers;
pub mod awaiting;
pub mod conversation;
pub mod delivered;
pub mod elsewhere;
pub mod message_view;
pub mod outgoing;
pub mod readers;
pub mod recalling;
pub mod receiving;
pub mod replying;
pub mod sending;
pub mod settling;
