//! Mail as all doors use it: verbs, MCP, the API and hooks.

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
